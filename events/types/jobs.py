"""Multi-node jobs: what was asked, where it ran, how each attempt ended."""

import msgspec

from events.envelope import Event
from events.registry import event


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the submitter asked for. `env` maps each key to the commitment of its value."""

    image_digest: str
    entrypoint: tuple[str, ...]
    world_size: int
    nnodes: int
    nproc_per_node: int
    timeout_s: int
    backend: str = "nccl"
    fabric: str = "auto"
    tee: str = "none"
    placement_policy: str = "pack"
    teardown: str = "keep"
    lease_id: str | None = None
    resource: str = "{}"  # JSON text as given
    max_price_micro_usd_h: int | None = None
    max_lifetime_us: int | None = None
    env: dict[str, str] = {}


class NodeRanks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One node of a plan in rank order: it runs `len(gpus)` consecutive ranks, local rank i on GPU gpus[i]."""

    node_id: str
    gpus: tuple[int, ...]


@event("job.submitted")
class JobSubmitted(Event, frozen=True):
    """A hotkey asked for a multi-node run."""

    job_id: str
    submitter: str
    spec: JobSpec
    client_request_id: str | None = None

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("job.admitted")
class JobAdmitted(Event, frozen=True):
    """The job passed all static gates and waits for its place."""

    job_id: str

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("job.waiting")
class JobWaiting(Event, frozen=True):
    """The job cannot start yet. `have` and `need` give the numbers behind the reason, in its own unit."""

    job_id: str
    reason_code: str
    have: int
    need: int

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("attempt.placed")
class AttemptPlaced(Event, frozen=True):
    """Ranks were placed on leased nodes; the attempt may launch. Nodes stand in rank order."""

    job_id: str
    attempt_no: int
    nodes: tuple[NodeRanks, ...]
    master_node: str
    deadline_us: int  # for preflight to be through
    policy_digest: str
    lease_id: str | None = None

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("attempt.running")
class AttemptRunning(Event, frozen=True):
    """Preflight is through and the entrypoint started on every rank. The time of this event counts as the start."""

    job_id: str
    attempt_no: int
    program: str
    transport: str
    measured_bytes_per_s: int
    transcript: str  # blob digest
    deadline_us: int

    def stream(self) -> str:
        return f"job/{self.job_id}"


class RankResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How one rank ended and where its output is. Digests are of the private blob, cut at the cap."""

    rank: int
    exit_code: int | None = None  # None: it never ended by itself
    stdout: str | None = None
    stdout_bytes: int = 0
    stderr: str | None = None
    stderr_bytes: int = 0
    truncated: bool = False


@event("attempt.collecting")
class AttemptCollecting(Event, frozen=True):
    """Every rank has ended; outputs are being collected."""

    job_id: str
    attempt_no: int

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("attempt.ended")
class AttemptEnded(Event, frozen=True):
    """An attempt is over. `fault` says whose it was; `node_id` and `rank` name the first that failed."""

    job_id: str
    attempt_no: int
    outcome: str  # succeeded | failed | timeout | cancelled
    fault: str  # none | submitter | provider | nobody
    failure_code: str | None = None
    node_id: str | None = None
    rank: int | None = None
    transcript: str | None = None
    ranks: tuple[RankResult, ...] = ()
    caused_by: int | None = None

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("attempt.cleaned")
class AttemptCleaned(Event, frozen=True):
    """Nothing of the attempt is left on its nodes; `unconfirmed` names nodes that could not be asked."""

    job_id: str
    attempt_no: int
    unconfirmed: tuple[str, ...] = ()

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("job.ended")
class JobEnded(Event, frozen=True):
    """The job reached its last state."""

    job_id: str
    status: str  # succeeded | failed | timeout | cancelled
    reason_code: str
    caused_by: int | None = None

    def stream(self) -> str:
        return f"job/{self.job_id}"


@event("result.claimed")
class ResultClaimed(Event, frozen=True):
    """Somebody concerned posted a result. It is a claim: kept and compared, it raises nothing and ends nothing."""

    job_id: str
    attempt_no: int
    hotkey: str
    roles: tuple[str, ...]  # of submitter, renter, provider
    status: str
    envelope_digest: str
    integrity_codes: tuple[str, ...] = ()
    output_digest: str | None = None
    fabric_report_digest: str | None = None
    failure_code: str | None = None
    verified: bool = True

    def stream(self) -> str:
        return f"job/{self.job_id}"
