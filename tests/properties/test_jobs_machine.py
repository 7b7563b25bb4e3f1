"""Random histories of jobs: the indexes of the fold equal what the records say, and every step can be undone."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from msgspec.structs import replace

from events.types.nodes import NodeFacts
from hypercluster.domain.jobs.faults import FAULTS
from hypercluster.domain.jobs.leases import is_active
from hypercluster.domain.kernel import SYSTEM, US_PER_H, Accepted, Decision, Refused
from hypercluster.domain.market.ending import end_lease
from hypercluster.domain.policy.release import POLICY_V1
from projections.folds.jobs import SHARED_REASONS, TERMINAL
from tests.support.jobs_world import ADA, BOB, EVE, World

POLICY = replace(
    POLICY_V1, concurrent_world_size_max=6, concurrent_large_jobs_max=1, max_attempts=2, capacity_wait_s=600
)
BUSY = ("provisioning", "running", "collecting", "scoring")
CODES = [None, *sorted(FAULTS), "preflight_timeout", "unheard_of"]


class Jobs(RuleBasedStateMachine):
    """Three hotkeys, two leases of two nodes with four GPUs each."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(policy=POLICY, facts=(NodeFacts(gpu_model="H100", gpu_count=4),) * 4, leased=2)
        self.world.lease("lease-2", EVE, ("node-2", "node-3"))
        self.ended: dict[str, Any] = {}

    def do(self, kind: str, actor: str, body: dict[str, object], path: dict[str, str] | None = None) -> Decision:
        """Decide; fold, undo and fold again; what is refused changes nothing."""
        world = self.world
        command = world.command(kind, actor, body, path)
        before = self.picture()
        decision = world.decide(command)
        assert self.picture() == before
        assert world.decide(command) == decision
        if isinstance(decision, Accepted):
            mark = world.state.mark()
            world.fold(*decision.events)
            after = self.picture()
            world.state.rollback(mark)
            assert self.picture() == before
            world.fold(*decision.events)
            assert self.picture() == after
        return decision

    def picture(self) -> dict[str, dict[Any, Any]]:
        return {table.name: dict(table) for table in self.world.state.tables()}

    @rule(
        target=jobs,
        actor=st.sampled_from([ADA, EVE]),
        nnodes=st.integers(1, 2),
        nproc=st.integers(1, 4),
        placement=st.sampled_from(["pack", "spread"]),
        teardown=st.sampled_from([*["keep"] * 15, "terminate"]),
    )
    def submit(self, actor: str, nnodes: int, nproc: int, placement: str, teardown: str) -> str:
        body: dict[str, object] = {
            "image_digest": "train@sha256:" + "0" * 64,
            "entrypoint": ["python"],
            "world_size": nnodes * nproc,
            "nnodes": nnodes,
            "nproc_per_node": nproc,
            "resource": {},
            "timeout_s": 300,
            "placement_policy": placement,
            "teardown": teardown,
            "lease_id": "lease-1" if actor == ADA else "lease-2",
        }
        decision = self.do("job.submit", actor, body)
        if isinstance(decision, Refused):
            assert decision.code in ("lease_inactive", "budget_exceeded")
            return ""
        return decision.subject

    @rule(job=jobs)
    def place(self, job: str) -> None:
        self.do("job.place", SYSTEM, {"job_id": job})

    @rule(job=jobs)
    def give_up(self, job: str) -> None:
        self.do("job.give_up", SYSTEM, {"job_id": job})

    def attempt_no(self, job: str) -> int:
        return self.world.job(job).attempts if job in self.world.state.jobs.jobs else 1

    @rule(job=jobs)
    def release(self, job: str) -> None:
        facts = {"program": "p", "transport": "eth", "measured_bytes_per_s": 1, "transcript": "t"}
        decision = self.do("attempt.run", SYSTEM, {"job_id": job, "attempt_no": self.attempt_no(job)} | facts)
        if isinstance(decision, Accepted) and decision.events:
            lease = self.world.state.market.leases[self.world.job(job).spec.lease_id or ""]
            assert is_active(lease, self.world.at_us)

    @rule(job=jobs)
    def collect(self, job: str) -> None:
        self.do("attempt.collect", SYSTEM, {"job_id": job, "attempt_no": self.attempt_no(job)})

    @rule(job=jobs, code=st.sampled_from(CODES), exits=st.sampled_from([0, 0, 1]))
    def end(self, job: str, code: str | None, exits: int) -> None:
        body: dict[str, object] = {"job_id": job, "attempt_no": self.attempt_no(job), "phase": "main"}
        if code is not None:
            body["failure_code"] = code
        if job:
            body["ranks"] = [{"rank": rank, "exit_code": exits} for rank in range(self.world.job(job).spec.world_size)]
        before = self.world.state.jobs.attempts.get(f"{job}/{body['attempt_no']}")
        decision = self.do("attempt.end", SYSTEM, body)
        assert isinstance(decision, Refused) == (before is None or before.ended_us is not None)

    @rule(job=jobs, steps=st.integers(1, 5), code=st.sampled_from([None, "control_plane_lost", "rank_failed"]))
    def go_on(self, job: str, steps: int, code: str | None) -> None:
        """The way of most jobs, some steps at once."""
        for _ in range(steps if job else 0):
            match self.world.job(job).status:
                case "admitted" | "placing":
                    self.clean(job, self.attempt_no(job))
                    self.place(job)
                case "provisioning":
                    self.release(job)
                case "running":
                    self.collect(job)
                case "collecting":
                    self.end(job, code, 0)
                case "scoring":
                    self.clean(job, self.attempt_no(job))
                    self.score(job)

    @rule(job=jobs, attempt_no=st.integers(1, 2))
    def clean(self, job: str, attempt_no: int) -> None:
        self.do("attempt.clean", SYSTEM, {"job_id": job, "attempt_no": attempt_no})

    @rule(job=jobs)
    def score(self, job: str) -> None:
        if job and self.world.job(job).status == "scoring":
            self.world.score(job)

    @rule(job=jobs, actor=st.sampled_from([ADA, EVE]))
    def cancel(self, job: str, actor: str) -> None:
        decision = self.do("job.cancel", actor, {}, {"job_id": job})
        if isinstance(decision, Accepted):
            assert self.world.job(job).status == "cancelled"

    @rule(job=jobs, actor=st.sampled_from([ADA, BOB, EVE]), status=st.sampled_from(["succeeded", "failed"]))
    def post(self, job: str, actor: str, status: str) -> None:
        before = self.world.job(job) if job else None
        self.do("result.post", actor, {"status": status}, {"job_id": job})
        assert job == "" or self.world.job(job) == before

    @rule(seconds=st.sampled_from([1, 60, 700]))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds)

    @precondition(lambda self: len(self.ended) > 3)
    @rule(lease_id=st.sampled_from(["lease-1", "lease-2"]))
    def end_lease(self, lease_id: str) -> None:
        world = self.world
        lease = world.state.market.leases[lease_id]
        if lease.status == "active":
            events = end_lease(world.state, lease, world.at_us, status="terminated", reason_code="renter_cancel")
            world.fold(*events)
            live = world.state.jobs.live_by_lease.get(lease_id, ())
            assert all(world.job(job).status == "scoring" for job in live)

    @rule(job=consumes(jobs))
    def forget(self, job: str) -> None:
        """Leave a job to its fate."""

    @invariant()
    def no_gpu_is_held_twice_and_held_until_cleaned(self) -> None:
        held: Counter[tuple[str, int]] = Counter()
        for attempt in self.world.state.jobs.attempts.values():
            if not attempt.cleaned:
                held.update((ranks.node_id, gpu) for ranks in attempt.nodes for gpu in ranks.gpus)
        assert max(held.values(), default=1) == 1
        kept = {(node, gpu) for node, gpus in self.world.state.jobs.gpus_held.items() for gpu in gpus}
        assert kept == set(held)

    @invariant()
    def indexes_equal_the_records(self) -> None:
        jobs = self.world.state.jobs
        live = [job for job in jobs.jobs.values() if job.status not in TERMINAL]
        assert jobs.live == {job.job_id: job.submitted_pos for job in live}
        assert jobs.live_by_submitter == Counter(job.submitter for job in live)
        by_lease = {
            lease: tuple(job.job_id for job in live if job.spec.lease_id == lease) for lease in ("lease-1", "lease-2")
        }
        assert jobs.live_by_lease == {lease: ids for lease, ids in by_lease.items() if ids}
        assert jobs.busy == {job.job_id: job.spec.world_size for job in live if job.status in BUSY}
        line = {job.job_id: job.submitted_pos for job in live if job.waiting_code in SHARED_REASONS}
        assert jobs.line == line
        assert jobs.ended_jobs.keys() == {job.job_id for job in jobs.jobs.values() if job.status in TERMINAL}

    @invariant()
    def budgets_hold(self) -> None:
        busy = self.world.state.jobs.busy.values()
        assert sum(busy) <= POLICY.concurrent_world_size_max
        assert sum(size >= POLICY.large_job_world_size for size in busy) <= POLICY.concurrent_large_jobs_max

    @invariant()
    def a_job_and_its_attempt_agree(self) -> None:
        jobs = self.world.state.jobs
        for job in jobs.jobs.values():
            assert job.attempts <= POLICY.max_attempts
            attempt = jobs.attempts.get(f"{job.job_id}/{job.attempts}")
            if job.status in ("provisioning", "running", "collecting"):
                assert attempt is not None and attempt.status == job.status
            else:
                assert attempt is None or attempt.ended_us is not None
            assert all(f"{job.job_id}/{number}" in jobs.attempts for number in range(1, job.attempts + 1))

    @invariant()
    def what_ended_stays_so(self) -> None:
        jobs = self.world.state.jobs.jobs
        assert all(jobs[job_id] == job for job_id, job in self.ended.items())
        self.ended = {job_id: job for job_id, job in jobs.items() if job.status in TERMINAL}

    @invariant()
    def nothing_was_billed_beyond_the_lease(self) -> None:
        for lease in self.world.state.market.leases.values():
            assert lease.billable_us is None or 0 <= lease.billable_us <= 10 * US_PER_H


Jobs.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestJobs = Jobs.TestCase
