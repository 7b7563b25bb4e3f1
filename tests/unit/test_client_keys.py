"""Key sources and the signing client, against real key files, real wallets and a real socket."""

import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import bittensor_wallet
import pytest

from hypercluster.cli import keys
from hypercluster.cli.client import ApiError, Client, Unreachable, new_private_salt
from hypercluster.cli.keys import KeyProblem, TokenSigner
from hypercluster.domain import sealing
from hypercluster.domain.identity.authentication import Authenticated, authenticate
from hypercluster.domain.identity.ss58 import decode

AUDIENCE = "hypercluster@test"
TOKEN = "shared-secret"


# key files


@pytest.mark.parametrize("scheme", ["sr25519", "ed25519"])
def test_a_new_key_file_is_private_and_opens_to_the_same_key(tmp_path, scheme):
    path = tmp_path / "deep" / "miner.json"
    made = keys.new_key_file(path, scheme)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = keys.from_key_file(path)
    assert (found.hotkey, found.scheme) == (made.hotkey, scheme)
    assert decode(found.hotkey)
    assert set(json.loads(path.read_text())) == {"scheme", "seed", "ss58"}


def test_a_key_file_is_never_overwritten(tmp_path):
    path = tmp_path / "miner.json"
    keys.new_key_file(path)
    before = path.read_bytes()
    with pytest.raises(KeyProblem, match="exists"):
        keys.new_key_file(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "garbage",
        '{"scheme": "rsa", "seed": "' + "00" * 32 + '"}',
        '{"scheme": "sr25519", "seed": "zz"}',
        '{"scheme": "sr25519", "seed": "' + "00" * 31 + '"}',
        '{"scheme": "sr25519"}',
        '{"scheme": "sr25519", "seed": "'
        + "01" * 32
        + '", "ss58": "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"}',
    ],
)
def test_a_broken_key_file_is_one_kind_of_problem_with_its_path(tmp_path, content):
    path = tmp_path / "miner.json"
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(KeyProblem) as caught:
        keys.from_key_file(path)
    assert caught.value.path == path
    assert str(path) in str(caught.value)


def test_a_missing_file_names_the_next_step(tmp_path):
    with pytest.raises(KeyProblem) as caught:
        keys.from_key_file(tmp_path / "nothing.json")
    assert "keys new" in caught.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "miner.json"
    keys.new_key_file(path)
    path.chmod(mode)
    with pytest.raises(KeyProblem) as caught:
        keys.from_key_file(path)
    assert "chmod 600" in caught.value.hint


# wallets


def add_hotkey(root, wallet, name):
    pair = bittensor_wallet.Keypair.create_from_mnemonic(bittensor_wallet.Keypair.generate_mnemonic())
    bittensor_wallet.Wallet(name=wallet, hotkey=name, path=str(root)).set_hotkey(pair, encrypt=False, overwrite=True)
    return str(pair.ss58_address)


@pytest.fixture
def wallets(tmp_path):
    """Two wallets with a hotkey of the same name; one has another, and a broken file."""
    root = tmp_path / "wallets"
    addresses = {
        (wallet, name): add_hotkey(root, wallet, name) for wallet, name in (("a", "x"), ("b", "x"), ("b", "y"))
    }
    broken = root / "b" / "hotkeys" / "broken"
    broken.write_text("garbage")
    broken.chmod(0o600)
    return root, addresses


def test_a_wallets_hotkey_signs_without_the_coldkey(wallets):
    root, addresses = wallets
    assert not (root / "a" / "coldkey").exists()
    signer = keys.from_wallet("a", "x", root)
    assert signer.hotkey == addresses["a", "x"]
    headers = Client("http://localhost", signer, AUDIENCE)._headers("GET", "/v1/jobs", b"", True)
    assert isinstance(check(headers, "GET", "/v1/jobs", b""), Authenticated)


def test_one_broken_file_stops_nothing(wallets):
    root, addresses = wallets
    listed = {(one.wallet, one.name): (one.ss58, one.problem) for one in keys.list_hotkeys(root)}
    assert listed.pop(("b", "broken")) == (None, "not a hotkey file")
    assert listed == {key: (address, None) for key, address in addresses.items()}
    with pytest.raises(KeyProblem, match="broken"):
        keys.from_wallet("b", "broken", root)


def test_the_resolver_takes_a_path_an_address_or_a_name(wallets, tmp_path):
    root, addresses = wallets
    made = keys.new_key_file(tmp_path / "miner.json")
    assert keys.resolve(str(tmp_path / "miner.json"), wallets=root).hotkey == made.hotkey
    assert keys.resolve(addresses["b", "x"], wallets=root).hotkey == addresses["b", "x"]
    assert keys.resolve("y", wallets=root).hotkey == addresses["b", "y"]
    assert keys.resolve("x", wallet="a", wallets=root).hotkey == addresses["a", "x"]
    assert keys.resolve(str(root / "a" / "hotkeys" / "x"), wallets=root).hotkey == addresses["a", "x"]


def test_an_ambiguous_name_lists_the_candidates(wallets):
    root, _ = wallets
    with pytest.raises(KeyProblem, match=r"a/x, b/x") as caught:
        keys.resolve("x", wallets=root)
    assert "--wallet" in caught.value.hint
    with pytest.raises(KeyProblem, match="no hotkey z"):
        keys.resolve("z", wallets=root)


def test_a_file_and_a_hotkey_of_one_name_are_ambiguous(wallets, tmp_path, monkeypatch):
    root, _ = wallets
    monkeypatch.chdir(tmp_path)
    made = keys.new_key_file(tmp_path / "y")
    with pytest.raises(KeyProblem, match=r"y is a file here and a hotkey of b/y"):
        keys.resolve("y", wallets=root)
    assert keys.resolve("./y", wallets=root).hotkey == made.hotkey
    (tmp_path / "y").rename(tmp_path / "mine")
    assert keys.resolve("mine", wallets=root).hotkey == made.hotkey


def test_no_secret_is_shown_by_repr(tmp_path):
    made = keys.new_key_file(tmp_path / "y")
    assert json.loads((tmp_path / "y").read_text())["seed"] not in repr(made)
    assert TOKEN not in repr(TokenSigner("a", TOKEN))


def test_an_encrypted_hotkey_asks_for_its_password(tmp_path, monkeypatch):
    monkeypatch.delenv(keys.PASSWORD_ENV, raising=False)
    path = tmp_path / "a" / "hotkeys" / "x"
    path.parent.mkdir(parents=True)
    path.touch(0o600)
    path.write_bytes(b"$NACL" + bytes(range(128, 250)))
    with pytest.raises(KeyProblem, match="encrypted") as caught:
        keys.resolve("x", wallets=tmp_path)
    assert keys.PASSWORD_ENV in caught.value.hint
    assert [one.problem for one in keys.list_hotkeys(tmp_path)] == ["encrypted"]


@pytest.mark.slow
def test_an_encrypted_hotkey_opens_with_its_password_and_leaves_stdout_clean(tmp_path):
    program = (
        "import sys, pathlib; from hypercluster.cli import keys\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "try:\n    keys.from_wallet('a', 'x', root)\n"
        "except keys.KeyProblem as error:\n    print(error.hint, file=sys.stderr); sys.exit(4)\n"
        "print(keys.from_wallet('a', 'x', root).hotkey)\n"
    )
    root = tmp_path / "wallets"
    pair = bittensor_wallet.Keypair.create_from_mnemonic(bittensor_wallet.Keypair.generate_mnemonic())
    wallet = bittensor_wallet.Wallet(name="a", hotkey="x", path=str(root))
    wallet.set_hotkey(pair, encrypt=True, overwrite=True, hotkey_password="right")

    def run(**env):
        inherited = {key: value for key, value in os.environ.items() if key != keys.PASSWORD_ENV}
        return subprocess.run(
            [sys.executable, "-c", program, str(root)], check=False, env=inherited | env, capture_output=True, text=True
        )

    assert run(**{keys.PASSWORD_ENV: "wrong"}).returncode == 4
    assert run(**{keys.PASSWORD_ENV: "right"}).stdout == f"{pair.ss58_address}\n"


# the client


def check(headers, method, path, body, profile="production"):
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return authenticate(
        raw,
        method,
        path,
        hashlib.sha256(body).hexdigest(),
        now_us=time.time_ns() // 1000,
        audience=AUDIENCE,
        window_s=300,
        profile=profile,
        shared_token=TOKEN,
    )


ERRORS = {
    "/refused": (
        409,
        {"detail": {"code": "offer_not_listed", "message": "gone", "field": "x", "hint": "h", "request_id": "r"}},
    ),
    "/list": (422, {"detail": [{"type": "missing", "loc": ["body", "a"], "msg": "Field required"}]}),
    "/bare": (404, {"detail": "Not Found"}),
    "/redirect": (307, {}),
    "/array": (500, []),
}


class Handler(BaseHTTPRequestHandler):
    """Answers with what it verified; some paths answer as broken services do."""

    protocol_version = "HTTP/1.1"

    def _serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.removeprefix("/challenges/hyper")
        if path in ERRORS:
            status, answer = ERRORS[path]
            self._send(status, json.dumps(answer).encode())
        elif path == "/plain":
            self._send(200, b"not json")
        elif path == "/late":
            time.sleep(1)
            self._send(200, b"{}")
        elif path == "/lines":
            self._send(200, b"one\ntwo\n")
        else:
            found = check(dict(self.headers.items()), self.command, path, body, self.server.profile)
            verified = found.hotkey if isinstance(found, Authenticated) else found.code
            names = sorted(name for name in self.headers if name.lower().startswith("x-"))
            self._send(200, json.dumps({"hotkey": verified, "body": body.decode(), "names": names}).encode())

    def _send(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 307:
            self.send_header("Location", "/v1/jobs")
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def do_DELETE(self):
        self._serve()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.profile = "production"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def signer():
    return keys.signer_from_seed(bytes(range(32)))


@pytest.mark.parametrize("scheme", ["sr25519", "ed25519"])
@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("POST", {"a": Decimal("0.10"), "b": "é"}), ("DELETE", None)]
)
def test_a_request_is_signed_as_the_service_verifies_it(server, scheme, method, body):
    signer = keys.signer_from_seed(bytes(range(32)), scheme)
    with Client(server[1], signer, AUDIENCE) as client:
        answer = client.request(method, "/v1/jobs?limit=2&after=7", body)
    assert answer["hotkey"] == signer.hotkey
    assert answer["body"] == ("" if body is None else '{"a":0.10,"b":"é"}')
    assert answer["names"] == ["X-Hotkey", "X-Nonce", "X-Signature", "X-Timestamp"]


def test_every_request_has_its_own_nonce(signer):
    client = Client("http://localhost", signer, AUDIENCE)
    nonces = {client._headers("GET", "/", b"", True)["X-Nonce"] for _ in range(100)}
    assert len(nonces) == 100


def test_another_audience_does_not_verify(server, signer):
    with Client(server[1], signer, "hypercluster@other") as client:
        assert client.request("GET", "/v1/jobs")["hotkey"] == "invalid_signature"


def test_behind_bases_proxy_the_second_header_names_are_used_and_the_path_is_relative(server, signer):
    with Client(server[1] + "/challenges/hyper/", signer, AUDIENCE) as client:
        answer = client.request("GET", "/v1/jobs")
    assert answer["hotkey"] == signer.hotkey
    assert answer["names"] == ["X-Hyper-Hotkey", "X-Hyper-Nonce", "X-Hyper-Signature", "X-Hyper-Timestamp"]
    with Client(server[1], signer, AUDIENCE, second_headers=True) as client:
        assert client.request("GET", "/v1/jobs")["hotkey"] == signer.hotkey


def test_the_shared_token_signs_the_older_text(server):
    server[0].profile = "sim"
    with Client(server[1], TokenSigner("miner-a", TOKEN), AUDIENCE) as client:
        assert client.request("POST", "/v1/jobs", {"a": 1})["hotkey"] == "miner-a"


def test_unsigned_requests_carry_nothing(server, signer):
    with Client(server[1], signer, AUDIENCE) as client:
        assert client.request("GET", "/v1/jobs", signed=False)["names"] == []
        assert client.text("/lines") == "one\ntwo\n"
        with client.lines("/lines") as lines:
            assert list(lines) == ["one", "two"]


def test_a_signature_needs_a_key_and_a_plain_path(server, signer):
    with Client(server[1]) as client, pytest.raises(KeyProblem, match="no key"):
        client.request("GET", "/v1/jobs")
    with Client(server[1], signer) as client, pytest.raises(KeyProblem, match="cannot be signed"):
        client.request("GET", "/v1/jobs/a%20b")


def test_a_refusal_keeps_all_its_parts(server, signer):
    with Client(server[1], signer, AUDIENCE) as client, pytest.raises(ApiError) as caught:
        client.request("POST", "/refused", {})
    error = caught.value
    assert (error.status, error.code, error.message) == (409, "offer_not_listed", "gone")
    assert (error.field, error.hint, error.request_id) == ("x", "h", "r")


@pytest.mark.parametrize(
    ("path", "status", "code", "message"),
    [
        ("/list", 422, "invalid_body", "Field required"),
        ("/bare", 404, "unknown_answer", "Not Found"),
        ("/redirect", 307, "unknown_answer", "307"),
        ("/array", 500, "unknown_answer", "500"),
        ("/plain", 200, "unknown_answer", "not JSON"),
    ],
)
def test_other_answers_are_api_errors_too(server, signer, path, status, code, message):
    with Client(server[1], signer, AUDIENCE) as client, pytest.raises(ApiError) as caught:
        client.request("GET", path)
    assert (caught.value.status, caught.value.code) == (status, code)
    assert message in caught.value.message


def test_streams_are_refused_like_requests(server):
    with Client(server[1]) as client, pytest.raises(ApiError, match="Not Found"), client.lines("/bare"):
        pass


def test_no_answer_is_unreachable(server, signer):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with Client(closed, signer) as client, pytest.raises(Unreachable, match=closed):
            client.request("GET", "/v1/jobs")
    with Client(server[1], signer, timeout=0.2) as client, pytest.raises(Unreachable):
        client.request("GET", "/late")
    with Client("nonsense://x", signer) as client, pytest.raises(Unreachable):
        client.request("GET", "/v1/jobs")


def test_a_fresh_salt_is_accepted_by_sealing():
    assert len(sealing.salt_of({"private_salt": new_private_salt()}) or b"") == 32
    assert new_private_salt() != new_private_salt()


def test_importing_the_client_loads_nothing_heavy():
    program = "import sys, hypercluster.cli.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx2", "pydantic", "msgspec", "nacl", "sr25519", "bittensor_wallet", "apsw"} & set(loaded)
