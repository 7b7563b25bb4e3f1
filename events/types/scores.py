"""Scores: four factors per attempt, from what the challenge measured or recomputed."""

import msgspec

from events.envelope import Event
from events.registry import event


class NodeValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one node did in an attempt. `provider` is a hotkey; `relation`: of submitter and provider at the start."""

    node_id: str
    provider: str
    gpus_used: int
    gpu_class: str
    class_value_ppm: int
    value: int
    relation: str  # separate | self_deal | owner_unknown


class Score(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One attempt judged: correctness and fabric_gate are 0 or 1, the others ppm; `inputs` are event numbers."""

    job_id: str
    attempt_no: int
    submitter: str
    rule: str
    policy_digest: str
    correctness: int
    efficiency_ppm: int
    fabric_gate: int
    tee_bonus_ppm: int
    composite_ppm: int
    codes: tuple[str, ...]
    program: str
    hardware_class: str
    fabric: str
    measured_bytes_per_s: int
    expected_bytes_per_s: int
    started_us: int
    ended_us: int
    nodes: tuple[NodeValue, ...]
    inputs: tuple[int, ...]
    demand_void: bool = False  # the submitter's own claim voided its side
    supply_void: tuple[str, ...] = ()  # providers whose own claim voided theirs


@event("score.recorded")
class ScoreRecorded(Event, frozen=True):
    """An attempt was scored."""

    score: Score

    def stream(self) -> str:
        return f"job/{self.score.job_id}"


@event("score.revised")
class ScoreRevised(Event, frozen=True):
    """A later fact changed the score of an attempt; the latest revision counts."""

    revision: int  # from 2
    reason_code: str
    score: Score

    def stream(self) -> str:
        return f"job/{self.score.job_id}"
