"""Events and verification on a ledger file, through the command line."""

import json
import sys
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from events import registry
from events.ledger import LedgerReader
from hypercluster.cli.describe import describe
from hypercluster.cli.main import run
from hypercluster.domain.codes import Exit

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import forging
import ledgers


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    town = ledgers.history(tmp_path_factory.mktemp("cli") / "data", jobs_run=2)
    town.close()
    return town.path


def answer(capfd, *argv: str) -> str:
    assert run([str(word) for word in argv]) == Exit.DONE, capfd.readouterr().err
    out, err = capfd.readouterr()
    assert err == ""
    return out


def test_events_are_listed_in_order_one_line_each(capfd, ledger):
    lines = answer(capfd, "events", "list", "--ledger", ledger, "--limit", "1000").splitlines()
    with LedgerReader(ledger) as reader:
        assert len(lines) == reader.size()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert "2025-12-01T00:00:00Z" in lines[0]


def test_events_can_be_chosen_by_type_and_paged(capfd, ledger):
    found = json.loads(answer(capfd, "events", "list", "--ledger", ledger, "--type", "lease.*", "-o", "json"))
    assert [item["type"] for item in found["items"]] == ["lease.started", "lease.started", "lease.ended"]
    after = found["items"][0]["seq"]
    page = answer(
        capfd,
        "events",
        "list",
        "--ledger",
        ledger,
        "--type",
        "lease.*",
        "--after",
        after,
        "--limit",
        "1",
        "-o",
        "ndjson",
    )
    assert [json.loads(line)["seq"] for line in page.splitlines()] == [found["items"][1]["seq"]]


def test_one_event_is_shown_with_its_leaf(capfd, ledger):
    shown = json.loads(answer(capfd, "events", "show", "1", "--ledger", ledger))
    assert shown["type"] == "ledger.opened"
    assert shown["entry"]["data"] == shown["data"]
    assert run(["events", "show", "99999", "--ledger", str(ledger)]) == Exit.NOT_FOUND


def test_watch_gives_what_is_there_and_stops_at_its_limit(capfd, ledger):
    lines = answer(
        capfd, "events", "watch", "--ledger", ledger, "--after", "2", "--limit", "3", "-o", "ndjson"
    ).splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [3, 4, 5]


def test_verify_prints_its_report(capfd, ledger):
    report = json.loads(answer(capfd, "replay", "verify", ledger, "-o", "json"))
    assert report["ok"] is True
    assert report["key_source"] == "the ledger itself"
    assert [level["state"] for level in report["levels"]] == ["passed"] * 4
    text = answer(capfd, "replay", "verify", ledger, "--key", report["key"], "--level", "2")
    assert "(given)" in text
    assert "scores" not in text


def test_verify_with_a_saved_checkpoint(capfd, ledger, tmp_path):
    note = tmp_path / "note.txt"
    with LedgerReader(ledger) as reader:
        note.write_text(reader.checkpoints()[-1])
    report = json.loads(answer(capfd, "replay", "verify", ledger, "--checkpoint", note, "-o", "json"))
    assert report["checkpoint_size"] == report["size"]


def test_a_forged_ledger_ends_with_nine_and_its_number(capfd, ledger, tmp_path):
    path = forging.copy(ledger, tmp_path / "copy")
    forging.execute(path, "UPDATE event SET chain = zeroblob(32) WHERE pos = 12")
    assert run(["replay", "verify", str(path)]) == Exit.INTEGRITY
    out, err = capfd.readouterr()
    assert out == ""
    assert "event 12" in err
    assert run(["replay", "verify", str(path), "-o", "json"]) == Exit.INTEGRITY
    out, err = capfd.readouterr()
    assert json.loads(out)["levels"][0]["first_wrong"]["pos"] == 12
    assert json.loads(err)["error"]["exit"] == 9


@pytest.mark.parametrize("option", [["--key", "zz"], ["--checkpoint", "NOTE"], ["--level", "9"]])
def test_wrong_input_beside_the_ledger_is_usage(capfd, ledger, tmp_path, option):
    note = tmp_path / "note.txt"
    note.write_text("no note")
    argv = [str(note) if word == "NOTE" else word for word in option]
    assert run(["replay", "verify", str(ledger), *argv]) == Exit.USAGE
    assert capfd.readouterr().out == ""


def test_what_is_no_ledger_is_usage(capfd, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello " * 1000)
    assert run(["replay", "verify", str(path)]) == Exit.USAGE
    assert "not_a_ledger" in capfd.readouterr().err


def sample(kind: Any) -> Any:
    """Some value of this type, every optional field given."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.name: sample(field.type) for field in msgspec.structs.fields(kind)}
    inner = [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if get_origin(kind) is tuple:
        return [sample(inner[0])]
    if get_origin(kind) is dict:
        return {"key": sample(inner[1])}
    if inner:
        return sample(inner[0])
    return {str: "a-value-of-some-length", int: 3_000_000, bool: True}[kind]


@pytest.mark.parametrize("name", sorted(registry.known_types()))
def test_every_event_type_has_a_sentence(name):
    cls = registry.known_types()[name]
    sentence = describe(msgspec.convert(sample(cls), cls))
    assert 10 < len(sentence) < 400
    assert "None" not in sentence
    assert "\n" not in sentence
