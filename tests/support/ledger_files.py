"""Small real ledgers for tests."""

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nacl.signing import SigningKey

from events.envelope import CommandRecord, Event, Recorded
from events.hashing import chain_next, chain_start, leaf_hash
from events.ledger import Ledger, LedgerReader
from events.ledger.batch import Batch
from events.types.ledger import LedgerOpened
from events.types.nodes import NodeSeen

KEY = SigningKey(b"\x01" * 32)
ORIGIN = "ledger.example/hyper-7f3a"
START_US = 1_760_000_000_000_000
NOBODY = 65_534  # a user that owns nothing


def command_hash(number: int) -> bytes:
    return hashlib.sha256(f"command {number}".encode()).digest()


def add(batch: Batch, number: int, events: Sequence[Event]) -> list[Recorded]:
    """The events of command `number`; its id is prefixed by that number."""
    record = CommandRecord(kind="node.seen", origin="internal", received_us=START_US + 1000 * number, cause=number)
    return batch.add(events, cmd=command_hash(number), cmd_ms=number, actor="system", rules=1, command=record)


def opening(origin: str = ORIGIN, key: SigningKey = KEY) -> LedgerOpened:
    return LedgerOpened(
        origin=origin,
        profile="sim",
        public_key=bytes(key.verify_key).hex(),
        slug="hyper",
        audience="hyper",
        operators=(),
        entry_format=1,
        release="0.1.0",
    )


def new_ledger(path: Path) -> Ledger:
    """A ledger that holds event 1, by command 0."""
    ledger = Ledger.create(path, KEY, ORIGIN)
    batch = ledger.batch(START_US)
    add(batch, 0, [opening()])
    ledger.commit(batch)
    return ledger


def fill(ledger: Ledger, count: int, group: int = 100) -> None:
    """Append `count` events, one a command, in groups. Command `n` gets the event number n + 1."""
    left = count
    while left:
        batch = ledger.batch(ledger.last_at_us + 1)
        for number in range(ledger.size, ledger.size + min(group, left)):
            add(batch, number, [NodeSeen(node_id=f"n{number % 7}")])
        left -= len(batch.rows)
        ledger.commit(batch)


def sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def chain_is_whole(path: Path) -> int:
    chain, after = chain_start(ORIGIN), 0
    with LedgerReader(path) as reader:
        while rows := reader.page(after):
            for row in rows:
                chain = chain_next(chain, leaf_hash(row.entry))
                assert row.chain == chain
            after = rows[-1].pos
    return after


def in_child(work: Callable[[], None], user: int | None = None) -> None:
    """Run in a forked process, as another user where asked, and fail with it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if user is not None and os.geteuid() == 0:
                os.setgid(user)
                os.setuid(user)
            work()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def open_ways(directory: Path) -> None:
    """Let another user come as far as the directory of this test."""
    for parent in (directory, *directory.parents):
        if parent.owner() != "root" or parent.stat().st_mode & 0o001:
            continue
        parent.chmod(parent.stat().st_mode | 0o011)
