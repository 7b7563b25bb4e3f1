"""The baseline of bench_http: verifies the signature, chains, commits in groups with FULL. No rules, no read models."""

import asyncio
import hashlib
import queue
import sys
import threading
from pathlib import Path

import apsw
import orjson
import sr25519
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hypercluster.domain.identity import ss58

AUDIENCE = "hypercluster"

type Waiting = tuple[bytes, asyncio.Future[int], asyncio.AbstractEventLoop]


class Log:
    """A chained table and the thread that writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[int], asyncio.AbstractEventLoop]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._run, daemon=True).start()

    def append(self, entry: bytes) -> "asyncio.Future[int]":
        """The number of the entry, after the commit."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._queue.put((entry, future, loop))
        return future

    def _run(self) -> None:
        db = apsw.Connection(str(self._path))
        db.pragma("journal_mode", "WAL")
        db.pragma("synchronous", "FULL")
        db.execute("CREATE TABLE event(pos INTEGER PRIMARY KEY, entry, chain)")
        pos, chain = 0, b""
        while True:
            group = [self._queue.get()]
            while not self._queue.empty():
                group.append(self._queue.get())
            rows = []
            for entry, _, _ in group:
                pos += 1
                chain = hashlib.sha256(b"\x02" + chain + hashlib.sha256(b"\x00" + entry).digest()).digest()
                rows.append((pos, entry, chain))
            with db:
                db.executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
            for (number, _, _), (_, future, loop) in zip(rows, group, strict=True):
                loop.call_soon_threadsafe(future.set_result, number)


def application(path: Path) -> Starlette:
    """POST anywhere: signed, recorded, answered with its number."""
    log = Log(path)

    async def take(request: Request) -> Response:
        body = await request.body()
        given = {name: request.headers[f"x-{name}"] for name in ("hotkey", "signature", "nonce", "timestamp")}
        lines = ("hypercluster-v2", AUDIENCE, "POST", request.url.path, given["hotkey"], given["nonce"])
        text = "\n".join((*lines, given["timestamp"], hashlib.sha256(body).hexdigest()))
        signature = bytes.fromhex(given["signature"].removeprefix("0x"))
        if not sr25519.verify(signature, text.encode(), ss58.decode(given["hotkey"])):
            return Response(status_code=401)
        entry = orjson.dumps({"text": text, "signature": given["signature"], "body": orjson.loads(body)})
        return Response(orjson.dumps({"seq": await log.append(entry)}), media_type="application/json")

    return Starlette(routes=[Route("/{path:path}", take, methods=["POST"])])


if __name__ == "__main__":
    config = {"host": "127.0.0.1", "http": "httptools", "loop": "uvloop", "log_level": "warning", "access_log": False}
    config["timeout_graceful_shutdown"] = 5  # an answer that never comes must not keep the process
    uvicorn.run(application(Path(sys.argv[2])), port=int(sys.argv[1]), **config)
