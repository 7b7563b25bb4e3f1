"""Jobs from submission to their end: given what happened, when this is asked, then that happens."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from events.types.jobs import JobEnded
from events.types.market import LeaseEnded
from events.types.nodes import NodeFacts, NodeSeen
from events.types.scores import Score, ScoreRecorded
from hypercluster.domain.codes import CODES
from hypercluster.domain.jobs import decide as jobs_decide
from hypercluster.domain.jobs.closing import end_jobs_of_lease
from hypercluster.domain.jobs.commands import check_private
from hypercluster.domain.jobs.ending import end_job
from hypercluster.domain.jobs.faults import FAULTS, INTEGRITY_CODES, fault_of, is_integrity, is_scored
from hypercluster.domain.kernel import US_PER_H, US_PER_S, Accepted, Refused
from hypercluster.domain.policy.release import POLICY_V1
from hypercluster.domain.router import match
from tests.support.jobs_world import ADA, BOB, EVE, IMAGE, World, outcome

H100 = NodeFacts(gpu_model="H100", gpu_count=4)
SIM_IMAGE = "sha256:sim" + "0" * 59 + "1"


def last(world: World, job_id: str) -> tuple[str, str | None, str | None, str]:
    """Status, failure code and fault of the newest attempt, and status of the job."""
    attempt = world.attempt(job_id)
    return attempt.status, attempt.failure_code, attempt.fault, world.job(job_id).status


def test_routes() -> None:
    for path, kind in (
        ("/v1/jobs", "job.submit"),
        ("/v1/jobs/j-1/cancel", "job.cancel"),
        ("/v1/jobs/j-1/results", "result.post"),
    ):
        found = match("POST", path)
        assert found is not None and found.route.kind == kind


def test_a_job_is_submitted_and_admitted_in_one_append() -> None:
    world = World()
    decision = world.submit(client_request_id="r-1", env={"LR": "hmac-sha256:00"}, teardown="Terminate ", fabric="")
    assert outcome(decision) == ["job.submitted", "job.admitted"] and decision.created
    job = world.job(decision.subject)
    assert (job.status, job.submitter, job.client_request_id) == ("admitted", ADA, "r-1")
    assert (job.spec.teardown, job.spec.fabric, job.spec.env) == ("terminate", "auto", {"LR": "hmac-sha256:00"})
    assert world.state.jobs.live == {job.job_id: job.submitted_pos}
    assert world.state.jobs.live_by_lease == {"lease-1": (job.job_id,)}


PRICE, LIFETIME = "resource.max_price_per_hour", "resource.max_lifetime_hours"


def refusal(name: str, code: str, field: str, changes: dict[str, object]) -> Any:
    """A case: what is changed in a good job, and the refusal that follows."""
    return pytest.param(changes, code, field, id=name)


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        refusal("a tag", "image_not_allowed", "image_digest", {"image_digest": "team/train:latest"}),
        refusal(
            "tag and digest", "image_not_allowed", "image_digest", {"image_digest": "team/train:1@sha256:" + "0" * 64}
        ),
        refusal("short digest", "image_not_allowed", "image_digest", {"image_digest": "train@sha256:" + "0" * 63}),
        refusal("upper-case digest", "image_not_allowed", "image_digest", {"image_digest": "train@sha256:" + "A" * 64}),
        refusal("bare digests are for sim", "image_not_allowed", "image_digest", {"image_digest": SIM_IMAGE}),
        refusal("empty token", "path_unsafe", "entrypoint.1", {"entrypoint": ["python", " "]}),
        refusal("shell character", "path_unsafe", "entrypoint.0", {"entrypoint": ["a;b"]}),
        refusal("parent directory", "path_unsafe", "entrypoint.0", {"entrypoint": ["../x"]}),
        refusal("system path", "path_unsafe", "entrypoint.0", {"entrypoint": ["/ETC/passwd"]}),
        refusal("system path inside", "path_unsafe", "entrypoint.0", {"entrypoint": ["a=/usr/x"]}),
        refusal("too many tokens", "invalid_entrypoint", "entrypoint", {"entrypoint": ["x"] * 65}),
        refusal("dimensions", "world_size_mismatch", "world_size", {"world_size": 3}),
        refusal("huge dimension", "world_size_mismatch", "world_size", {"world_size": 10**30}),
        refusal("gpus true", "invalid_resource", "resource.gpus", {"resource": {"gpus": True}}),
        refusal("gpus negative", "invalid_resource", "resource.gpus", {"resource": {"gpus": -1}}),
        refusal("large resource", "invalid_resource", "resource", {"resource": {"x": "y" * 4096}}),
        refusal("price as text", "invalid_resource", PRICE, {"resource": {"max_price_per_hour": "1"}}),
        refusal(
            "seven decimals", "invalid_resource", PRICE, {"resource": {"max_price_per_hour": Decimal("0.0000001")}}
        ),
        refusal("no lifetime", "invalid_resource", LIFETIME, {"resource": {"max_lifetime_hours": 0}}),
        refusal("world", "budget_exceeded", "world_size", {"world_size": 66, "nnodes": 33}),
        refusal("nnodes", "budget_exceeded", "nnodes", {"world_size": 34, "nnodes": 17}),
        refusal("nproc", "budget_exceeded", "nproc_per_node", {"world_size": 9, "nnodes": 1, "nproc_per_node": 9}),
        refusal("timeout", "budget_exceeded", "timeout_s", {"timeout_s": 86_401}),
        refusal("gpus", "budget_exceeded", "resource.gpus", {"resource": {"gpus": 129}}),
        refusal("backend", "invalid_backend", "backend", {"backend": "mpi"}),
        refusal("fabric", "invalid_fabric", "fabric", {"fabric": "ibx"}),
        refusal("tee", "invalid_tee", "tee", {"tee": "sev"}),
        refusal("placement", "invalid_placement_policy", "placement_policy", {"placement_policy": "any"}),
        refusal("teardown", "invalid_teardown", "teardown", {"teardown": "now"}),
        refusal("env grammar", "invalid_env", "env", {"env": {"A-B": "c"}}),
        refusal("rank", "env_key_reserved", "env.RANK", {"env": {"RANK": "c"}}),
        refusal("loader", "env_key_reserved", "env.LD_PRELOAD", {"env": {"LD_PRELOAD": "c"}}),
        refusal("nccl", "env_key_reserved", "env.NCCL_DEBUG", {"env": {"NCCL_DEBUG": "c"}}),
        refusal("python", "env_key_reserved", "env.PYTHONPATH", {"env": {"PYTHONPATH": "c"}}),
        refusal("too many", "invalid_env", "env", {"env": {f"K{n}": "c" for n in range(65)}}),
        refusal("no lease", "lease_required", "lease_id", {"lease_id": None}),
        refusal("unknown lease", "lease_not_found", "lease_id", {"lease_id": "lease-9"}),
        refusal("unknown pod", "pod_not_found", "pod_id", {"pod_id": "pod-9"}),
        refusal("price bound", "price_over_bound", PRICE, {"resource": {"max_price_per_hour": Decimal("1.999999")}}),
        refusal(
            "lifetime bound", "lifetime_over_bound", LIFETIME, {"resource": {"max_lifetime_hours": Decimal("9.5")}}
        ),
        refusal(
            "too many per node",
            "capacity_insufficient",
            "lease_id",
            {"world_size": 5, "nnodes": 1, "nproc_per_node": 5},
        ),
        refusal(
            "too many nodes", "capacity_insufficient", "lease_id", {"world_size": 3, "nnodes": 3, "nproc_per_node": 1}
        ),
        refusal("no InfiniBand", "missing_ib", "lease_id", {"fabric": "ib"}),
        refusal("no TEE", "tee_not_offered", "tee", {"tee": "tdx"}),
    ],
)
def test_submit_refuses(changes: dict[str, object], code: str, field: str) -> None:
    world = World()
    decision = world.submit(**changes)
    assert isinstance(decision, Refused) and (decision.code, decision.field) == (code, field)
    assert code in CODES and not world.state.jobs.jobs


def test_gates_come_in_their_order() -> None:
    world = World()
    wrong: dict[str, object] = {
        "image_digest": "x",
        "entrypoint": [";"],
        "world_size": 99,
        "timeout_s": 10**9,
        "backend": "x",
        "env": {"PATH": "x"},
        "lease_id": "lease-9",
    }
    right: dict[str, object] = {
        "image_digest": IMAGE,
        "entrypoint": ["python"],
        "world_size": 4,
        "timeout_s": 1,
        "backend": "gloo",
        "env": {},
        "lease_id": "lease-1",
    }
    seen = []
    for field in wrong:
        seen.append(outcome(world.submit(**wrong)))
        wrong[field] = right[field]
    assert seen == ["image_not_allowed", "path_unsafe", "world_size_mismatch", "budget_exceeded", "invalid_backend",
                    "env_key_reserved", "lease_not_found"]  # fmt: skip


def test_harmless_entrypoints_pass() -> None:
    assert isinstance(World().submit(entrypoint=["python", "-c", "print('x')", "/data/x", "/tmp"]), Accepted)


def test_an_allowlist_of_the_policy_decides_exactly() -> None:
    world = World(policy=replace(POLICY_V1, image_allowlist=(IMAGE,)))
    assert isinstance(world.submit(), Accepted)
    assert outcome(world.submit(image_digest=IMAGE.replace("train", "other"))) == "image_not_allowed"


def test_resource_keeps_shallow_values_exactly() -> None:
    world = World()
    given = {"b": [1, None], "a": Decimal("1.50"), "deep": {"x": {"y": 1}}, "rows": [[1]], "flat": {"x": 1}}
    job_id = world.submitted(resource=given)
    assert world.job(job_id).spec.resource == '{"a":1.50,"b":[1,null],"flat":{"x":1}}'


def test_bounds_that_hold_are_kept_in_integers() -> None:
    world = World()
    spec = world.job(world.submitted(resource={"max_price_per_hour": 2, "max_lifetime_hours": 10})).spec
    assert (spec.max_price_micro_usd_h, spec.max_lifetime_us) == (2_000_000, 10 * US_PER_H)


def test_a_lease_takes_jobs_of_its_renter_until_its_time_is_over() -> None:
    world = World()
    assert outcome(world.submit(actor=EVE)) == "foreign_lease"
    assert isinstance(world.submit(pod_id="pod-of-lease-1"), Accepted)
    world.wait(10 * 3600 - 1)
    assert isinstance(world.submit(), Accepted)
    world.wait(1)  # nobody has written the end yet: the time decides, not the status
    assert world.state.market.leases["lease-1"].status == "active"
    assert outcome(world.submit()) == "lease_inactive"


def test_a_pod_of_another_lease_is_refused() -> None:
    world = World(facts=(H100,) * 4, leased=2)
    world.lease("lease-2", ADA, ("node-2", "node-3"))
    assert outcome(world.submit(pod_id="pod-of-lease-2")) == "pod_mismatch"


def test_sim_takes_jobs_without_lease_and_bare_digests() -> None:
    world = World(profile="sim")
    for image in (SIM_IMAGE, "sha256:" + "cafebabe" * 8, "sha256:" + "a" * 64, IMAGE):
        assert isinstance(world.submit(lease_id=None, image_digest=image), Accepted)
    assert outcome(world.submit(lease_id=None, image_digest="sha256:short")) == "image_not_allowed"
    assert outcome(world.submit(lease_id=None, pod_id="pod-9")) == "pod_not_found"
    by_pod = world.submitted(lease_id=None, pod_id="pod-of-lease-1")
    assert world.job(by_pod).spec.lease_id == "lease-1"
    assert outcome(world.submit(actor=EVE, lease_id=None, pod_id="pod-of-lease-1")) == "foreign_lease"


def test_live_jobs_of_one_hotkey_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_decide, "LIVE_JOBS_PER_SUBMITTER_MAX", 2)
    world = World()
    first = world.submitted()
    world.submitted()
    assert outcome(world.submit()) == "too_many_jobs"
    world.cancel(first)
    assert isinstance(world.submit(), Accepted)


def test_private_env_values_are_checked_before_they_are_sealed() -> None:
    assert check_private("job.submit", {"env": {"A": "b"}}) is None
    assert check_private("job.submit", {}) is None
    for value in (1, "a\0b", "x" * 20_000):
        refused = check_private("job.submit", {"env": {"A": value}})
        assert refused is not None and (refused.code, refused.field) == ("invalid_env", "env.A")


# cancel


def test_cancel_is_the_submitters_and_final() -> None:
    world = World()
    job_id = world.submitted()
    assert outcome(world.cancel("no-such-job")) == "job_not_found"
    assert outcome(world.cancel(job_id, EVE)) == "forbidden"
    assert outcome(world.cancel(job_id)) == ["job.ended"]
    assert (world.job(job_id).status, world.job(job_id).failure_code) == ("cancelled", "cancelled")
    again = world.cancel(job_id)
    assert isinstance(again, Refused)
    assert (again.code, again.seq) == ("already_terminal", world.state.jobs.ended_jobs[job_id])
    assert not world.state.jobs.live and not world.state.jobs.live_by_lease and not world.state.jobs.live_by_submitter


@pytest.mark.parametrize("running", [False, True])
def test_cancel_ends_the_attempt_in_the_same_append_and_wins_over_later_facts(running: bool) -> None:
    world = World()
    job_id = world.running() if running else world.placed()
    assert outcome(world.cancel(job_id)) == ["attempt.ended", "job.ended"]
    assert last(world, job_id) == ("cancelled", "cancelled", "nobody", "cancelled")
    assert outcome(world.run(job_id)) == "attempt_over"
    assert outcome(world.work("attempt.collect", job_id)) == "attempt_over"
    assert outcome(world.over(job_id)) == "attempt_over"
    assert world.state.jobs.gpus_held
    assert outcome(world.work("attempt.clean", job_id)) == ["attempt.cleaned"]
    assert not world.state.jobs.gpus_held


# attempts


def test_the_whole_way_of_a_job() -> None:
    world = World()
    job_id = world.placed()
    attempt = world.attempt(job_id)
    assert attempt.deadline_us == world.at_us + POLICY_V1.gang_timeout_s * US_PER_S
    world.wait(5)
    assert outcome(world.run(job_id)) == ["attempt.running"]
    assert world.job(job_id).started_us == world.attempt(job_id).started_us == world.at_us
    assert world.attempt(job_id).deadline_us == world.at_us + 600 * US_PER_S
    assert outcome(world.run(job_id)) == []
    world.wait(60)
    assert outcome(world.work("attempt.collect", job_id)) == ["attempt.collecting"]
    assert outcome(world.work("attempt.collect", job_id)) == []
    assert outcome(world.over(job_id)) == ["attempt.ended"]
    assert last(world, job_id) == ("succeeded", None, "none", "scoring")
    assert world.state.jobs.busy == {job_id: 4}
    assert outcome(world.cancel(job_id)) == "already_terminal"
    world.score(job_id)
    job = world.job(job_id)
    assert (job.status, job.failure_code, job.finished_us) == ("succeeded", None, world.at_us)
    assert not world.state.jobs.busy
    assert end_job(world.state, job, status="failed", reason_code="x", caused_by=None, at_us=world.at_us) == ()


def test_an_attempt_is_released_before_its_deadline_only() -> None:
    world = World()
    job_id = world.placed()
    world.wait(POLICY_V1.gang_timeout_s + 1)
    assert outcome(world.run(job_id)) == "attempt_over"
    assert outcome(world.over(job_id, "cancelled")) == ["attempt.ended", "job.ended"]
    assert last(world, job_id) == ("failed", "gang_timeout", "nobody", "failed")


def test_an_attempt_is_not_released_when_its_lease_is_over() -> None:
    world = World()
    world.wait(10 * 3600 - 10)
    job_id = world.placed()
    world.wait(10)
    assert outcome(world.run(job_id)) == "attempt_over"
    world.over(job_id, "cancelled")
    assert last(world, job_id) == ("failed", "lease_ended", "nobody", "failed")


def test_the_end_of_the_lease_is_nobodys_timeout() -> None:
    world = World()
    world.wait(10 * 3600 - 100)
    job_id = world.running()
    lease = world.state.market.leases["lease-1"]
    assert world.attempt(job_id).deadline_us == lease.ends_at_us
    world.wait(100)
    world.over(job_id, "timeout")
    assert last(world, job_id) == ("failed", "lease_ended", "nobody", "failed")


SCORED = [
    ("rank_failed", "submitter", "failed"),
    ("timeout", "submitter", "timeout"),
    ("output_over_quota", "submitter", "failed"),
    ("image_not_found", "submitter", "failed"),
    ("preflight_mismatch", "provider", "failed"),
    ("rank_missing", "provider", "failed"),
    ("transport_forbidden", "provider", "failed"),
    ("inventory_spoof", "provider", "failed"),
]
UNSCORED = [
    ("node_unreachable", "provider"),
    ("node_lost", "provider"),
    ("host_key_mismatch", "provider"),
    ("container_runtime_missing", "provider"),
    ("endpoint_forbidden", "provider"),
    ("ssh_auth_failed", "provider"),
    ("gang_timeout", "nobody"),
    ("no_capacity", "nobody"),
    ("lease_ended", "nobody"),
    ("a_code_of_another_release", "nobody"),
]


@pytest.mark.parametrize(("code", "fault", "status"), SCORED)
def test_scored_failures_wait_for_their_score(code: str, fault: str, status: str) -> None:
    world = World()
    job_id = world.running()
    world.wait(600)
    assert outcome(world.over(job_id, code, node_id="node-1", rank=3)) == ["attempt.ended"]
    assert last(world, job_id) == (status, code, fault, "scoring")
    assert (world.attempt(job_id).node_id, world.attempt(job_id).rank) == ("node-1", 3)


@pytest.mark.parametrize(("code", "fault"), UNSCORED)
def test_unscored_failures_end_the_job_in_the_same_append(code: str, fault: str) -> None:
    world = World()
    job_id = world.placed()
    assert outcome(world.over(job_id, code)) == ["attempt.ended", "job.ended"]
    assert last(world, job_id) == ("failed", code, fault, "failed")
    assert world.job(job_id).failure_code == code


def test_the_table_of_faults_is_whole() -> None:
    assert {code for code, *_ in SCORED} <= FAULTS.keys()
    assert all(is_scored(code) == (code in {one for one, *_ in SCORED} | INTEGRITY_CODES) for code in FAULTS)
    assert all(fault_of(code) == "provider" and is_scored(code) and is_integrity(code) for code in INTEGRITY_CODES)
    assert (fault_of(None), is_scored(None), is_integrity("rank_failed")) == ("none", True, False)


@pytest.mark.parametrize(
    ("ranks", "code", "rank"),
    [
        pytest.param([(0, 0), (1, 0), (2, 7), (3, 1)], "rank_failed", 2, id="the first that failed"),
        pytest.param([(0, 0), (1, 0), (3, 0)], "control_plane_lost", 2, id="a rank without report"),
        pytest.param([(0, 0), (1, 0), (2, None), (3, 0)], "control_plane_lost", 2, id="a rank that never ended"),
    ],
)
def test_success_is_what_the_reports_say(ranks: list[tuple[int, int | None]], code: str, rank: int) -> None:
    world = World()
    job_id = world.running()
    reports = [{"rank": one} | ({} if exit_code is None else {"exit_code": exit_code}) for one, exit_code in ranks]
    world.over(job_id, ranks=reports)
    attempt = world.attempt(job_id)
    assert (attempt.failure_code, attempt.rank) == (code, rank)
    assert attempt.node_id == ("node-0" if rank < 2 else "node-1")


def test_what_was_not_released_can_neither_succeed_nor_use_up_its_time() -> None:
    for code, meaning in (
        (None, "control_plane_lost"),
        ("timeout", "gang_timeout"),
        ("preflight_timeout", "gang_timeout"),
    ):
        world = World()
        job_id = world.placed()
        world.over(job_id, code)
        assert world.attempt(job_id).failure_code == meaning


def test_a_stranger_node_or_rank_is_not_blamed() -> None:
    world = World()
    job_id = world.running()
    world.over(job_id, "node_lost", node_id="node-77", rank=99)
    assert (world.attempt(job_id).node_id, world.attempt(job_id).rank) == (None, None)


def test_collecting_needs_a_release() -> None:
    world = World()
    job_id = world.placed()
    assert outcome(world.work("attempt.collect", job_id)) == "attempt_not_running"


def test_reports_on_unknown_attempts_are_refused() -> None:
    world = World()
    job_id = world.submitted()
    assert outcome(world.run(job_id)) == "attempt_not_found"
    assert outcome(world.over(job_id, "node_lost")) == "attempt_not_found"
    assert outcome(world.work("attempt.clean", job_id)) == "attempt_not_found"


def test_cleaning_needs_an_end_and_happens_once() -> None:
    world = World()
    job_id = world.running()
    assert outcome(world.work("attempt.clean", job_id)) == "attempt_live"
    world.over(job_id)
    assert world.state.jobs.gpus_held == {"node-0": (0, 1), "node-1": (0, 1)}
    assert outcome(world.work("attempt.clean", job_id, unconfirmed=["node-1", "node-9"])) == ["attempt.cleaned"]
    assert world.attempt(job_id).unconfirmed == ("node-1",)
    assert outcome(world.work("attempt.clean", job_id)) == []


# retries


def test_only_a_lost_control_plane_is_retried_up_to_max_attempts() -> None:
    world = World()
    job_id = world.running()
    started_us = world.job(job_id).started_us
    for attempt_no in (1, 2):
        assert outcome(world.over(job_id, "control_plane_lost")) == ["attempt.ended", "job.waiting"]
        job = world.job(job_id)
        assert (job.status, job.waiting_code, job.waiting_have, job.waiting_need) == ("placing", "retry", attempt_no, 3)
        assert not world.state.jobs.busy
        world.work("attempt.clean", job_id)
        world.wait(10)
        assert outcome(world.work("job.place", job_id)) == ["attempt.placed"]
        assert world.attempt(job_id).attempt_no == attempt_no + 1
        world.run(job_id)
    assert outcome(world.over(job_id, "control_plane_lost")) == ["attempt.ended", "job.ended"]
    assert world.job(job_id).failure_code == "control_plane_lost" and world.job(job_id).started_us == started_us


def test_no_retry_after_max_wall() -> None:
    world = World(policy=replace(POLICY_V1, max_wall_s=100))
    job_id = world.running()
    world.wait(100)
    assert outcome(world.over(job_id, "control_plane_lost")) == ["attempt.ended", "job.ended"]


def test_the_next_attempt_does_not_meet_the_leftovers_of_the_last() -> None:
    world = World()
    job_id = world.running(world_size=8, nproc_per_node=4)
    world.over(job_id, "control_plane_lost")
    assert outcome(world.work("job.place", job_id)) == ["job.waiting"]
    assert world.job(job_id).waiting_code == "gpus_busy"
    world.do("attempt.clean", "system", {"job_id": job_id, "attempt_no": 1})
    assert outcome(world.work("job.place", job_id)) == ["attempt.placed"]


# leases and teardown


def test_a_lease_that_ends_closes_its_jobs() -> None:
    world = World()
    running = world.running()
    waiting = world.submitted()
    scoring = world.running(world_size=2, nproc_per_node=1)
    world.over(scoring)
    events = end_jobs_of_lease(world.state, "lease-1", caused_by=7)
    world.fold(*events)
    assert [event.type_name for event in events] == ["attempt.ended", "job.ended", "job.ended"]
    assert last(world, running) == ("failed", "lease_ended", "nobody", "failed")
    assert (world.job(waiting).status, world.job(waiting).failure_code) == ("failed", "lease_ended")
    assert world.job(scoring).status == "scoring"
    assert all(event.caused_by == 7 for event in events)
    assert end_jobs_of_lease(world.state, "lease-1") == ()


def test_teardown_terminate_ends_the_lease_and_its_other_jobs_once() -> None:
    world = World()
    job_id = world.running(teardown="terminate")
    other = world.submitted()
    world.wait(3600)
    world.fold(*(NodeSeen(node_id=node_id) for node_id in world.nodes))
    decision = world.cancel(job_id)
    assert outcome(decision) == ["attempt.ended", "job.ended", "lease.ended", "job.ended"]
    ended = next(event for event in decision.events if isinstance(event, LeaseEnded))
    assert (ended.status, ended.reason_code, ended.billable_us) == ("terminated", "job_teardown", US_PER_H)
    assert [event.job_id for event in decision.events if isinstance(event, JobEnded)] == [job_id, other]


@pytest.mark.parametrize(("code", "billable_h"), [("node_lost", 1), ("gang_timeout", 2)])
def test_teardown_does_not_bill_the_time_that_the_host_lost(code: str, billable_h: int) -> None:
    world = World()
    world.wait(3600)
    job_id = world.placed(teardown="terminate")
    world.wait(3600)
    world.fold(*(NodeSeen(node_id=node_id) for node_id in world.nodes))
    assert outcome(world.over(job_id, code)) == ["attempt.ended", "job.ended", "lease.ended"]
    assert world.state.market.leases["lease-1"].billable_us == billable_h * US_PER_H


def test_teardown_leaves_a_lease_alone_whose_time_is_over() -> None:
    world = World()
    job_id = world.submitted(teardown="terminate")
    world.wait(10 * 3600)
    assert outcome(world.work("job.place", job_id)) == ["job.ended"]
    assert world.job(job_id).failure_code == "lease_ended"


# posted results


def test_results_are_posted_by_those_concerned_about_attempts_that_exist() -> None:
    world = World()
    waiting = world.submitted()
    assert outcome(world.post("no-such-job")) == "job_not_found"
    assert outcome(world.post(waiting, EVE)) == "forbidden"
    assert outcome(world.post(waiting)) == "attempt_not_found"
    job_id = world.running()
    assert outcome(world.post(job_id, attempt_no=2)) == "attempt_not_found"
    assert outcome(world.post(job_id, BOB, status="failed")) == ["result.claimed"]
    assert outcome(world.post(job_id)) == ["result.claimed"]
    claims = world.state.jobs.claims
    assert claims[f"{job_id}/1/{ADA}"].roles == ("submitter", "renter")
    assert claims[f"{job_id}/1/{BOB}"].roles == ("provider",)
    assert world.job(job_id).status == "running" and f"{job_id}/2" not in world.state.jobs.attempts


def test_the_same_result_again_is_noted_another_one_refused() -> None:
    world = World()
    job_id = world.running()
    first = world.post(job_id, metrics={"a": Decimal("0.5"), "b": 1})
    pos = world.state.pos
    again = world.post(job_id, metrics={"b": 1, "a": Decimal("0.5")}, status="succeeded")
    assert isinstance(again, Accepted) and isinstance(first, Accepted)
    assert (again.events, again.seq, again.subject, again.created) == ((), pos, first.subject, False)
    for other in ({"metrics": {"a": 2}}, {"integrity_codes": ["fabric_lie"]}, {"verified": False}):
        refused = world.post(job_id, **other)
        assert isinstance(refused, Refused) and (refused.code, refused.seq) == ("result_conflict", pos)


def test_known_integrity_codes_count_and_unverify() -> None:
    world = World()
    job_id = world.running()
    world.post(job_id, integrity_codes=["rank_desync", "made_up", "fabric_lie", "rank_desync"], failure_code="oops")
    claim = world.state.jobs.claims[f"{job_id}/1/{ADA}"]
    assert (claim.integrity_codes, claim.verified, claim.failure_code) == (("fabric_lie", "rank_desync"), False, "oops")
    world.post(job_id, BOB, integrity_codes=["made_up"])
    assert world.state.jobs.claims[f"{job_id}/1/{BOB}"].verified


def scored(world: World, job_id: str) -> ScoreRecorded:
    """Any score of the newest attempt."""
    attempt = world.attempt(job_id)
    score = Score(
        job_id=job_id, attempt_no=attempt.attempt_no, submitter=ADA, rule="r", policy_digest=attempt.policy_digest,
        correctness=1, efficiency_ppm=1, fabric_gate=1, tee_bonus_ppm=1_000_000, composite_ppm=1, codes=(), program="p",
        hardware_class="unverified", fabric="eth", measured_bytes_per_s=1, expected_bytes_per_s=1,
        started_us=attempt.started_us or 0, ended_us=attempt.ended_us or 0, nodes=(), inputs=(),
    )  # fmt: skip
    return ScoreRecorded(score=score)


def test_a_claim_against_a_scored_attempt_revises_the_score() -> None:
    world = World()
    job_id = world.running()
    world.over(job_id)
    world.fold(scored(world, job_id))
    assert outcome(world.post(job_id, BOB)) == ["result.claimed"]
    assert outcome(world.post(job_id, verified=False)) == ["result.claimed", "score.revised"]
