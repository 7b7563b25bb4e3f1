"""Serve one deployment on one socket until the process is told to stop."""

import socket

import structlog

from hypercluster.http.app import Application
from hypercluster.http.server import make_server
from hypercluster.runtime.logs import configure_logs
from hypercluster.runtime.settings import Settings
from hypercluster.runtime.start import running

log = structlog.get_logger()

BACKLOG = 2048


async def serve_until_told(settings: Settings) -> None:
    """Open the deployment, serve it, and close it after SIGTERM or SIGINT.

    Raises: events.errors.LedgerError, SettingsError, OSError where the address cannot be had
    """
    configure_logs()
    with listening_socket(settings.host, settings.port) as listening:
        async with running(settings) as service:
            host, port = listening.getsockname()[:2]
            facts = {"host": host, "port": port, "profile": service.profile, "origin": service.origin}
            server = make_server(Application(service), host, port, lambda: log.info("listening", **facts))
            await server.serve(sockets=[listening])
            log.info("stopping", seq=service.head())


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one.

    Raises: OSError
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
