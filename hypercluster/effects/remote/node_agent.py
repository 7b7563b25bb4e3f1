"""One per node and attempt: owns the scratch directory and the lease file, and leaves nothing behind when it ends.

Input: {"tag", "mark", "address", "stale_s", "grace_s"}, then {"renew": true} now and then, at last {"end": true}.
Output: {"port": free TCP port at `address`}, at the end {"left": number of processes that could not be ended}.
When renewals stop for `stale_s`, or the input ends, it ends the attempt's processes on this node by itself.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import socket
import sys
import time
from typing import Any

from hypercluster.effects.remote import places, processes, wire


def _ephemeral_low() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[0])
    except (OSError, ValueError):
        return 32768


def free_port(address: str) -> int:
    """A port that can be bound now, below the range from which outgoing connections take theirs."""
    high = max(_ephemeral_low(), 12000)
    for _ in range(50):
        port = random.SystemRandom().randrange(10000, high)
        if _bindable(address, port):
            return port
    raise OSError("no free port")


def _bindable(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for host in (address, "::" if ":" in address else "0.0.0.0"):  # noqa: S104 - behind a translated address
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return True
    return False


def _make_scratch(tag: str) -> None:
    places.remove(tag)
    os.makedirs(places.scratch(tag), mode=0o700, exist_ok=True)  # noqa: PTH103
    _renew(tag)


def _renew(tag: str) -> None:
    with contextlib.suppress(OSError), open(places.lease(tag), "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(time.time_ns()))


def _finish(tag: str, mark: str, grace_s: float) -> int:
    with contextlib.suppress(OSError):
        os.unlink(places.lease(tag))  # noqa: PTH108 - ranks that watch it end now
    left = processes.end(lambda: processes.marked(mark), grace_s)
    return len(left) + (0 if places.remove(tag) else 1)


def main() -> None:
    start = wire.receive_json(sys.stdin.buffer)
    tag, mark, grace_s = start["tag"], start["mark"], float(start["grace_s"])
    _make_scratch(tag)
    inbox: queue.Queue[dict[str, Any]] = queue.Queue()
    wire.listen(sys.stdin.buffer, inbox.put, lambda: inbox.put({"end": True}))
    wire.send(sys.stdout.buffer, wire.pack_json({"port": free_port(start["address"])}))
    while True:
        try:
            message = inbox.get(timeout=float(start["stale_s"]))
        except queue.Empty:
            break
        if message.get("end"):
            break
        _renew(tag)
    left = _finish(tag, mark, grace_s)
    with contextlib.suppress(OSError):
        wire.send(sys.stdout.buffer, wire.pack_json({"left": left}))
