"""A real server on a real socket: ledger files, writer, read models, uvicorn, and a client that signs."""

import asyncio
import hashlib
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from nacl.signing import SigningKey

from hypercluster.domain.identity import ss58
from hypercluster.http.app import Application
from hypercluster.http.limits import Limits
from hypercluster.http.server import Server, make_server
from hypercluster.runtime.service import Service
from hypercluster.runtime.settings import Settings
from hypercluster.runtime.start import running

TOKEN = "a-token-that-base-also-holds"
AUDIENCE = "hypercluster@test"


@dataclass(frozen=True)
class Key:
    """An ed25519 hotkey."""

    secret: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def hotkey(self) -> str:
        return ss58.encode(bytes(self.secret.verify_key))

    def headers(self, method: str, target: str, body: bytes = b"", /, **changes: str) -> dict[str, str]:
        """Version 2 headers. changes: parts to sign otherwise than they are sent."""
        parts = {
            "audience": AUDIENCE,
            "method": method,
            "path": target,
            "hotkey": self.hotkey,
            "nonce": secrets.token_hex(16),
            "seconds": str(int(time.time())),
            "body": hashlib.sha256(body).hexdigest(),
        }
        signed = parts | changes
        text = "\n".join(("hypercluster-v2", *signed.values()))
        return {
            "X-Hotkey": parts["hotkey"],
            "X-Nonce": signed["nonce"],
            "X-Timestamp": signed["seconds"],
            "X-Signature": "ed25519:" + self.secret.sign(text.encode()).signature.hex(),
        }


OPERATOR = Key()


def settings_of(directory: Path, profile: str = "production", **changes: Any) -> Settings:
    """Settings of a server whose files stand in this directory."""
    given: dict[str, Any] = {
        "profile": profile,
        "host": "127.0.0.1",
        "audience": AUDIENCE,
        "database_url": f"sqlite:///{directory / 'challenge.sqlite3'}",
        "shared_token": TOKEN,
        "operators": (OPERATOR.hotkey,),
        "combined_worker": False,
    }
    return Settings(**(given | changes))


@dataclass
class Served:
    """A server and how to talk to it."""

    service: Service
    server: Server
    url: str
    http: httpx2.AsyncClient

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rsplit(":", 1)[1])

    async def get(self, target: str, key: Key | None = None, **headers: str) -> httpx2.Response:
        """A GET, signed when a key is given."""
        signed = key.headers("GET", target) if key else {}
        return await self.http.get(self.url + target, headers=signed | headers)

    async def send(
        self, method: str, target: str, value: object = None, key: Key | None = None, **headers: str
    ) -> httpx2.Response:
        """A write with a JSON body, or with these bytes."""
        body = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        signed = key.headers(method, target, body) if key else {}
        return await self.http.request(method, self.url + target, content=body, headers=signed | headers)

    async def post(self, target: str, value: object = None, key: Key | None = None) -> httpx2.Response:
        """A POST with a JSON body."""
        return await self.send("POST", target, value, key)

    async def raw(self, data: bytes, read_s: float = 5.0) -> bytes:
        """Everything that comes back for these bytes on a connection of their own."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data)
            await writer.drain()
            async with asyncio.timeout(read_s):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    directory: Path, profile: str = "production", limits: Limits | None = None, **changes: Any
) -> AsyncIterator[Served]:
    """A server for as long as the context lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with running(settings_of(directory, profile, **changes)) as service:
        server = make_server(Application(service, limits), "127.0.0.1", 0)
        serve = asyncio.create_task(server._serve([listener]))
        try:
            async with httpx2.AsyncClient(timeout=20.0) as http:
                while not server.started:
                    await asyncio.sleep(0.01)
                yield Served(service, server, url, http)
        finally:
            server.stop()
            await serve


def code_of(response: httpx2.Response) -> str:
    """The code of an error answer, after checking its shape."""
    detail: Mapping[str, Any] = response.json()["detail"]
    assert response.headers["content-type"] == "application/json"
    assert set(detail) <= {"code", "message", "field", "hint", "seq", "request_id"}, detail
    assert detail["request_id"] == response.headers["x-request-id"]
    return str(detail["code"])
