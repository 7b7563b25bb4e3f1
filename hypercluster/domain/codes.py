"""Every refusal code: its HTTP status, what it means, and the exit code of the command line."""

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    FAULT = 1
    USAGE = 2
    AUTH = 3
    NOT_FOUND = 4
    CONFLICT = 5
    UNREACHABLE = 6
    LATER = 7
    REMOTE_FAILED = 8
    INTEGRITY = 9
    INTERRUPTED = 130
    CLOSED_PIPE = 141


@dataclass(frozen=True, slots=True)
class Code:
    """One row of the table."""

    status: int
    meaning: str


_EXIT_OF_STATUS = {400: Exit.USAGE, 401: Exit.AUTH, 403: Exit.AUTH, 404: Exit.NOT_FOUND, 405: Exit.USAGE,
                   409: Exit.CONFLICT, 413: Exit.USAGE, 415: Exit.USAGE, 422: Exit.USAGE, 429: Exit.LATER,
                   431: Exit.USAGE, 408: Exit.LATER, 503: Exit.LATER}  # fmt: skip


def exit_code(status: int) -> Exit:
    """What the command line exits with for this HTTP status."""
    if status < 400:
        return Exit.DONE
    return _EXIT_OF_STATUS.get(status, Exit.FAULT)


CODES: dict[str, Code] = {
    # requests as such
    "invalid_json": Code(422, "the body is not strict JSON: syntax, duplicate keys, NaN, depth or bad Unicode"),
    "invalid_body": Code(422, "the body does not have the shape that the route asks for; `field` names the place"),
    "invalid_query": Code(422, "a query parameter is unknown or malformed"),
    "invalid_path": Code(422, "a path parameter is malformed, or the path is percent-encoded"),
    "not_found": Code(404, "no such route"),
    "method_not_allowed": Code(405, "the route does not take this method"),
    "body_too_large": Code(413, "the body exceeds the route's limit"),
    "headers_too_large": Code(431, "the request headers exceed the limit"),
    "request_timeout": Code(408, "the request took too long to arrive"),
    "internal_fault": Code(500, "our fault; report the request id"),
    # reads
    "event_not_found": Code(404, "the ledger holds no event with this number"),
    "log_not_found": Code(404, "there is no such rank, or its output was deleted"),
    # identity
    "missing_auth_headers": Code(401, "the four signature headers are required"),
    "duplicate_auth_header": Code(401, "a signature header came twice, or the two header sets disagree"),
    "invalid_hotkey": Code(401, "the hotkey is not a canonical SS58 address of format 42, or is a forgeable key"),
    "invalid_timestamp": Code(401, "the timestamp is not ten digits of unix seconds"),
    "invalid_nonce": Code(401, "the nonce is not 16 to 64 characters of A-Z a-z 0-9 _ -"),
    "stale_signature": Code(401, "the timestamp is outside the window; `hint` gives server time and skew"),
    "invalid_signature": Code(401, "the signature does not verify for this request"),
    "scheme_mismatch": Code(401, "this key is bound to another signature scheme"),
    "nonce_replay": Code(401, "this nonce was used; `seq` names the event of its answer"),
    "not_operator": Code(403, "the hotkey is not an operator of this ledger"),
    "unauthorized": Code(401, "the bearer token is missing or wrong"),
    "request_id_conflict": Code(409, "client_request_id was used before with another body"),
    "too_many_refusals": Code(429, "this hotkey's budget for recorded refusals is empty; retry later"),
    "overloaded": Code(429, "too many commands are waiting; retry later"),
    # writes as such
    "not_ready": Code(503, "the service accepts no writes at the moment; `message` says why"),
    "disk_short": Code(429, "less than a tenth of the ledger's disk is left: no jobs are taken; other commands are"),
    "disk_full": Code(503, "the ledger's disk is full; reads go on"),
    "private_salt_required": Code(422, "production asks for a private_salt of at least 128 bits when env is set"),
    "entry_too_large": Code(422, "the command does not fit into a ledger entry"),
}


def register(area: dict[str, Code]) -> None:
    """Add an area's codes to the table. Refuses a code that stands there with another meaning."""
    for name, code in area.items():
        if CODES.setdefault(name, code) != code:
            raise ValueError(f"code {name} is defined twice")
