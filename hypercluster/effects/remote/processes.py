"""Finding and ending the processes of one attempt on this node.

A process belongs to an attempt when its environment, as the kernel keeps it in /proc, holds the attempt's marker, or
when it descends from the program that asks. A process id alone proves nothing: it may have been given to a stranger.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import Callable, Iterable  # noqa: UP035 - Python 3.8 has no usable collections.abc.Callable

VARIABLE = "HYPER_GANG"
POLL_S = 0.05
KILL_S = 5.0

_libc = ctypes.CDLL(None, use_errno=True)  # loaded early: nothing may be loaded between fork and exec
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _entries(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - a few hundred of these per scan
            return file.read().split(b"\0")
    except OSError:
        return []


def _parent_and_state(pid: int) -> tuple[int, str]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return 0, "X"
    return int(fields[1]), fields[0].decode()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _live(found: Iterable[int]) -> set[int]:
    return {pid for pid in found if pid != os.getpid() and _parent_and_state(pid)[1] not in "ZX"}


def carrying(entry: str) -> set[int]:
    """Live processes, without this one, whose environment holds exactly this NAME=value."""
    wanted = entry.encode()
    return _live(pid for pid in _pids() if wanted in _entries(pid))


def marked(mark: str) -> set[int]:
    """Live processes, without this one, whose marker is `mark` or lies below it (`mark` + "/...")."""
    exact = f"{VARIABLE}={mark}".encode()
    below = exact + b"/"
    return _live(pid for pid in _pids() if any(e == exact or e.startswith(below) for e in _entries(pid)))


def descendants() -> set[int]:
    """Live processes that descend from this one, orphans included when this process adopts them."""
    parents = {pid: _parent_and_state(pid) for pid in _pids()}
    family = {os.getpid()}
    while True:
        more = {pid for pid, (parent, _) in parents.items() if parent in family} - family
        if not more:
            break
        family |= more
    return _live(family)


def adopt_orphans() -> None:
    """From now on a descendant whose parent ends becomes a child of this process (Linux)."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(but: int) -> None:
    """Let go of ended children that were adopted; `but` is waited for by somebody else."""
    for pid in _pids():
        if pid != but and _parent_and_state(pid) == (os.getpid(), "Z"):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def die_with_parent() -> None:
    """For a child between fork and exec: be killed when the parent is gone (Linux)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def wait_gone(find: Callable[[], set[int]], timeout_s: float) -> set[int]:
    """Wait until `find` finds nothing; what it still finds after `timeout_s`."""
    limit = time.monotonic() + timeout_s
    left = find()
    while left and time.monotonic() < limit:
        time.sleep(POLL_S)
        left = find()
    return left


def end(find: Callable[[], set[int]], grace_s: float) -> set[int]:
    """TERM what `find` finds, wait up to `grace_s`, then KILL until nothing is left or 5 s are over.

    Returns the processes that are still there. Doing it again is harmless.
    """
    _signal(find(), signal.SIGTERM)
    left = wait_gone(find, grace_s)
    limit = time.monotonic() + KILL_S
    while left and time.monotonic() < limit:
        _signal(left, signal.SIGKILL)
        time.sleep(POLL_S)
        left = find()
    return left
