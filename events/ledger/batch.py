"""The events of one group on their way into the ledger. Nothing is written before `Ledger.commit`."""

from collections.abc import Callable, Sequence

import msgspec

from events import codec, registry
from events.envelope import ENVELOPE_VERSION, CommandRecord, Envelope, Event, Recorded
from events.errors import CodecError, CommandRepeated, EventTooLarge


class Row(msgspec.Struct, frozen=True, gc=False):
    """One event before it has its link of the chain. cmd_id: 16 bytes on the first event of a command."""

    stream: str
    version: int
    kind: tuple[str, int]
    cmd_id: bytes | None
    entry: bytes


def command_id(cmd: bytes, cmd_ms: int) -> bytes:
    """16 bytes: 6 of the request time in milliseconds since 1970, 10 of the command's hash.

    Ids in order of time keep the index small in memory. Raises: ValueError
    """
    if len(cmd) != 32 or not 0 <= cmd_ms < 1 << 48:
        raise ValueError("a command has a hash of 32 bytes and a time of at most 48 bits")
    return cmd_ms.to_bytes(6, "big") + cmd[:10]


class Batch:
    """Events that will be committed together, at one time, after event `base`.

    version_of(stream) and position_of(command id) answer from what is committed.
    """

    def __init__(
        self,
        base: int,
        at_us: int,
        version_of: Callable[[str], int],
        position_of: Callable[[bytes], int | None],
    ) -> None:
        self.base = base
        self.at_us = at_us
        self.rows: list[Row] = []
        self._version_of, self._position_of = version_of, position_of
        self._versions: dict[str, int] = {}
        self._commands: dict[bytes, int] = {}

    def add(
        self,
        events: Sequence[Event],
        *,
        cmd: bytes,
        cmd_ms: int,
        actor: str,
        rules: int,
        command: CommandRecord,
    ) -> list[Recorded]:
        """Append the events of one command, in order; all of them or, with an error, none.

        cmd: 32 bytes. cmd_ms: time of the request, milliseconds since 1970. The first event carries `command`.
        Returns the events as any reader will see them, decoded from their stored bytes.

        Raises: CodecError, EventTooLarge, CommandRepeated; ValueError without events.
        """
        if not events:
            raise ValueError("a command is recorded in its first event, so it needs one")
        cmd_id = command_id(cmd, cmd_ms)
        self._refuse_repeated(cmd_id)
        _refuse_huge(self.at_us, rules, command.received_us, command.cause or 0, command.attempt or 0)
        mark, recorded = self.mark(), []
        try:
            for index, event in enumerate(events):
                data = msgspec.Raw(codec.encode_fields(event))  # first: no bad text gets further
                stream = event.stream()
                envelope = Envelope(
                    v=ENVELOPE_VERSION,
                    type=event.type_name,
                    tv=event.type_version,
                    stream=stream,
                    sv=self._next_version(stream),
                    at_us=self.at_us,
                    cmd=cmd.hex(),
                    n=index + 1,
                    of=len(events),
                    actor=actor,
                    rules=rules,
                    data=data,
                    command=None if index else command,
                )
                recorded.append(self._append(envelope, None if index else cmd_id))
        except BaseException:
            self.rollback(mark)
            raise
        return recorded

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self.rows)

    def rollback(self, mark: int) -> None:
        """Forget every event added since `mark`."""
        if mark == len(self.rows):
            return
        del self.rows[mark:]
        self._versions = {row.stream: row.version for row in self.rows}
        self._commands = {row.cmd_id: self.base + n for n, row in enumerate(self.rows, 1) if row.cmd_id}

    def _append(self, envelope: Envelope, cmd_id: bytes | None) -> Recorded:
        entry = codec.encode_fields(envelope)
        if len(entry) > codec.LEAF_MAX_BYTES:
            raise EventTooLarge(f"{envelope.type} takes {len(entry)} bytes, at most {codec.LEAF_MAX_BYTES} fit")
        # Types are checked by decoding the entry. What they let pass, floats in untyped places and huge integers,
        # can only stand in the event's own fields, or in the few integers that `_refuse_huge` has seen.
        codec.decode(bytes(envelope.data))
        recorded = registry.decode(self.base + len(self.rows) + 1, entry)
        self.rows.append(Row(envelope.stream, envelope.sv, (envelope.type, envelope.tv), cmd_id, entry))
        self._versions[envelope.stream] = envelope.sv
        if cmd_id is not None:
            self._commands[cmd_id] = recorded.pos
        return recorded

    def _next_version(self, stream: str) -> int:
        version = self._versions.get(stream)
        return (self._version_of(stream) if version is None else version) + 1

    def _refuse_repeated(self, cmd_id: bytes) -> None:
        pos = self._commands.get(cmd_id) or self._position_of(cmd_id)
        if pos is not None:
            raise CommandRepeated(f"this command stands in the ledger as event {pos}", pos=pos)


def _refuse_huge(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= codec.INTEGER_MAX:
            raise CodecError(f"{number} is not between 0 and 2^53 - 1")
