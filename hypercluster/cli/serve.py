"""Run the server: one process, one directory."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypercluster.cli import render
from hypercluster.cli.errors import CliError
from hypercluster.cli.options import OPERATE
from hypercluster.domain.codes import Exit

if TYPE_CHECKING:
    from hypercluster.runtime.settings import Settings

app = typer.Typer()

DEFAULT_PORT = 3200

# Settings that the command line can give too.
DATABASE_URL = "CHALLENGE_DATABASE_URL"  # says where the ledger is, whatever --data says
_OPTIONS = {
    "HYPER_PROFILE": "--profile",
    "CHALLENGE_HOST": "--host",
    "CHALLENGE_PORT": "--port",
    DATABASE_URL: "--data",
}


@app.command(
    "serve", epilog="Example: hypercluster serve --profile sim --data ./data --port 3200", rich_help_panel=OPERATE
)
def serve(
    profile: Annotated[
        str, typer.Option("--profile", envvar="HYPER_PROFILE", help="production or sim.")
    ] = "production",
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 picks a free one.", min=0)] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Directory of the ledger and all other files.")] = None,
) -> None:
    """Serve the API and run the workers until SIGTERM or SIGINT."""
    from hypercluster.runtime.settings import SettingsError, load  # noqa: PLC0415 - heavy, only this command needs it

    try:
        settings = load(profile, _overrides(profile, host, port, data))
        for warning in settings.warnings:
            render.note(f"warning: {warning}")
        _run(settings)
    except SettingsError as error:
        field = f"{_OPTIONS[error.name]} or {error.name}" if error.name in _OPTIONS else error.name
        raise CliError(
            error.problem, code="setting_refused", exit_with=Exit.USAGE, hint=error.fix, field=field
        ) from error


def _overrides(profile: str, host: str | None, port: int | None, data: Path | None) -> dict[str, object]:
    given: dict[str, object] = {}
    if host is not None:
        given["host"] = host
    elif profile == "sim":
        given["host"] = os.environ.get("CHALLENGE_HOST", "127.0.0.1")
    if port is not None:
        given["port"] = port
    elif "CHALLENGE_PORT" not in os.environ and profile == "sim":
        given["port"] = DEFAULT_PORT
    if data is not None and DATABASE_URL in os.environ:
        render.note(f"warning: {DATABASE_URL} is set and names the ledger; --data is not used")
    elif data is not None:
        given["database_url"] = f"sqlite:///{data.resolve()}/challenge.sqlite3"
    return given


def _run(settings: "Settings") -> None:
    import uvloop  # noqa: PLC0415

    from hypercluster.http.serving import serve_until_told  # noqa: PLC0415 - loads the whole server

    asyncio.run(serve_until_told(settings), loop_factory=uvloop.new_event_loop)
