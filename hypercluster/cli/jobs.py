"""Multi-node jobs: submit, watch, cancel, read what the ranks printed."""

# ruff: noqa: PLR0913, PLR0917 -- a command's options are its parameters

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hypercluster.cli.errors import usage
from hypercluster.cli.market import one_id
from hypercluster.cli.options import JOBS
from hypercluster.cli.session import Session, command
from hypercluster.domain import strict_json

app = typer.Typer(help="Multi-node jobs on leased nodes.")

COLUMNS = ("id", "status", "world_size", "nnodes", "image_digest", "failure_code", "created_at")

JobId = Annotated[str | None, typer.Argument(help="Id of the job.")]
NamedId = Annotated[str | None, typer.Option("--id", help="Id of the job.")]


@command(
    app,
    "submit",
    signed=True,
    panel=JOBS,
    example="hypercluster jobs submit --spec job.json --lease-id LEASE_ID --key-file key.json",
)
def submit(
    session: Session,
    spec: Annotated[Path | None, typer.Option("--spec", help="JSON file with the request's fields.")] = None,
    image_digest: Annotated[str | None, typer.Option("--image-digest", help="name@sha256:<64 hex>.")] = None,
    entrypoint: Annotated[str | None, typer.Option("--entrypoint", help="Arguments, separated by commas.")] = None,
    world_size: Annotated[int | None, typer.Option("--world-size", help="Ranks in all.", min=1)] = None,
    nnodes: Annotated[int | None, typer.Option("--nnodes", help="Nodes.", min=1)] = None,
    nproc_per_node: Annotated[int | None, typer.Option("--nproc-per-node", help="Ranks per node.", min=1)] = None,
    timeout_s: Annotated[int | None, typer.Option("--timeout-s", help="Longest run in seconds.", min=1)] = None,
    fabric: Annotated[str, typer.Option("--fabric", help="auto, ib, eth or nvlink_only.")] = "auto",
    tee: Annotated[str, typer.Option("--tee", help="none, tdx or tdx+gpu_cc.")] = "none",
    lease_id: Annotated[str | None, typer.Option("--lease-id", help="Lease to run on.")] = None,
    client_request_id: Annotated[str | None, typer.Option("--client-request-id", help="Makes a retry safe.")] = None,
) -> None:
    """Submit a job. Options override the spec file. Outside a TEE nothing in a job is secret from the provider."""
    flags = {
        "image_digest": image_digest,
        "entrypoint": entrypoint.split(",") if entrypoint is not None else None,
        "world_size": world_size,
        "nnodes": nnodes,
        "nproc_per_node": nproc_per_node,
        "timeout_s": timeout_s,
        "lease_id": lease_id,
        "client_request_id": client_request_id,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    body = _DEFAULTS | {"fabric": fabric, "tee": tee} | _spec(spec) | given
    job = session.post("/v1/jobs", body, private=bool(body.get("env")))
    session.show(job, line=f"job_id={job.get('id')}")


@command(app, "status", signed=None, panel=JOBS, example="hypercluster jobs status --id JOB_ID")
def status(session: Session, job_id: JobId = None, named: NamedId = None) -> None:
    """One job with its newest attempt."""
    job = session.get(f"/v1/jobs/{one_id(job_id, named)}", signed=session.signs)
    session.show(job, line=f"job_id={job.get('id')} status={job.get('status')}")


@command(app, "list", signed=None, panel=JOBS, example="hypercluster jobs list --status running --key-file key.json")
def list_jobs(
    session: Session,
    status: Annotated[str | None, typer.Option("--status", help="Only jobs in this state.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Cursor: `next` of the page before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="How many at most.", min=1, max=500)] = None,
) -> None:
    """Jobs of the hotkey that signs; without one the list is empty."""
    found = session.get("/v1/jobs", {"status": status, "after": after, "limit": limit}, signed=session.signs)
    session.show(found, line=f"jobs={len(found.get('items', []))}", columns=COLUMNS)


@command(app, "cancel", signed=True, panel=JOBS, example="hypercluster jobs cancel --id JOB_ID --key-file key.json")
def cancel(session: Session, job_id: JobId = None, named: NamedId = None) -> None:
    """Cancel a job; its ranks are stopped."""
    found = one_id(job_id, named)
    session.show(session.post(f"/v1/jobs/{found}/cancel"), line=f"cancelled job_id={found}")


@command(
    app, "logs", signed=None, panel=JOBS, example="hypercluster jobs logs --id JOB_ID --rank 0 --key-file key.json"
)
def logs(
    session: Session,
    job_id: JobId = None,
    named: NamedId = None,
    attempt: Annotated[int, typer.Option("--attempt", help="Number of the attempt.", min=1)] = 1,
    rank: Annotated[int | None, typer.Option("--rank", help="Print what this rank wrote.", min=0)] = None,
    stream: Annotated[str, typer.Option("--stream", help="stdout or stderr, with --rank.")] = "stdout",
) -> None:
    """How an attempt went; with --rank the exact bytes that the rank wrote, for the submitter only."""
    path = f"/v1/jobs/{one_id(job_id, named)}/attempts/{attempt}"
    if rank is not None:
        _copy_output(session, f"{path}/logs?rank={rank}&stream={stream}")
        return
    found: dict[str, Any] = session.get(path, signed=session.signs)
    session.show({name: value for name, value in found.items() if value is not None})


PAGE_BYTES = 1 << 20


def _copy_output(session: Session, path: str) -> None:
    """Write a rank's output to standard output, unchanged, page by page."""
    offset = 0
    while page := session.client.data(f"{path}&offset={offset}&limit={PAGE_BYTES}"):
        sys.stdout.buffer.write(page)
        offset += len(page)
        if len(page) < PAGE_BYTES:
            break
    sys.stdout.buffer.flush()


def _spec(path: Path | None) -> dict[str, Any]:
    """The fields of a spec file."""
    if path is None:
        return {}
    try:
        found = strict_json.loads(path.read_bytes())
    except strict_json.StrictJsonError as error:
        raise usage(f"{path} is not strict JSON: {error}", field="--spec") from error
    if not isinstance(found, dict):
        raise usage(f"{path} must hold one JSON object", field="--spec")
    return found


_DEFAULTS: dict[str, Any] = {
    "image_digest": "sha256:sim0000000000000000000000000000000000000000000000000000000000001",
    "entrypoint": ["python", "-c", "print('ok')"],
    "world_size": 1,
    "nnodes": 1,
    "nproc_per_node": 1,
    "timeout_s": 60,
    "resource": {"gpus": 1, "nodes": 1},
}
