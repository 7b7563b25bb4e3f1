"""Every way the ledger can say no.

LedgerError
├── CodecError              a value has no canonical form
├── UnknownEvent            a type or version that this release does not know
├── EventTooLarge           a leaf above the limit
├── CommandRepeated         a command with this id stands in the ledger already
├── LedgerLocked            another process holds the writer's lock
├── LedgerReadOnly          the file or its directory cannot be written
├── DiskFull                the disk has no room; nothing of the group was kept
├── LedgerDamaged           stored bytes contradict each other; `pos` names the first bad event
├── LedgerTruncated         the file is shorter than a checkpoint that was signed for it
├── NotALedger              the file is no ledger, or of a format that this release does not read
├── WrongKey                the signing key is not the one that event 1 names
├── BadCheckpoint           a signed note that does not parse or does not verify
└── BlobMissing             evidence is not in the store
"""


class LedgerError(Exception):
    """Base of the family. `hint` says what the operator can do next."""

    hint: str = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint


class CodecError(LedgerError):
    """The value has no canonical form: a float, an integer beyond 2^53 - 1, bad Unicode, an unknown type."""


class UnknownEvent(LedgerError):
    """No class is registered for this type and version."""


class EventTooLarge(LedgerError):
    """The leaf would exceed `events.codec.LEAF_MAX_BYTES`."""


class CommandRepeated(LedgerError):
    """A command with this id stands in the ledger, or in this batch, as the event `pos`."""

    def __init__(self, message: str, *, pos: int) -> None:
        super().__init__(message)
        self.pos = pos


class LedgerLocked(LedgerError):
    hint = "stop the other server, or wait until it has ended"


class LedgerReadOnly(LedgerError):
    hint = "make the ledger file and its directory writable; reads go on"


class DiskFull(LedgerError):
    hint = "free some disk space; nothing was lost and reads go on"


class LedgerDamaged(LedgerError):
    """Stored bytes contradict each other. `pos` is the first event that does, or None for the whole file."""

    hint = "run `hypercluster replay verify` on the file and restore from a verified backup"

    def __init__(self, message: str, *, pos: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pos = pos


class LedgerTruncated(LedgerDamaged):
    hint = "the newest events are missing: was the file copied without its -wal file?"


class NotALedger(LedgerError):
    hint = "point to the file that the server writes, challenge.sqlite3 by default"


class WrongKey(LedgerError):
    hint = "point to the key file that was made together with this ledger"


class BadCheckpoint(LedgerError):
    """The note does not parse, names another log or key, or its signature is wrong."""


class BlobMissing(LedgerError):
    """The store does not hold this digest: withheld, deleted or lost."""
