"""Who asks: the signature of a request, or nobody."""

import hashlib
from dataclasses import dataclass

from starlette.types import Scope

from hypercluster.domain.identity.authentication import Authenticated, authenticate
from hypercluster.domain.identity.signed_text import is_free_hotkey, is_signed
from hypercluster.domain.kernel import Refused
from hypercluster.http.errors import problem_of
from hypercluster.http.ports import Service


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who reads. `claimed` is a hotkey header without signature, as old clients send it: good for a filter only."""

    hotkey: str | None = None
    claimed: str | None = None

    def sees(self, *owners: str | None) -> bool:
        """Whether the reader proved to be one of the owners."""
        return self.hotkey is not None and self.hotkey in owners


def verify_request(service: Service, scope: Scope, body: bytes, arrived_us: int) -> Authenticated:
    """The signer of this request. arrived_us: when its headers were here; slow bodies do not make it stale.

    Raises: Problem with one of identity's codes
    """
    found = authenticate(
        scope["headers"],
        scope["method"],
        target_of(scope),
        hashlib.sha256(body).hexdigest(),
        now_us=arrived_us,
        audience=service.audience,
        window_s=window_s(service),
        profile=service.profile,
        shared_token=service.settings.shared_token,
    )
    if isinstance(found, Refused):
        raise problem_of(found)
    return found


def viewer_of(service: Service, scope: Scope) -> Viewer:
    """The reader of a GET: verified when the request is signed (over an empty body), else nobody.

    Raises: Problem when there is a signature and it is not good
    """
    if is_signed(scope["headers"]):
        return Viewer(hotkey=verify_request(service, scope, b"", service.now_us()).hotkey)
    claims = [value for name, value in scope["headers"] if name in (b"x-hotkey", b"x-hyper-hotkey")]
    claimed = claims[0].decode("latin-1").strip() if len(claims) == 1 else ""
    return Viewer(claimed=claimed if is_free_hotkey(claimed) else None)


def target_of(scope: Scope) -> str:
    """Path and query as they were sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (raw + b"?" + query if query else raw).decode("latin-1")


def window_s(service: Service) -> int:
    """The signature window of the policy in force, seconds."""
    now_us = service.now_us()
    policies = service.policies()
    return next((p for p in reversed(policies) if p.effective_us <= now_us), policies[0]).policy.signature_window_s
