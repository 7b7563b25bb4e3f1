"""What operators decide, and how a ledger begins. Read top to bottom, these are the rules."""

from collections.abc import Callable
from typing import cast

from events.types.ledger import ClockAccepted, LedgerOpened, OperatorsChanged, RulesActivated
from events.types.policy import PolicyAdopted
from hypercluster.domain.identity.authentication import SIM, is_hotkey
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Refused
from hypercluster.domain.policy import codes as _codes  # noqa: F401 (its import registers them)
from hypercluster.domain.policy import commands, exclusion, internal, metagraph
from hypercluster.domain.policy.check import check_policy
from hypercluster.domain.policy.epochs import edge_for
from hypercluster.domain.policy.release import policy_digest
from projections.fold import State
from projections.folds.ledger import THE_LEDGER

ENTRY_FORMAT = 1
OPERATORS_MAX = 32

type Decider = Callable[[State, Command, Context], Decision]


def by_operator(decider: Decider) -> Decider:
    """The same decider, for operators of the ledger only."""

    def decide(state: State, command: Command, context: Context) -> Decision:
        if command.actor not in state.ledger.info[THE_LEDGER].operators:
            return Refused("not_operator", "only an operator of this ledger may do this")
        return decider(state, command, context)

    return decide


def adopt_policy(state: State, command: Command, context: Context) -> Decision:
    """A valid policy of a higher version takes effect at the next epoch edge; the last one again changes nothing."""
    policy = cast(commands.AdoptPolicy, command.body).policy
    refused = check_policy(policy)
    if refused is not None:
        return refused
    digest = policy_digest(policy)
    last = state.policy.policies[len(state.policy.policies) - 1]
    if last.digest == digest:
        return Accepted((), digest, seq=last.pos)
    if policy.version <= last.policy.version:
        message = f"version {last.policy.version} was adopted with event {last.pos}; use a higher one"
        return Refused("policy_version_used", message, field="policy.version", seq=last.pos)
    effective_us = edge_for(state, policy.epoch_s, context.at_us)
    return Accepted((PolicyAdopted(digest=digest, effective_us=effective_us, policy=policy),), digest, created=True)


def change_operators(state: State, command: Command, context: Context) -> Decision:
    """Replace the operators. The list is never empty, so that a ledger is never without one."""
    info = state.ledger.info[THE_LEDGER]
    operators = cast(commands.ChangeOperators, command.body).operators
    refused = _check_operators(operators, info.profile)
    if refused is not None:
        return refused
    if operators == info.operators:
        return Accepted((), info.origin)
    return Accepted((OperatorsChanged(operators=operators),), info.origin)


def accept_clock(state: State, command: Command, context: Context) -> Decision:
    """Note the server's wall clock as the request came in beside the time of the last event."""
    event = ClockAccepted(wall_us=command.received_us, last_event_us=state.at_us)
    return Accepted((event,), state.ledger.info[THE_LEDGER].origin)


def open_ledger(state: State, command: Command, context: Context) -> Decision:
    """Event 1, of an empty ledger only. A sim ledger may do without operators."""
    body = cast(internal.OpenLedger, command.body)
    if state.pos:
        return Refused("ledger_exists", "the ledger has been opened before", seq=1)
    needs_none = body.profile == SIM and not body.operators
    refused = None if needs_none else _check_operators(body.operators, body.profile)
    if refused is not None:
        return refused
    return Accepted((LedgerOpened(**body.model_dump(), entry_format=ENTRY_FORMAT),), body.origin, created=True)


def begin_policy(state: State, command: Command, context: Context) -> Decision:
    """The first policy, effective at once, and the rules that decide from now on."""
    body = cast(internal.BeginPolicy, command.body)
    if state.policy.policies:
        return Refused("ledger_exists", "the ledger has a policy", seq=state.policy.policies[0].pos)
    refused = check_policy(body.policy)
    if refused is not None:
        return refused
    digest = policy_digest(body.policy)
    adopted = PolicyAdopted(digest=digest, effective_us=context.at_us, policy=body.policy)
    return Accepted((adopted, RulesActivated(rules=body.rules, release=body.release)), digest, created=True)


def _check_operators(operators: tuple[str, ...], profile: str) -> Refused | None:
    if not 1 <= len(operators) <= OPERATORS_MAX or len(set(operators)) != len(operators):
        return Refused("operators_invalid", f"name 1 to {OPERATORS_MAX} different hotkeys", field="operators")
    for number, hotkey in enumerate(operators):
        if not is_hotkey(hotkey, profile):
            return Refused("operators_invalid", "not a canonical hotkey address", field=f"operators.{number}")
    return None


DECIDERS: dict[str, Decider] = {
    "policy.adopt": by_operator(adopt_policy),
    "metagraph.adopt": by_operator(metagraph.adopt),
    "operator.suspend": by_operator(exclusion.suspend),
    "operator.readmit": by_operator(exclusion.readmit),
    "operator.drain": by_operator(exclusion.drain),
    "operators.change": by_operator(change_operators),
    "clock.accept": by_operator(accept_clock),
    "ledger.open": open_ledger,
    "policy.begin": begin_policy,
}
