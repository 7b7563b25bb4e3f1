"""Which keys have spoken, with which scheme, which nonces are used up, and what each may still have refused."""

import hashlib
from collections.abc import Callable
from typing import Any, cast

import msgspec

from events.envelope import CommandRecord, Event, Recorded
from events.types.ledger import CommandNoted, CommandRefused
from events.types.policy import PolicyAdopted
from projections.state import Journal, Table

BUCKET_US = 60_000_000  # nonces of one minute are dropped together
MARGIN_US = 300_000_000  # a command may wait this long between the check of its time and its decision
DAY_US = 86_400_000_000
TOKEN = 1_000  # one refusal costs this many milli-tokens


class KeyRecord(msgspec.Struct, frozen=True):
    """A hotkey that has a recorded command. `scheme` is bound by the first; `accepted` counts accepted ones."""

    hotkey: str
    scheme: str
    first_pos: int
    accepted: int = 0


class NonceUse(msgspec.Struct, frozen=True):
    """Where a nonce was used up."""

    pos: int
    at_us: int


class RefusalBudget(msgspec.Struct, frozen=True):
    """A token bucket: `milli_tokens` left at `at_us`."""

    milli_tokens: int
    at_us: int


class RequestRecord(msgspec.Struct, frozen=True):
    """The first answer to a client_request_id: the same body again gets it again.

    path: that of the request, with the ids it named. body_digest: of the body's text as recorded.
    """

    body_digest: str
    subject: str
    pos: int
    path: str = ""


class Limits(msgspec.Struct, frozen=True):
    """The policy's numbers that this area needs, and since when they hold."""

    effective_us: int
    signature_window_s: int
    refusal_bucket: int
    refusal_refill_per_min: int
    refusal_bytes_per_day: int


class IdentityState:
    """nonces: bucket number -> table of (hotkey, nonce); buckets are dropped whole when their window is over.

    limits: number of the policy, from 0 -> its limits. refused_bytes: day since 1970 -> leaf bytes of that day's
    recorded refusals and no-ops. requests: (hotkey, kind, client_request_id) -> first answer.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.keys: Table[str, KeyRecord] = Table("key", journal, mirrored=True)
        self.nonces: Table[int, Table[tuple[str, str], NonceUse]] = Table("nonce_bucket", journal)
        self.budgets: Table[str, RefusalBudget] = Table("refusal_budget", journal)
        self.refused_bytes: Table[int, int] = Table("refused_bytes_per_day", journal)
        self.requests: Table[tuple[str, str, str], RequestRecord] = Table("request", journal)
        self.limits: Table[int, Limits] = Table("identity_limits", journal)

    def nonce_use(self, hotkey: str, nonce: str) -> NonceUse | None:
        """Where this nonce of this hotkey was used up, while that is remembered."""
        key = (hotkey, nonce)
        for bucket in self.nonces.values():
            if key in bucket:
                return bucket[key]
        return None

    def limits_at(self, at_us: int) -> Limits:
        """The limits in force at this time."""
        for number in range(len(self.limits) - 1, 0, -1):
            if self.limits[number].effective_us <= at_us:
                return self.limits[number]
        return self.limits[0]

    def milli_tokens(self, hotkey: str, at_us: int) -> int:
        """What is left of the hotkey's bucket at this time, refilled."""
        limits = self.limits_at(at_us)
        full = limits.refusal_bucket * TOKEN
        budget = self.budgets.get(hotkey)
        if budget is None:
            return full
        refill = (at_us - budget.at_us) * limits.refusal_refill_per_min * TOKEN // 60_000_000
        return min(full, budget.milli_tokens + refill)


def _policy_adopted(state: IdentityState, recorded: Recorded) -> None:
    event = cast(PolicyAdopted, recorded.event)
    policy = event.policy
    state.limits[len(state.limits)] = Limits(
        effective_us=event.effective_us,
        signature_window_s=policy.signature_window_s,
        refusal_bucket=policy.refusal_bucket,
        refusal_refill_per_min=policy.refusal_refill_per_min,
        refusal_bytes_per_day=policy.refusal_bytes_per_day,
    )


def _charge(state: IdentityState, recorded: Recorded) -> None:
    """Refusals and no-ops cost a token of their hotkey and count towards the day's bytes."""
    hotkey, at_us = recorded.envelope.actor, recorded.at_us
    state.budgets[hotkey] = RefusalBudget(max(0, state.milli_tokens(hotkey, at_us) - TOKEN), at_us)
    day = at_us // DAY_US
    if day not in state.refused_bytes:
        for old in list(state.refused_bytes):
            del state.refused_bytes[old]
    state.refused_bytes[day] = state.refused_bytes.get(day, 0) + len(recorded.entry)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {
    PolicyAdopted: _policy_adopted,
    CommandRefused: _charge,
    CommandNoted: _charge,
}


def observe_command(state: IdentityState, recorded: Recorded) -> None:
    """Note the command that this first event of its answer records.

    Raises: ValueError when a signed command carries no signed text.
    """
    command = recorded.envelope.command
    if command is None or command.origin != "signed":
        return
    hotkey, accepted = recorded.envelope.actor, not isinstance(recorded.event, CommandRefused)
    path, nonce = _path_and_nonce(command.text or "")
    _use_nonce(state, (hotkey, nonce), recorded)
    known = state.keys.get(hotkey)
    if known is None:
        known = KeyRecord(hotkey, command.scheme or "", recorded.pos)
    state.keys[hotkey] = KeyRecord(known.hotkey, known.scheme, known.first_pos, known.accepted + accepted)
    if accepted and not isinstance(recorded.event, CommandNoted):
        _note_request(state, command, path, recorded)


def _use_nonce(state: IdentityState, key: tuple[str, str], recorded: Recorded) -> None:
    number = recorded.at_us // BUCKET_US
    bucket = state.nonces.get(number)
    if bucket is None:
        window_s = max((limits.signature_window_s for limits in state.limits.values()), default=0)
        oldest_us = recorded.at_us - 2 * window_s * 1_000_000 - MARGIN_US
        for old in [one for one in state.nonces if (one + 1) * BUCKET_US <= oldest_us]:
            del state.nonces[old]
        bucket = state.nonces[number] = Table("nonce", state.journal)
    bucket[key] = NonceUse(recorded.pos, recorded.at_us)


def _note_request(state: IdentityState, command: CommandRecord, path: str, recorded: Recorded) -> None:
    request_id = _request_id(command, recorded.event)
    key = (recorded.envelope.actor, command.kind, request_id or "")
    if request_id is None or key in state.requests:
        return
    subject = recorded.envelope.stream.partition("/")[2]
    state.requests[key] = RequestRecord(_body_digest(command), subject, recorded.pos, path)


class _RequestId(msgspec.Struct):
    client_request_id: str | None = None


_request_id_decoder = msgspec.json.Decoder(_RequestId)


def _request_id(command: CommandRecord, event: Event) -> str | None:
    """The id that the client chose: from the body's text, or from the event where the body is a blob."""
    text = command.body or command.public or ""
    if '"client_request_id"' not in text:
        return getattr(event, "client_request_id", None)
    try:
        return _request_id_decoder.decode(text).client_request_id
    except msgspec.MsgspecError:
        return None


def _body_digest(command: CommandRecord) -> str:
    if command.body_blob is not None:
        return command.body_blob
    return "sha256:" + hashlib.sha256((command.body or command.public or "").encode()).hexdigest()


def _path_and_nonce(text: str) -> tuple[str, str]:
    """Path without query, and nonce, of a recorded text of either version."""
    lines = text.split("\n")
    if len(lines) == 8:
        return lines[3].partition("?")[0], lines[5]
    parts = lines[-1].split(":")
    if len(lines) == 2 and len(parts) == 5:
        return lines[0].partition(" ")[2].partition("?")[0], parts[2]
    raise ValueError("a signed command carries no signed text")
