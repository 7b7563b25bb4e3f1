"""Jobs, their attempts, and which GPUs those hold."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from events.types.jobs import JobSpec, NodeRanks, RankResult
from projections.state import Journal, Table

TERMINAL = frozenset({"succeeded", "failed", "timeout", "cancelled"})


class Job(msgspec.Struct, frozen=True):
    """status: submitted | admitted | placing | provisioning | running | collecting | scoring | one of TERMINAL."""

    job_id: str
    submitter: str
    spec: JobSpec
    status: str
    created_us: int
    updated_us: int
    submitted_pos: int
    client_request_id: str | None = None
    admitted_us: int | None = None
    started_us: int | None = None
    finished_us: int | None = None
    failure_code: str | None = None
    attempts: int = 0
    waiting_code: str | None = None
    waiting_have: int = 0
    waiting_need: int = 0


class Attempt(msgspec.Struct, frozen=True):
    """status: provisioning | running | collecting | succeeded | failed | timeout | cancelled."""

    job_id: str
    attempt_no: int
    submitter: str
    lease_id: str | None
    nodes: tuple[NodeRanks, ...]
    master_node: str
    policy_digest: str
    status: str
    placed_us: int
    placed_pos: int
    deadline_us: int
    started_us: int | None = None
    started_pos: int | None = None
    ended_us: int | None = None
    ended_pos: int | None = None
    program: str = ""
    transport: str = ""
    measured_bytes_per_s: int = 0
    transcript: str | None = None
    failure_code: str | None = None
    fault: str | None = None
    node_id: str | None = None
    rank: int | None = None
    ranks: tuple[RankResult, ...] = ()
    cleaned: bool = False
    unconfirmed: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """One posted result."""

    job_id: str
    attempt_no: int
    hotkey: str
    roles: tuple[str, ...]
    status: str
    envelope_digest: str
    integrity_codes: tuple[str, ...]
    output_digest: str | None
    fabric_report_digest: str | None
    failure_code: str | None
    verified: bool
    pos: int
    at_us: int


class JobsState:
    """gpus_held: node_id -> GPU indices that attempts hold until they are cleaned; live: ids of jobs not terminal;
    live_by_lease: lease_id -> ids of its jobs not terminal. Attempt keys are "<job_id>/<attempt_no>", claim keys
    "<job_id>/<attempt_no>/<hotkey>"."""

    def __init__(self, journal: Journal) -> None:
        self.jobs: Table[str, Job] = Table("job", journal, mirrored=True)
        self.attempts: Table[str, Attempt] = Table("attempt", journal, mirrored=True)
        self.claims: Table[str, Claim] = Table("claim", journal, mirrored=True)
        self.gpus_held: Table[str, tuple[int, ...]] = Table("gpus_held", journal)
        self.live: Table[str, int] = Table("live_job", journal)
        self.live_by_lease: Table[str, tuple[str, ...]] = Table("live_by_lease", journal)
        self.live_by_submitter: Table[str, int] = Table("live_by_submitter", journal)
        self.ended_jobs: Table[str, int] = Table("ended_job", journal)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}
