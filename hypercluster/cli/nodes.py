"""Providers and their nodes."""

# ruff: noqa: PLR0913, PLR0917 -- a command's options are its parameters

from typing import Annotated, Any

import typer

from hypercluster.cli.options import MARKET
from hypercluster.cli.session import Session, command

app = typer.Typer(help="GPU nodes: list, register, keep alive.")
providers = typer.Typer(help="Hotkeys that offer nodes.")

NODE_COLUMNS = ("id", "status", "gpu_model", "gpu_count", "has_ib", "tee_capability", "last_heartbeat")


@command(app, "list", signed=None, panel=MARKET, example="hypercluster nodes list -o json")
def list_nodes(
    session: Session,
    after: Annotated[str | None, typer.Option("--after", help="Cursor: `next` of the page before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="How many at most.", min=1, max=500)] = None,
) -> None:
    """All nodes, or with a hotkey its own."""
    found = session.get("/v1/nodes", {"after": after, "limit": limit}, signed=session.signs)
    session.show(found, columns=NODE_COLUMNS)


@command(app, "show", signed=None, panel=MARKET, example="hypercluster nodes show NODE_ID")
def show_node(session: Session, node_id: Annotated[str, typer.Argument(help="Id of the node.")]) -> None:
    """One node. Its owner and its renter also see the endpoint."""
    session.show(session.get(f"/v1/nodes/{node_id}", signed=session.signs))


@command(
    app,
    "register",
    signed=True,
    panel=MARKET,
    example="hypercluster nodes register --gpus 8 --gpu-model H100_80GB --ssh 203.0.113.7:22 --ssh-user gpu "
    "--ssh-host-key 'ssh-ed25519 AAAA...' --key-file key.json",
)
def register_node(
    session: Session,
    gpus: Annotated[int, typer.Option("--gpus", help="Number of GPUs.", min=1)],
    gpu_model: Annotated[str, typer.Option("--gpu-model", help="Model of the GPUs.")] = "sim-gpu",
    ssh: Annotated[str | None, typer.Option("--ssh", help="Endpoint, host:port. Stays private.")] = None,
    ssh_user: Annotated[str | None, typer.Option("--ssh-user", help="User to log in as; not root.")] = None,
    ssh_host_key: Annotated[str | None, typer.Option("--ssh-host-key", help="The host's key, to pin it.")] = None,
    hostname: Annotated[str | None, typer.Option("--hostname", help="Name of the host. Stays private.")] = None,
    tee: Annotated[str, typer.Option("--tee", help="What the node can attest: none, tdx or tdx+gpu_cc.")] = "none",
    ib: Annotated[bool, typer.Option("--ib", help="Claim one active InfiniBand device of 100 Gbit/s.")] = False,
    display_name: Annotated[str | None, typer.Option("--display-name", help="Name of the provider.")] = None,
    node_id: Annotated[str | None, typer.Option("--node-id", help="Id of a node to update.")] = None,
) -> None:
    """Become a provider if need be, and list a node. Registering again updates it."""
    session.post("/v1/providers/register", _given(display_name=display_name))
    body = _given(
        gpu_count=gpus,
        gpu_model=gpu_model,
        ssh_endpoint=ssh,
        ssh_user=ssh_user,
        ssh_host_key=ssh_host_key,
        hostname=hostname,
        tee_capability=tee,
        node_id=node_id,
        inventory=_INFINIBAND if ib else None,
    )
    node = session.post("/v1/nodes", body, private=True)
    session.show(node, line=f"node_id={node.get('id')}")


@command(app, "heartbeat", signed=True, panel=MARKET, example="hypercluster nodes heartbeat --key-file key.json")
def heartbeat(
    session: Session,
    node_id: Annotated[str | None, typer.Option("--node-id", help="One node; without it all of them.")] = None,
) -> None:
    """Say that nodes are there."""
    session.show(session.post("/v1/nodes/heartbeat", _given(node_id=node_id)), columns=NODE_COLUMNS)


@command(providers, "register", signed=True, panel=MARKET, example="hypercluster providers register --display-name me")
def register_provider(
    session: Session,
    display_name: Annotated[str | None, typer.Option("--display-name", help="Name to show.")] = None,
) -> None:
    """Become a provider."""
    provider = session.post("/v1/providers/register", _given(display_name=display_name))
    session.show(provider, line=f"provider_id={provider.get('id')}")


@command(providers, "list", panel=MARKET, example="hypercluster providers list")
def list_providers(
    session: Session,
    after: Annotated[str | None, typer.Option("--after", help="Cursor: `next` of the page before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="How many at most.", min=1, max=500)] = None,
) -> None:
    """All providers."""
    found = session.get("/v1/providers", {"after": after, "limit": limit})
    session.show(found, columns=("id", "hotkey", "display_name", "status", "created_at"))


def _given(**values: Any) -> dict[str, Any]:
    """What was named on the command line."""
    return {name: value for name, value in values.items() if value is not None}


_INFINIBAND = {
    "ib_devices": [{"name": "mlx5_0", "port": 1, "rate_gbps": 100, "state": "ACTIVE"}],
    "ib_rate_gbps": 100,
}
