"""A small market with one lease, folded from real events, in which job commands are decided."""

from typing import Any

import msgspec

from events import registry
from events.envelope import Envelope, Event, Recorded
from events.types.ledger import LedgerOpened
from events.types.market import LeaseStarted, OfferListed, ProviderRegistered
from events.types.nodes import NodeFacts, NodeRegistered
from events.types.policy import Policy, PolicyAdopted
from hypercluster.domain import strict_json
from hypercluster.domain.jobs import internal
from hypercluster.domain.jobs.commands import ROUTES
from hypercluster.domain.jobs.decide import DECIDERS
from hypercluster.domain.jobs.ending import end_job
from hypercluster.domain.kernel import SYSTEM, US_PER_H, US_PER_S, Accepted, Command, Context, Decision, digest_of
from hypercluster.domain.policy.release import POLICY_V1
from projections.fold import State, evolve
from projections.folds.jobs import Attempt, Job

T0 = 1_764_547_200_000_000
ADA, BOB, EVE = "ada", "bob", "eve"  # renter and submitter; provider; a stranger
IMAGE = "registry.example/team/train@sha256:" + "0a" * 32
PLACED = "blob"

INTERNAL = {
    "job.place": internal.PlaceJob,
    "job.give_up": internal.GiveUpJob,
    "attempt.run": internal.AttemptIsRunning,
    "attempt.collect": internal.AttemptIsCollecting,
    "attempt.end": internal.AttemptIsOver,
    "attempt.clean": internal.AttemptIsClean,
}
BODIES = {route.kind: route.body for route in ROUTES}

JOB = {
    "image_digest": IMAGE,
    "entrypoint": ["python", "train.py"],
    "world_size": 4,
    "nnodes": 2,
    "nproc_per_node": 2,
    "resource": {},
    "timeout_s": 600,
    "lease_id": "lease-1",
}


class World:
    """Two nodes of four GPUs under one lease of Ada's for ten hours, in the profile and under the policy given.

    leased: how many of the nodes the lease holds, None for all.
    """

    def __init__(
        self,
        profile: str = "production",
        policy: Policy = POLICY_V1,
        facts: tuple[NodeFacts, ...] = (NodeFacts(gpu_model="H100", gpu_count=4),) * 2,
        leased: int | None = None,
    ) -> None:
        self.state = State()
        self.at_us = T0
        self.commands = 0
        self.nodes = tuple(f"node-{number}" for number in range(len(facts)))
        self.fold(
            LedgerOpened(
                origin="test-1",
                profile=profile,
                public_key="00" * 32,
                slug="test",
                audience="test",
                operators=(),
                entry_format=1,
                release="0",
            ),
            PolicyAdopted(digest=digest_of(b"policy"), effective_us=T0, policy=policy),
            ProviderRegistered(provider_id="provider-1", hotkey=BOB),
            *(
                NodeRegistered(node_id=node_id, provider_id="provider-1", facts=one)
                for node_id, one in zip(self.nodes, facts, strict=True)
            ),
        )
        self.lease("lease-1", ADA, self.nodes[:leased])

    def lease(self, lease_id: str, renter: str, node_ids: tuple[str, ...], hours: int = 10) -> None:
        """An offer of these nodes, rented at 2 USD per hour."""
        offered = OfferListed(
            offer_id=f"offer-of-{lease_id}",
            provider_id="provider-1",
            node_ids=node_ids,
            mode="cluster",
            gpu_model="H100",
            gpu_count=8,
            require_ib=False,
            tee="none",
            price_micro_usd_h=2_000_000,
            max_lifetime_us=hours * US_PER_H,
        )
        started = LeaseStarted(
            lease_id=lease_id,
            pod_id=f"pod-of-{lease_id}",
            offer_id=offered.offer_id,
            renter=renter,
            provider_id="provider-1",
            provider=BOB,
            node_ids=node_ids,
            mode="cluster",
            price_micro_usd_h=2_000_000,
            lifetime_us=hours * US_PER_H,
            ends_at_us=self.at_us + hours * US_PER_H,
        )
        self.fold(offered, started)

    def fold(self, *events: Event) -> None:
        """Write, read back and fold the events."""
        for number, event in enumerate(events, 1):
            evolve(self.state, self._recorded(event, number, len(events)))

    def _recorded(self, event: Event, number: int, of: int) -> Recorded:
        envelope = Envelope(
            v=1,
            type=event.type_name,
            tv=event.type_version,
            stream=event.stream(),
            sv=1,
            at_us=self.at_us,
            cmd="00" * 32,
            n=number,
            of=of,
            actor=SYSTEM,
            rules=1,
            data=msgspec.Raw(msgspec.json.encode(event)),
        )
        return registry.decode(self.state.pos + 1, msgspec.json.encode(envelope))

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.at_us += seconds * US_PER_S

    def command(self, kind: str, actor: str, body: dict[str, object], path: dict[str, str] | None = None) -> Command:
        """A command whose body took the way of a request."""
        self.commands += 1
        text = strict_json.dumps(body)
        return Command(
            kind=kind,
            actor=actor,
            origin="internal" if actor == SYSTEM else "signed",
            body=(INTERNAL | BODIES)[kind].model_validate(strict_json.loads(text.encode())),
            digest=self.commands.to_bytes(32, "big"),
            received_us=self.at_us,
            path=path or {},
            body_text=text,
            cause=self.state.pos if actor == SYSTEM else None,
        )

    def decide(self, command: Command) -> Decision:
        """The decision alone."""
        context = Context(at_us=self.at_us, size=self.state.pos, root="00" * 32)
        return DECIDERS[command.kind](self.state, command, context)

    def do(self, kind: str, actor: str, body: dict[str, object], path: dict[str, str] | None = None) -> Decision:
        """Decide and fold."""
        decision = self.decide(self.command(kind, actor, body, path))
        if isinstance(decision, Accepted):
            self.fold(*decision.events)
        return decision

    def submit(self, actor: str = ADA, **changes: object) -> Decision:
        """Submit JOB with these fields changed; a value of None leaves the field out."""
        body = {key: value for key, value in (JOB | changes).items() if value is not None}
        return self.do("job.submit", actor, body)

    def submitted(self, actor: str = ADA, **changes: object) -> str:
        """The id of a job that was accepted."""
        decision = self.submit(actor, **changes)
        assert isinstance(decision, Accepted), decision
        return decision.subject

    def work(self, kind: str, job_id: str, **facts: object) -> Decision:
        """What a worker reports about the newest attempt of the job, or the job."""
        body: dict[str, object] = {"job_id": job_id}
        if kind.startswith("attempt."):
            body["attempt_no"] = self.job(job_id).attempts
        return self.do(kind, SYSTEM, body | facts)

    def run(self, job_id: str) -> Decision:
        """Preflight is through."""
        return self.work(
            "attempt.run", job_id, program="ring-xor-1", transport="eth", measured_bytes_per_s=1, transcript=PLACED
        )

    def placed(self, **changes: object) -> str:
        """A job with a live attempt, before its release."""
        job_id = self.submitted(**changes)
        self.work("job.place", job_id)
        assert self.job(job_id).status == "provisioning"
        return job_id

    def running(self, **changes: object) -> str:
        """A job whose entrypoint was released."""
        job_id = self.placed(**changes)
        assert isinstance(self.run(job_id), Accepted)
        return job_id

    def over(self, job_id: str, failure_code: str | None = None, **facts: object) -> Decision:
        """The gang has ended; without a failure code every rank exited 0."""
        if failure_code is None and "ranks" not in facts:
            facts["ranks"] = [{"rank": rank, "exit_code": 0} for rank in range(self.job(job_id).spec.world_size)]
        if failure_code is not None:
            facts["failure_code"] = failure_code
        return self.work("attempt.end", job_id, phase="main", **facts)

    def score(self, job_id: str) -> None:
        """The end of a job that waits for its score."""
        status = self.attempt(job_id).status
        self.fold(
            *end_job(self.state, self.job(job_id), status=status, reason_code=status, caused_by=1, at_us=self.at_us)
        )

    def cancel(self, job_id: str, actor: str = ADA) -> Decision:
        """Cancel the job."""
        return self.do("job.cancel", actor, {}, {"job_id": job_id})

    def post(self, job_id: str, actor: str = ADA, **result: object) -> Decision:
        """Post a result."""
        return self.do("result.post", actor, result, {"job_id": job_id})

    def job(self, job_id: str) -> Job:
        """The job as folded."""
        return self.state.jobs.jobs[job_id]

    def attempt(self, job_id: str) -> Attempt:
        """Its newest attempt."""
        return self.state.jobs.attempts[f"{job_id}/{self.job(job_id).attempts}"]


def outcome(decision: Decision) -> Any:
    """The code of a refusal, or the names of the events in order."""
    return [event.type_name for event in decision.events] if isinstance(decision, Accepted) else decision.code
