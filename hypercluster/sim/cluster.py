"""Loopback hosts: real SSH servers that run real processes, on this machine. For the sim profile and for tests.

`python -m hypercluster.sim.cluster --dir D --nodes 2 --gpus-per-node 2 --authorized-key FILE` prints one JSON line,
{"hosts": [{"node_id", "endpoint", "user", "host_key", "gpus"}]}, and runs until TERM, INT or the end of its input.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncssh

from hypercluster.effects.remote import processes

USER = "hyper"
FAREWELL_S = 1.0
STOP_GRACE_S = 2.0
HOST_VARIABLE = "HYPER_SIM_HOST"
SESSIONS_MAX = 512
BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True)
class SimHost:
    """What registering the node asks for. gpus: indices that the host claims; there is no real GPU behind them."""

    node_id: str
    endpoint: str
    user: str
    host_key: str
    gpus: tuple[int, ...]


class _Gate(asyncssh.SSHServer):
    """Lets one user in, by public key only."""

    def __init__(self, authorized: asyncssh.SSHAuthorizedKeys, open_now: set[asyncssh.SSHServerConnection]) -> None:
        self._authorized, self._open_now = authorized, open_now
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._open_now.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._open_now.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        if self._connection is not None and username == USER:
            self._connection.set_authorized_keys(self._authorized)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return False

    def kbdint_auth_supported(self) -> bool:
        return False


class Host:
    """One loopback host. Its directory holds the host key and the home of what runs there."""

    def __init__(self, directory: Path, index: int, gpus: int, authorized: str) -> None:
        self.directory = directory
        self._home = directory / "home"
        self._index, self._gpus = index, gpus
        self._authorized = asyncssh.import_authorized_keys(authorized)
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._children: set[asyncio.subprocess.Process] = set()

    def environment(self) -> dict[str, str]:
        """What commands on this host see: nothing of the environment that this program runs in, but the search path."""
        interpreter = str(Path(sys.executable).parent)
        path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
        return {
            "PATH": f"{interpreter}:{path}",
            "HOME": str(self._home),
            "USER": USER,
            "LANG": "C.UTF-8",
            HOST_VARIABLE: str(self.directory),
        }

    async def start(self) -> SimHost:
        """Listen. The address is 127.0.0.2 and up where the system has them, else 127.0.0.1 on a port of its own."""
        self._home.mkdir(parents=True, exist_ok=True)
        key = _host_key(self.directory / "host_key")
        address = _address(self._index)
        self._acceptor = await asyncssh.listen(
            address,
            0,
            server_factory=lambda: _Gate(self._authorized, self._connections),
            server_host_keys=[key],
            process_factory=self._serve,
            encoding=None,
            line_editor=False,
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
        )
        public = key.export_public_key().decode().strip()
        return SimHost(
            node_id=f"sim-{self._index}",
            endpoint=f"{address}:{self._acceptor.get_port()}",
            user=USER,
            host_key=public,
            gpus=tuple(range(self._gpus)),
        )

    async def _serve(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        if process.command is None or process.subsystem is not None or len(self._children) >= SESSIONS_MAX:
            process.exit(1)
            return
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            process.command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self._home,
            env=self.environment(),
            start_new_session=True,
        )
        self._children.add(child)
        try:
            process.exit(_shell_status(await _relay(process, child)))
        finally:
            self._children.discard(child)

    async def stop(self) -> None:
        """Hang up, give what runs here a moment to notice, then kill it."""
        if self._acceptor is not None:
            self._acceptor.close()
            for connection in tuple(self._connections):
                connection.abort()
            await self._acceptor.wait_closed()
        for child in tuple(self._children):
            if child.stdin is not None:
                child.stdin.close()
        await asyncio.sleep(0)
        await asyncio.to_thread(_wait_gone, self.directory)
        await asyncio.to_thread(processes.end, lambda: _of_host(self.directory), STOP_GRACE_S)


async def _relay(process: "asyncssh.SSHServerProcess[bytes]", child: asyncio.subprocess.Process) -> int:
    """Carry bytes both ways until the child has ended; its input ends when the client's does or the client is gone."""
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None  # noqa: S101
    feeding = asyncio.create_task(_feed(process.stdin, child.stdin))
    try:
        await asyncio.gather(_drain(child.stdout, process.stdout), _drain(child.stderr, process.stderr))
        return await child.wait()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _feed(source: "asyncssh.SSHReader[bytes]", sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(BLOCK):
            sink.write(data)
            await sink.drain()
    except (asyncssh.Error, OSError):
        pass
    finally:
        sink.close()


async def _drain(source: asyncio.StreamReader, sink: "asyncssh.SSHWriter[bytes]") -> None:
    """Forward; when the client is gone go on reading, so that the child is not stuck on a full pipe."""
    gone = False
    while data := await source.read(BLOCK):
        if gone:
            continue
        try:
            sink.write(data)
            await sink.drain()
        except (asyncssh.Error, OSError):
            gone = True


def _shell_status(code: int) -> int:
    return code if code >= 0 else 128 - code


def _host_key(path: Path) -> asyncssh.SSHKey:
    if not path.exists():
        key = asyncssh.generate_private_key("ssh-ed25519")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key.export_private_key())
    return asyncssh.read_private_key(path)


def _address(index: int) -> str:
    wanted = f"127.0.0.{index + 2}"
    with socket.socket() as probe:
        try:
            probe.bind((wanted, 0))
        except OSError:
            return "127.0.0.1"
    return wanted


def _of_host(directory: Path) -> set[int]:
    return processes.carrying(f"{HOST_VARIABLE}={directory}")


def _wait_gone(directory: Path) -> None:
    processes.wait_gone(lambda: _of_host(directory), FAREWELL_S)


class Cluster:
    """`nodes` loopback hosts below `directory`, which accept the challenge's public key and nobody else's."""

    def __init__(self, directory: Path, nodes: int, gpus_per_node: int, authorized_key: str) -> None:
        self._hosts = [Host(directory / f"host-{i}", i, gpus_per_node, authorized_key) for i in range(nodes)]
        self.hosts: list[SimHost] = []

    async def start(self) -> list[SimHost]:
        """Start all hosts."""
        for host in self._hosts:
            self.hosts.append(await host.start())
        return self.hosts

    async def stop(self) -> None:
        """Stop all hosts and whatever runs on them."""
        await asyncio.gather(*(host.stop() for host in self._hosts))


async def serve(
    directory: Path,
    nodes: int,
    gpus_per_node: int,
    authorized_key: str,
    on_ready: Callable[[list[dict[str, object]]], None],
) -> None:
    """Keep a cluster up until SIGTERM, SIGINT or the end of standard input; `on_ready` gets its hosts."""
    cluster, told = Cluster(directory, nodes, gpus_per_node, authorized_key), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    watching = asyncio.create_task(_end_of_input(told))
    try:
        hosts = await cluster.start()
        on_ready([asdict(host) for host in hosts])
        await told.wait()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await cluster.stop()


async def _end_of_input(told: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    with contextlib.closing(transport):
        while await reader.read(BLOCK):
            pass
    told.set()


def main(argv: list[str] | None = None) -> int:
    """Run a cluster as a process of its own."""
    parser = argparse.ArgumentParser(prog="hypercluster.sim.cluster", description="Loopback hosts for the sim profile.")
    parser.add_argument("--dir", type=Path, required=True, help="keys and homes of the hosts")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--gpus-per-node", type=int, default=2)
    parser.add_argument("--authorized-key", type=Path, required=True, help="public key that may log in")
    options = parser.parse_args(argv)
    authorized = options.authorized_key.read_text(encoding="ascii")
    asyncio.run(serve(options.dir, options.nodes, options.gpus_per_node, authorized, _say_ready))
    return 0


def _say_ready(hosts: list[dict[str, object]]) -> None:
    print(json.dumps({"hosts": hosts}), flush=True)  # noqa: T201 - its one answer


if __name__ == "__main__":
    sys.exit(main())
