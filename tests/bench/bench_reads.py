"""Leaderboard, weight preview and masses at 100 scored attempts against many more, with the same hotkeys: flat."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from rounds import compare, is_large

from events.envelope import ENVELOPE_VERSION, Envelope, Event, Recorded
from events.types.policy import PolicyAdopted
from events.types.scores import NodeValue, Score, ScoreRecorded
from hypercluster.domain.policy.release import SIM_POLICY
from hypercluster.domain.scores.mass import masses
from hypercluster.domain.weights.pipeline import weights_of
from hypercluster.domain.weights.preview import leaderboard_rows
from hypercluster.http.replies import json_bytes
from hypercluster.http.views.scores import leaderboard_view, preview_view
from projections.fold import State
from projections.folds import scores
from projections.tables import ReadModels, ReadView

START_US = 1_790_000_000_000_000
SMALL = 100
PAIRS = 20  # submitters, and providers with a node each
CALLS = 200


def scored(number: int) -> Recorded:
    """Attempt `number`: ten seconds on one node."""
    started_us = START_US + number * 10_000_000
    node = NodeValue(
        node_id=f"node-{number % PAIRS}",
        provider=f"5provider{number % PAIRS}",
        gpus_used=1,
        gpu_class="unverified",
        class_value_ppm=1_000_000,
        value=1_000_000,
        relation="separate",
    )
    score = Score(
        job_id=f"job-{number}",
        attempt_no=1,
        submitter=f"5miner{number % PAIRS}",
        rule="bench",
        policy_digest="policy",
        correctness=1,
        efficiency_ppm=1_000_000,
        fabric_gate=1,
        tee_bonus_ppm=1_000_000,
        composite_ppm=1_000_000,
        codes=(),
        program="digest-1",
        hardware_class="unverified",
        fabric="none",
        measured_bytes_per_s=1,
        expected_bytes_per_s=1,
        started_us=started_us,
        ended_us=started_us + 9_000_000,
        nodes=(node,),
        inputs=(),
    )
    return recorded(number + 2, score.ended_us, ScoreRecorded(score=score))


def recorded(pos: int, at_us: int, event: Event) -> Recorded:
    """An event as the folds see it."""
    envelope = Envelope(
        v=ENVELOPE_VERSION, type=event.type_name, tv=1, stream=event.stream(), sv=1, at_us=at_us,
        cmd="", n=1, of=1, actor="system", rules=1, data=msgspec.Raw(b"{}"),
    )  # fmt: skip
    return Recorded(pos, at_us, envelope, event, b"")


class Scored:
    """A state and read models with so many scored attempts."""

    def __init__(self, directory: Path, count: int) -> None:
        self.state = State()
        models = ReadModels(directory / f"{count}.sqlite3", b"bench")
        self._fold(recorded(1, START_US, PolicyAdopted(digest="policy", effective_us=0, policy=SIM_POLICY)))
        for number in range(count):
            one = scored(number)
            self._fold(one)
            if number % 1_000 == 999 or number == count - 1:
                models.apply(self.state.journal.commit(), [], one.pos)
        models.close()
        self.now_us = START_US + count * 10_000_000
        self.view = ReadView(directory / f"{count}.sqlite3")

    def _fold(self, one: Recorded) -> None:
        self.state.journal.pos = one.pos
        scores.STEPS[type(one.event)](self.state.scores, one)

    def standings(self) -> list[scores.Standing]:
        return [row.record for row in self.view.find("standing", limit=500)]

    def leaderboard(self) -> bytes:
        return json_bytes([leaderboard_view(row) for row in leaderboard_rows(self.standings())])

    def preview(self) -> bytes:
        return json_bytes(preview_view(None, self.standings(), self.now_us))

    def weights(self) -> object:
        found = masses(self.state, SIM_POLICY, self.now_us)
        return weights_of({hotkey: mass.total for hotkey, mass in found.items()}, SIM_POLICY, None)


def rate(call: Callable[[], object]) -> float:
    """Calls per second."""
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return CALLS / (time.perf_counter() - began)


def main(count: int | None = None) -> dict[str, float]:
    """Print the ratios of the rates; 1 is flat."""
    count = count or (50_000 if is_large() else 5_000)
    with tempfile.TemporaryDirectory() as name:
        many, few = Scored(Path(name), count), Scored(Path(name), SMALL)
        assert len(many.standings()) == len(few.standings()) == 2 * PAIRS
        return {
            what: compare(
                f"{what} at {count:,} attempts against {SMALL}",
                lambda what=what: rate(getattr(many, what)),
                lambda what=what: rate(getattr(few, what)),
            )
            for what in ("leaderboard", "preview", "weights")
        }


if __name__ == "__main__":
    main()
