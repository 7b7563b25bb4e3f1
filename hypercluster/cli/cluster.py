"""Loopback SSH hosts for the sim profile."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hypercluster.cli import options, render
from hypercluster.cli.client import Client
from hypercluster.cli.options import OPERATE
from hypercluster.cli.render import Format

app = typer.Typer()


@app.callback()
def cluster() -> None:
    """SSH hosts on this machine, for the sim profile."""


@app.command("up", epilog="Example: hypercluster cluster up --nodes 2 --gpus-per-node 2", rich_help_panel=OPERATE)
def up(
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=64, help="How many hosts.")] = 2,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=1, max=16, help="GPUs that each claims.")] = 2,
    directory: Annotated[Path | None, typer.Option("--dir", help="Directory of the hosts' keys and homes.")] = None,
    authorized_key: Annotated[
        Path | None, typer.Option("--authorized-key", help="Public key that may log in, instead of the server's.")
    ] = None,
    url: options.Url = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Start hosts and keep them up until SIGTERM, SIGINT or the end of standard input."""
    from hypercluster.sim.cluster import serve  # noqa: PLC0415 - loads the SSH library

    if authorized_key is not None:
        authorized = authorized_key.read_text(encoding="ascii")
    else:
        with Client(options.base_url(url, None, None)) as client:
            authorized = client.request("GET", "/v1/ssh-key", signed=False)["ssh_public_key"]
    home = directory or Path(tempfile.mkdtemp(prefix="hypercluster-hosts-"))
    asyncio.run(serve(home.absolute(), nodes, gpus_per_node, authorized, lambda hosts: _show(hosts, home, output)))


def _show(hosts: list[dict[str, object]], home: Path, output: Format) -> None:
    columns = ("endpoint", "user", "gpus", "host_key")
    render.show({"items": hosts, "directory": str(home)}, output, columns=columns)
    render.flush()
    render.note("hosts are up; Ctrl-C ends them")
