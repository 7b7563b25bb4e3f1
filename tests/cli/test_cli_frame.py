"""The frame of the command line: where output goes, what it looks like, how errors end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from events.ledger import Ledger
from hypercluster.cli import describe, frame, render
from hypercluster.cli.errors import wants_object
from hypercluster.cli.main import run
from hypercluster.cli.nouns import NOUNS
from hypercluster.domain.codes import Exit

CLI = [sys.executable, "-m", "hypercluster.cli.main"]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("HYPER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def closed_port():
    """An address at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_version_is_quick_and_loads_no_framework():
    program = "import sys; from hypercluster.cli.main import run; run(['--version']); print(*sys.modules)"
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 5
    first, modules = done.stdout.split("\n", 1)
    assert first.startswith("hypercluster ")
    assert not {"typer", "pydantic", "httpx2", "apsw", "starlette", "rich"} & set(modules.split())


def test_every_noun_loads_and_every_command_has_help_and_an_example():
    found = []

    def walk(command, path):
        assert command.help or path[-1] in ("offer", "lease"), path
        children = getattr(command, "commands", None)
        if children:
            for name, child in children.items():
                walk(child, [*path, name])
            return
        found.append(" ".join(path))
        assert command.help, path
        assert path[0] in RUNNERS or any("output" in option.name for option in command.params), path

    for name in NOUNS:
        walk(frame.load(name), [name])
    contract = {
        "marketplace offers list", "marketplace offer create", "marketplace rent", "marketplace lease show",
        "marketplace terminate", "nodes register", "nodes heartbeat", "jobs submit", "jobs status", "jobs list",
        "jobs cancel", "jobs logs", "score show", "weights preview", "version", "health", "replay verify",
    }  # fmt: skip
    assert contract <= set(found)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["no-such-noun"], Exit.USAGE),
        (["nodes", "register"], Exit.USAGE),
        (["nodes", "register", "--gpus", "two"], Exit.USAGE),
        (["nodes", "register", "--gpus", "1"], Exit.USAGE),  # no key is named
        (["marketplace", "rent", "--offer-id", "o", "--max-price", "NaN", "--key-file", "/nowhere/key"], Exit.USAGE),
        (["replay", "verify", "/nowhere/ledger"], Exit.NOT_FOUND),
        (["events", "list", "--ledger", "/nowhere/ledger"], Exit.NOT_FOUND),
        (["jobs", "status"], Exit.USAGE),
        ([], Exit.USAGE),
        (["nodes"], Exit.USAGE),
    ],
)
def test_an_error_leaves_standard_output_empty(capfd, argv, code):
    assert run(argv) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    what, why, following = err.splitlines()
    assert what.startswith("error: ")
    assert why.startswith("  why: ")
    assert following.startswith("  next: ")


def test_an_error_is_an_object_where_json_was_asked_for(capfd, closed_port):
    assert run(["offers", "list", "--url", closed_port, "-o", "json"]) == Exit.UNREACHABLE
    out, err = capfd.readouterr()
    assert out == ""
    assert json.loads(err)["error"]["code"] == "unreachable"


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["nodes", "list", "-o", "json"], True),
        (["nodes", "list", "-ondjson"], True),
        (["nodes", "list", "--output=json"], True),
        (["nodes", "list", "--json"], True),
        (["nodes", "list", "-o", "table"], False),
        (["nodes", "list", "--", "--json"], False),
        (["nodes", "list"], False),
    ],
)
def test_the_wish_for_json_is_read_from_raw_arguments(argv, wanted):
    assert wants_object(argv) is wanted


def test_a_reader_that_goes_away_is_no_fault(tmp_path):
    ledger = a_ledger(tmp_path)
    command = [*CLI, "events", "watch", "--ledger", str(ledger), "--after", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ledger.opened" in process.stdout.readline()
        process.stdout.close()
        append(ledger)
        assert process.wait(timeout=20) == Exit.CLOSED_PIPE
        assert process.stderr is not None
        assert process.stderr.read() == ""


def heed_interrupts() -> None:
    """A process that was started in the background of a script inherits deafness to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_ends_quietly(tmp_path):
    ledger = a_ledger(tmp_path)
    command = [*CLI, "events", "watch", "--ledger", str(ledger), "--after", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=heed_interrupts, **pipes) as process:  # noqa: PLW1509 - one thread
        assert process.stdout is not None
        assert "ledger.opened" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == Exit.INTERRUPTED
    assert err == ""


RUNNERS = ("serve", "cluster", "demo")  # they run until they are stopped and answer nothing
HOSTILE = "a\x1b[2Jb\u202ec\u0007\x9b\u2066\nd\ud800"


@pytest.mark.parametrize("form", list(render.Format))
def test_text_of_strangers_cannot_steer_a_terminal(capfd, form):
    render.show({"items": [{"name": HOSTILE, HOSTILE: 1}], "note": HOSTILE}, form)
    render.show({"name": HOSTILE}, form, line=HOSTILE)
    out = capfd.readouterr().out
    assert all(char == "\n" or char.isprintable() for char in out)
    assert "\\u202e" in out.lower()


def test_every_machine_format_gives_the_data_back(capfd):
    data = {
        "items": [{"id": "a", "text": "null: 'x' \u00e9", "n": 3, "none": None, "deep": {"k": [1, True]}}],
        "next": 7,
    }
    render.show(data, render.Format.JSON)
    assert json.loads(capfd.readouterr().out) == data
    render.show(data, render.Format.NDJSON)
    assert [json.loads(line) for line in capfd.readouterr().out.splitlines()] == data["items"]
    render.show(data, render.Format.YAML)
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == ["items:", "  -"]
    assert "    text: \"null: 'x' \\u00e9\"" in lines
    assert "next: 7" in lines


def test_an_empty_list_is_an_answer(capfd):
    render.show({"items": []}, render.Format.TABLE, line="offers=0", columns=("id", "status"))
    assert capfd.readouterr().out == "offers=0\nID  STATUS\n"


def test_numbers_are_right_aligned_and_what_is_absent_shows(capfd):
    render.show({"items": [{"id": "a", "n": 5}, {"id": "bb", "n": 1234}]}, render.Format.TABLE)
    assert capfd.readouterr().out == "ID     N\na      5\nbb  1234\n"
    render.show({"items": [{"id": "a"}]}, render.Format.TABLE, columns=("id", "n"))
    assert capfd.readouterr().out == "ID  N\na   -\n"


def test_amounts_in_words():
    assert describe.money(2_500_000) == "2.5 USD"
    assert describe.money(1) == "0.000001 USD"
    assert describe.hours(5_400_000_000) == "1.5 h"
    assert describe.percent(333_334) == "33.3334 %"
    assert describe.when(1_764_547_200_000_000) == "2025-12-01T00:00:00Z"


sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import ledger_files  # noqa: E402


def a_ledger(directory: Path) -> Path:
    """A ledger of one event."""
    ledger = ledger_files.new_ledger(directory / "challenge.sqlite3")
    ledger.close()
    return directory / "challenge.sqlite3"


def append(path: Path) -> None:
    """Some more events, to be seen by whoever follows."""
    ledger = Ledger.open(path, ledger_files.KEY)
    ledger_files.fill(ledger, 5)
    ledger.close()
