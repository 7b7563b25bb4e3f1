"""Serves the application with uvicorn: one process, since there is one writer."""

import asyncio
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from hypercluster.http.app import Application
from hypercluster.http.connection import guarded

GRACE_S = 10  # for requests that run when the server is told to stop


class Server(uvicorn.Server):
    """uvicorn's server, which tells the application about a stop signal while streams can still say good-bye."""

    def __init__(self, config: uvicorn.Config, application: Application, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._application, self._on_started = application, on_started
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal or `stop`."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve. From here on a stop signal ends the server in good order."""
        await super().startup(sockets)
        self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals for as long as requests are served, and do not raise them again: the caller closes its files."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: end the streams, then let the running requests end."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._application.stop_streams)
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Stop as a signal does. Belongs to the event loop."""
        self._application.stop_streams()
        self.should_exit = True


def make_server(
    application: Application, host: str, port: int, on_started: Callable[[], None] = lambda: None
) -> Server:
    """A server for this application; `await server.serve()` runs it, on `sockets` where given."""
    limits = application.shared.limits
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=guarded(limits.idle_s, limits.connections),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=math.ceil(limits.idle_s),
        timeout_graceful_shutdown=GRACE_S,
    )
    return Server(config, application, on_started)
