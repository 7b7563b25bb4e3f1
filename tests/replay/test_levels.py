"""What the levels say about things that are not wrong, and about input they cannot use."""

import hashlib
import sys
from pathlib import Path

import pytest

from events.errors import NotALedger
from events.hashing import EMPTY_ROOT
from events.merkle import Tree
from replay.frontier import Frontier
from replay.report import Level, Report
from replay.verify import BadInput, verify

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import forging
import ledger_files
import ledgers


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    town = ledgers.history(tmp_path_factory.mktemp("levels") / "data", jobs_run=1)
    town.close()
    return town.path


def test_the_frontier_gives_every_root_of_the_tree():
    frontier, tree = Frontier(), Tree()
    assert frontier.root() == EMPTY_ROOT
    for number in range(300):
        leaf = hashlib.sha256(str(number).encode()).digest()
        frontier.append(leaf)
        tree.append(leaf)
        assert frontier.root() == tree.root()
    assert frontier.size == 300


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_a_level_is_run_only_if_it_was_asked_for(ledger, level):
    report = verify(ledger, level=level)
    assert [found.state for found in report.levels] == ["passed"] * level


def test_progress_reaches_the_end_of_each_pass(ledger):
    seen = {}

    def note(level, done, total):
        assert 0 < done <= total
        seen[level] = (done, total)

    report = verify(ledger, progress=note)
    assert seen == dict.fromkeys((1, 2, 3), (report.size, report.size))


def test_a_later_level_is_not_run_after_a_wrong_one(ledger, tmp_path):
    path = forging.copy(ledger, tmp_path / "copy")
    forging.execute(path, "UPDATE event SET chain = zeroblob(32) WHERE pos = 3")
    report = verify(path)
    assert [level.state for level in report.levels] == ["failed", "not run", "not run", "not run"]
    assert report.levels[0].checked == 2


def test_the_first_wrong_number_stays():
    level = Level(1)
    level.found_wrong(7, "seven")
    level.found_wrong(9, "nine")
    level.found_wrong(3, "three")
    assert level.wrong is not None
    assert level.wrong.pos == 3
    assert not Report(ledger="x", levels=[level]).ok


def test_decisions_under_other_rules_are_named_with_their_release(ledger, tmp_path):
    path = forging.copy(ledger, tmp_path / "copy")

    def older(pos, entry):
        entry["rules"] = 7
        if entry["type"] == "rules.activated":
            entry["data"] = {"rules": 7, "release": "9.9.9"}

    forging.rewrite(path, ledgers.ORIGIN, ledgers.LEDGER_KEY, older)
    report = verify(path)
    assert report.ok
    assert report.rules == {7: "9.9.9"}
    assert report.levels[2].checked == 0
    assert report.levels[2].unverifiable["decided under rules 7"] > 0


def grander(pos, entry):
    """A node's claim made grander, in the command and in its event alike."""
    if entry["type"] == "node.registered":
        entry["command"]["public"] = entry["command"]["public"].replace('"gpu_count":', '"cpu_cores":7,"gpu_count":')
        entry["data"]["facts"]["cpu_cores"] = 7


def test_a_sealed_body_is_compared_with_the_signed_one_by_who_holds_the_private_file(ledger, tmp_path):
    path = forging.copy(ledger, tmp_path / "copy")
    forging.rewrite(path, ledgers.ORIGIN, ledgers.LEDGER_KEY, grander)
    report = verify(path)
    assert [level.state for level in report.levels] == ["passed", "failed", "not run", "not run"]
    assert "says something else" in report.levels[1].wrong.reason
    for file in path.parent.glob("private.sqlite3*"):
        file.unlink()
    without = verify(path)
    assert without.ok
    assert without.levels[1].withheld["body with private fields"] > 0


def test_bodies_with_private_fields_are_checked_where_the_private_file_is(ledger):
    report = verify(ledger)
    assert report.ok
    assert "body with private fields" not in report.levels[1].withheld


def test_events_that_no_command_explains_are_found(tmp_path):
    """Sound bytes by a program that appends what it likes."""
    ledger = ledger_files.new_ledger(tmp_path / "challenge.sqlite3")
    ledger_files.fill(ledger, 20)
    ledger.close()
    report = verify(tmp_path / "challenge.sqlite3")
    assert [level.state for level in report.levels] == ["passed", "failed", "not run", "not run"]


def test_a_ledger_that_is_being_written_can_be_verified(tmp_path):
    town = ledgers.history(tmp_path / "data", jobs_run=1)
    try:
        note = town.ledger.checkpoint()
        report = verify(town.path, checkpoint=note)
        assert report.ok
        assert report.size == report.checkpoint == town.ledger.size
    finally:
        town.close()


def test_what_cannot_be_read_is_refused(ledger, tmp_path):
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "nothing")
    (tmp_path / "text").write_text("no ledger" * 100)
    with pytest.raises(NotALedger):
        verify(tmp_path / "text")
    for wrong in ({"key": "zz"}, {"checkpoint": "no note"}, {"level": 5}, {"level": 0}):
        with pytest.raises(BadInput):
            verify(ledger, **wrong)
