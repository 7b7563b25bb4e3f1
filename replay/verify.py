"""Verify a ledger file from its bytes to its weights, with the code that decided on the server."""

from pathlib import Path

from events import checkpoint as notes
from events.checkpoint import Checkpoint
from events.errors import BadCheckpoint
from replay import keys
from replay.level_bytes import Ground, check_bytes
from replay.level_signatures import check_signatures
from replay.redecide import Redecision
from replay.report import LEVEL_NAMES, Level, Progress, Report
from replay.source import Source, open_source


class BadInput(ValueError):
    """What the caller gave beside the ledger cannot be read: the key, the checkpoint file, the level."""


def verify(
    ledger: Path,
    *,
    checkpoint: str | None = None,
    key: str | None = None,
    level: int = 4,
    progress: Progress | None = None,
) -> Report:
    """Run levels 1 to `level` on a ledger file, and stop after the first that fails.

    checkpoint: a signed note that the file must agree with. key: the public key that is expected, as hex or as a
    verifier key line; without it the ledger's own is used, and the report says so. progress: called with (level,
    events done, events in all). What lies beside the file (`blobs/`) is used; what does not is counted as withheld.

    Raises: BadInput, FileNotFoundError, NotALedger, LedgerDamaged (the file cannot be read as SQLite)
    """
    if level not in LEVEL_NAMES:
        raise BadInput(f"levels are 1 to {max(LEVEL_NAMES)}")
    expected = _key(key)
    size = None if checkpoint is None else _parse(checkpoint).size
    with open_source(ledger) as source:
        report = Report(ledger=str(ledger), size=source.size, key_given=key is not None, checkpoint=size)
        report.levels = [Level(number) for number in range(1, level + 1)]
        _run(source, report, checkpoint, expected, progress)
    return report


def _run(source: Source, report: Report, note: str | None, expected: bytes | None, progress: Progress | None) -> None:
    ground = check_bytes(source, report.levels[0], key=expected, note=note, progress=progress)
    _describe(report, ground)
    opened = ground.opened
    if not report.ok or opened is None:
        return
    if len(report.levels) >= 2:
        check_signatures(source, report.levels[1], opened, progress)
    if report.ok and len(report.levels) >= 3:
        scores = report.levels[3] if len(report.levels) >= 4 else None
        Redecision(source, report, ground, report.levels[2], scores).run(progress)


def _parse(note: str) -> Checkpoint:
    try:
        return notes.parse(note).checkpoint
    except BadCheckpoint as error:
        raise BadInput(f"the checkpoint is no signed note: {error}") from error


def _key(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return keys.read_key(text)
    except keys.BadKey as error:
        raise BadInput(f"the key is {error}") from error


def _describe(report: Report, ground: Ground) -> None:
    if ground.opened is not None:
        report.origin, report.profile = ground.opened.origin, ground.opened.profile
        report.key = ground.opened.public_key
    report.root = ground.root.hex()
