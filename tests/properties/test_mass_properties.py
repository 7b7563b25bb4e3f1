"""The incremental credit index says what a plain reading of the policy says, on random histories."""

import time
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from events.envelope import Envelope, Event, Recorded
from events.types.jobs import AttemptEnded, JobSpec, JobSubmitted
from events.types.policy import PolicyAdopted
from events.types.scores import NodeValue, Score, ScoreRecorded, ScoreRevised
from events.types.weights import WeightsSnapshot
from hypercluster.domain.policy.release import SIM_POLICY
from projections import credit, credit_index, window
from projections.credit import Terms, terms_of
from projections.folds.scores import STEPS, ScoresState
from projections.state import Journal, Table

T0 = 1_764_547_200_000_000
S = 1_000_000
PPM = 1_000_000
ENVELOPE = Envelope(
    v=1, type="", tv=1, stream="", sv=1, at_us=0, cmd="", n=1, of=1, actor="", rules=1, data=msgspec.Raw(b"{}")
)
SPEC = JobSpec(image_digest="i", entrypoint=("e",), world_size=1, nnodes=1, nproc_per_node=1, timeout_s=1)
HOTKEYS = ("ada", "bob", "eve")
NODES = {"n1": "bob", "n2": "bob", "n3": "eve", "n4": "ada"}
POLICIES = {
    "p0": replace(SIM_POLICY, credit_slot_s=10, window_attempts=3, window_age_s=600, self_deal_damping_ppm=400_000),
    "p1": replace(SIM_POLICY, credit_slot_s=7, window_attempts=2, window_age_s=200, credit_requires_known_owner=1),
    "p2": replace(SIM_POLICY, credit_slot_s=900, window_attempts=5, supply_share_ppm=123_456, spam_free_fail_ppm=0),
}


class History:
    """A random history, folded event by event, with what a reader of the events would note down himself."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state = ScoresState(Journal())
        self.pos, self.at_us, self.jobs = 0, T0, 0
        self.scores: dict[str, tuple[int, int, Score]] = {}  # key -> first number, revision, score
        self.ended: dict[str, list[int]] = {}
        self.policy = "p0"
        for digest, policy in POLICIES.items():
            self.fold(PolicyAdopted(digest=digest, effective_us=T0, policy=policy))

    def fold(self, event: Event) -> None:
        self.pos += 1
        self.state.journal.pos = self.pos
        STEPS[type(event)](self.state, Recorded(self.pos, self.at_us, ENVELOPE, event, b""))

    def step(self) -> set[str]:
        """One random event; returns the hotkeys that it concerns."""
        self.at_us += self.random.randrange(40) * S
        kind = self.random.choices(
            (self.new_score, self.new_score, self.revised, self.end, self.snapshot), (4, 2, 3, 2, 1)
        )
        return kind[0]()

    def new_score(self) -> set[str]:
        self.jobs += 1
        started = self.at_us - self.random.randrange(120) * S
        score = self.random_score(f"j{self.jobs}", started, started + self.random.randrange(60) * S)
        self.fold(ScoreRecorded(score=score))
        self.scores[f"{score.job_id}/1"] = (self.pos, 1, score)
        return parties(score)

    def random_score(self, job_id: str, started_us: int, ended_us: int) -> Score:
        node_ids = sorted(self.random.sample(sorted(NODES), self.random.randint(1, 3)))
        return Score(
            job_id=job_id,
            attempt_no=1,
            submitter=self.random.choice(HOTKEYS),
            rule="r",
            policy_digest="p",
            correctness=1,
            efficiency_ppm=PPM,
            fabric_gate=1,
            tee_bonus_ppm=PPM,
            composite_ppm=PPM,
            codes=(),
            program="p",
            hardware_class="h",
            fabric="f",
            measured_bytes_per_s=1,
            expected_bytes_per_s=1,
            started_us=started_us,
            ended_us=ended_us,
            nodes=tuple(self.random_value(node_id) for node_id in node_ids),
            inputs=(1,),
        )

    def random_value(self, node_id: str) -> NodeValue:
        return NodeValue(
            node_id=node_id,
            provider=NODES[node_id],
            gpus_used=1,
            gpu_class="c",
            class_value_ppm=PPM,
            value=self.random.choice((0, 1, 3, 999_999, 2_000_000)),
            relation=self.random.choice(("separate", "separate", "self_deal", "owner_unknown")),
        )

    def revised(self) -> set[str]:
        if not self.scores:
            return set()
        key = self.random.choice(sorted(self.scores))
        pos, revision, score = self.scores[key]
        changed = replace(
            score,
            nodes=tuple(replace(node, value=self.random.choice((0, node.value, 5))) for node in score.nodes),
            demand_void=self.random.random() < 0.3,
            supply_void=tuple(sorted({n.provider for n in score.nodes if self.random.random() < 0.3})),
        )
        self.fold(ScoreRevised(revision=revision + 1, reason_code="claim", score=changed))
        self.scores[key] = (pos, revision + 1, changed)
        return parties(changed)

    def end(self) -> set[str]:
        self.jobs += 1
        hotkey = self.random.choice(HOTKEYS)
        fault = self.random.choice(("none", "submitter", "provider", "nobody"))
        self.fold(JobSubmitted(job_id=f"j{self.jobs}", submitter=hotkey, spec=SPEC))
        self.fold(AttemptEnded(job_id=f"j{self.jobs}", attempt_no=1, outcome="failed", fault=fault))
        self.ended.setdefault(hotkey, []).append(1 if fault == "submitter" else 0)
        return {hotkey} if hotkey in self.state.standings else set()

    def snapshot(self) -> set[str]:
        self.policy = self.random.choice(sorted(POLICIES))
        fields = dict.fromkeys(("previous", "digest", "root", "metagraph_digest"), "0" * 64)
        self.fold(WeightsSnapshot(number=1, epoch=1, size=1, policy_digest=self.policy, weights=(), **fields))
        return set(self.state.standings)


def parties(score: Score) -> set[str]:
    return {score.submitter, *(node.provider for node in score.nodes)}


def plain_masses(history: History, terms: Terms, at_us: int) -> dict[str, tuple[int, int, int]]:
    """hotkey -> (supply, demand, total), as the policy's steps 3 to 7 read, with sets and lists."""
    taken: set[tuple[str, int]] = set()
    supply: dict[str, list[tuple[int, int, str, int]]] = {}
    demand: dict[str, list[tuple[int, int, str, int]]] = {}
    slot_us = terms.credit_slot_s * S
    for pos, _, score in sorted(history.scores.values(), key=lambda found: found[0]):
        given = 0
        for node in score.nodes:
            if node.value == 0:
                continue
            covered = {(node.node_id, n) for n in range(score.started_us // slot_us, score.ended_us // slot_us + 1)}
            credit = node.value * len(covered - taken)
            taken |= covered
            kept = PPM
            if node.relation == "self_deal" or node.provider == score.submitter:
                kept = PPM - terms.self_deal_damping_ppm
            if node.relation == "owner_unknown" and terms.credit_requires_known_owner:
                kept = 0
            to_provider = credit * terms.supply_share_ppm // PPM * kept // PPM
            to_submitter = credit * terms.demand_share_ppm // PPM * kept // PPM
            if node.provider not in score.supply_void and to_provider:
                entry = (score.started_us, pos, node.provider, to_provider)
                supply.setdefault(node.node_id, []).append(entry)
            given += 0 if score.demand_void else to_submitter
        if given:
            demand.setdefault(score.submitter, []).append((score.started_us, pos, score.submitter, given))
    found: dict[str, tuple[int, int, int]] = {}
    for hotkey in HOTKEYS:
        sums = [
            sum(
                entry[3]
                for entries in role.values()
                for entry in sorted(entries)[-terms.window_attempts :]
                if entry[0] >= at_us - terms.window_age_s * S and entry[2] == hotkey
            )
            for role in (supply, demand)
        ]
        outcomes = history.ended.get(hotkey, [])[-terms.window_attempts :]
        failed = sum(outcomes) * PPM // len(outcomes) if outcomes else 0
        free = terms.spam_free_fail_ppm
        keep = PPM - max(0, failed - free) * PPM // (PPM - free)
        if any(sums):
            found[hotkey] = (sums[0], sums[1] * keep // PPM, sums[0] + sums[1] * keep // PPM)
    return found


def told(index: credit_index.CreditIndex, history: History, at_us: int) -> dict[str, tuple[int, int, int]]:
    found = credit_index.masses(index, history.ended, at_us)
    return {hotkey: (mass.supply, mass.demand, mass.total) for hotkey, mass in found.items()}


def dump(state: ScoresState) -> dict[str, object]:
    tables = [value for value in vars(state).values() if isinstance(value, Table)]
    return {table.name: plain(table) for table in tables}


def plain(value: object) -> object:
    return {key: plain(row) for key, row in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(("reserve", "word_slots"), [(0, 4), (1, 4096), (128, 5)])
def test_the_index_equals_a_plain_reading(monkeypatch, reserve, word_slots):
    monkeypatch.setattr(window, "RESERVE", reserve)
    monkeypatch.setattr(credit, "WORD_SLOTS", word_slots)
    seen = set()
    for seed in range(40):
        history = History(seed)
        for _ in range(60):
            history.step()
            terms = terms_of(POLICIES[history.policy])
            assert history.state.terms["current"] == terms
            for later_us in (0, 150 * S, 650 * S):
                at_us = history.at_us + later_us
                expected = plain_masses(history, terms, at_us)
                assert told(history.state, history, at_us) == expected, seed
                seen |= expected.keys()
    assert seen == set(HOTKEYS)


def test_other_terms_give_what_a_plain_reading_gives():
    for seed in range(60):
        history = History(seed)
        for _ in range(40):
            history.step()
        for policy in POLICIES.values():
            index = credit_index.built(history.state.scores(), terms_of(policy))
            assert told(index, history, history.at_us) == plain_masses(history, terms_of(policy), history.at_us)


def test_standings_are_the_masses_of_the_moment_they_changed():
    for seed in range(60):
        history = History(seed)
        for _ in range(40):
            concerned = history.step()
            expected = plain_masses(history, terms_of(POLICIES[history.policy]), history.at_us)
            for hotkey in concerned:
                standing = history.state.standings[hotkey]
                assert (standing.supply, standing.demand, standing.total) == expected.get(hotkey, (0, 0, 0)), seed


def test_without_ageing_every_standing_is_right_at_all_times(monkeypatch):
    for digest, policy in POLICIES.items():
        monkeypatch.setitem(POLICIES, digest, replace(policy, window_age_s=10**6))
    for seed in range(40):
        history = History(seed)
        for _ in range(40):
            history.step()
            expected = plain_masses(history, terms_of(POLICIES[history.policy]), history.at_us)
            for hotkey, standing in history.state.standings.items():
                assert (standing.supply, standing.demand, standing.total) == expected.get(hotkey, (0, 0, 0)), seed


@pytest.mark.parametrize("reserve", [0, 1, 2, 5])
def test_a_window_sums_the_newest_whatever_came_and_went(monkeypatch, reserve):
    monkeypatch.setattr(window, "RESERVE", reserve)
    for seed in range(150):
        random = Random(seed)
        size, held, shown = random.randint(1, 4), {}, window.EMPTY
        for _ in range(40):
            pos = random.randrange(12)
            if random.random() < 0.4:
                held.pop(pos, None)
            else:
                held[pos] = window.Entry((pos * 7) % 5, pos, random.choice("aab"), random.randint(1, 9))
            shown = window.changed(shown, pos, held.get(pos), size, held.values)
            newest = sorted(held.values())[-size:]
            for since in range(-1, 6):
                for hotkey in "ab":
                    expected = sum(e.amount for e in newest if e.hotkey == hotkey and e.started_us >= since)
                    assert window.amount_for(shown, hotkey, size, since) == expected, seed
            assert len(shown.entries) <= size + reserve


def test_counts_are_of_attempts_not_of_revisions():
    for seed in range(30):
        history = History(seed)
        for _ in range(40):
            history.step()
        scores = [score for _, _, score in history.scores.values()]
        for hotkey, standing in history.state.standings.items():
            assert standing.score_count == sum(hotkey in parties(score) for score in scores)
            assert standing.self_deal_count == sum(
                any(
                    hotkey in (score.submitter, node.provider)
                    and (node.relation == "self_deal" or node.provider == score.submitter)
                    for node in score.nodes
                )
                for score in scores
            )


def test_a_rollback_leaves_nothing_behind():
    for seed in range(60):
        history = History(seed)
        for _ in range(25):
            history.step()
        history.state.journal.commit()
        before, pos = dump(history.state), history.pos
        mark = history.state.journal.mark()
        for _ in range(25):
            history.step()
        assert dump(history.state) != before
        history.state.journal.rollback(mark)
        assert dump(history.state) == before
        assert history.pos > pos


def grown(count: int) -> History:
    """A history of this many scored attempts of three hotkeys on four nodes."""
    history = History(1)
    for _ in range(count):
        history.at_us += 12 * S
        history.new_score()
        history.state.journal.forget()
    return history


def test_reading_costs_the_same_after_many_attempts():
    small, large = grown(200), grown(6000)

    def cost(history: History) -> int:
        best = 10**12
        for _ in range(30):
            begun = time.perf_counter_ns()
            credit_index.masses(history.state, history.ended, history.at_us)
            best = min(best, time.perf_counter_ns() - begun)
        return best

    assert cost(large) < 4 * cost(small)


def test_a_new_score_costs_the_same_after_many_attempts():
    def cost(history: History) -> int:
        best = 10**12
        for _ in range(100):
            history.at_us += 12 * S
            begun = time.perf_counter_ns()
            history.new_score()
            best = min(best, time.perf_counter_ns() - begun)
            history.state.journal.forget()
        return best

    small, large = grown(200), grown(6000)
    assert cost(large) < 4 * cost(small)
