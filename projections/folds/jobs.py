"""Jobs, their attempts, and which GPUs those hold."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from events.envelope import Event, Recorded
from events.types.jobs import (
    AttemptCleaned,
    AttemptCollecting,
    AttemptEnded,
    AttemptPlaced,
    AttemptRunning,
    JobAdmitted,
    JobEnded,
    JobSpec,
    JobSubmitted,
    JobWaiting,
    NodeRanks,
    RankResult,
    ResultClaimed,
)
from projections.state import Journal, Table

TERMINAL = frozenset({"succeeded", "failed", "timeout", "cancelled"})

# Reasons of job.waiting for which a job stands in the one line that all submitters share.
SHARED_REASONS = frozenset({"world_budget_full", "large_jobs_full", "queue_position"})


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
    "<job_id>/<attempt_no>/<hotkey>".

    live and line hold the number of job.submitted, ended_jobs that of job.ended, live_by_submitter a count. busy:
    job_id -> world size of jobs from provisioning to scoring; line: jobs that wait for the shared budgets. The order
    within a table means nothing: a rollback may change it.
    """

    def __init__(self, journal: Journal) -> None:
        self.jobs: Table[str, Job] = Table("job", journal, mirrored=True)
        self.attempts: Table[str, Attempt] = Table("attempt", journal, mirrored=True)
        self.claims: Table[str, Claim] = Table("claim", journal, mirrored=True)
        self.gpus_held: Table[str, tuple[int, ...]] = Table("gpus_held", journal)
        self.live: Table[str, int] = Table("live_job", journal)
        self.live_by_lease: Table[str, tuple[str, ...]] = Table("live_by_lease", journal)
        self.live_by_submitter: Table[str, int] = Table("live_by_submitter", journal)
        self.ended_jobs: Table[str, int] = Table("ended_job", journal)
        self.busy: Table[str, int] = Table("busy_job", journal)
        self.line: Table[str, int] = Table("job_in_line", journal)


def attempt_key(job_id: str, attempt_no: int) -> str:
    """Key of an attempt."""
    return f"{job_id}/{attempt_no}"


def _submitted(state: JobsState, recorded: Recorded) -> None:
    event = cast(JobSubmitted, recorded.event)
    if event.job_id in state.jobs:
        raise ValueError(f"job {event.job_id} exists")
    at_us = recorded.at_us
    state.jobs[event.job_id] = Job(
        event.job_id,
        event.submitter,
        event.spec,
        "submitted",
        at_us,
        at_us,
        recorded.pos,
        event.client_request_id,
    )
    state.live[event.job_id] = recorded.pos
    state.live_by_submitter[event.submitter] = state.live_by_submitter.get(event.submitter, 0) + 1
    if (lease_id := event.spec.lease_id) is not None:
        state.live_by_lease[lease_id] = (*state.live_by_lease.get(lease_id, ()), event.job_id)


def _admitted(state: JobsState, recorded: Recorded) -> None:
    event = cast(JobAdmitted, recorded.event)
    job = _live(state, event.job_id)
    at_us = recorded.at_us
    state.jobs[job.job_id] = replace(job, status="admitted", admitted_us=at_us, updated_us=at_us)


def _waiting(state: JobsState, recorded: Recorded) -> None:
    event = cast(JobWaiting, recorded.event)
    job = _live(state, event.job_id)
    state.jobs[job.job_id] = replace(
        job,
        status="placing",
        waiting_code=event.reason_code,
        waiting_have=event.have,
        waiting_need=event.need,
        updated_us=recorded.at_us,
    )
    state.busy.drop(job.job_id)
    if event.reason_code in SHARED_REASONS:
        state.line[job.job_id] = job.submitted_pos
    else:
        state.line.drop(job.job_id)


def _placed(state: JobsState, recorded: Recorded) -> None:
    event = cast(AttemptPlaced, recorded.event)
    job = _live(state, event.job_id)
    if event.attempt_no != job.attempts + 1:
        raise ValueError(f"attempt {event.attempt_no} of job {job.job_id} does not follow attempt {job.attempts}")
    state.attempts[attempt_key(job.job_id, event.attempt_no)] = Attempt(
        job.job_id,
        event.attempt_no,
        job.submitter,
        event.lease_id,
        event.nodes,
        event.master_node,
        event.policy_digest,
        "provisioning",
        recorded.at_us,
        recorded.pos,
        event.deadline_us,
    )
    for ranks in event.nodes:
        _hold(state, ranks)
    state.jobs[job.job_id] = replace(
        job,
        status="provisioning",
        attempts=event.attempt_no,
        waiting_code=None,
        waiting_have=0,
        waiting_need=0,
        updated_us=recorded.at_us,
    )
    state.busy[job.job_id] = job.spec.world_size
    state.line.drop(job.job_id)


def _running(state: JobsState, recorded: Recorded) -> None:
    event = cast(AttemptRunning, recorded.event)
    job = _live(state, event.job_id)
    key, attempt = _open(state, event.job_id, event.attempt_no)
    at_us = recorded.at_us
    state.attempts[key] = replace(
        attempt,
        status="running",
        started_us=at_us,
        started_pos=recorded.pos,
        deadline_us=event.deadline_us,
        program=event.program,
        transport=event.transport,
        measured_bytes_per_s=event.measured_bytes_per_s,
        transcript=event.transcript,
    )
    started_us = at_us if job.started_us is None else job.started_us
    state.jobs[job.job_id] = replace(job, status="running", started_us=started_us, updated_us=at_us)


def _collecting(state: JobsState, recorded: Recorded) -> None:
    event = cast(AttemptCollecting, recorded.event)
    job = _live(state, event.job_id)
    key, attempt = _open(state, event.job_id, event.attempt_no)
    state.attempts[key] = replace(attempt, status="collecting")
    state.jobs[job.job_id] = replace(job, status="collecting", updated_us=recorded.at_us)


def _attempt_ended(state: JobsState, recorded: Recorded) -> None:
    event = cast(AttemptEnded, recorded.event)
    job = _live(state, event.job_id)
    key, attempt = _open(state, event.job_id, event.attempt_no)
    state.attempts[key] = replace(
        attempt,
        status=event.outcome,
        ended_us=recorded.at_us,
        ended_pos=recorded.pos,
        failure_code=event.failure_code,
        fault=event.fault,
        node_id=event.node_id,
        rank=event.rank,
        transcript=event.transcript or attempt.transcript,
        ranks=event.ranks,
    )
    state.jobs[job.job_id] = replace(job, status="scoring", updated_us=recorded.at_us)


def _cleaned(state: JobsState, recorded: Recorded) -> None:
    event = cast(AttemptCleaned, recorded.event)
    key = attempt_key(event.job_id, event.attempt_no)
    attempt = state.attempts[key]
    if attempt.ended_us is None or attempt.cleaned:
        raise ValueError(f"attempt {key} cannot be cleaned now")
    state.attempts[key] = replace(attempt, cleaned=True, unconfirmed=event.unconfirmed)
    for ranks in attempt.nodes:
        _release(state, ranks)


def _job_ended(state: JobsState, recorded: Recorded) -> None:
    event = cast(JobEnded, recorded.event)
    job = _live(state, event.job_id)
    at_us = recorded.at_us
    state.jobs[job.job_id] = replace(
        job,
        status=event.status,
        finished_us=at_us,
        updated_us=at_us,
        failure_code=None if event.status == "succeeded" else event.reason_code,
        waiting_code=None,
        waiting_have=0,
        waiting_need=0,
    )
    del state.live[job.job_id]
    state.busy.drop(job.job_id)
    state.line.drop(job.job_id)
    state.ended_jobs[job.job_id] = recorded.pos
    _forget_live(state, job)


def _claimed(state: JobsState, recorded: Recorded) -> None:
    event = cast(ResultClaimed, recorded.event)
    state.claims[f"{attempt_key(event.job_id, event.attempt_no)}/{event.hotkey}"] = Claim(
        event.job_id,
        event.attempt_no,
        event.hotkey,
        event.roles,
        event.status,
        event.envelope_digest,
        event.integrity_codes,
        event.output_digest,
        event.fabric_report_digest,
        event.failure_code,
        event.verified,
        recorded.pos,
        recorded.at_us,
    )


def _live(state: JobsState, job_id: str) -> Job:
    job = state.jobs[job_id]
    if job.status in TERMINAL:
        raise ValueError(f"job {job_id} has ended")
    return job


def _open(state: JobsState, job_id: str, attempt_no: int) -> tuple[str, Attempt]:
    key = attempt_key(job_id, attempt_no)
    attempt = state.attempts[key]
    if attempt.ended_us is not None:
        raise ValueError(f"attempt {key} has ended")
    return key, attempt


def _hold(state: JobsState, ranks: NodeRanks) -> None:
    held = state.gpus_held.get(ranks.node_id, ())
    if not set(held).isdisjoint(ranks.gpus):
        raise ValueError(f"a GPU of node {ranks.node_id} would be held twice")
    state.gpus_held[ranks.node_id] = tuple(sorted((*held, *ranks.gpus)))


def _release(state: JobsState, ranks: NodeRanks) -> None:
    left = tuple(gpu for gpu in state.gpus_held[ranks.node_id] if gpu not in ranks.gpus)
    if left:
        state.gpus_held[ranks.node_id] = left
    else:
        del state.gpus_held[ranks.node_id]


def _forget_live(state: JobsState, job: Job) -> None:
    count = state.live_by_submitter[job.submitter] - 1
    if count:
        state.live_by_submitter[job.submitter] = count
    else:
        del state.live_by_submitter[job.submitter]
    if (lease_id := job.spec.lease_id) is None:
        return
    left = tuple(job_id for job_id in state.live_by_lease[lease_id] if job_id != job.job_id)
    if left:
        state.live_by_lease[lease_id] = left
    else:
        del state.live_by_lease[lease_id]


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {
    JobSubmitted: _submitted,
    JobAdmitted: _admitted,
    JobWaiting: _waiting,
    AttemptPlaced: _placed,
    AttemptRunning: _running,
    AttemptCollecting: _collecting,
    AttemptEnded: _attempt_ended,
    AttemptCleaned: _cleaned,
    JobEnded: _job_ended,
    ResultClaimed: _claimed,
}
