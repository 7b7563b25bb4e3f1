"""The ledger file itself: what it is, and a copy of it while the server writes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hypercluster.cli import options, render
from hypercluster.cli.errors import usage
from hypercluster.cli.options import TRUTH
from hypercluster.cli.render import Format

app = typer.Typer(help="The ledger file.")

DEFAULT = Path("data/challenge.sqlite3")

File = Annotated[Path, typer.Option("--ledger", help="Ledger file.", show_default=True)]


@app.command("show", epilog="Example: hypercluster ledger show --ledger data/challenge.sqlite3", rich_help_panel=TRUTH)
def show(ledger: File = DEFAULT, output: options.Output = Format.TABLE) -> None:
    """Whose ledger it is, how many events it holds, and its newest checkpoint. Verifies nothing."""
    from events.ledger import LedgerReader  # noqa: PLC0415 -- SQLite is loaded with it

    _must_exist(ledger)
    with LedgerReader(ledger) as reader:
        size, first = reader.size(), reader.entries(0, 1)
        notes = reader.checkpoints()
    found: dict[str, Any] = {"ledger": str(ledger), "events": size}
    if first:
        found |= _opening(*first[0])
    render.show(found | {"checkpoint": notes[-1] if notes else None}, output)


def _must_exist(ledger: Path) -> None:
    if not ledger.exists():
        raise FileNotFoundError(2, "no such file", str(ledger))


def _opening(pos: int, entry: bytes) -> dict[str, Any]:
    """The facts of event 1 that say whose ledger it is."""
    from events import registry  # noqa: PLC0415
    from events.types.ledger import LedgerOpened  # noqa: PLC0415

    event = registry.decode(pos, entry).event
    if not isinstance(event, LedgerOpened):
        return {}
    names = ("origin", "profile", "slug", "audience", "public_key", "operators", "release")
    return {name: getattr(event, name) for name in names}


@app.command(
    "backup",
    epilog="Example: hypercluster ledger backup /backups/challenge.sqlite3 --ledger data/challenge.sqlite3",
    rich_help_panel=TRUTH,
)
def make_backup(
    target: Annotated[Path, typer.Argument(help="File to make; never overwritten.")],
    ledger: File = DEFAULT,
    output: options.Output = Format.TABLE,
) -> None:
    """Copy the ledger, also while a server writes to it, and check the copy. Private values and keys are not in it."""
    from events.ledger import backup  # noqa: PLC0415

    _must_exist(ledger)
    if target.exists():
        raise usage(f"{target} exists already", hint="name a new file; backups are never overwritten", field="TARGET")
    if not target.parent.is_dir():
        raise usage(f"{target.parent} is no directory", hint=f"mkdir -p {target.parent}", field="TARGET")
    made = backup(ledger, target)
    found = {"ledger": str(made.path), "events": made.size, "root": made.root.hex()}
    render.show(found, output, line=f"backup of {made.size} events, checked")
