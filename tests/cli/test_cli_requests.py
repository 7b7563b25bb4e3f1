"""What the commands send: method, path, body and signature, seen by a real server on a real socket."""

import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hypercluster.cli.keys import new_key_file
from hypercluster.cli.main import run
from hypercluster.domain.codes import Exit
from hypercluster.domain.identity import signatures, ss58
from hypercluster.domain.identity.signed_text import SignedText

AUDIENCE = "hypercluster@test"
ROW = {"id": "thing-1", "status": "ok", "lease": {"id": "lease-1"}, "weights": {"a": 1.0}, "items": [{"id": "x"}]}


class Recorder(ThreadingHTTPServer):
    """Answers every request with `status` and `answer`, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, bytes, dict[str, str]]] = []
        self.status, self.answer = 200, ROW
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Recorder

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, body, headers))
        data = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 -- the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Keep the terminal quiet."""


@pytest.fixture
def server(monkeypatch):
    for name in [name for name in os.environ if name.startswith("HYPER_")]:
        monkeypatch.delenv(name)
    with Recorder() as recorder:
        thread = threading.Thread(target=recorder.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("HYPER_URL", recorder.url)
        yield recorder
        recorder.shutdown()
        thread.join()


@pytest.fixture
def key(tmp_path, monkeypatch):
    path = tmp_path / "key.json"
    signer = new_key_file(path, "ed25519")
    monkeypatch.setenv("HYPER_KEY_FILE", str(path))
    monkeypatch.setenv("HYPER_AUDIENCE", AUDIENCE)
    return signer


READS = [
    ("marketplace offers list --require-ib --tee tdx", "/v1/offers?require_ib=true&tee=tdx"),
    ("offers list --gpu-model A100 --limit 5", "/v1/offers?gpu_model=A100&limit=5"),
    ("offers show o-1", "/v1/offers/o-1"),
    ("providers list", "/v1/providers"),
    ("nodes list", "/v1/nodes"),
    ("nodes show n-1", "/v1/nodes/n-1"),
    ("marketplace lease show --id l-1", "/v1/leases/l-1"),
    ("leases show l-1", "/v1/leases/l-1"),
    ("jobs status --id j-1", "/v1/jobs/j-1"),
    ("jobs list --status running", "/v1/jobs?status=running"),
    ("jobs logs --id j-1 --attempt 2", "/v1/jobs/j-1/attempts/2"),
    ("score show --hotkey h-1 --limit 7", "/v1/scores/h-1?limit=7"),
    ("leaderboard", "/v1/leaderboard?limit=100"),
    ("weights preview", "/v1/weight-preview"),
    ("health", "/health"),
]


@pytest.mark.parametrize(("line", "path"), READS, ids=[line for line, _ in READS])
def test_reads(server, capfd, line, path):
    assert run([*line.split(), "-o", "json"]) == Exit.DONE
    assert json.loads(capfd.readouterr().out) == ROW
    method, asked, body, headers = server.asked[0]
    assert (method, asked, body) == ("GET", path, b"")
    assert "x-signature" not in headers


WRITES: list[tuple[str, str, str, dict[str, Any], str]] = [
    (
        "marketplace offer create --node-ids a,b --price 2.10 --lifetime 24 --mode cluster",
        "POST",
        "/v1/offers",
        {
            "node_ids": ["a", "b"],
            "price_per_hour": 2.1,
            "max_lifetime_hours": 24,
            "mode": "cluster",
            "require_ib": False,
        },
        "offer_id=thing-1",
    ),
    (
        "marketplace rent --offer-id o-1 --max-price 3",
        "POST",
        "/v1/offers/o-1/rent",
        {"max_price": 3},
        "lease_id=lease-1",
    ),
    ("marketplace rent --offer-id o-1", "POST", "/v1/offers/o-1/rent", {}, "lease_id=lease-1"),
    (
        "marketplace terminate --lease-id l-1",
        "POST",
        "/v1/leases/l-1/terminate",
        {"reason": "cli_terminate"},
        "terminated lease_id=l-1",
    ),
    ("nodes heartbeat --node-id n-1", "POST", "/v1/nodes/heartbeat", {"node_id": "n-1"}, ""),
    ("jobs cancel --id j-1", "POST", "/v1/jobs/j-1/cancel", {}, "cancelled job_id=j-1"),
    (
        "providers register --display-name me",
        "POST",
        "/v1/providers/register",
        {"display_name": "me"},
        "provider_id=thing-1",
    ),
]


@pytest.mark.parametrize(("line", "method", "path", "body", "first"), WRITES, ids=[row[0] for row in WRITES])
def test_writes_are_signed(server, key, capfd, line, method, path, body, first):
    assert run(line.split()) == Exit.DONE, capfd.readouterr().err
    assert capfd.readouterr().out.startswith(first)
    asked_method, asked_path, asked_body, headers = server.asked[0]
    sent = json.loads(asked_body)
    salt = sent.pop("private_salt", None)
    assert (asked_method, asked_path, sent) == (method, path, body)
    assert (salt is not None) == ("reason" in body)
    text = SignedText(
        audience=AUDIENCE,
        method=method,
        path=path,
        hotkey=key.hotkey,
        nonce=headers["x-nonce"],
        seconds=int(headers["x-timestamp"]),
        body_sha256=hashlib.sha256(asked_body).hexdigest(),
    )
    scheme, signature = signatures.parse_signature(headers["x-signature"])
    assert signatures.verify(scheme, ss58.decode(key.hotkey), text.message(), signature)


def test_a_node_is_registered_after_its_provider(server, key, capfd):
    line = "nodes register --gpus 8 --gpu-model H100_80GB --ssh 203.0.113.7:22 --ssh-user gpu --ib"
    assert run(line.split()) == Exit.DONE
    assert [path for _, path, _, _ in server.asked] == ["/v1/providers/register", "/v1/nodes"]
    sent = json.loads(server.asked[1][2])
    assert (sent["gpu_count"], sent["ssh_endpoint"], sent["ssh_user"]) == (8, "203.0.113.7:22", "gpu")
    assert sent["inventory"]["ib_devices"][0]["name"] == "mlx5_0"
    assert len(sent["private_salt"]) >= 32


def test_options_override_the_spec_file(server, key, tmp_path, capfd):
    spec = tmp_path / "job.json"
    spec.write_text('{"world_size": 4, "nnodes": 2, "nproc_per_node": 2, "fabric": "ib", "env": {"A": "b"}}')
    assert run(["jobs", "submit", "--spec", str(spec), "--world-size", "8", "--entrypoint", "python,t.py"]) == Exit.DONE
    sent = json.loads(server.asked[0][2])
    assert (sent["world_size"], sent["nnodes"], sent["fabric"], sent["entrypoint"]) == (8, 2, "ib", ["python", "t.py"])
    assert "private_salt" in sent


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1, "a": 2}', "{"])
def test_a_bad_spec_file_is_usage_and_sends_nothing(server, key, tmp_path, capfd, text):
    spec = tmp_path / "job.json"
    spec.write_text(text)
    assert run(["jobs", "submit", "--spec", str(spec)]) == Exit.USAGE
    assert capfd.readouterr().out == ""
    assert server.asked == []


def test_bare_json_is_the_array_that_older_scripts_expect(server, capfd):
    assert run(["marketplace", "offers", "list", "--json"]) == Exit.DONE
    assert json.loads(capfd.readouterr().out) == ROW["items"]


@pytest.mark.parametrize(
    ("status", "code", "exit_with"),
    [
        (401, "stale_signature", Exit.AUTH),
        (404, "offer_not_found", Exit.NOT_FOUND),
        (409, "offer_not_listed", Exit.CONFLICT),
        (422, "invalid_body", Exit.USAGE),
        (429, "too_many_refusals", Exit.LATER),
        (500, "internal_fault", Exit.FAULT),
        (503, "not_ready", Exit.LATER),
    ],
)
def test_refusals_become_exit_codes(server, key, capfd, status, code, exit_with):
    server.status = status
    server.answer = {"detail": {"code": code, "message": "no\x1b[2J", "field": "f", "request_id": "r-1"}}
    assert run(["marketplace", "rent", "--offer-id", "o-1"]) == exit_with
    out, err = capfd.readouterr()
    assert out == ""
    assert code in err
    assert "r-1" in err
    assert "\x1b" not in err


def test_health_fails_unless_the_server_says_ok(server, capfd):
    server.answer = ROW | {"status": "unhealthy"}
    assert run(["health"]) == Exit.FAULT


@pytest.mark.parametrize("weight", [-0.1, float("nan"), "1", True, None])
def test_weights_that_no_master_could_take_are_refused(server, capfd, weight):
    server.answer = ROW | {"weights": {"a": weight}}
    assert run(["weights", "preview"]) == Exit.FAULT
    assert capfd.readouterr().out == ""


def test_version_asks_a_server_only_when_one_is_named(server, capfd, monkeypatch):
    server.answer = {"challenge_slug": "hypercluster", "challenge_version": "9.9", "role": "challenge"}
    assert run(["version", "--url", server.url]) == Exit.DONE
    out, err = capfd.readouterr()
    assert "challenge_version=9.9" in out
    assert "note:" in err
    server.answer = {"challenge_slug": "other"}
    assert run(["version", "--url", server.url]) == Exit.FAULT
    monkeypatch.delenv("HYPER_URL")
    server.asked.clear()
    assert run(["version"]) == Exit.DONE
    assert server.asked == []
