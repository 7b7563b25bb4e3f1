"""The ledger file from the command line: what it is, and a checked copy of it."""

import json
import os
import sys
from pathlib import Path

import pytest

from hypercluster.cli.main import run
from hypercluster.domain.codes import Exit

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import forging
import ledgers


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("HYPER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def town(tmp_path):
    found = ledgers.Town(tmp_path / "data")
    found.made(ledgers.person("ada"), "POST", "/v1/providers/register", {})
    yield found
    found.close()


def test_show_names_the_ledger(town, capfd):
    assert run(["ledger", "show", "--ledger", str(town.path), "-o", "json"]) == Exit.DONE
    found = json.loads(capfd.readouterr().out)
    opened = ledgers.decoded(town.path, 1)["data"]
    assert found["events"] == town.state.pos
    assert (found["origin"], found["public_key"]) == (opened["origin"], opened["public_key"])


def test_a_backup_is_made_while_the_writer_holds_the_ledger(town, tmp_path, capfd):
    target = tmp_path / "copy.sqlite3"
    assert run(["ledger", "backup", str(target), "--ledger", str(town.path), "-o", "json"]) == Exit.DONE
    made = json.loads(capfd.readouterr().out)
    town.made(ledgers.person("eve"), "POST", "/v1/providers/register", {})
    assert run(["replay", "verify", str(target), "-o", "json"]) == Exit.DONE
    report = json.loads(capfd.readouterr().out)
    assert (report["size"], report["root"]) == (made["events"], made["root"])
    assert report["size"] < town.state.pos


def test_a_backup_never_overwrites_and_needs_a_directory(town, tmp_path, capfd):
    there = tmp_path / "there"
    there.write_text("keep me")
    for target in (there, tmp_path / "nowhere" / "copy"):
        assert run(["ledger", "backup", str(target), "--ledger", str(town.path)]) == Exit.USAGE
        out, err = capfd.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 3
    assert there.read_text() == "keep me"
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_ledger_is_not_copied(town, tmp_path, capfd):
    path = forging.copy(town.path, tmp_path / "forged")
    forging.execute(path, "UPDATE event SET chain = zeroblob(32) WHERE pos = 2")
    target = tmp_path / "copy.sqlite3"
    assert run(["ledger", "backup", str(target), "--ledger", str(path)]) == Exit.INTEGRITY
    assert "event 2" in capfd.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize("verb", [["show"], ["backup", "copy.sqlite3"]])
def test_what_is_not_there_is_not_found(tmp_path, capfd, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    assert run(["ledger", *verb, "--ledger", "nowhere.sqlite3"]) == Exit.NOT_FOUND
    assert len(capfd.readouterr().err.splitlines()) == 3
    assert list(tmp_path.iterdir()) == []
