"""Whatever is changed in a ledger is found, at its number: by anybody for bytes, by replay for what was re-signed."""

import sys
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from events import checkpoint
from events.ledger import LedgerReader
from replay.report import Report
from replay.verify import verify

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import forging
import ledgers


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    town = ledgers.history(tmp_path_factory.mktemp("history") / "data", jobs_run=13)
    town.close()
    return town.path


@pytest.fixture
def copied(ledger, tmp_path):
    return forging.copy(ledger, tmp_path / "copy")


def positions(path: Path, kind: str) -> list[int]:
    with LedgerReader(path) as reader:
        return [stored.pos for stored in reader.page(0, 1000) if stored.type == kind]


def wrong(report: Report) -> tuple[int, int | None, str]:
    failed = report.failed
    assert failed is not None
    assert failed.wrong is not None
    return failed.number, failed.wrong.pos, failed.wrong.reason


def test_an_honest_ledger_passes_every_level(ledger):
    report = verify(ledger)
    assert [level.state for level in report.levels] == ["passed"] * 4, report.as_dict()
    assert report.levels[0].checked == report.size >= 300
    scored = sum(len(positions(ledger, kind)) for kind in ("score.recorded", "score.revised", "weights.snapshot"))
    assert report.levels[3].checked == scored
    assert not report.levels[1].withheld
    assert not report.levels[2].withheld
    for kind in ("score.revised", "policy.adopted", "metagraph.part", "node.suspended", "command.refused"):
        assert positions(ledger, kind), kind


def test_one_flipped_byte_of_any_entry_is_found_at_its_number(copied):
    for pos, entry in enumerate(forging.entries(copied), 1):
        at = (pos * 7919) % len(entry)
        flipped = entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :]
        forging.execute(copied, "UPDATE event SET entry = ? WHERE pos = ?", flipped, pos)
        level, found, reason = wrong(verify(copied))
        assert (level, found) == (1, pos), reason
        forging.execute(copied, "UPDATE event SET entry = ? WHERE pos = ?", entry, pos)
    assert verify(copied, level=1).ok


@pytest.mark.parametrize(
    ("column", "value"), [("version", 77), ("cmd_id", b"\x01" * 16), ("chain", b"\x02" * 32), ("sid", 9999)]
)
def test_a_column_that_differs_from_the_entry_is_found(copied, column, value):
    pos = positions(copied, "job.submitted")[3]
    forging.execute(copied, f"UPDATE event SET {column} = ? WHERE pos = ?", value, pos)
    assert wrong(verify(copied))[:2] == (1, pos)


def test_a_kind_that_differs_from_the_entry_is_found(copied):
    pos = positions(copied, "job.submitted")[3]
    forging.execute(copied, "UPDATE event SET kind = 1 WHERE pos = ?", pos)
    assert wrong(verify(copied))[:2] == (1, pos)


def test_a_missing_event_in_the_middle_is_found(copied):
    forging.execute(copied, "DELETE FROM event WHERE pos = 57")
    assert wrong(verify(copied))[:2] == (1, 57)


def test_a_change_before_a_gap_is_found_first(copied):
    forging.execute(copied, "UPDATE event SET version = 99 WHERE pos = 20")
    forging.execute(copied, "DELETE FROM event WHERE pos = 57")
    assert wrong(verify(copied))[:2] == (1, 20)


def test_a_cut_tail_is_found_with_a_saved_checkpoint(copied):
    with LedgerReader(copied) as reader:
        saved, size = reader.checkpoints()[-1], reader.size()
    forging.execute(copied, "DELETE FROM event WHERE pos = ?", size)
    forging.execute(copied, "DELETE FROM checkpoint")
    assert wrong(verify(copied, checkpoint=saved))[:2] == (1, size)


def test_a_saved_checkpoint_of_another_history_is_found(ledger):
    with LedgerReader(ledger) as reader:
        size = reader.size()
    other = checkpoint.sign(ledgers.ORIGIN, size - 10, b"\x05" * 32, ledgers.LEDGER_KEY)
    assert wrong(verify(ledger, checkpoint=other))[:2] == (1, size - 10)


def test_a_checkpoint_or_a_key_of_somebody_else_is_refused(ledger):
    stranger = SigningKey(b"\x09" * 32)
    with LedgerReader(ledger) as reader:
        root = reader.tree().root()
        note = checkpoint.sign(ledgers.ORIGIN, reader.size(), root, stranger)
    assert wrong(verify(ledger, checkpoint=note))[0] == 1
    assert wrong(verify(ledger, key=bytes(stranger.verify_key).hex()))[:2] == (1, 1)


def test_a_stored_checkpoint_with_a_bad_signature_is_found(copied):
    with LedgerReader(copied) as reader:
        root, size = reader.tree().root(), reader.size()
    note = checkpoint.sign(ledgers.ORIGIN, size, root, SigningKey(b"\x09" * 32))
    forging.execute(copied, "UPDATE checkpoint SET note = ? WHERE size = ?", note, size)
    level, pos, reason = wrong(verify(copied))
    assert (level, pos) == (1, size)
    assert "signature" in reason


def rewritten(path: Path, change: forging.Change) -> Report:
    """The report on a ledger whose operator changed it and signed it anew; its bytes are beyond reproach."""
    forging.rewrite(path, ledgers.ORIGIN, ledgers.LEDGER_KEY, change)
    assert verify(path, level=1).ok
    with LedgerReader(path) as reader:
        note = reader.checkpoints()[-1]
    return verify(path, checkpoint=note, key=bytes(ledgers.LEDGER_KEY.verify_key).hex())


def test_nothing_rewritten_stays_sound(copied):
    assert rewritten(copied, lambda pos, entry: None).ok


def test_a_score_raised_by_the_operator_is_found_by_level_4(copied):
    pos = positions(copied, "score.recorded")[2]

    def raised(number, entry):
        if number == pos:
            entry["data"]["score"]["efficiency_ppm"] += 1

    level, found, reason = wrong(rewritten(copied, raised))
    assert (level, found) == (4, pos)
    assert "efficiency_ppm" in reason


def test_weights_changed_by_the_operator_are_found_by_level_4(copied):
    pos = positions(copied, "weights.snapshot")[3]

    def shifted(number, entry):
        if number == pos:
            entry["data"]["weights"][0]["ppm"] -= 1
            entry["data"]["weights"][1]["ppm"] += 1

    assert wrong(rewritten(copied, shifted))[:2] == (4, pos)


def test_a_placement_changed_by_the_operator_is_found_by_level_3(copied):
    pos = next(
        pos for pos in positions(copied, "attempt.placed") if len(ledgers.decoded(copied, pos)["data"]["nodes"]) > 1
    )

    def swapped(number, entry):
        if number == pos:
            entry["data"]["nodes"].reverse()

    level, found, reason = wrong(rewritten(copied, swapped))
    assert (level, found) == (3, pos)
    assert "nodes" in reason


def test_a_better_bandwidth_than_the_transcript_shows_is_found_by_level_3(copied):
    pos = positions(copied, "attempt.running")[1]

    def faster(number, entry):
        if number == pos:
            entry["data"]["measured_bytes_per_s"] *= 2
            body = entry["command"]["body"]
            measured = str(entry["data"]["measured_bytes_per_s"] // 2)
            assert measured in body
            entry["command"]["body"] = body.replace(measured, str(entry["data"]["measured_bytes_per_s"]))

    level, found, reason = wrong(rewritten(copied, faster))
    assert (level, found) == (3, pos)
    assert "transcript" in reason


def test_without_its_evidence_a_measurement_is_withheld_not_passed_over(ledger, tmp_path):
    path = forging.copy(ledger, tmp_path / "bare")
    for blob in (path.parent / "blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()
    report = verify(path)
    assert report.ok
    assert report.levels[2].withheld["transcript that is not beside the ledger"] == len(
        positions(ledger, "attempt.running")
    )


def test_a_changed_request_is_found_by_level_2(copied):
    pos = positions(copied, "lease.started")[0]

    def other_path(number, entry):
        if number == pos:
            entry["command"]["text"] = entry["command"]["text"].replace("/rent", "/Rent")

    level, found, _ = wrong(rewritten(copied, other_path))
    assert (level, found) == (2, pos)


@pytest.mark.parametrize("kind", ["provider.registered", "lease.started", "command.refused"])
def test_a_request_of_somebody_else_is_found_by_level_2(copied, kind):
    pos = positions(copied, kind)[0]
    stranger = ledgers.person("a stranger").hotkey

    def stolen(number, entry):
        if number == pos:
            entry["actor"] = stranger

    assert wrong(rewritten(copied, stolen))[:2] == (2, pos)


def test_a_dropped_command_is_found(copied):
    """A tail cannot be rewritten without its missing command showing in what follows from it."""
    pos = positions(copied, "command.noted")[0]

    def renamed(number, entry):
        if number == pos:
            entry["data"]["subject"] = "somebody else"

    assert wrong(rewritten(copied, renamed))[:2] == (3, pos)
