"""One per rank: starts the entrypoint when it is released, forwards what it writes, and outlives none of it.

Input: {"tag", "mark", "name", "argv", "env", "grace_s", "stale_s", "cap"}, then {"go": true} or {"stop": true}.
Output: {"ready": true}, then O and E frames up to `cap` bytes each, at last
{"exit": code (negative: signal), "killed": ended by this program, "stdout": bytes written, "stderr": bytes written}.
The rank is ended on {"stop"}, on TERM, at the end of the input, and when the lease file has not changed for `stale_s`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any

from hypercluster.effects.remote import places, processes, wire

WATCH_S = 0.1
RELEASE_S = 0.02
KILL_ROUNDS = 5
DRAIN_S = 3.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class _Orders:
    """What the control plane asked for. Plain flags: a signal handler may set them at any moment."""

    def __init__(self) -> None:
        self.go = self.stop = False

    def take(self, message: dict[str, Any]) -> None:
        self.go = self.go or bool(message.get("go"))
        self.stop = self.stop or bool(message.get("stop"))

    def end(self, *_: object) -> None:
        self.stop = True


class _Lease:
    """Freshness by this node's monotonic clock: only that the file changed counts, not what time it claims."""

    def __init__(self, path: str, stale_s: float) -> None:
        self._path, self._stale_s = path, stale_s
        self._seen, self._at = self._stamp(), time.monotonic()

    def _stamp(self) -> int:
        try:
            return os.stat(self._path).st_mtime_ns  # noqa: PTH116
        except OSError:
            return 0

    def stale(self) -> bool:
        stamp = self._stamp()
        if stamp == 0:
            return True
        if stamp != self._seen:
            self._seen, self._at = stamp, time.monotonic()
        return time.monotonic() - self._at > self._stale_s


class _Output(threading.Thread):
    """Forwards one stream up to the cap, then only counts, so that the rank never blocks on a full pipe."""

    def __init__(self, kind: bytes, source: IO[bytes], cap: int) -> None:
        super().__init__(daemon=True)
        self._kind, self._source, self._cap = kind, source, cap
        self.written = 0

    def run(self) -> None:
        forward = True
        while True:
            data = os.read(self._source.fileno(), wire.PAYLOAD_MAX)
            if not data:
                return
            room = max(0, self._cap - self.written)
            self.written += len(data)
            if forward and room:
                try:
                    wire.send(sys.stdout.buffer, wire.pack(self._kind, data[:room]))
                except OSError:
                    forward = False


def _start(start: dict[str, Any], directory: str) -> subprocess.Popen[bytes]:
    os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
    env = dict(os.environ, HOME=directory, TMPDIR=directory)
    env.update(start["env"])
    env[processes.VARIABLE] = start["mark"] + "/" + start["name"]
    return subprocess.Popen(
        start["argv"],
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=processes.die_with_parent,  # noqa: PLW1509 - libc is loaded; the other thread only reads
    )


def _family(mark: str) -> set[int]:
    return processes.marked(mark) | processes.descendants()


def _wait(child: subprocess.Popen[bytes], orders: _Orders, lease: _Lease, mark: str, grace_s: float) -> bool:
    """Until the rank has ended and nothing of it is left; True when it was ended from here."""
    while child.poll() is None and not orders.stop and not lease.stale():
        time.sleep(WATCH_S)
    killed = child.poll() is None
    for _ in range(KILL_ROUNDS):
        if not processes.end(lambda: _family(mark), grace_s) and child.poll() is not None:
            break
    processes.reap(but=child.pid)
    return killed


def _run(start: dict[str, Any], orders: _Orders, lease: _Lease) -> dict[str, Any]:
    directory = os.path.join(places.scratch(start["tag"]), start["name"])  # noqa: PTH118
    try:
        child = _start(start, directory)
    except OSError as error:
        text = f"cannot start {start['argv'][0]}: {error.strerror}\n".encode()
        wire.send(sys.stdout.buffer, wire.pack(b"E", text[: start["cap"]]))
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return {"exit": code, "killed": False, "stdout": 0, "stderr": len(text)}
    assert child.stdout is not None and child.stderr is not None  # noqa: S101 - for the type checker
    outputs = [_Output(b"O", child.stdout, start["cap"]), _Output(b"E", child.stderr, start["cap"])]
    for output in outputs:
        output.start()
    killed = _wait(child, orders, lease, start["mark"] + "/" + start["name"], start["grace_s"])
    limit = time.monotonic() + DRAIN_S
    for output in outputs:
        output.join(max(0.0, limit - time.monotonic()))
    return {"exit": child.returncode, "killed": killed, "stdout": outputs[0].written, "stderr": outputs[1].written}


def main() -> None:
    start = wire.receive_json(sys.stdin.buffer)
    processes.adopt_orphans()
    orders = _Orders()
    signal.signal(signal.SIGTERM, orders.end)
    lease = _Lease(places.lease(start["tag"]), start["stale_s"])
    wire.listen(sys.stdin.buffer, orders.take, orders.end)
    wire.send(sys.stdout.buffer, wire.pack_json({"ready": True}))
    while not (orders.go or orders.stop or lease.stale()):
        time.sleep(RELEASE_S)
    ending: dict[str, Any] = {"exit": None, "killed": True, "stdout": 0, "stderr": 0}
    if orders.go and not orders.stop:
        ending = _run(start, orders, lease)
    with contextlib.suppress(OSError):
        wire.send(sys.stdout.buffer, wire.pack_json(ending))
