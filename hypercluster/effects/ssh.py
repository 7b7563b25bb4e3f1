"""SSH to nodes: pinned host key, the challenge's own key, nothing taken from the machine that this runs on."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncssh
import msgspec

from hypercluster.effects.networks import Allowed, Endpoint, NodeFailure
from hypercluster.effects.remote import wire

CONNECT_TIMEOUT_S = 15
CONNECTING_MAX = 8  # key exchanges at once; more only slows each of them down
KEEPALIVE_S, KEEPALIVE_MAX = 5, 3
OUTPUT_CAP_BYTES = 65_536

# Loads modules that stand on its input, then runs the last one. Nothing else of a program is ever in argv.
# It ends without Python's own way out, which would wait a second for the thread that reads the input, then abort.
_LOADER = (
    "import os,sys,types;b=sys.stdin.buffer\n"
    "for _ in range(int(b.readline())):\n"
    " n,s=b.readline().split();m=types.ModuleType(n.decode());sys.modules[m.__name__]=m\n"
    " exec(compile(b.read(int(s)),m.__name__,'exec'),m.__dict__)\n"
    "m.main();os._exit(0)"
)
_SHARED = ("wire", "processes", "places")
_PACKAGE = "hypercluster.effects.remote"

_TRANSPORT_ERRORS = (asyncssh.Error, OSError, asyncio.IncompleteReadError)


class Garbled(Exception):
    """A program on a node sent something that is no frame of this protocol."""


class ProgramEnded(Exception):
    """A program on a node ended without the answer that it owed; the connection is still there."""


def generate_client_key(path: Path) -> str:
    """Make the challenge's ed25519 key at `path` (0600). Returns the public line. Raises FileExistsError."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment="hypercluster")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.export_private_key())
    return public_key(path)


def public_key(path: Path) -> str:
    """The public line of the key at `path`, without newline: what providers put into authorized_keys."""
    return asyncssh.read_private_key(path).export_public_key().decode().strip()


def bundle(program: str) -> bytes:
    """What the loader reads: the shared modules and the program, each after its name and size in bytes."""
    names = (*_SHARED, program)
    parts = [f"{len(names)}\n".encode()]
    for name in names:
        source = files(_PACKAGE).joinpath(f"{name}.py").read_bytes()
        parts.append(f"{_PACKAGE}.{name} {len(source)}\n".encode() + source)
    return b"".join(parts)


class Program:
    """One of `hypercluster.effects.remote` at work on a node, and the frames to and from it."""

    def __init__(self, session: "Session", process: "asyncssh.SSHClientProcess[bytes]") -> None:
        self._session, self._process = session, process

    async def send(self, message: dict[str, Any]) -> None:
        """One J frame. Raises NodeFailure(node_lost), ProgramEnded."""
        await self.write(wire.pack_json(message))

    async def write(self, frames: bytes) -> None:
        """Frames as they are; waits until the channel has taken them. Raises NodeFailure(node_lost), ProgramEnded."""
        try:
            self._process.stdin.write(frames)
            await self._process.stdin.drain()
        except _TRANSPORT_ERRORS:
            raise await self._gone() from None

    def write_soon(self, frame: bytes) -> None:
        """Hand over one small frame without waiting; a loss shows at the next read."""
        try:
            self._process.stdin.write(frame)
        except OSError:
            return

    async def receive(self) -> tuple[bytes, bytes]:
        """(kind, payload) of the next frame. Raises NodeFailure(node_lost), ProgramEnded, Garbled."""
        try:
            kind, size = wire.HEADER.unpack(await self._process.stdout.readexactly(wire.HEADER.size))
            if kind not in (b"J", b"O", b"E") or size > wire.PAYLOAD_MAX:
                raise Garbled
            return kind, await self._process.stdout.readexactly(size)
        except _TRANSPORT_ERRORS:
            raise await self._gone() from None

    async def receive_json(self) -> dict[str, Any]:
        """The next frame, which must be a JSON object. Raises as `receive` does."""
        kind, payload = await self.receive()
        if kind != b"J":
            raise Garbled
        return parse_object(payload)

    async def _gone(self) -> NodeFailure | ProgramEnded:
        return NodeFailure("node_lost", self._session.node_id) if await self._session.lost() else ProgramEnded()

    async def ended(self) -> None:
        """Wait until it has exited or the connection is gone; what it still sends is dropped."""
        await self._process.wait_closed()

    def close(self) -> None:
        """Close the channel; it sees the end of its input and ends by itself."""
        self._process.close()


def parse_object(payload: bytes) -> dict[str, Any]:
    """A JSON object sent by a node. Raises Garbled."""
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled from None


class Session:
    """One authenticated connection. address: numeric, the one that was checked and connected to."""

    def __init__(self, node_id: str, endpoint: Endpoint, connection: asyncssh.SSHClientConnection) -> None:
        self.node_id, self.address = node_id, endpoint.host
        self._connection = connection

    async def lost(self, wait_s: float = 0.3) -> bool:
        """Whether the connection is gone. A channel's end may be seen just before that of its connection."""
        try:
            async with asyncio.timeout(wait_s):
                await self._connection.wait_closed()
        except TimeoutError:
            return False
        return True

    async def start(self, program: str, mark: str = "") -> Program:
        """Start a program of `hypercluster.effects.remote`; `mark` stands in its environment. Raises NodeFailure."""
        mark_text = f"HYPER_GANG={shlex.quote(mark)} " if mark else ""
        command = f"{mark_text}exec python3 -I -c {shlex.quote(_LOADER)}"
        try:
            process = await self._connection.create_process(command, encoding=None, stderr=asyncssh.DEVNULL)
        except _TRANSPORT_ERRORS:
            raise NodeFailure("node_lost", self.node_id) from None
        started = Program(self, process)
        with suppress(ProgramEnded):  # no python3 there: the first read says so
            await started.write(bundle(program))
        return started

    async def run(
        self, command: Sequence[str], timeout_s: float, cap_bytes: int = OUTPUT_CAP_BYTES
    ) -> tuple[int, bytes]:
        """(exit status, standard output up to the cap) of one command; -1 when it has none. Raises NodeFailure."""
        try:
            async with asyncio.timeout(timeout_s):
                process = await self._connection.create_process(
                    shlex.join(command), encoding=None, stdin=asyncssh.DEVNULL, stderr=asyncssh.DEVNULL
                )
                output = await _read_capped(process, cap_bytes)
                process.close()
                await process.wait_closed()
        except TimeoutError:
            return -1, b""
        except _TRANSPORT_ERRORS:
            raise NodeFailure("node_lost", self.node_id) from None
        return (-1 if process.exit_status is None else process.exit_status), output

    def abort(self) -> None:
        """Drop the connection without a word."""
        self._connection.abort()


async def _read_capped(process: "asyncssh.SSHClientProcess[bytes]", cap_bytes: int) -> bytes:
    output = b""
    while len(output) < cap_bytes:
        part = await process.stdout.read(cap_bytes - len(output))
        if not part:
            break
        output += part
    return output


class Ssh:
    """The one door to nodes. client_key: path of the challenge's private key."""

    def __init__(
        self,
        client_key: Path,
        allowed: Allowed,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        connecting_max: int = CONNECTING_MAX,
    ) -> None:
        self._key = asyncssh.read_private_key(client_key)
        self._allowed = allowed
        self._connect_timeout_s = connect_timeout_s
        self._connecting = asyncio.Semaphore(connecting_max)

    @property
    def public_key(self) -> str:
        """The public line that providers put into authorized_keys."""
        return self._key.export_public_key().decode().strip()

    async def connect(self, node_id: str, endpoint: str, user: str, host_key: str) -> Session:
        """Check the endpoint, connect, compare the host key, authenticate; in this order.

        Raises NodeFailure: endpoint_forbidden, host_key_mismatch, node_unreachable (all else, without detail).
        """
        async with self._connecting:
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    address = await self._allowed.resolve(node_id, endpoint)
                    connection = await self._authenticate(address, user, host_key)
            except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyImportError):  # what is not pinned cannot match
                raise NodeFailure("host_key_mismatch", node_id) from None
            except (asyncssh.Error, OSError, ValueError):  # TimeoutError is an OSError
                raise NodeFailure("node_unreachable", node_id) from None
        return Session(node_id, address, connection)

    async def _authenticate(self, address: Endpoint, user: str, host_key: str) -> asyncssh.SSHClientConnection:
        pinned = asyncssh.import_public_key(host_key)
        return await asyncssh.connect(
            address.host,
            address.port,
            username=user,
            known_hosts=([pinned], [], []),
            client_keys=[self._key],
            preferred_auth="publickey",
            password=None,
            config=None,
            agent_path=None,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
            x509_trusted_certs=None,
            x509_trusted_cert_paths=[],
            login_timeout=self._connect_timeout_s,
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=KEEPALIVE_MAX,
        )

    @asynccontextmanager
    async def session(self, node_id: str, endpoint: str, user: str, host_key: str) -> AsyncIterator[Session]:
        """`connect`, and drop the connection at the end."""
        session = await self.connect(node_id, endpoint, user, host_key)
        try:
            yield session
        finally:
            session.abort()
