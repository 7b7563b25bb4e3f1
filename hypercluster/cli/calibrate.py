"""Preflights on named nodes, and a policy draft with what they measured."""

# ruff: noqa: PLR0913, PLR0917 -- a command's options are its parameters

import asyncio
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypercluster.cli import options, render
from hypercluster.cli.client import Client
from hypercluster.cli.errors import CliError, usage
from hypercluster.cli.operator import document, newest_policy
from hypercluster.cli.options import OPERATE
from hypercluster.cli.render import Format
from hypercluster.domain.codes import Exit

if TYPE_CHECKING:
    from hypercluster.effects.plan import NodeTarget
    from hypercluster.effects.ssh import Ssh

app = typer.Typer()

UNVERIFIED = "unverified"

_EXAMPLE = "hypercluster calibrate --hosts hosts.json --ssh-key data/keys/ssh_client --profile sim --out policy.json"


@dataclass(frozen=True, slots=True)
class Host:
    """Where a node is reached and how many ranks it gets."""

    endpoint: str
    user: str
    host_key: str
    ranks: int


@app.command("calibrate", epilog=f"Example: {_EXAMPLE}", rich_help_panel=OPERATE)
def calibrate(
    ssh_key: Annotated[Path, typer.Option("--ssh-key", help="Private key that may log in on the nodes.")],
    hosts: Annotated[
        Path | None, typer.Option("--hosts", help="What `hypercluster cluster up -o json` printed.")
    ] = None,
    node: Annotated[list[str] | None, typer.Option("--node", help="Endpoint, host:port. Repeatable.")] = None,
    user: Annotated[list[str] | None, typer.Option("--user", help="User on that node. One for each --node.")] = None,
    host_key: Annotated[
        list[str] | None, typer.Option("--host-key", help="Key of that node. One for each --node.")
    ] = None,
    ranks: Annotated[int, typer.Option("--ranks", help="Ranks on each --node.", min=1, max=64)] = 1,
    profile: Annotated[
        str, typer.Option("--profile", envvar="HYPER_PROFILE", help="sim may connect to loopback.")
    ] = "production",
    allow_network: Annotated[
        list[str] | None, typer.Option("--allow-network", help="Private range to connect to. Repeatable.")
    ] = None,
    hardware_class: Annotated[str, typer.Option("--hardware-class", help="Class that the rows are for.")] = UNVERIFIED,
    runs: Annotated[int, typer.Option("--runs", help="Preflights of each shape; the median counts.", min=1)] = 3,
    share_ppm: Annotated[
        int, typer.Option("--share-ppm", help="Part of the median that is expected.", min=1, max=1_000_000)
    ] = 800_000,
    policy: Annotated[Path | None, typer.Option("--policy", help="Policy to start from, instead of --url's.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File for the draft, instead of standard output.")] = None,
    url: options.Url = None,
    output: options.Output = Format.JSON,
) -> None:
    """Run the preflight on nodes and write a policy draft with what to expect of such nodes. Changes nothing."""
    targets = _read_hosts(hosts) if hosts is not None else _named(node or [], user or [], host_key or [], ranks)
    base = document(policy) if policy is not None else _adopted(url)
    rows = asyncio.run(_measure(targets, _ssh(ssh_key, profile, allow_network or []), hardware_class, runs, share_ppm))
    made = draft(base.get("policy", base), rows)
    for row in rows:
        label = f"{row['program']} on {row['nodes']} node(s), {row['fabric']}, {row['hardware_class']}"
        render.note(f"{label}: {row['bytes_per_s']} bytes/s expected")
    if out is None:
        render.show(made, output)
    else:
        out.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        render.note(f"policy draft, version {made['version']}: {out}")


def draft(base: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The policy of the next version, with these rows in place of, or beside, its own.

    Raises: CliError where the base is no policy, or the draft would be refused
    """
    import msgspec  # noqa: PLC0415

    from events.types.policy import Policy  # noqa: PLC0415
    from hypercluster.domain.policy.check import check_policy  # noqa: PLC0415

    try:
        sound = msgspec.convert(base, Policy)
        fresh = {_key(row): row for row in [*msgspec.to_builtins(sound.expected_bandwidth), *rows]}
        changes = {"version": sound.version + 1, "expected_bandwidth": list(fresh.values())}
        made = msgspec.convert(msgspec.to_builtins(sound) | changes, Policy)
    except msgspec.ValidationError as error:
        raise usage(
            f"this is no policy: {error}", hint="hypercluster operator policy show", field="--policy"
        ) from error
    refused = check_policy(made)
    if refused is not None:
        raise usage(refused.message, hint="correct the policy to start from", field=refused.field)
    shown: dict[str, Any] = msgspec.to_builtins(made)
    return shown


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["program"], row["hardware_class"], row["fabric"], row["nodes"]


def _read_hosts(path: Path) -> list[Host]:
    found = document(path)
    items = found.get("items", found.get("hosts"))
    try:
        hosts = [Host(one["endpoint"], one["user"], one["host_key"], len(one["gpus"])) for one in items or []]
    except (KeyError, TypeError) as error:
        message = f"{path} is no list of hosts: each has endpoint, user, host_key and gpus"
        raise usage(message, hint="hypercluster cluster up -o json > hosts.json", field="--hosts") from error
    if not hosts:
        raise usage(f"{path} names no host", hint="hypercluster cluster up -o json > hosts.json", field="--hosts")
    return hosts


def _named(nodes: list[str], users: list[str], keys: list[str], ranks: int) -> list[Host]:
    if not nodes:
        raise usage("name the nodes", hint="add --node, --user and --host-key, or --hosts FILE", field="--node")
    if not len(nodes) == len(users) == len(keys):
        message = f"{len(nodes)} --node, {len(users)} --user, {len(keys)} --host-key: each node needs one of each"
        raise usage(message, field="--node")
    return [Host(endpoint, user, key, ranks) for endpoint, user, key in zip(nodes, users, keys, strict=True)]


def _adopted(url: str | None) -> dict[str, Any]:
    with Client(options.base_url(url, None, None)) as client:
        return newest_policy(client.request("GET", "/v1/policy", signed=False))


def _ssh(key: Path, profile: str, networks: list[str]) -> "Ssh":
    from hypercluster.effects.networks import Allowed  # noqa: PLC0415
    from hypercluster.effects.ssh import Ssh  # noqa: PLC0415 -- loads the SSH library

    if profile not in ("production", "sim"):
        raise usage("the profile is production or sim", field="--profile")
    try:
        allowed = Allowed(profile, networks)
    except ValueError as error:
        raise usage(str(error), field="--allow-network") from error
    try:
        return Ssh(key, allowed)
    except ValueError as error:
        hint = "name a private key in OpenSSH format without a passphrase"
        raise usage(f"{key}: {error}", hint=hint, field="--ssh-key") from error


async def _measure(
    hosts: list[Host], ssh: "Ssh", hardware_class: str, runs: int, share_ppm: int
) -> list[dict[str, Any]]:
    import msgspec  # noqa: PLC0415

    from hypercluster.effects.calibrate import calibrate as measure  # noqa: PLC0415
    from hypercluster.effects.networks import NodeFailure  # noqa: PLC0415

    targets = [_target(number, host) for number, host in enumerate(hosts)]
    marker = f"calibrate/{secrets.token_hex(8)}"
    try:
        rows = await measure(
            targets, ssh=ssh, hardware_class=hardware_class, marker=marker, runs=runs, share_ppm=share_ppm
        )
    except NodeFailure as failure:
        message = f"the preflight did not come through at {failure.node_id or 'any node'}"
        hint = "check the node's address, user, host key and authorized_keys, then run it again"
        raise CliError(message, code=failure.code, exit_with=Exit.REMOTE_FAILED, hint=hint, field="--node") from failure
    return [msgspec.to_builtins(row) for row in rows]


def _target(number: int, host: Host) -> "NodeTarget":
    from hypercluster.effects.plan import NodeTarget  # noqa: PLC0415

    name = f"node {number} ({host.endpoint})"
    return NodeTarget(name, host.endpoint, host.user, host.host_key, tuple(range(host.ranks)))
