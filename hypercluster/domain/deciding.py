"""The one door to all rules: identity's gate first, then the decider of the command's kind. Pure and total."""

from collections.abc import Callable

from hypercluster.domain.identity import gate
from hypercluster.domain.jobs.decide import DECIDERS as JOBS
from hypercluster.domain.kernel import Command, Context, Decision
from hypercluster.domain.market.decide import DECIDERS as MARKET
from hypercluster.domain.nodes.decide import DECIDERS as NODES
from hypercluster.domain.policy.decide import DECIDERS as POLICY
from hypercluster.domain.scores.decide import DECIDERS as SCORES
from hypercluster.domain.weights.decide import DECIDERS as WEIGHTS
from projections.fold import State

type Decider = Callable[[State, Command, Context], Decision]

DECIDERS: dict[str, Decider] = {**MARKET, **NODES, **JOBS, **POLICY, **SCORES, **WEIGHTS}


def decide(state: State, command: Command, context: Context) -> Decision:
    """Events, or a refusal with a code. The same call decides on the server and in an audit."""
    if command.origin == "signed":
        refused = gate.gate(state, command, context.at_us)
        if refused is not None:
            return refused
        repeated = gate.request_replay(state, command)
        if repeated is not None:
            return repeated
    return DECIDERS[command.kind](state, command, context)
