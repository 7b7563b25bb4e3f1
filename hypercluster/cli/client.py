"""The signing HTTP client. Synchronous; one request, one answer, no retries."""

# ruff: noqa: PLC0415 -- libraries are loaded when a request is made

import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hypercluster.cli.keys import KeyProblem, Signer
from hypercluster.domain import strict_json

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 10.0


class ClientError(Exception):
    """Base: the request was not served. `hint` says what to try."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Unreachable(ClientError):
    """No answer: refused, timed out, cut off, or not HTTP."""


class ApiError(ClientError):
    """The service refused. `code` is stable; an answer that is no JSON of ours has code `unknown_answer`."""

    def __init__(self, status: int, detail: dict[str, Any]) -> None:
        self.status = status
        self.code = str(detail.get("code") or "unknown_answer")
        self.message = str(detail.get("message") or detail.get("detail") or f"HTTP {status}")
        self.field: str | None = _text(detail.get("field"))
        self.request_id: str | None = _text(detail.get("request_id"))
        self.seq: int | None = detail["seq"] if isinstance(detail.get("seq"), int) else None
        super().__init__(f"{self.code}: {self.message}", hint=_text(detail.get("hint")))


class Client:
    """Talks to one deployment.

    url: the challenge's root, on its own port or behind Base's proxy. audience: what the signer means to talk to; it
    comes from the user's own configuration, never from the server. second_headers: sign with the `X-Hyper-` names;
    by default where the url goes through Base's proxy, which removes the others.
    """

    def __init__(
        self,
        url: str,
        signer: Signer | None = None,
        audience: str = "hypercluster",
        timeout: float = TIMEOUT_S,
        *,
        second_headers: bool | None = None,
    ) -> None:
        self.url, self.audience, self.timeout = url.rstrip("/"), audience, timeout
        self._signer = signer
        proxied = "/challenges/" in urlsplit(self.url).path + "/"
        self._prefix = "X-Hyper-" if (proxied if second_headers is None else second_headers) else "X-"
        self._http: httpx2.Client | None = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def request(self, method: str, path: str, body: object = None, signed: bool = True) -> Any:
        """Send a request; the answer's JSON.

        path: relative to the root, with its query, without percent-encoding where signed. body: a JSON value without
        floats (`Decimal` for fractions), or the exact bytes. signed: False sends no signature.

        Raises: Unreachable, ApiError, KeyProblem when a signature is needed and there is no key.
        """
        response = self._send(method, path, body, signed)
        try:
            return response.json()
        except ValueError as error:
            raise ApiError(response.status_code, {"message": "the answer is not JSON"}) from error

    def text(self, path: str, signed: bool = False) -> str:
        """GET something that is not JSON, as the checkpoint.

        Raises: as `request`.
        """
        return self._send("GET", path, None, signed).text

    def data(self, path: str, signed: bool = True) -> bytes:
        """GET raw bytes, as a rank's output.

        Raises: as `request`.
        """
        return self._send("GET", path, None, signed).content

    @contextmanager
    def lines(
        self, path: str, *, signed: bool = False, headers: dict[str, str] | None = None
    ) -> Iterator[Iterator[str]]:
        """GET a stream, line by line, without a limit on its length; between lines the timeout holds.

        Raises: as `request`.
        """
        import httpx2

        all_headers = {**(headers or {}), **self._headers("GET", path, b"", signed)}
        try:
            with self._client().stream("GET", self.url + path, headers=all_headers) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _api_error(response)
                yield response.iter_lines()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _send(self, method: str, path: str, body: object, signed: bool) -> "httpx2.Response":
        import httpx2

        data = _encode(body)
        headers = self._headers(method, path, data, signed)
        if data:
            headers["Content-Type"] = "application/json"
        try:
            response = self._client().request(method, self.url + path, content=data or None, headers=headers)
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.DecodingError) as error:
            raise self._unreachable(error) from error
        if response.status_code >= 300:
            raise _api_error(response)
        return response

    def _client(self) -> "httpx2.Client":
        import httpx2

        if self._http is None:
            self._http = httpx2.Client(timeout=self.timeout, follow_redirects=False)
        return self._http

    def _headers(self, method: str, path: str, data: bytes, signed: bool) -> dict[str, str]:
        if not signed:
            return {}
        if self._signer is None:
            hint = "give --hotkey with a key file, an address or a name"
            raise KeyProblem(f"{method} {path} must be signed and there is no key", hint=hint)
        return sign_headers(self._signer, self.audience, method, path, data, prefix=self._prefix)

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = str(error) or type(error).__name__
        return Unreachable(f"no answer from {self.url}: {reason}", hint="check the address and that the server runs")


def sign_headers(
    signer: Signer, audience: str, method: str, path: str, data: bytes, *, prefix: str = "X-"
) -> dict[str, str]:
    """The four signature headers of one request, with a fresh nonce and the time now."""
    from hypercluster.domain.identity import signed_text

    if not signed_text.is_plain_path(path):
        raise KeyProblem(f"path {path!a} cannot be signed", hint="signed paths hold no blanks and no percent-encoding")
    text = signed_text.SignedText(
        audience=audience,
        method=method,
        path=path,
        hotkey=signer.hotkey,
        nonce=secrets.token_urlsafe(18),
        seconds=int(time.time()),
        body_sha256=hashlib.sha256(data).hexdigest(),
        version=signed_text.V1 if signer.scheme == "hmac" else signed_text.V2,
    )
    return {
        f"{prefix}Hotkey": text.hotkey,
        f"{prefix}Signature": signer.sign(text.message()),
        f"{prefix}Nonce": text.nonce,
        f"{prefix}Timestamp": f"{text.seconds:010d}",
    }


def new_private_salt() -> str:
    """A fresh `private_salt` for bodies with private fields: 256 bits, hex."""
    return secrets.token_hex(32)


def _encode(body: object) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else strict_json.dumps(body).encode()


def _api_error(response: "httpx2.Response") -> ApiError:
    try:
        answer = response.json()
    except ValueError:
        return ApiError(response.status_code, {})
    detail = answer.get("detail") if isinstance(answer, dict) else None
    if isinstance(detail, dict):
        return ApiError(response.status_code, detail)
    if isinstance(detail, list):
        return ApiError(response.status_code, {"code": "invalid_body", "message": json.dumps(detail)[:500]})
    return ApiError(response.status_code, {"message": detail} if isinstance(detail, str) else {})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
