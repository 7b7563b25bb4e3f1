"""Processes of the demo: each ends with its context, whatever happens in between."""

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

FAREWELL_S = 20.0


def free_port() -> int:
    """A TCP port that is free on loopback at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Process:
    """A child process; its standard error goes to `log`, its standard output can be read line by line."""

    def __init__(self, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._argv, self.log = list(argv), log
        self._environment = {**os.environ, **(environment or {})}
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as errors:
            self._child = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        child = self._child
        if child is None:
            return
        child.terminate()
        try:
            child.wait(FAREWELL_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child is not None and self._child.poll() is None

    def read_line(self) -> str:
        """The next line of its standard output, empty when it has ended."""
        return self._child.stdout.readline() if self._child is not None and self._child.stdout is not None else ""
