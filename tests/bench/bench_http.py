"""Signed POST /v1/nodes at 64 connections: the whole server against a minimal app that verifies, chains and commits."""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx2
from rounds import is_large

from hypercluster.sim.processes import Process, free_port
from tests.support.crash_rig import ServerProcess

HERE = Path(__file__).parent
LOAD_S = 120.0


def load(port: int, count: int) -> dict[str, float]:
    """What a client process measured."""
    argv = [sys.executable, str(HERE / "load.py"), "--port", str(port), "--count", str(count)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=LOAD_S)
    return json.loads(done.stdout)


def ours(directory: Path, count: int) -> dict[str, float]:
    """A production server with a new ledger."""
    server = ServerProcess(directory, "production").start()
    try:
        return load(server.port, count)
    finally:
        server.stop()


@contextmanager
def minimal(directory: Path):
    """The minimal app as a process."""
    port = free_port()
    argv = [sys.executable, str(HERE / "minimal_app.py"), str(port), str(directory / "log.sqlite3")]
    with Process(argv, directory / "minimal.log") as process:
        while process.alive():
            try:
                httpx2.get(f"http://127.0.0.1:{port}/")
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield port


def theirs(directory: Path, count: int) -> dict[str, float]:
    """The minimal app with a new file."""
    directory.mkdir()
    with minimal(directory) as port:
        return load(port, count)


def main(count: int | None = None, rounds: int = 3) -> float:
    """Print both rates with their times, and the ratio."""
    count = count or (10_000 if is_large() else 3_000)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        pairs = [(ours(root / f"ours{turn}", count), theirs(root / f"theirs{turn}", count)) for turn in range(rounds)]
    ratio = median(a["rate"] / b["rate"] for a, b in pairs)
    for who, column in (("ours", 0), ("minimal", 1)):
        rate, p50, p99 = (median(pair[column][key] for pair in pairs) for key in ("rate", "p50", "p99"))
        print(f"{who}: {rate:,.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print(f"signed POST /v1/nodes at 64 connections: ratio {ratio:.2f}")
    return ratio


if __name__ == "__main__":
    main()
