"""The market of the jobs' tests, with scores and snapshots decided in it."""

from msgspec.structs import replace

from events.types.policy import (
    ExpectedBandwidth,
    MetagraphAdopted,
    MetagraphEntry,
    MetagraphPart,
    Policy,
    PolicyAdopted,
)
from events.types.scores import Score, ScoreRecorded
from events.types.weights import WeightsSnapshot
from hypercluster.domain.jobs.internal import ScoreAttempt
from hypercluster.domain.kernel import SYSTEM, Accepted, Command, Context, Decision, digest_of
from hypercluster.domain.policy.release import POLICY_V1
from hypercluster.domain.scores.decide import DECIDERS as SCORES
from hypercluster.domain.scores.mass import Mass, masses
from hypercluster.domain.weights.decide import DECIDERS as WEIGHTS
from hypercluster.domain.weights.internal import TakeSnapshot
from tests.support.jobs_world import ADA, World

COLD = {"ada": "cold-ada", "bob": "cold-bob", "eve": "cold-eve"}
RING = ExpectedBandwidth(
    program="ring-xor-1", hardware_class="unverified", fabric="eth", nodes=2, bytes_per_s=1_000_000
)
POLICY = replace(POLICY_V1, expected_bandwidth=(RING,), unverified_value_ppm=500_000)


class ScoresWorld(World):
    """Ada submits to Bob's two nodes; two nodes of two ranks should reach 1 MB/s and are worth half an H100."""

    def __init__(self, profile: str = "production", policy: Policy = POLICY, owners: dict[str, str] | None = None):
        super().__init__(profile, policy)
        if profile == "production":
            self.metagraph(COLD if owners is None else owners)

    def metagraph(self, owners: dict[str, str]) -> None:
        """Adopt a list of hotkeys and their owners."""
        entries = tuple(MetagraphEntry(uid=n, hotkey=h, coldkey=c) for n, (h, c) in enumerate(owners.items()))
        digest = digest_of(repr(owners).encode())
        part = MetagraphPart(digest=digest, part=1, entries=entries)
        self.fold(MetagraphAdopted(netuid=1, block=1, digest=digest, count=len(entries), parts=1), part)

    def adopt(self, policy: Policy) -> None:
        """Another policy, at once."""
        name = f"policy at {self.state.pos}".encode()
        self.fold(PolicyAdopted(digest=digest_of(name), effective_us=self.at_us, policy=policy))

    def measured(self, bytes_per_s: int = 500_000, transport: str = "eth", seconds: int = 60, **changes: object) -> str:
        """A job whose ranks ran for so long and all exited 0; its outputs took another hour to collect."""
        job_id = self.placed(**changes)
        facts = {"program": "ring-xor-1", "transport": transport, "transcript": "blob"}
        self.work("attempt.run", job_id, measured_bytes_per_s=bytes_per_s, **facts)
        self.wait(seconds)
        self.work("attempt.collect", job_id)
        self.wait(3600)
        self.over(job_id)
        self.work("attempt.clean", job_id)
        return job_id

    def ask_score(self, job_id: str, attempt_no: int = 1) -> Decision:
        """The decision alone."""
        body = ScoreAttempt(job_id=job_id, attempt_no=attempt_no)
        return SCORES["attempt.score"](self.state, self._internal("attempt.score", body), self.context())

    def score(self, job_id: str) -> Score:
        """Score the attempt and fold what follows."""
        decision = self.ask_score(job_id)
        assert isinstance(decision, Accepted), decision
        self.fold(*decision.events)
        recorded = decision.events[0]
        assert isinstance(recorded, ScoreRecorded)
        return recorded.score

    def scored(self, **facts: object) -> Score:
        """A measured job and its score."""
        return self.score(self.measured(**facts))

    def masses(self, policy: Policy = POLICY) -> dict[str, Mass]:
        """Masses now."""
        return masses(self.state, policy, self.at_us)

    def ask_snapshot(self, size: int | None = None) -> Decision:
        """The decision alone."""
        context = self.context() if size is None else replace_size(self.context(), size)
        return WEIGHTS["weights.snapshot"](
            self.state, self._internal("weights.snapshot", TakeSnapshot(epoch=0)), context
        )

    def snapshot(self) -> WeightsSnapshot | None:
        """Take a snapshot if one is due."""
        decision = self.ask_snapshot()
        assert isinstance(decision, Accepted), decision
        self.fold(*decision.events)
        taken = decision.events[0] if decision.events else None
        assert taken is None or isinstance(taken, WeightsSnapshot)
        return taken

    def context(self) -> Context:
        """Now, with everything committed."""
        return Context(at_us=self.at_us, size=self.state.pos, root="ab" * 32)

    def _internal(self, kind: str, body: ScoreAttempt | TakeSnapshot) -> Command:
        self.commands += 1
        digest = self.commands.to_bytes(32, "big")
        return Command(kind=kind, actor=SYSTEM, origin="internal", body=body, digest=digest, received_us=self.at_us)


def replace_size(context: Context, size: int) -> Context:
    """The same context over another number of events."""
    return Context(at_us=context.at_us, size=size, root=context.root)


__all__ = ["ADA", "COLD", "POLICY", "ScoresWorld"]
