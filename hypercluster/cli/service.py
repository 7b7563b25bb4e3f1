"""Is the server there, and which release is it?"""

from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from hypercluster.cli import options, render
from hypercluster.cli.client import Client
from hypercluster.cli.errors import CliError
from hypercluster.cli.options import OPERATE
from hypercluster.cli.render import Format
from hypercluster.cli.session import Session, command
from hypercluster.domain.codes import Exit

SLUG = "hypercluster"
TIMEOUT_S = 5.0

health = typer.Typer()
version = typer.Typer()


@command(health, "health", panel=OPERATE, example="hypercluster health --url http://127.0.0.1:3200")
def show_health(session: Session) -> None:
    """Ask the server how it is. Exit code 0 only if it says ok."""
    found = session.get("/health")
    session.show(found)
    if found.get("status") != "ok":
        message = f"the server says {found.get('status')}"
        raise CliError(message, code="unhealthy", exit_with=Exit.FAULT, hint="look at the checks above")


@version.command("version", epilog="Example: hypercluster version --url http://127.0.0.1:3200", rich_help_panel=OPERATE)
def show_version(
    url: options.Url = None,
    host: options.Host = None,
    port: options.Port = None,
    output: options.Output = Format.TABLE,
    remote: Annotated[bool, typer.Option("--remote", help="Ask the default server too.")] = False,
) -> None:
    """The release of this program; with a server's address also the server's."""
    installed = installed_version("hypercluster-base")
    if url is None and host is None and port is None and not remote:
        render.show({"version": installed}, output, line=f"{SLUG} {installed}")
        return
    with Client(options.base_url(url, host, port), timeout=TIMEOUT_S) as client:
        found = client.request("GET", "/version", signed=False)
    slug, theirs = found.get("challenge_slug"), found.get("challenge_version")
    line = f"package={installed} challenge_version={theirs} slug={slug} role={found.get('role')}"
    render.show({"version": installed, "server": found}, output, line=line)
    if slug != SLUG:
        message = f"the server is {slug}, not {SLUG}"
        raise CliError(message, code="other_service", exit_with=Exit.FAULT, hint="check --url")
    if theirs != installed:
        render.note(f"note: this program is {installed}, the server {theirs}")
