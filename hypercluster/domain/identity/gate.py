"""Identity's part of every decision: used nonces, bound schemes, repeated requests, and what may be recorded.

In the order in which the writer asks, for signed commands:

1. `gate`: a refusal here is a 401 and is never recorded.
2. `request_replay`: the answer to a create that was made before.
3. The decider of the command's kind.
4. Events are appended. A refusal with status 401, 422, 429 or 503 is answered and nothing is burned. For other
   refusals `may_record`, for an answer without events `may_note`: if so `command.refused` or `command.noted` is
   appended. Else the answer is given unrecorded and the nonce kept in memory, but a refusal for which
   `budget_empty` holds becomes `too_many_refusals`, which burns nothing.

All of them look at the state only, so that an audit finds the same.
"""

from hypercluster.domain.kernel import Accepted, Command, Refused, digest_of
from projections.fold import State
from projections.folds.identity import DAY_US, TOKEN

_HEARTBEAT = ".heartbeat"


def gate(state: State, command: Command, at_us: int) -> Refused | None:
    """Refuse a nonce that was used, or a key that signs with another scheme than its first."""
    identity = state.identity
    if command.nonce is not None:
        used = identity.nonce_use(command.actor, command.nonce)
        if used is not None:
            return Refused("nonce_replay", "this nonce was used; sign the request anew", seq=used.pos)
    known = identity.keys.get(command.actor)
    if known is not None and known.scheme != command.scheme:
        return Refused("scheme_mismatch", f"this key is bound to {known.scheme} since event {known.first_pos}")
    return None


def request_replay(state: State, command: Command) -> Accepted | Refused | None:
    """The first answer, if this client_request_id was used before for this kind of request."""
    request_id: object = getattr(command.body, "client_request_id", None)
    if not isinstance(request_id, str):
        return None
    first = state.identity.requests.get((command.actor, command.kind, request_id))
    if first is None:
        return None
    segments = first.path.split("/")
    same_path = all(value in segments for value in command.path.values())
    if not same_path or first.body_digest != digest_of(command.body_text.encode()):
        message = f"client_request_id was used for another request, event {first.pos}"
        return Refused("request_id_conflict", message, field="client_request_id", seq=first.pos)
    return Accepted(events=(), subject=first.subject, created=False, seq=first.pos)


def is_known(state: State, hotkey: str, at_us: int) -> bool:
    """Whether the hotkey stands in the metagraph in force or has an accepted command."""
    key = state.identity.keys.get(hotkey)
    if key is not None and key.accepted > 0:
        return True
    metagraph = state.policy.metagraph_at(at_us)
    return metagraph is not None and hotkey in metagraph.owners


def may_record(state: State, hotkey: str, at_us: int) -> bool:
    """Whether a refusal of this hotkey may be recorded: known, a token left, and the day's bytes not used up.

    The day's limit is tested before the leaf, so that the last one may exceed it.
    """
    if not is_known(state, hotkey, at_us) or _bucket_is_empty(state, hotkey, at_us):
        return False
    used = state.identity.refused_bytes.get(at_us // DAY_US, 0)
    return used < state.identity.limits_at(at_us).refusal_bytes_per_day


def may_note(state: State, command: Command, at_us: int) -> bool:
    """Whether a command that changed nothing is recorded: as a refusal would be, but heartbeats never are."""
    return not command.kind.endswith(_HEARTBEAT) and may_record(state, command.actor, at_us)


def budget_empty(state: State, hotkey: str, at_us: int) -> bool:
    """Whether a known hotkey has no token left: its refusals are answered with `too_many_refusals`."""
    return is_known(state, hotkey, at_us) and _bucket_is_empty(state, hotkey, at_us)


def _bucket_is_empty(state: State, hotkey: str, at_us: int) -> bool:
    return state.identity.milli_tokens(hotkey, at_us) < TOKEN
