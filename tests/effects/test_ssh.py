"""Where the control plane connects, whom it believes, and what runs at the other end."""

import ast
import asyncio
import ipaddress
import socket
import stat
from importlib.resources import files
from pathlib import Path

import asyncssh
import pytest

from hypercluster.effects.networks import Allowed, Endpoint, NodeFailure, parse_endpoint
from hypercluster.effects.ssh import Garbled, ProgramEnded, Session, Ssh, generate_client_key, public_key
from tests.support.clusters import Lab, lab, plan_for, run

FORBIDDEN = [
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1",
    "fd12::1", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::",
]  # fmt: skip


@pytest.mark.parametrize("address", FORBIDDEN)
def test_production_stays_out_of(address: str) -> None:
    allowed = Allowed("production")
    assert not allowed.permits(ipaddress.ip_address(address))
    text = f"[{address}]:22" if ":" in address else f"{address}:22"
    with pytest.raises(NodeFailure) as failure:
        asyncio.run(allowed.resolve("n1", text))
    assert (failure.value.code, failure.value.node_id) == ("endpoint_forbidden", "n1")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "100.128.0.1"])
def test_production_may_go_to_public_addresses(address: str) -> None:
    assert Allowed("production").permits(ipaddress.ip_address(address))


def test_named_networks_open_private_ranges_only() -> None:
    allowed = Allowed("production", ["10.1.0.0/16", "100.64.0.0/10", "fd12::/16"])
    inside = ["10.1.2.3", "100.100.0.1", "fd12::9", "::ffff:10.1.2.3"]
    outside = ["10.2.0.1", "127.0.0.1", "192.168.0.1", "fd13::1"]
    assert all(allowed.permits(ipaddress.ip_address(text)) for text in inside)
    assert not any(allowed.permits(ipaddress.ip_address(text)) for text in outside)


@pytest.mark.parametrize(
    "network", ["127.0.0.0/8", "169.254.0.0/16", "fe80::/10", "0.0.0.0/0", "::/0", "8.0.0.0/8", "::1/128", "10.0.0.0/7"]
)
def test_networks_that_can_never_be_opened(network: str) -> None:
    with pytest.raises(ValueError):
        Allowed("production", [network])


def test_sim_opens_loopback_and_no_private_range() -> None:
    allowed = Allowed("sim")
    assert allowed.permits(ipaddress.ip_address("127.0.0.2")) and allowed.permits(ipaddress.ip_address("::1"))
    assert not allowed.permits(ipaddress.ip_address("10.0.0.1"))


@pytest.mark.parametrize("name", ["127.1", "0x7f000001", "2130706433", "localhost"])
def test_other_spellings_of_loopback(name: str) -> None:
    with pytest.raises(NodeFailure) as failure:
        asyncio.run(Allowed("production").resolve("n1", f"{name}:22"))
    assert failure.value.code == "endpoint_forbidden"


def test_one_forbidden_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 22)) for host in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with pytest.raises(NodeFailure) as failure:
        asyncio.run(Allowed("production").resolve("n1", "two-faced.example"))
    assert failure.value.code == "endpoint_forbidden"
    assert asyncio.run(Allowed("production", ["10.0.0.0/24"]).resolve("n1", "x.example")) == Endpoint("8.8.8.8", 22)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("host", ("host", 22)),
        ("host:2222", ("host", 2222)),
        ("[2001:db8::1]", ("2001:db8::1", 22)),
        ("[2001:db8::1]:7", ("2001:db8::1", 7)),
        ("", None),
        ("host:", ("host", 22)),
        (":22", None),
        ("host:0", None),
        ("host:65536", None),
        ("host:1e3", None),
        ("[::1", None),
        ("[::1]22", None),
        ("[fe80::1%eth0]", None),
        ("a b:22", None),
    ],
)
def test_endpoint_grammar(text: str, found: tuple[str, int] | None) -> None:
    if found is None:
        with pytest.raises(ValueError):
            parse_endpoint(text)
    else:
        assert parse_endpoint(text) == found


def test_the_client_key_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "client_key"
    line = generate_client_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert line == public_key(path) == Ssh(path, Allowed("sim")).public_key
    assert line.startswith("ssh-ed25519 ")
    with pytest.raises(FileExistsError):
        generate_client_key(path)


async def connect(it: Lab, **changes: str) -> Session:
    host = it.hosts[0]
    values = {"node_id": host.node_id, "endpoint": host.endpoint, "user": host.user, "host_key": host.host_key}
    return await it.ssh.connect(**{**values, **changes})


def expect(directory: Path, code: str, **changes: str) -> None:
    async def play() -> None:
        async with lab(directory, nodes=1) as it:
            with pytest.raises(NodeFailure) as failure:
                await connect(it, **changes)
            assert (failure.value.code, failure.value.node_id) == (code, "sim-0")

    asyncio.run(play())


def test_another_host_key_is_refused(tmp_path: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    expect(tmp_path, "host_key_mismatch", host_key=other)


def test_a_node_that_is_not_pinned_is_refused(tmp_path: Path) -> None:
    expect(tmp_path, "host_key_mismatch", host_key="")


def test_a_refused_login_gives_no_detail(tmp_path: Path) -> None:
    expect(tmp_path, "node_unreachable", user="somebody")


def test_nothing_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    expect(tmp_path, "node_unreachable", endpoint=f"127.0.0.1:{port}")


def test_a_listener_that_says_nothing_ends_at_the_deadline(tmp_path: Path) -> None:
    async def play() -> None:
        generate_client_key(tmp_path / "key")
        ssh = Ssh(tmp_path / "key", Allowed("sim"), connect_timeout_s=0.3)
        with socket.create_server(("127.0.0.1", 0)) as server:
            with pytest.raises(NodeFailure) as failure:
                await ssh.connect("n", f"127.0.0.1:{server.getsockname()[1]}", "hyper", HOST_KEY)
            assert failure.value.code == "node_unreachable"

    asyncio.run(play())


HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhY"


def test_a_key_of_somebody_else_does_not_get_in(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=1) as it:
            generate_client_key(tmp_path / "other")
            it.ssh = Ssh(tmp_path / "other", Allowed("sim"))
            with pytest.raises(NodeFailure) as failure:
                await connect(it)
            assert failure.value.code == "node_unreachable"

    asyncio.run(play())


def test_commands_are_capped_and_timed(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=1) as it:
            session = await connect(it)
            assert await session.run(["sh", "-c", "printf hello; exit 3"], 5) == (3, b"hello")
            _, flood = await session.run(["sh", "-c", "yes | head -c 300000"], 5, cap_bytes=1000)
            assert flood == b"y\n" * 500
            assert await session.run(["sleep", "30"], 0.3) == (-1, b"")
            session.abort()

    asyncio.run(play())


def test_noise_on_standard_output_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    noisy = "def rewrite(source): print('welcome to this node', flush=True); return source"

    async def play() -> None:
        async with lab(tmp_path, nodes=1, lies={0: noisy}) as it:
            session = await connect(it)
            program = await session.start("sweep")
            with pytest.raises(Garbled):
                await program.receive()
            session.abort()

    asyncio.run(play())


def test_a_program_that_cannot_run_and_a_connection_that_broke_are_told_apart(tmp_path: Path) -> None:
    broken = "def rewrite(source): raise SystemExit(1)"

    async def play() -> None:
        async with lab(tmp_path, nodes=1, lies={0: broken}) as it:
            session = await connect(it)
            with pytest.raises(ProgramEnded):
                await (await session.start("sweep")).receive()
            second = await connect(it)
            waiting = await second.start("sweep")
            second.abort()
            with pytest.raises(NodeFailure) as failure:
                await waiting.receive()
            assert failure.value.code == "node_lost"
            session.abort()

    asyncio.run(play())


def test_wrong_host_key_and_private_endpoint_end_a_gang_while_connecting(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=2) as it:
            first, second = it.targets
            swapped = type(second)(second.node_id, second.endpoint, second.user, first.host_key, second.gpus)
            outcome = await run(plan_for((first, swapped), ""), it.ssh)
            assert (outcome.phase, outcome.failure_code, outcome.node_id) == ("connect", "host_key_mismatch", "sim-1")
            strict = Ssh(tmp_path / "client_key", Allowed("production"))
            refused = await run(plan_for((first, second), "", profile="production"), strict)
            assert (refused.phase, refused.failure_code) == ("connect", "endpoint_forbidden")
            assert refused.node_id == "sim-0" and refused.ranks == () and refused.transcript is None

    asyncio.run(play())


def test_what_runs_on_nodes_is_python_3_8() -> None:
    sources = [path for path in files("hypercluster.effects.remote").iterdir() if path.name.endswith(".py")]
    assert len(sources) >= 7
    for path in sources:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert names <= STANDARD | {"hypercluster.effects.remote"}, path.name


STANDARD = {
    "__future__", "contextlib", "ctypes", "hashlib", "json", "os", "queue", "random", "select", "shutil", "signal",
    "socket", "struct", "subprocess", "sys", "threading", "time", "typing",
}  # fmt: skip
