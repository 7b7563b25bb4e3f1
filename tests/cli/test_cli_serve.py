"""How the server's start is refused: real processes, three lines on standard error, the right exit code."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hypercluster.cli.keys import new_key_file
from hypercluster.cli.main import run
from hypercluster.domain.codes import Exit

SERVE = [sys.executable, "-m", "hypercluster.cli.main", "serve"]
SIM = ["--profile", "sim", "--port", "0"]
START_S = 40


@pytest.fixture(scope="module")
def operator(tmp_path_factory):
    """The address of an operator."""
    return new_key_file(tmp_path_factory.mktemp("operator") / "key.json").hotkey


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HYPER_", "CHALLENGE_"))}
    return kept | changes


def said(data: Path, *argv: str, **changes: str) -> tuple[int, list[str]]:
    """Exit code and the lines on standard error of a start that is refused; log lines are left out."""
    done = subprocess.run(
        [*SERVE, "--data", str(data), *argv],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        env=environment(**changes),
    )
    assert done.stdout == ""
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("{")]


def refused(code: Exit, about: str, data: Path, *argv: str, **changes: str) -> list[str]:
    """Check the shape of a refusal that speaks of `about`; its three lines."""
    found, lines = said(data, *argv, **changes)
    assert [line.split(":")[0] for line in lines] == ["error", "  why", "  next"], lines
    assert about in "\n".join(lines), lines
    assert found == code
    return lines


@contextmanager
def serving(data: Path, *argv: str, **changes: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server that listens, and its port."""
    with subprocess.Popen(
        [*SERVE, "--data", str(data), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**changes),
    ) as process:
        try:
            yield process, port_of(process)
        finally:
            process.kill()


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    seen, until = "", time.monotonic() + START_S
    while time.monotonic() < until and select.select([process.stderr], [], [], START_S)[0]:
        line = process.stderr.readline()
        seen += line
        if line.startswith("{") and json.loads(line)["event"] == "listening":
            return int(json.loads(line)["port"])
        if not line:
            break
    raise AssertionError(f"the server did not listen: {seen}")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files of a sim deployment that was served and stopped."""
    data = tmp_path_factory.mktemp("made") / "data"
    with serving(data, *SIM) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == Exit.DONE
    return data


@pytest.fixture
def data(made, tmp_path):
    """A copy of those files."""
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.mark.parametrize(
    ("argv", "changes", "about"),
    [
        (["--profile", "neither"], {}, "--profile or HYPER_PROFILE"),
        ([], {"HYPER_PROFILE": "neither"}, "HYPER_PROFILE"),
        ([*SIM[:2], "--port", "70000"], {}, "--port or CHALLENGE_PORT"),
        (SIM[:2], {"CHALLENGE_PORT": "http"}, "CHALLENGE_PORT"),
        ([*SIM, "--host", "192.0.2.1"], {}, "loopback"),
        (SIM, {"CHALLENGE_HOST": "0.0.0.0"}, "CHALLENGE_HOST"),
        (SIM, {"HYPER_EPOCH_SECONDS": "soon"}, "HYPER_EPOCH_SECONDS"),
        (SIM, {"HYPER_SSH_ALLOW_NETWORKS": "everywhere"}, "HYPER_SSH_ALLOW_NETWORKS"),
        (SIM, {"CHALLENGE_SHARED_TOKEN_FILE": "nowhere/token"}, "CHALLENGE_SHARED_TOKEN_FILE"),
        (SIM, {"CHALLENGE_ROLE": "master"}, "CHALLENGE_ROLE"),
        ([], {}, "HYPER_OPERATORS"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list | dict) else None,
)
def test_a_wrong_setting_names_itself_and_makes_nothing(tmp_path, capfd, monkeypatch, argv, changes, about):
    for name in [name for name in os.environ if name.startswith(("HYPER_", "CHALLENGE_"))]:
        monkeypatch.delenv(name)
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    assert run(["serve", "--data", str(tmp_path / "data"), *argv]) == Exit.USAGE  # refused before anything is opened
    out, err = capfd.readouterr()
    assert out == ""
    what, why, following = err.splitlines()
    assert about in what
    assert why == "  why: setting_refused"
    assert following.startswith("  next: ")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HYPER_EPOCH_SECONDS", "360"),
        ("HYPER_SSH_ALLOW_NETWORKS", "127.0.0.0/8"),
        ("HYPER_SSH_KEY_PATH", "nowhere/key"),
    ],
)
def test_a_setting_that_does_not_fit_the_deployment_names_itself(data, name, value):
    assert name in refused(Exit.USAGE, "setting_refused", data, *SIM, **{name: value})[0]


def test_production_is_refused_without_the_token_that_base_holds(tmp_path, operator):
    for changes in ({}, {"CHALLENGE_SHARED_TOKEN_FILE": ""}):
        refused(
            Exit.USAGE, "CHALLENGE_SHARED_TOKEN", tmp_path / "data", "--port", "0", HYPER_OPERATORS=operator, **changes
        )
    assert not (tmp_path / "data").exists()


def test_production_is_refused_with_an_operator_who_is_nobody(tmp_path):
    given = {"HYPER_OPERATORS": "somebody", "CHALLENGE_SHARED_TOKEN": "secret"}
    lines = refused(Exit.USAGE, "HYPER_OPERATORS", tmp_path / "data", "--port", "0", **given)
    assert "secret" not in "".join(lines)


def test_production_starts_with_operators_and_a_token_file(tmp_path, operator):
    token = tmp_path / "token"
    token.write_text("secret\n")
    given = {"HYPER_OPERATORS": operator, "CHALLENGE_SHARED_TOKEN_FILE": str(token), "CHALLENGE_HOST": "127.0.0.1"}
    with serving(tmp_path / "data", "--port", "0", **given) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == Exit.DONE
    refused(Exit.USAGE, "of profile production", tmp_path / "data", *SIM)


def test_a_ledger_of_the_other_profile_or_audience_is_refused(data, operator):
    given = {"HYPER_OPERATORS": operator, "CHALLENGE_SHARED_TOKEN": "secret", "CHALLENGE_HOST": "127.0.0.1"}
    refused(Exit.USAGE, "of profile sim", data, "--port", "0", **given)
    refused(Exit.USAGE, "HYPER_AUDIENCE", data, *SIM, HYPER_AUDIENCE="elsewhere")


def test_a_ledger_that_is_served_already_is_locked(tmp_path):
    with serving(tmp_path / "data", *SIM):
        lines = refused(Exit.CONFLICT, "ledger_locked", tmp_path / "data", *SIM)
        assert "stop the other server" in lines[2]


def test_a_port_that_is_taken_is_said(data):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        lines = refused(Exit.CONFLICT, "address_taken", data, *SIM[:2], "--port", port)
    assert "--port" in lines[2]


@pytest.mark.slow
def test_an_address_of_another_machine_is_said(data, operator, tmp_path):
    given = {"HYPER_OPERATORS": operator, "CHALLENGE_SHARED_TOKEN": "secret"}
    for host in ("192.0.2.1", "no-such-host.invalid"):
        refused(Exit.USAGE, "address_unusable", tmp_path / "new", "--port", "0", "--host", host, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "about"),
    [
        ("challenge.sqlite3", Exit.USAGE, "not_a_ledger"),
        ("private.sqlite3", Exit.USAGE, "private.sqlite3"),
        ("keys/ledger.key", Exit.USAGE, "ledger.key"),
        ("keys/private-salt.key", Exit.USAGE, "private-salt.key"),
        ("keys/ssh_client", Exit.USAGE, "ssh_client"),
    ],
)
def test_a_file_that_was_overwritten_is_named(data, name, code, about):
    assert (data / name).exists()
    for path in data.glob(f"{name}-*"):
        path.unlink()
    (data / name).write_bytes(b"not what was here before" * 10)
    refused(code, about, data, *SIM)


@pytest.mark.slow
def test_another_ledgers_key_is_refused(data):
    (data / "keys" / "ledger.key").write_bytes(os.urandom(32))
    refused(Exit.USAGE, "wrong_key", data, *SIM)


@pytest.mark.slow
def test_read_models_that_were_overwritten_are_made_again(data):
    for path in data.glob("read-models.sqlite3*"):
        path.write_bytes(b"not what was here before" * 100)
    with serving(data, *SIM) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == Exit.DONE


@pytest.mark.slow
def test_a_backup_is_restored_and_served(data, tmp_path, capfd):
    copy = tmp_path / "restored"
    copy.mkdir()
    assert run(["ledger", "backup", str(copy / "challenge.sqlite3"), "--ledger", str(data / "challenge.sqlite3")]) == 0
    shutil.copytree(data / "keys", copy / "keys")
    shutil.copy(data / "private.sqlite3", copy)
    with serving(copy, *SIM) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == Exit.DONE
    assert run(["replay", "verify", str(copy / "challenge.sqlite3")]) == Exit.DONE


def test_a_directory_that_cannot_be_made_is_said(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    refused(Exit.USAGE, "file_unusable", file, *SIM)


def test_options_win_over_the_environment_except_for_the_place_of_the_ledger(tmp_path):
    data = tmp_path / "unused"
    ledger = tmp_path / "elsewhere" / "challenge.sqlite3"
    with serving(data, *SIM, CHALLENGE_DATABASE_URL=f"sqlite:///{ledger}", CHALLENGE_PORT="1") as (_, port):
        assert port != 1
    assert ledger.exists()
    assert not data.exists()


def test_an_error_is_an_object_where_json_was_asked_for(tmp_path):
    code, lines = said(tmp_path / "data", "--profile", "neither", HYPER_OUTPUT="json")
    assert code == Exit.USAGE
    assert lines == []
