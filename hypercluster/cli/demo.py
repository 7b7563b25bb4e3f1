"""The whole path on this machine, told as a story."""

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hypercluster.cli import options, render
from hypercluster.cli.errors import CliError
from hypercluster.cli.options import TRUTH
from hypercluster.cli.render import Format
from hypercluster.domain.codes import Exit

app = typer.Typer()


@app.command("demo", epilog="Example: hypercluster demo --keep ./demo", rich_help_panel=TRUTH)
def demo(
    keep: Annotated[Path | None, typer.Option("--keep", help="Keep all files in this new or empty directory.")] = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Rent, run, score, weigh and audit on this machine, with real processes. Takes less than a minute."""
    from hypercluster.sim.story import Story, StoryFailed  # noqa: PLC0415 - loads the client and the key libraries

    directory = _directory(keep)
    try:
        outcome = Story(directory, render.note).run()
    except StoryFailed as failed:
        hint = f"read {failed.logs}" if failed.logs else "run it again with --keep and read the logs"
        raise CliError(str(failed), code="demo_failed", exit_with=Exit.REMOTE_FAILED, hint=hint) from failed
    data = asdict(outcome) | {"directory": str(directory), "next": _next_commands(outcome.ledger)}
    if output is Format.TABLE:
        _summary(data)
    else:
        render.show(data, output)
    if not outcome.verified:
        message = f"the replay did not verify: {outcome.report.get('why', 'see the report')}"
        raise CliError(message, code="not_verified", exit_with=Exit.INTEGRITY, hint=data["next"][0])


def _directory(keep: Path | None) -> Path:
    if keep is None:
        base = Path(tempfile.gettempdir()) / "hypercluster-demo"
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        return base
    keep = keep.absolute()
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        message = f"{keep} is not an empty directory"
        raise CliError(message, code="usage", exit_with=Exit.USAGE, hint="name a new directory", field="--keep")
    keep.mkdir(parents=True, exist_ok=True)
    return keep


def _next_commands(ledger: str) -> list[str]:
    return [
        f"hypercluster replay verify {ledger}",
        f"hypercluster events list --ledger {ledger}",
        f"hypercluster serve --profile sim --data {Path(ledger).parent}",
    ]


def _summary(data: dict[str, object]) -> None:
    lines = [
        f"ledger   {data['ledger']}",
        f"job      {data['job_id']}  {data['job_status']}",
        f"events   {data['events']}",
        *(f"weight   {weight:.6f}  {hotkey}" for hotkey, weight in data["weights"].items()),  # type: ignore[attr-defined]
        f"audit    {'verified' if data['verified'] else 'NOT VERIFIED'}",
        "",
        "Try next:",
        *(f"  {command}" for command in data["next"]),  # type: ignore[attr-defined]
    ]
    for line in lines:
        render.write(line)
