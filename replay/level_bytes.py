"""Level 1: the bytes. Every leaf is canonical and in its place, and all hashes follow from the leaves."""

from dataclasses import dataclass, field

from events import checkpoint, codec
from events.checkpoint import Checkpoint
from events.envelope import ENVELOPE_VERSION, Envelope, Recorded
from events.errors import BadCheckpoint, LedgerError
from events.hashing import chain_next, chain_start, leaf_hash
from events.ledger import Stored
from events.registry import decode
from events.types.ledger import LedgerOpened, RulesActivated
from hypercluster.domain.router import request_ms
from replay import keys
from replay.frontier import Frontier
from replay.report import Level, Progress
from replay.source import Source


class Mismatch(Exception):
    """An event contradicts something; the message says what. pos: its number, None for the one being read."""

    def __init__(self, message: str, *, pos: int | None = None) -> None:
        super().__init__(message)
        self.pos = pos


@dataclass(slots=True)
class _Group:
    """The command whose events are being read."""

    first: Envelope | None = None
    n: int = 0

    @property
    def open(self) -> bool:
        return self.first is not None and self.n < self.first.of


@dataclass(slots=True)
class Ground:
    """What the later levels stand on: the first event's facts, the root at the end, releases by rule set.

    given: the caller's checkpoint, once its signature has been checked.
    """

    opened: LedgerOpened | None = None
    given: Checkpoint | None = None
    root: bytes = b""
    releases: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Reading:
    """Where the pass stands. key: the expected public key; note: the caller's signed note.

    roots: root by size, of the checkpoints that stand in the file.
    """

    key: bytes | None
    note: str | None
    notes: dict[int, tuple[bytes, str]]
    ground: Ground = field(default_factory=Ground)
    tree: Frontier = field(default_factory=Frontier)
    group: _Group = field(default_factory=_Group)
    chain: bytes = b""
    at_us: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    commands: set[bytes] = field(default_factory=set)


def check_bytes(
    source: Source,
    level: Level,
    *,
    key: bytes | None,
    note: str | None,
    progress: Progress | None,
) -> Ground:
    """Read the whole file once. key: the expected public key (32 bytes), None to take the ledger's own.

    note: a checkpoint that the file must agree with. Stops at the first wrong event.
    """
    level.ran = True
    reading = _Reading(key, note, _stored_checkpoints(source))
    try:
        for page in source.pages():
            for stored in page:
                _check_event(source, reading, stored)
                level.checked += 1
            if progress:
                progress(1, reading.tree.size, source.size)
        reading.ground.root = reading.tree.root()
        _check_end(reading)
    except (Mismatch, LedgerError) as error:
        pos = error.pos if isinstance(error, Mismatch) and error.pos is not None else level.checked + 1
        level.found_wrong(pos, str(error))
    return reading.ground


def _check_event(source: Source, reading: _Reading, stored: Stored) -> None:
    if stored.pos != reading.tree.size + 1:
        raise Mismatch(f"event {reading.tree.size + 1} is missing: the next one stored is {stored.pos}")
    recorded = _canonical(stored)
    if stored.pos == 1:
        _begin(source, reading, recorded)
    _check_columns(stored, recorded)
    _check_order(reading, recorded)
    _check_group(reading, recorded.envelope)
    _check_command(reading, stored, recorded.envelope)
    leaf = leaf_hash(stored.entry)
    reading.chain = chain_next(reading.chain, leaf)
    if reading.chain != stored.chain:
        raise Mismatch("the stored chain hash does not follow from this entry and the chain before it")
    _check_roots(reading, leaf)
    if isinstance(recorded.event, RulesActivated):
        reading.ground.releases[recorded.event.rules] = recorded.event.release


def _canonical(stored: Stored) -> Recorded:
    """The event, if its bytes are the one spelling of it."""
    if len(stored.entry) > codec.LEAF_MAX_BYTES:
        raise Mismatch(f"the entry has {len(stored.entry)} bytes, above {codec.LEAF_MAX_BYTES}")
    codec.decode(stored.entry)
    recorded = decode(stored.pos, stored.entry)
    envelope = recorded.envelope
    newest = envelope.tv == recorded.event.type_version
    if codec.encode_fields(envelope) != stored.entry:
        raise Mismatch("the entry spells out what its form leaves out")
    if newest and codec.encode_fields(recorded.event) != bytes(envelope.data):
        raise Mismatch("the data spell out what their form leaves out")
    return recorded


def _begin(source: Source, reading: _Reading, recorded: Recorded) -> None:
    opened = recorded.event
    if not isinstance(opened, LedgerOpened):
        raise Mismatch("a ledger begins with ledger.opened")
    if reading.key is not None and reading.key.hex() != opened.public_key:
        raise Mismatch("the ledger was opened with another public key than the one given")
    if (source.reader.origin, source.reader.public_key) != (opened.origin, opened.public_key):
        raise Mismatch("the file names another origin or public key than its first event")
    reading.ground.opened = opened
    reading.chain = chain_start(opened.origin)
    if reading.note is not None:
        reading.ground.given = _verified(reading, reading.note)


def _verified(reading: _Reading, note: str) -> Checkpoint:
    """The checkpoint in a note by the ledger's signer. Raises: Mismatch"""
    opened = reading.ground.opened
    if opened is None:
        raise Mismatch("a checkpoint belongs to an opened ledger")
    try:
        signer = reading.key or keys.read_key(opened.public_key)
        return keys.verify_note(note, opened.origin, signer)
    except (BadCheckpoint, keys.BadKey) as error:
        raise Mismatch(f"the checkpoint does not belong to this ledger: {error}") from error


def _check_columns(stored: Stored, recorded: Recorded) -> None:
    envelope = recorded.envelope
    pairs = (
        ("stream", stored.stream, envelope.stream),
        ("version", stored.version, envelope.sv),
        ("type", stored.type, envelope.type),
        ("type version", stored.type_version, envelope.tv),
        ("stream of its own data", recorded.event.stream(), envelope.stream),
        ("envelope version", ENVELOPE_VERSION, envelope.v),
    )
    for name, found, entry in pairs:
        if found != entry:
            raise Mismatch(f"{name}: {found!r} stands against {entry!r} in the entry")


def _check_order(reading: _Reading, recorded: Recorded) -> None:
    envelope = recorded.envelope
    if recorded.at_us < reading.at_us:
        raise Mismatch(f"time runs back from {reading.at_us} to {recorded.at_us}")
    reading.at_us = recorded.at_us
    expected = reading.versions.get(envelope.stream, 0) + 1
    if envelope.sv != expected:
        raise Mismatch(f"{envelope.stream} is at version {expected}, the entry says {envelope.sv}")
    reading.versions[envelope.stream] = expected


def _check_group(reading: _Reading, envelope: Envelope) -> None:
    group = reading.group
    if not group.open:
        if envelope.n != 1 or envelope.of < 1 or envelope.command is None:
            raise Mismatch("a command's first event must come first and hold the command")
        group.first, group.n = envelope, 1
        return
    first = group.first
    group.n += 1
    if envelope.n != group.n or envelope.command is not None:
        raise Mismatch(f"event {group.n} of its command is expected here")
    if first is None or _shared(envelope) != _shared(first):
        raise Mismatch("the events of one command differ in what they must share")


def _shared(envelope: Envelope) -> tuple[str, int, int, str, int]:
    return envelope.cmd, envelope.of, envelope.at_us, envelope.actor, envelope.rules


def _check_command(reading: _Reading, stored: Stored, envelope: Envelope) -> None:
    record = envelope.command
    if record is None:
        if stored.cmd_id is not None:
            raise Mismatch("only a command's first event has a command id")
        return
    try:
        command, prefix = bytes.fromhex(envelope.cmd), request_ms(record).to_bytes(6, "big")
    except (ValueError, IndexError, OverflowError) as error:
        raise Mismatch(f"the command's digest or time cannot be read: {error}") from error
    if stored.cmd_id != prefix + command[:10]:
        raise Mismatch("the command id is not that of the command in the entry")
    if command in reading.commands:
        raise Mismatch("this command was recorded before")
    reading.commands.add(command)


def _stored_checkpoints(source: Source) -> dict[int, tuple[bytes, str]]:
    """size -> (root, note). An unreadable note counts as one over no events: it is refused when it is verified."""
    found: dict[int, tuple[bytes, str]] = {}
    for note in source.reader.checkpoints():
        try:
            parsed = checkpoint.parse(note).checkpoint
            found[parsed.size] = (parsed.root, note)
        except BadCheckpoint:
            found[0] = (b"", note)
    return found


def _check_roots(reading: _Reading, leaf: bytes) -> None:
    """Take in the leaf, if the root that it leads to is the one that any checkpoint of this size was signed for."""
    reading.tree.append(leaf)
    size = reading.tree.size
    stored, given = reading.notes.get(size), reading.ground.given
    if stored is not None and reading.tree.root() != stored[0]:
        raise Mismatch(f"the root over {size} events is not that of the stored checkpoint")
    if given is not None and given.size == size and reading.tree.root() != given.root:
        raise Mismatch(f"the root over {size} events is not that of the given checkpoint")


def _check_end(reading: _Reading) -> None:
    size, given = reading.tree.size, reading.ground.given
    if reading.group.open:
        raise Mismatch("missing: the file ends in the middle of a command's events")
    if given is not None and given.size > size:
        raise Mismatch(f"missing: the given checkpoint was signed for {given.size} events")
    for signed_for, (_, note) in sorted(reading.notes.items()):
        try:
            found = _verified(reading, note)
        except Mismatch as error:
            raise Mismatch(
                f"the stored checkpoint over {signed_for} events: {error}", pos=min(signed_for, size)
            ) from error
        if found.size > size:
            raise Mismatch(f"missing: a stored checkpoint was signed for {found.size} events")
