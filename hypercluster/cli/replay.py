"""Recompute what a ledger says, from its bytes to its weights. Needs no server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypercluster.cli import options, render
from hypercluster.cli.errors import CliError, usage
from hypercluster.cli.options import TRUTH
from hypercluster.cli.render import Format
from hypercluster.domain.codes import Exit

if TYPE_CHECKING:
    from replay.report import Level, Progress, Report

app = typer.Typer(help="Verify a ledger without trusting who wrote it.")


@app.callback()
def replay() -> None:
    """Verify a ledger without trusting who wrote it."""


@app.command(
    "verify",
    epilog="Example: hypercluster replay verify challenge.sqlite3 --checkpoint saved-checkpoint.txt --key HEX",
    rich_help_panel=TRUTH,
)
def verify(
    ledger: Annotated[Path, typer.Argument(help="Ledger file; `blobs/` beside it is used.", metavar="LEDGER")],
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="A signed note that was saved before.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Expected public key: hex, or a verifier key line.")] = None,
    level: Annotated[int, typer.Option("--level", help="Stop after this level.", min=1, max=4)] = 4,
    output: options.Output = Format.TABLE,
) -> None:
    """Check bytes (1), signatures (2), decisions (3), scores and weights (4). Exit code 9 if anything is wrong."""
    from replay.verify import BadInput  # noqa: PLC0415 -- the whole domain is loaded with it
    from replay.verify import verify as run  # noqa: PLC0415

    note = None if checkpoint is None else _read_note(checkpoint)
    try:
        with _bar() as progress:
            report = run(ledger, checkpoint=note, key=key, level=level, progress=progress)
    except BadInput as error:
        raise usage(str(error), hint="hypercluster replay verify --help") from error
    failed = report.failed
    if failed is None or output is not Format.TABLE:
        _print(report, output)
    if failed is not None:
        raise _failure(report, failed)


def _failure(report: "Report", failed: "Level") -> CliError:
    wrong = failed.wrong
    pos = None if wrong is None else wrong.pos
    reason = "" if wrong is None else wrong.reason
    where = f"event {pos}" if pos is not None else "the file"
    return CliError(
        f"level {failed.number} ({failed.name}): {where}: {reason}",
        code="verification_failed",
        exit_with=Exit.INTEGRITY,
        hint=f"hypercluster events show {pos or 1} --ledger {report.ledger}",
        field=None if pos is None else str(pos),
    )


def _print(report: "Report", output: Format) -> None:
    if output is not Format.TABLE:
        render.show(report.as_dict(), output)
        return
    source = "given" if report.key_given else "taken from the ledger itself: compare it with one from elsewhere"
    rows = [
        {
            "level": level.number,
            "name": level.name,
            "state": level.state,
            "checked": level.checked,
            "withheld": sum(level.withheld.values()),
            "unverifiable": sum(level.unverifiable.values()),
        }
        for level in report.levels
    ]
    render.show({"items": rows}, output)
    for level in report.levels:
        for reason, count in sorted((level.withheld + level.unverifiable).items()):
            render.write(render.escape(f"level {level.number}: {count} x {reason}"))
    for number, release in sorted(report.rules.items()):
        render.write(render.escape(f"rule set {number} can be decided again by release {release}"))
    checked = "" if report.checkpoint is None else f", which hold the checkpoint over {report.checkpoint}"
    render.write(render.escape(f"ok: {report.size} events of {report.origin}{checked}, root {report.root}"))
    render.write(render.escape(f"key: {report.key} ({source})"))


def _read_note(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise usage(f"{path} is no signed note", field="--checkpoint") from error


@contextmanager
def _bar() -> "Iterator[Progress | None]":
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 -- only where there is a terminal
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[int, Any] = {}

        def advance(level: int, done: int, total: int) -> None:
            if level not in tasks:
                tasks[level] = bar.add_task(f"level {level}", total=total)
            bar.update(tasks[level], completed=done)

        yield advance
