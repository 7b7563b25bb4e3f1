"""What the outer layers note in an ASGI scope for the inner ones."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

_REQUEST_ID = "hypercluster.request_id"
_DEADLINE = "hypercluster.deadline"


def set_request_id(scope: MutableMapping[str, Any], value: str) -> None:
    """Name the request."""
    scope[_REQUEST_ID] = value


def request_id(scope: MutableMapping[str, Any]) -> str:
    """The name of the request, or `-` where no layer gave one."""
    return str(scope.get(_REQUEST_ID, "-"))


def set_deadline(scope: MutableMapping[str, Any], deadline: asyncio.Timeout) -> None:
    """Note the time limit of the request."""
    scope[_DEADLINE] = deadline


def lift_deadline(scope: MutableMapping[str, Any]) -> None:
    """Let the answer take as long as it likes, for streams."""
    deadline = scope.get(_DEADLINE)
    if isinstance(deadline, asyncio.Timeout):
        deadline.reschedule(None)
