"""Signed commands over HTTP: what they answer, what they leave in the ledger, what they never show."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from serving import AUDIENCE, Key, Served, code_of, serving

NODE = {"gpu_model": "H100_80GB", "gpu_count": 8, "hostname": "secret.example", "ssh_endpoint": "secret.example:22"}


async def market(served: Served, key: Key) -> tuple[str, str]:
    """A provider with a node and an offer; their ids."""
    await served.post("/v1/providers/register", {}, key)
    node = (await served.post("/v1/nodes", NODE, key)).json()["id"]
    body = {"node_ids": [node], "price_per_hour": 2.490001, "max_lifetime_hours": 4}
    offer = (await served.post("/v1/offers", body, key)).json()
    assert offer["price_per_hour"] == 2.490001
    return node, offer["id"]


def test_a_lease_from_offer_to_end(tmp_path: Path) -> None:
    async def story() -> None:
        provider, renter, stranger = Key(), Key(), Key()
        async with serving(tmp_path) as served:
            node, offer = await market(served, provider)
            rented = await served.post(f"/v1/offers/{offer}/rent", {"lifetime_hours": 1}, renter)
            assert rented.status_code == 200
            lease, pod = rented.json()["lease"], rented.json()["pod"]
            assert lease["renter_hotkey"] == renter.hotkey and lease["lifetime_hours"] == 1.0
            assert pod["endpoints"][node]["ssh"] == "secret.example:22"
            again = await served.post(f"/v1/offers/{offer}/rent", {}, stranger)
            assert (again.status_code, code_of(again)) == (409, "offer_not_listed")

            for key, seen in ((renter, True), (provider, True), (stranger, False), (None, False)):
                shown = (await served.get(f"/v1/pods/{pod['id']}", key)).json()
                assert (shown["endpoints"][node]["ssh"] == "secret.example:22") is seen
                listed = (await served.get("/v1/leases?status=active", key)).json()["items"]
                assert ([one["id"] for one in listed] == [lease["id"]]) is seen

            ended = await served.post(f"/v1/leases/{lease['id']}/terminate", {"reason": "my reason"}, renter)
            assert ended.json()["lease"]["status"] == "terminated"
            assert ended.json()["lease"]["termination_reason"] == "my reason"
            assert (await served.get(f"/v1/leases/{lease['id']}")).json()["termination_reason"] != "my reason"
            after = (await served.get(f"/v1/pods/{pod['id']}", renter)).json()
            assert after["endpoints"][node]["ssh"] is None, "a lease that is over opens no address"

    asyncio.run(story())


def test_private_values_are_in_no_event_and_shown_to_their_owner(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            node, _ = await market(served, key)
            events = await served.get("/v1/events?limit=500")
            assert "secret.example" not in events.text
            for item in events.json()["items"]:
                detail = await served.get(f"/v1/events/{item['seq']}")
                assert "secret.example" not in detail.text
            assert (await served.get(f"/v1/nodes/{node}")).json()["ssh_endpoint"] is None
            assert (await served.get(f"/v1/nodes/{node}", key)).json()["ssh_endpoint"] == "secret.example:22"
            assert (await served.get(f"/v1/nodes/{node}", Key())).json()["ssh_endpoint"] is None

    asyncio.run(story())
    for file in ("challenge.sqlite3", "challenge.sqlite3-wal", "read-models.sqlite3"):
        path = tmp_path / file
        assert not path.exists() or b"secret.example" not in path.read_bytes()


def test_answers_carry_the_number_and_reads_follow_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            made = await served.post("/v1/providers/register", {"display_name": "one"}, key)
            seq = made.json()["seq"]
            read = await served.get("/v1/providers/me", key)
            assert read.json()["display_name"] == "one"
            assert int(read.headers["x-ledger-seq"]) >= seq
            event = (await served.get(f"/v1/events/{seq}")).json()
            assert event["type"] == "provider.registered" and event["actor"] == key.hotkey
            repeated = await served.post("/v1/providers/register", {"display_name": "two"}, key)
            assert repeated.json()["created"] is False and repeated.json()["seq"] == seq

    asyncio.run(story())


def test_a_nonce_works_once_and_its_replay_names_the_event(tmp_path: Path) -> None:
    async def story() -> None:
        key, body = Key(), b"{}"
        headers = key.headers("POST", "/v1/providers/register", body)
        async with serving(tmp_path) as served:
            url = served.url + "/v1/providers/register"
            first = await served.http.post(url, content=body, headers=headers)
            second = await served.http.post(url, content=body, headers=headers)
            assert first.status_code == 200
            assert (second.status_code, code_of(second)) == (401, "nonce_replay")
            assert second.json()["detail"]["seq"] == first.json()["seq"]

    asyncio.run(story())


def test_a_refused_body_burns_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        headers = key.headers("POST", "/v1/providers/register", b"{}")
        async with serving(tmp_path) as served:
            head = served.service.head()
            url = served.url + "/v1/providers/register"
            bad = key.headers("POST", "/v1/providers/register", b'{"display_name":1}', nonce=headers["X-Nonce"])
            refused = await served.http.post(url, content=b'{"display_name":1}', headers=bad)
            assert (refused.status_code, code_of(refused)) == (422, "invalid_body")
            assert refused.json()["detail"]["field"] == "display_name"
            assert served.service.head() == head
            assert (await served.http.post(url, content=b"{}", headers=headers)).status_code == 200

    asyncio.run(story())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"audience": "another@net"}, "invalid_signature"),
        ({"method": "PUT"}, "invalid_signature"),
        ({"path": "/v1/providers/heartbeat"}, "invalid_signature"),
        ({"body": "0" * 64}, "invalid_signature"),
        ({"seconds": "1000000000"}, "stale_signature"),
        ({"nonce": "short"}, "invalid_nonce"),
    ],
)
def test_what_is_signed_is_what_is_sent(tmp_path: Path, change: dict[str, str], code: str) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            head = served.service.head()
            headers = key.headers("POST", "/v1/providers/register", b"{}", **change)
            answer = await served.http.post(served.url + "/v1/providers/register", content=b"{}", headers=headers)
            assert (answer.status_code, code_of(answer)) == (401, code)
            assert served.service.head() == head
            if code == "stale_signature":
                assert "server time" in answer.json()["detail"]["hint"]

    asyncio.run(story())


def test_the_second_header_set_works_and_must_agree(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        plain = key.headers("POST", "/v1/providers/register", b"{}")
        second = {name.replace("X-", "X-Hyper-"): value for name, value in plain.items()}
        async with serving(tmp_path) as served:
            url = served.url + "/v1/providers/register"
            mixed = await served.http.post(url, content=b"{}", headers=plain | second | {"X-Hyper-Nonce": "n" * 16})
            assert code_of(mixed) == "duplicate_auth_header"
            assert (await served.http.post(url, content=b"{}", headers=second)).status_code == 200

    asyncio.run(story())


def test_syntax_is_judged_before_the_signature_and_shape_after_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            broken = await served.send("POST", "/v1/jobs", b"{")
            assert (broken.status_code, code_of(broken)) == (422, "invalid_json")
            unsigned = await served.post("/v1/jobs", {"no": "sense"})
            assert (unsigned.status_code, code_of(unsigned)) == (401, "missing_auth_headers")

    asyncio.run(story())


def test_a_long_body_stands_in_a_blob_and_counts_as_its_text(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            await market(served, key)
            filler = {"metadata": {"note": "x" * 9000}}
            answer = await served.post("/v1/nodes", NODE | filler, key)
            assert answer.status_code == 200, answer.text
            event = (await served.get("/v1/events?type=node.registered&limit=500")).json()["items"][-1]
            record = (await served.get(f"/v1/events/{event['seq']}")).json()["entry"]["command"]
            stored = await served.service.blob(record["body_blob"])
            assert stored is not None and json.loads(stored)["metadata"] == filler["metadata"]
            assert b"secret.example" not in stored
            assert "body" not in record and "public" not in record

    asyncio.run(story())


def test_the_servers_own_salt_is_the_same_for_the_same_request(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            await served.post("/v1/providers/register", {}, key)
            body = NODE | {"client_request_id": "one"}
            first = await served.post("/v1/nodes", body, key)
            second = await served.post("/v1/nodes", body, key)
            assert second.status_code == 200, second.text
            assert (second.json()["id"], second.json()["seq"]) == (first.json()["id"], first.json()["seq"])
            other = await served.post("/v1/nodes", body | {"gpu_count": 4}, key)
            assert (other.status_code, code_of(other)) == (409, "request_id_conflict")

    asyncio.run(story())


def test_production_asks_for_a_salt_when_env_is_set(tmp_path: Path) -> None:
    job = {
        "image_digest": "a@sha256:" + "a" * 64,
        "entrypoint": ["python"],
        "world_size": 1,
        "nnodes": 1,
        "nproc_per_node": 1,
        "resource": {},
        "timeout_s": 5,
        "env": {"SECRET": "value"},
    }

    async def story() -> None:
        async with serving(tmp_path) as served:
            refused = await served.post("/v1/jobs", job, Key())
            assert (refused.status_code, code_of(refused)) == (422, "private_salt_required")
            salted = await served.post("/v1/jobs", job | {"private_salt": "ab" * 16}, Key())
            assert code_of(salted) not in ("private_salt_required", "invalid_body")
            weak = await served.post("/v1/jobs", job | {"private_salt": "abcd"}, Key())
            assert (weak.status_code, code_of(weak)) == (422, "invalid_body")

    asyncio.run(story())


def test_while_not_ready_writes_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            served.service.set_draining(True)
            for target in ("/v1/providers/register", "/no/such/path"):
                refused = await served.post(target, {}, key)
                assert refused.status_code == 503
                assert refused.json() == {
                    "detail": {
                        "code": "runtime_not_ready",
                        "detail": "mandatory runtime dependencies are unavailable",
                    }
                }
            assert (await served.get("/v1/providers")).status_code == 200
            assert (await served.get("/ready")).status_code == 503
            assert (await served.get("/health")).status_code == 200
            assert (await served.post("/v1/operator/clock", {}, key)).status_code == 403
            served.service.set_draining(False)
            assert (await served.post("/v1/providers/register", {}, key)).status_code == 200

    asyncio.run(story())


def test_sim_hooks_exist_in_sim_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "production") as served:
            for target in ("/v1/sim/drain", "/v1/sim/idle-reclaim"):
                assert (await served.post(target, {})).status_code == 404
        async with serving(tmp_path / "sim", "sim") as served:
            entered = await served.post("/v1/sim/drain", {"draining": True})
            assert entered.json() == {"ok": True, "draining": True, "was_draining": False}
            assert (await served.get("/ready")).status_code == 503
            assert (await served.get("/v1/sim/drain")).json()["draining"] is True
            left = await served.send("PUT", "/v1/sim/drain", {"draining": False})
            assert left.json() == {"ok": True, "draining": False, "was_draining": True}
            assert code_of(await served.post("/v1/sim/drain", {"draining": "false"})) == "invalid_body"

    asyncio.run(story())


def test_idle_nodes_can_be_reclaimed_in_sim(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path, "sim") as served:
            await served.post("/v1/providers/register", {}, key)
            node = (await served.post("/v1/nodes", {"gpu_model": "T4", "gpu_count": 1}, key)).json()["id"]
            body = {"liveness_seconds": 30, "age_heartbeats_seconds": 3600}
            answer = await served.post("/v1/sim/idle-reclaim", body)
            assert answer.status_code == 200 and answer.json()["ok"] is True, answer.text
            assert answer.json()["offline_marked"] == 1
            assert (await served.get(f"/v1/nodes/{node}")).json()["status"] == "offline"
            bad = await served.post("/v1/sim/idle-reclaim", {"liveness_seconds": 0})
            assert (bad.status_code, code_of(bad)) == (422, "invalid_body")

    asyncio.run(story())


def test_the_audience_of_the_ledger_is_what_counts(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            assert served.service.audience == AUDIENCE

    asyncio.run(story())
