"""What operators of a ledger decide. Each command is signed by a hotkey that the ledger names as an operator."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hypercluster.cli.errors import usage
from hypercluster.cli.options import OPERATE
from hypercluster.cli.session import Session, command
from hypercluster.domain import strict_json

app = typer.Typer(help="Policies, metagraph lists, and who may take part.")
policy = typer.Typer(help="The numbers that decide.")
metagraph = typer.Typer(help="The subnet's hotkeys and their owners.")
server = typer.Typer(help="The server itself.")
app.add_typer(policy, name="policy")
app.add_typer(metagraph, name="metagraph")

ProviderId = Annotated[str | None, typer.Option("--provider-id", help="Id of a provider.")]
NodeId = Annotated[str | None, typer.Option("--node-id", help="Id of a node, instead of a provider.")]
Reason = Annotated[str, typer.Option("--reason", help="Reason code: a-z, 0-9 and _. It is public.")]

_EXAMPLE = "--reason broken_fans --key-file operator.json"


@server.callback()
def _server() -> None:
    """The server itself."""


@metagraph.callback()
def _metagraph() -> None:
    """The subnet's hotkeys and their owners."""


@command(policy, "show", panel=OPERATE, example="hypercluster operator policy show > policy.json")
def show_policy(session: Session) -> None:
    """The newest adopted policy as a JSON document that can be edited and adopted."""
    session.show(newest_policy(session.get("/v1/policy")))


@command(
    policy,
    "adopt",
    signed=True,
    panel=OPERATE,
    example="hypercluster operator policy adopt policy.json --key-file operator.json",
)
def adopt_policy(
    session: Session, file: Annotated[Path, typer.Argument(help="The whole policy as JSON, with a higher version.")]
) -> None:
    """Adopt a policy; it holds from the next epoch edge on."""
    session.show(session.post("/v1/operator/policy", {"policy": document(file)}))


@command(
    metagraph,
    "adopt",
    signed=True,
    panel=OPERATE,
    example="hypercluster operator metagraph adopt metagraph.json --key-file operator.json",
)
def adopt_metagraph(
    session: Session,
    file: Annotated[
        Path, typer.Argument(help='{"netuid": n, "block": n, "entries": [{"uid": n, "hotkey": s, "coldkey": s}]}')
    ],
) -> None:
    """Adopt the subnet's list of hotkeys and owners as of a block."""
    session.show(session.post("/v1/operator/metagraph", document(file)))


@command(
    app,
    "suspend",
    signed=True,
    panel=OPERATE,
    example=f"hypercluster operator suspend --node-id NODE_ID {_EXAMPLE}",
)
def suspend(
    session: Session,
    reason: Reason,
    provider_id: ProviderId = None,
    node_id: NodeId = None,
    ban: Annotated[bool, typer.Option("--ban", help="Ban the provider.")] = False,
) -> None:
    """Suspend a provider or a node at once: its offers are withdrawn and its leases end."""
    session.show(session.post("/v1/operator/suspend", _target(provider_id, node_id, reason) | {"ban": ban}))


@command(
    app,
    "readmit",
    signed=True,
    panel=OPERATE,
    example="hypercluster operator readmit --node-id NODE_ID --reason repaired --key-file operator.json",
)
def readmit(session: Session, reason: Reason, provider_id: ProviderId = None, node_id: NodeId = None) -> None:
    """Let a provider or a node back in. Its offers stay withdrawn."""
    session.show(session.post("/v1/operator/readmit", _target(provider_id, node_id, reason)))


@command(
    app,
    "drain",
    signed=True,
    panel=OPERATE,
    example=f"hypercluster operator drain --provider-id PROVIDER_ID {_EXAMPLE}",
)
def drain(session: Session, reason: Reason, provider_id: ProviderId = None, node_id: NodeId = None) -> None:
    """Let the leases of a node, or of all nodes of a provider, run out, and start no new ones."""
    session.show(session.post("/v1/operator/drain", _target(provider_id, node_id, reason)))


@command(
    app,
    "operators",
    signed=True,
    panel=OPERATE,
    example="hypercluster operator operators HOTKEY_A HOTKEY_B --key-file operator.json",
)
def change_operators(
    session: Session,
    hotkeys: Annotated[
        list[str], typer.Argument(help="All operators from now on, in this order.", metavar="HOTKEY...")
    ],
) -> None:
    """Replace the whole list of operators. Who is not named is no operator any more."""
    session.show(session.post("/v1/operator/operators", {"operators": hotkeys}))


@command(
    server,
    "accept-clock",
    signed=True,
    panel=OPERATE,
    example="hypercluster server accept-clock --key-file operator.json",
)
def accept_clock(session: Session) -> None:
    """Accept the server's clock as it is now, after it has jumped and writes have stopped."""
    session.show(session.post("/v1/operator/clock"))


def document(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises: CliError where the file holds no strict JSON object, OSError
    """
    try:
        found = strict_json.loads(path.read_bytes())
    except strict_json.StrictJsonError as error:
        raise usage(f"{path} is not strict JSON: {error}", field="FILE") from error
    if not isinstance(found, dict):
        raise usage(f"{path} must hold one JSON object", field="FILE")
    return found


def newest_policy(answer: dict[str, Any]) -> dict[str, Any]:
    """The policy with the highest version in an answer to GET /v1/policy, be it in force or still to come."""
    found: dict[str, Any] = [answer, *answer.get("upcoming", [])][-1]["policy"]
    return found


def _target(provider_id: str | None, node_id: str | None, reason: str) -> dict[str, Any]:
    if (provider_id is None) == (node_id is None):
        raise usage("name either a provider or a node", field="--provider-id or --node-id")
    named = {"provider_id": provider_id} if node_id is None else {"node_id": node_id}
    return {"reason_code": reason, **named}
