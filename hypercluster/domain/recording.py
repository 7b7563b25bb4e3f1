"""How a decision is put on record. The same answer on the server and in an audit. Pure."""

from events.envelope import Event
from events.types.ledger import CommandNoted, CommandRefused
from hypercluster.domain.codes import CODES
from hypercluster.domain.identity import gate
from hypercluster.domain.kernel import Command, Decision, Refused
from projections.fold import State

UNDECIDED_STATUSES = frozenset({401, 422, 429, 503})


def is_undecided(decision: Decision) -> bool:
    """Whether the answer means that nothing was decided: it is not recorded and burns no nonce."""
    return isinstance(decision, Refused) and CODES[decision.code].status in UNDECIDED_STATUSES


def events_of(state: State, command: Command, decision: Decision, at_us: int) -> tuple[Event, ...]:
    """The events that record the decision; none where it is answered unrecorded.

    Refusals and no-ops of signed commands are recorded within the budgets of `identity.gate`.
    """
    if isinstance(decision, Refused):
        if command.origin == "internal" or is_undecided(decision):
            return ()
        if not gate.may_record(state, command.actor, at_us):
            return ()
        return (
            CommandRefused(
                hotkey=command.actor,
                kind=command.kind,
                code=decision.code,
                message=decision.message,
                field=decision.field,
            ),
        )
    if decision.events or command.origin == "internal" or not gate.may_note(state, command, at_us):
        return decision.events
    return (CommandNoted(hotkey=command.actor, kind=command.kind, subject=decision.subject),)
