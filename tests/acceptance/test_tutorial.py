"""docs/tutorial/first-rent-and-audit.md is true: its commands are run in their order, in three terminals."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from hypercluster.sim.processes import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "first-rent-and-audit.md"
BLOCK = re.compile(r"(?:<!-- terminal: (\w+) -->\n)?```sh\n(.*?)```\n", re.DOTALL)
PORT = "3200"
START_S = 60


def terminals() -> dict[str, str]:
    """What is typed in each terminal."""
    typed: dict[str, str] = {}
    for name, text in BLOCK.findall(PAGE.read_text()):
        typed[name or "mine"] = typed.get(name or "mine", "") + text
    return typed


@contextmanager
def running(script: str, directory: Path, env: dict[str, str], log: Path) -> Iterator[None]:
    """A terminal that is left open; Ctrl-C in the end."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {script}"],
            cwd=directory,
            env=env,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
        )
    try:
        yield
    finally:
        process.send_signal(2)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(START_S)
        assert "Traceback" not in log.read_text()


def wait_for(what: str, found: object) -> None:
    until = time.monotonic() + START_S
    while not found():  # type: ignore[operator]
        assert time.monotonic() < until, what
        time.sleep(0.1)


def is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/ready").status_code == 200
    except httpx2.TransportError:
        return False


def hosts_are_up(path: Path) -> bool:
    try:
        return len(json.loads(path.read_text())["items"]) == 2
    except (FileNotFoundError, ValueError):
        return False


@pytest.mark.slow
def test_the_commands_of_the_tutorial_work(tmp_path):
    port = str(free_port())
    url = f"http://127.0.0.1:{port}"
    typed = {name: text.replace(PORT, port) for name, text in terminals().items()}
    assert set(typed) == {"server", "hosts", "mine"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HYPER_", "CHALLENGE_"))}
    env = kept | {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "HYPER_URL": url}
    directory = tmp_path / "empty"
    directory.mkdir()
    with running(typed["server"], directory, env, tmp_path / "server.log"):
        wait_for("the server", lambda: is_ready(url))
        with running(typed["hosts"], directory, env, tmp_path / "hosts.log"):
            wait_for("the hosts", lambda: hosts_are_up(directory / "hosts.json"))
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", typed["mine"]],
                cwd=directory,
                env=env,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
    said = done.stdout + done.stderr
    print(said)
    assert done.returncode == 0
    assert "offer_not_listed" in done.stderr
    assert "exit code 5" in done.stdout
    assert "status=succeeded" in done.stdout
    assert "rank 3 of 4" in done.stdout
    assert re.search(r"ok: \d+ events of hypercluster-\w+, which hold the checkpoint over \d+", done.stdout)
    assert "2 events changed" in done.stdout  # the offer and the lease
    assert done.stdout.rstrip().endswith("exit code 9")
