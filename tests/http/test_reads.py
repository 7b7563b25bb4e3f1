"""Reads over HTTP: Base's contract, lists, scoping, jobs with their attempts and logs."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from serving import TOKEN, Key, Served, code_of, serving

from events.types.weights import Weight, WeightsSnapshot
from hypercluster.domain.jobs.internal import (
    AttemptIsCollecting,
    AttemptIsOver,
    AttemptIsRunning,
    PlaceJob,
    RankReport,
    ScoreAttempt,
)
from hypercluster.domain.kernel import Accepted
from hypercluster.domain.weights.preview import leaderboard_rows
from hypercluster.http.views.scores import get_weights_view, leaderboard_view, preview_view
from projections.folds.scores import Standing
from projections.folds.weights import SnapshotRecord

JOB = {
    "image_digest": "sha256:" + "a" * 64,
    "entrypoint": ["python", "main.py"],
    "world_size": 2,
    "nnodes": 1,
    "nproc_per_node": 2,
    "resource": {"gpus": 2, "note": [1, 2.50]},
    "timeout_s": 60,
    "env": {"TOKEN": "do-not-show"},
}


OUTPUT = "grüße €\n".encode() * 20 + b"\x00\xff"


def test_health_ready_and_version_are_what_base_expects(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            health = (await served.get("/health")).json()
            capabilities = ["challenge.scoring", "challenge.ordinary_proof", "challenge.state"]
            assert list(health) == ["status", "slug", "version", "role", "ready", "capabilities", "checks"]
            assert (health["status"], health["ready"], health["capabilities"]) == ("ok", True, capabilities)
            assert all(set(check) == {"name", "status", "required"} for check in health["checks"])
            assert (await served.get("/ready")).json() == health
            assert (await served.get("/version")).json() == {
                "distribution_name": "base",
                "artifact_version": "3.1.2",
                "release_id": "v3.1.2",
                "api_version": "1.0",
                "challenge_slug": "hypercluster",
                "challenge_version": "0.1.0",
                "sdk_contract_version": "1.0.0",
                "sdk_version": "1.0.0",
                "role": "challenge",
                "capabilities": capabilities,
            }
            for target in ("/health", "/ready", "/version"):
                head = await served.send("HEAD", target)
                assert (head.status_code, head.content) == (200, b"")
            served.service.set_draining(True)
            drained = (await served.get("/health")).json()
            assert (drained["status"], drained["ready"]) == ("unhealthy", False)
            assert {"name": "not_draining", "status": "unhealthy", "required": True} in drained["checks"]

    asyncio.run(story())


@pytest.mark.parametrize("target", ["/internal/v1/get_weights", "/internal/v1/work_units"])
def test_internal_routes_check_token_then_slug(tmp_path: Path, target: str) -> None:
    async def story() -> None:
        good = {"Authorization": f"Bearer {TOKEN}", "X-Base-Challenge-Slug": "hypercluster"}
        async with serving(tmp_path) as served:
            assert (await served.get(target, **good)).status_code == 200
            for wrong in (f"bearer {TOKEN}", f"Bearer  {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"):
                headers = {b"authorization": wrong.encode("latin-1"), b"x-base-challenge-slug": b"wrong"}
                answer = await served.http.get(served.url + target, headers=list(headers.items()))
                assert answer.status_code == 401
                assert answer.json() == {"detail": "Invalid internal authorization"}
            for slug in ({}, {"X-Base-Challenge-Slug": "other"}):
                answer = await served.get(target, **{"Authorization": good["Authorization"], **slug})
                assert (answer.status_code, answer.json()) == (400, {"detail": "Invalid challenge slug header"})
            assert (await served.send("HEAD", target)).status_code == 405
            twice = [("Authorization", good["Authorization"])] * 2 + [("X-Base-Challenge-Slug", "hypercluster")]
            assert (await served.http.get(served.url + target, headers=twice)).status_code == 401
        async with serving(tmp_path / "no-token", shared_token=None) as served:
            answer = await served.get(target, **good)
            assert answer.json() == {"detail": "Internal challenge token is not configured"}
            assert answer.status_code == 503

    asyncio.run(story())


def snapshot(**weights: int) -> SnapshotRecord:
    taken = WeightsSnapshot(
        number=7,
        epoch=42,
        previous="0" * 64,
        digest="sha256:" + "d" * 64,
        size=10,
        root="e" * 64,
        policy_digest="sha256:" + "f" * 64,
        metagraph_digest="0" * 64,
        weights=tuple(Weight(hotkey=hotkey, ppm=ppm) for hotkey, ppm in weights.items()),
    )
    return SnapshotRecord(taken, 11, 5_000_000)


def test_weights_are_those_of_the_snapshot() -> None:
    shown = get_weights_view("hypercluster", snapshot(a=900_000, b=100_000), 8_000_000)
    assert (shown["epoch"], shown["weights"]) == (42, {"a": 0.9, "b": 0.1})
    metadata: Any = shown["metadata"]
    assert (metadata["snapshot_number"], metadata["snapshot_age_s"]) == ("7", "3")
    assert all(isinstance(value, str) for value in metadata.values())
    empty = get_weights_view("hypercluster", None, 0)
    assert empty == {"challenge_slug": "hypercluster", "epoch": 0, "weights": {}, "metadata": {}}


def standing(hotkey: str, supply: int, demand: int) -> Standing:
    return Standing(hotkey, supply, demand, 1_000_000, supply + demand, 3, 1, 4_000_000)


def test_preview_and_leaderboard_show_weights_and_masses() -> None:
    standings = [standing("a", 0, 250_000), standing("b", 1_500_000, 0)]
    preview: Any = preview_view(snapshot(a=250_000, b=750_000), standings, 6_000_000)
    assert preview["weights"] == {"a": 0.25, "b": 0.75} and preview["empty"] is False
    assert preview["raw_mass"] == {"a": 0.25, "b": 1.5}
    assert preview["raw_mass_at"] == "1970-01-01T00:00:04Z"
    assert preview["snapshot"]["payload_digest"] == "d" * 64 and preview["snapshot"]["source"] == "snapshot"
    rows: list[Any] = [leaderboard_view(row) for row in leaderboard_rows(standings)]
    assert [(row["hotkey"], row["rank"], row["aggregate"]) for row in rows] == [("b", 1, 1.5), ("a", 2, 0.25)]
    assert [row["roles"] for row in rows] == [{"supply": 1.5}, {"demand": 0.25}]
    assert preview_view(None, [], 0)["empty"] is True


def test_an_empty_market_answers_every_list(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            for target in ("providers", "nodes", "offers", "leases", "jobs"):
                answer = await served.get(f"/v1/{target}")
                assert answer.json() == {"items": [], "next": None}
                assert int(answer.headers["x-ledger-seq"]) == served.service.head()
            assert (await served.get("/v1/scores/nobody")).json() == {
                "hotkey": "nobody",
                "count": 0,
                "items": [],
                "next": None,
            }
            preview = (await served.get("/v1/weight-preview")).json()
            assert (preview["weights"], preview["empty"]) == ({}, True)
            policy = (await served.get("/v1/policy")).json()
            assert policy["policy"]["epoch_s"] == 360 and policy["upcoming"] == []
            note = (await served.get("/v1/checkpoint")).text
            assert note.splitlines()[1] == str(served.service.head())
            assert (await served.get("/v1/ssh-key")).json()["ssh_public_key"].startswith("ssh-ed25519 ")

    asyncio.run(story())


def test_lists_page_by_cursor_without_gap_or_repeat(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            made = [(await served.post("/v1/providers/register", {}, Key())).json()["id"] for _ in range(5)]
            seen: list[str] = []
            after: int | None = 0
            while after is not None:
                page = (await served.get(f"/v1/providers?limit=2&after={after}")).json()
                seen += [item["id"] for item in page["items"]]
                after = page["next"]
            assert seen == made

    asyncio.run(story())


def test_a_hotkey_header_filters_public_lists(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = Key(), Key()
        async with serving(tmp_path) as served:
            for key in (one, two):
                await served.post("/v1/providers/register", {}, key)
                await served.post("/v1/nodes", {"gpu_model": "T4", "gpu_count": 1}, key)
            for target in ("/v1/providers", "/v1/nodes"):
                assert len((await served.get(target)).json()["items"]) == 2
                assert len((await served.get(target, **{"X-Hotkey": one.hotkey})).json()["items"]) == 1
                assert (await served.get(target, **{"X-Hotkey": Key().hotkey})).json()["items"] == []
            forged = one.headers("GET", "/v1/nodes") | {"X-Hotkey": two.hotkey}
            answer = await served.http.get(served.url + "/v1/nodes", headers=forged)
            assert (answer.status_code, code_of(answer)) == (401, "invalid_signature")

    asyncio.run(story())


async def finished_job(served: Served, key: Key) -> str:
    """A job that ran on a node of the sim profile, reported by the commands that the workers send."""
    await served.post("/v1/providers/register", {}, key)
    node = await served.post("/v1/nodes", {"gpu_model": "T4", "gpu_count": 2}, key)
    assert node.status_code == 200, node.text
    job = await served.post("/v1/jobs", JOB, key)
    assert job.status_code == 200, job.text
    job_id = str(job.json()["id"])
    service = served.service
    row = service.view.get("job", job_id)
    assert row is not None
    await _report(served, "job.place", PlaceJob(job_id=job_id), row.submitted_pos)
    placed = service.view.get("attempt", f"{job_id}/1")
    assert placed is not None, "the attempt was placed"
    transcript = await service.keep(b"{}", private=False)
    running = AttemptIsRunning(
        job_id=job_id,
        attempt_no=1,
        program="ring-xor-1",
        transport="eth",
        measured_bytes_per_s=25_000_000,
        transcript=transcript,
    )
    await _report(served, "attempt.run", running, placed.placed_pos)
    await _report(served, "attempt.collect", AttemptIsCollecting(job_id=job_id, attempt_no=1), placed.placed_pos)
    digest = await service.keep(OUTPUT, private=True)
    ranks = tuple(
        RankReport(rank=rank, exit_code=0, stdout=digest, stdout_bytes=len(OUTPUT) + 5, truncated=True)
        for rank in range(2)
    )
    over = AttemptIsOver(job_id=job_id, attempt_no=1, phase="collect", ranks=ranks)
    await _report(served, "attempt.end", over, placed.placed_pos)
    ended = service.view.get("attempt", f"{job_id}/1")
    await _report(served, "attempt.score", ScoreAttempt(job_id=job_id, attempt_no=1), ended.ended_pos)
    return job_id


async def _report(served: Served, kind: str, body: Any, cause: int) -> None:
    answer = await served.service.report(kind, body, cause=cause)
    assert isinstance(answer.decision, Accepted), answer.decision


def test_a_job_shows_its_private_part_to_its_submitter_only(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path, "sim") as served:
            job_id = await finished_job(served, key)
            full = (await served.get(f"/v1/jobs/{job_id}", key)).json()
            assert full["env"] == {"TOKEN": "do-not-show"}
            assert full["resource"] == {"gpus": 2, "note": [1, 2.5]}
            assert [row["rank"] for row in full["placement"]["rankmap"]] == [0, 1]
            assert full["latest_attempt"]["attempt_no"] == 1
            for reader in (None, Key()):
                public = await served.get(f"/v1/jobs/{job_id}", reader)
                assert public.json()["env"] is None and "do-not-show" not in public.text
            assert (await served.get("/v1/jobs")).json()["items"] == []
            assert [job["id"] for job in (await served.get("/v1/jobs", key)).json()["items"]] == [job_id]
            claimed = await served.get("/v1/jobs", **{"X-Hotkey": key.hotkey})
            assert [job["env"] for job in claimed.json()["items"]] == [None], "the sim profile lists, never reveals"

    asyncio.run(story())


def test_production_lists_no_jobs_for_a_bare_hotkey(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            answer = await served.get("/v1/jobs", **{"X-Hotkey": Key().hotkey})
            assert (answer.status_code, answer.json()["items"]) == (200, [])

    asyncio.run(story())


def test_an_attempt_keeps_measured_and_claimed_apart(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path, "sim") as served:
            job_id = await finished_job(served, key)
            posted = await served.post(f"/v1/jobs/{job_id}/results", {"metrics": {"allreduce_gbps": 1e6}}, key)
            assert posted.status_code == 200 and posted.json()["created"] is True
            attempt = (await served.get(f"/v1/jobs/{job_id}/attempts/1")).json()
            assert attempt["metrics"]["allreduce_gbps"] == 0.2
            assert attempt["metrics"]["source"] == "challenge"
            assert attempt["result_digest"] == attempt["claims"][0]["envelope_digest"]
            assert attempt["claims"][0]["hotkey"] == key.hotkey
            listed = (await served.get(f"/v1/jobs/{job_id}/attempts")).json()["items"]
            assert [one["attempt_no"] for one in listed] == [1]
            missing = await served.get(f"/v1/jobs/{job_id}/attempts/2")
            assert (missing.status_code, code_of(missing)) == (404, "attempt_not_found")

    asyncio.run(story())


def test_a_score_shows_in_the_list_and_on_the_leaderboard(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path, "sim") as served:
            job_id = await finished_job(served, key)
            scores = (await served.get(f"/v1/scores/{key.hotkey}")).json()
            assert (scores["count"], scores["next"]) == (1, None)
            score = scores["items"][0]
            assert (score["job_id"], score["role"], score["correctness"]) == (job_id, "demand", 1.0)
            product = score["correctness"] * score["efficiency"] * score["fabric_gate"] * score["tee_bonus"]
            assert score["composite"] == pytest.approx(product, abs=1e-6)
            assert score["details"]["self_deal"] is True
            board = (await served.get("/v1/leaderboard")).json()
            assert [row["hotkey"] for row in board["items"]] == [key.hotkey]
            assert board["items"][0]["score_count"] == 1
            assert (await served.get(f"/v1/jobs/{job_id}")).json()["status"] == "succeeded"

    asyncio.run(story())


def test_logs_are_read_in_pieces_by_the_submitter_only(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path, "sim") as served:
            target = f"/v1/jobs/{await finished_job(served, key)}/attempts/1/logs"
            found = b""
            while piece := await served.get(f"{target}?rank=1&stream=stdout&offset={len(found)}&limit=9", key):
                assert piece.status_code == 200 and len(piece.content) <= 9
                if not piece.content:
                    break
                found += piece.content
            assert found == OUTPUT
            assert piece.headers["x-log-kept-bytes"] == str(len(OUTPUT))
            assert piece.headers["x-log-total-bytes"] == str(len(OUTPUT) + 5)
            assert piece.headers["x-log-truncated"] == "true"
            assert (await served.get(f"{target}?rank=1", key)).content == OUTPUT
            assert (await served.get(f"{target}?rank=0&stream=stderr", key)).content == b"", "it wrote nothing"
            assert code_of(await served.get(target)) == "missing_auth_headers"
            stranger = await served.get(target, Key())
            assert (stranger.status_code, code_of(stranger)) == (403, "forbidden")
            gone = await served.get(f"{target}?rank=2", key)
            assert (gone.status_code, code_of(gone)) == (404, "log_not_found")

    asyncio.run(story())


def test_offers_filter(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            await served.post("/v1/providers/register", {}, key)
            for model, inventory in (("T4", None), ("H100", {"ib_devices": ["mlx5_0"]})):
                body = {"gpu_model": model, "gpu_count": 1, "inventory": inventory}
                node = (await served.post("/v1/nodes", body, key)).json()
                offer = {
                    "node_ids": [node["id"]],
                    "price_per_hour": 1,
                    "max_lifetime_hours": 1,
                    "require_ib": inventory is not None,
                }
                made = await served.post("/v1/offers", offer, key)
                assert made.status_code == 200, made.text
            withdrawn = await served.send("DELETE", f"/v1/offers/{made.json()['id']}", None, key)
            assert withdrawn.json()["status"] == "withdrawn"

            async def models(query: str) -> list[str]:
                return [one["gpu_model"] for one in (await served.get(f"/v1/offers?{query}")).json()["items"]]

            assert await models("") == ["T4"]
            assert await models("status=all") == ["T4", "H100"]
            assert await models("status=Withdrawn") == ["H100"]
            assert await models("status=all&gpu_model=H100&mode=SINGLE&tee=none") == ["H100"]
            assert await models("status=*&require_ib=yes") == ["H100"]
            assert await models("status=all&require_ib=0") == ["T4"]
            bad = await served.get("/v1/offers?require_ib=maybe")
            assert (bad.status_code, code_of(bad)) == (422, "invalid_query")

    asyncio.run(story())


def test_numbers_on_the_wire_are_finite_json(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            for target in ("/v1/policy", "/v1/weight-preview", "/v1/leaderboard", "/health"):
                json.loads((await served.get(target)).text, parse_constant=pytest.fail)

    asyncio.run(story())
