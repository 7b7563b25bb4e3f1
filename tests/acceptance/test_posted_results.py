"""Posted results and rents among friends, on real hosts: what is posted moves no score, no weight and no job.

One server, one host for each couple of provider and renter. All do the same work at the same time; credit slots are so
long that everybody who earns, earns one. So those who post must come out exactly as those who do not.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hypercluster.domain.policy.release import policy_of
from hypercluster.sim.cluster import SimHost
from tests.support.clusters import start_cluster
from tests.support.crash_rig import Caller, Refused, ServerProcess, Work, job_over, job_runs, node_body
from tests.support.serving import Key

DAY_S = 86_400
PATIENCE_S = 40.0
ROSY = {
    "status": "succeeded",
    "verified": True,
    "metrics": {"efficiency": 1000000, "composite": 1000000, "correctness": 1},
    "proof_tier": "tdx+gpu_cc",
    "verify_mode": "live",
}
# How couples are related. Those of one owner have one coldkey; a throwaway renter stands in no list.
STRANGERS, OWN_KEY, ONE_OWNER, THROWAWAY = "strangers", "own key", "one owner", "throwaway"

OF_A_RUN = {"job_id", "attempt_no", "submitter", "started_us", "ended_us", "inputs", "measured_bytes_per_s"}
OF_A_NODE = {"node_id", "provider"}


@dataclass
class Couple:
    """A provider with one host of one GPU, whoever rents it, and what came of it."""

    relation: str
    provider: Caller
    renter: Caller
    stranger: Caller
    work: Work
    lease: str = ""
    answers: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)
    story: list[dict[str, Any]] = field(default_factory=list)

    def settle(self, host: SimHost) -> None:
        """Register, offer, rent."""
        self.provider.post("/v1/providers/register", {})
        node = self.provider.post("/v1/nodes", node_body(host))["id"]
        body = {"node_ids": [node], "price_per_hour": 1, "max_lifetime_hours": 1}
        offer = self.provider.post("/v1/offers", body)["id"]
        self.lease = self.renter.post(f"/v1/offers/{offer}/rent", {"lifetime_hours": 1})["lease"]["id"]

    def submit(self, **given: object) -> str:
        return str(self.renter.post("/v1/jobs", self.work.spec(lease_id=self.lease, **given))["id"])

    def post(self, job: str, attempt_no: int = 1, **changes: object) -> None:
        """All three post; their answers are kept."""
        for poster in (self.renter, self.provider, self.stranger):
            try:
                poster.post(f"/v1/jobs/{job}/results", {**ROSY, "attempt_no": attempt_no, **changes})
            except Refused as refused:
                self.answers.append(refused.code)
            else:
                self.answers.append("taken")
            self.seen.append(self.renter.get(f"/v1/jobs/{job}")["status"])

    def finish(self, job: str) -> None:
        self.job = job_over(self.renter, job, PATIENCE_S)
        self.story = self.renter.items(f"/v1/events?job={job}")

    @property
    def score(self) -> dict[str, Any]:
        """The recorded score, without what differs from run to run: names, times, numbers of events."""
        (found,) = (event["data"]["score"] for event in self.story if event["type"] == "score.recorded")
        values = [{name: fact for name, fact in node.items() if name not in OF_A_NODE} for node in found["nodes"]]
        return {name: fact for name, fact in found.items() if name not in OF_A_RUN} | {"nodes": values}


def work(couple: Couple) -> None:
    """Run one job and say nothing."""
    couple.finish(couple.submit(SLEEP_S=1))


def post_before_and_during(couple: Couple) -> None:
    """The job has to wait for one that hangs; results are posted of both, and only its submitter ends the latter."""
    hanging = couple.submit(SLEEP_S=60)
    job_runs(couple.renter, hanging, PATIENCE_S)
    couple.post(hanging)
    job = couple.submit(SLEEP_S=1)
    couple.post(job)
    couple.renter.post(f"/v1/jobs/{hanging}/cancel")
    job_runs(couple.renter, job, PATIENCE_S)
    couple.post(job)
    couple.post(job, status="failed", integrity_codes=["fabric_lie"])
    couple.post(job, attempt_no=2)
    couple.finish(job)


def post_after(couple: Couple) -> None:
    job = couple.submit(SLEEP_S=1)
    couple.finish(job)
    couple.post(job)
    couple.post(job, verified=False)
    couple.finish(job)


def fail_and_post(couple: Couple) -> None:
    """The entrypoint exits with 1; whoever may post says that all went well."""
    job = couple.submit(SLEEP_S=1, EXIT=1, FAILING_RANK=0)
    job_runs(couple.renter, job, PATIENCE_S)
    couple.post(job)
    couple.finish(job)
    couple.post(job)
    couple.finish(job)


PLAYS: dict[str, tuple[str, Callable[[Couple], None]]] = {
    "plain": (STRANGERS, work),
    "during": (STRANGERS, post_before_and_during),
    "after": (STRANGERS, post_after),
    "failing": (STRANGERS, fail_and_post),
    "own key": (OWN_KEY, work),
    "one owner": (ONE_OWNER, work),
    "throwaway": (THROWAWAY, work),
}


@dataclass
class Day:
    """What all of them did, and what everybody got for it."""

    couples: dict[str, Couple]
    masses: dict[str, float]
    weights: dict[str, float]


def slot_s() -> int:
    """A credit slot that does not end while the tests run."""
    return next(length for length in (DAY_S, DAY_S - 7_001) if time.time() % length < length - 600)


def govern(server: ServerProcess, couples: dict[str, Couple]) -> None:
    """What the operator signs: who owns whom, and a policy under which nothing is left to chance."""
    base = policy_of("sim")
    rows = tuple(msgspec.structs.replace(row, bytes_per_s=1) for row in base.expected_bandwidth)
    policy = msgspec.structs.replace(
        base, version=2, credit_slot_s=slot_s(), credit_requires_known_owner=1, expected_bandwidth=rows
    )
    owners: dict[str, str] = {}
    for couple in couples.values():
        provider, renter = couple.provider.key.hotkey, couple.renter.key.hotkey
        owners[provider] = provider
        if couple.relation != THROWAWAY:
            owners[renter] = provider if couple.relation == ONE_OWNER else renter
    entries = [{"uid": uid, "hotkey": hot, "coldkey": cold} for uid, (hot, cold) in enumerate(owners.items())]
    with Caller(server.url, server.operator) as operator:
        operator.post("/v1/operator/policy", {"policy": msgspec.to_builtins(policy)})
        operator.post("/v1/operator/metagraph", {"netuid": 1, "block": 1, "entries": entries})


def in_force(caller: Caller, version: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while caller.get("/v1/policy")["policy"]["version"] != version:
        assert time.monotonic() < until
        time.sleep(0.1)


def settled_weights(caller: Caller) -> tuple[dict[str, float], dict[str, float]]:
    """Masses now, and the weights of a snapshot that was taken after them."""
    head = caller.items("/v1/events?type=job.ended")[-1]["seq"]
    until = time.monotonic() + PATIENCE_S
    while True:
        shown = caller.get("/v1/weight-preview")
        if shown["snapshot"].get("size", 0) >= head:
            return shown["raw_mass"], shown["weights"]
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    directory = tmp_path_factory.mktemp("day")
    with ExitStack() as stack:
        server = ServerProcess(directory)
        stack.callback(server.stop)
        server.start()
        couples = {name: couple_of(stack, server, relation, directory / name) for name, (relation, _) in PLAYS.items()}
        govern(server, couples)
        cluster = start_cluster(directory / "hosts", server.public_key(directory), nodes=len(couples), gpus=1)
        stack.callback(cluster.end)
        for couple, host in zip(couples.values(), cluster.hosts, strict=True):
            couple.settle(host)
        reader = couples["plain"].stranger
        in_force(reader, 2)
        with ThreadPoolExecutor(len(couples)) as pool:
            for done in [pool.submit(PLAYS[name][1], couple) for name, couple in couples.items()]:
                done.result()
        yield Day(couples, *settled_weights(reader))
        assert server.faults() == []


def couple_of(stack: ExitStack, server: ServerProcess, relation: str, directory: Path) -> Couple:
    provider, renter, stranger = (stack.enter_context(Caller(server.url, Key())) for _ in range(3))
    return Couple(relation, provider, provider if relation == OWN_KEY else renter, stranger, Work(directory))


def hotkeys(couple: Couple) -> tuple[str, str]:
    return couple.provider.key.hotkey, couple.renter.key.hotkey


@pytest.mark.parametrize("name", ["during", "after"])
def test_whoever_posts_gets_the_score_and_the_mass_of_those_who_do_not(day: Day, name: str) -> None:
    plain, posting = day.couples["plain"], day.couples[name]
    assert plain.job["status"] == posting.job["status"] == "succeeded"
    assert posting.score == plain.score
    assert plain.score["composite_ppm"] == 1_000_000
    assert not [event for event in posting.story if event["type"] == "score.revised"]
    masses = [[day.masses[hotkey] for hotkey in hotkeys(couple)] for couple in (plain, posting)]
    assert masses[0] == masses[1] == [0.7, 0.3]


def test_what_is_posted_of_a_job_moves_it_nowhere(day: Day) -> None:
    during, taken = day.couples["during"], ["taken", "taken", "forbidden"]
    conflict = ["result_conflict", "result_conflict", "forbidden"]
    missing = ["attempt_not_found", "attempt_not_found", "forbidden"]
    assert during.answers == [*taken, *missing, *taken, *conflict, *missing]
    assert during.seen[:3] == ["running"] * 3, "the hanging job went on"
    assert during.seen[6:] == ["running"] * 9, "so did the one that was posted of"
    assert [event["type"] for event in during.story if event["type"].startswith("attempt.")] == [
        event["type"] for event in day.couples["plain"].story if event["type"].startswith("attempt.")
    ]
    assert day.couples["after"].answers == [*taken, *conflict]
    assert set(day.couples["after"].seen) == {"succeeded"}


def test_the_hanging_job_ended_by_its_submitters_word_and_scored_nothing(day: Day) -> None:
    during = day.couples["during"]
    (hanging,) = (job for job in during.renter.items("/v1/jobs") if job["id"] != during.job["id"])
    assert hanging["status"] == "cancelled"
    types = [event["type"] for event in during.renter.items(f"/v1/events?job={hanging['id']}")]
    assert types.count("result.claimed") == 2
    assert not [name for name in types if name.startswith("score.")]


def test_a_failed_job_stays_failed_whatever_is_posted(day: Day) -> None:
    failing = day.couples["failing"]
    assert failing.answers == ["taken", "taken", "forbidden"] * 2, "the same again is no other result"
    assert (failing.job["status"], failing.job["failure_code"]) == ("failed", "rank_failed")
    assert (failing.score["correctness"], failing.score["composite_ppm"]) == (0, 0)
    assert {day.masses.get(hotkey, 0.0) for hotkey in hotkeys(failing)} == {0.0}
    assert [event["type"] for event in failing.story].count("result.claimed") == 2


def test_only_strangers_who_did_real_work_for_each_other_are_in_the_weights(day: Day) -> None:
    earning = [hotkeys(day.couples[name]) for name in ("plain", "during", "after")]
    expected = {hotkey: share / 3 for pair in earning for hotkey, share in zip(pair, (0.7, 0.3), strict=True)}
    assert day.weights == pytest.approx(expected, abs=1.1e-6)
    assert sum(day.weights.values()) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("name", ["own key", "one owner", "throwaway"])
def test_real_work_among_friends_scores_and_earns_nothing(day: Day, name: str) -> None:
    couple = day.couples[name]
    assert couple.job["status"] == "succeeded"
    codes = {"own key": "self_deal", "one owner": "self_deal", "throwaway": "owner_unknown"}
    assert couple.score["composite_ppm"] == 1_000_000
    assert codes[name] in couple.score["codes"]
    assert {day.masses.get(hotkey, 0.0) for hotkey in hotkeys(couple)} == {0.0}
