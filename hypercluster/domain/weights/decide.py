"""When a weight snapshot is due and what it says. Pure."""

import hashlib
from collections.abc import Callable, Collection

import msgspec

from events import codec
from events.types.weights import WeightsSnapshot
from hypercluster.domain.kernel import US_PER_S, Accepted, Command, Context, Decision, Refused
from hypercluster.domain.policy.epochs import epoch_of
from hypercluster.domain.scores.mass import masses
from hypercluster.domain.weights.codes import SNAPSHOT_NOT_ALONE
from hypercluster.domain.weights.internal import TakeSnapshot
from hypercluster.domain.weights.pipeline import weights_of
from projections.fold import State
from projections.folds.ledger import THE_LEDGER
from projections.folds.weights import NEWEST, SnapshotRecord

NO_DIGEST = "0" * 64  # in place of the first snapshot's predecessor and of a metagraph list before the first

type Decider = Callable[[State, Command, Context], Decision]


def take_snapshot(state: State, command: Command, context: Context) -> Decision:
    """The snapshot of this moment, if one is due: an epoch began, or the weights changed since the last."""
    if not isinstance(command.body, TakeSnapshot):
        raise TypeError(f"{command.kind} with a body of {type(command.body).__name__}")
    if state.pos != context.size:
        return Refused(SNAPSHOT_NOT_ALONE, f"the state is at event {state.pos}, the last commit at {context.size}")
    newest = state.weights.newest.get(NEWEST)
    if newest is not None and not snapshot_due(state, context.at_us):
        return _nothing(newest)
    taken = snapshot_of(state, context)
    if newest is not None and taken.epoch <= newest.snapshot.epoch and taken.weights == newest.snapshot.weights:
        return _nothing(newest)
    return Accepted((taken,), subject=str(taken.number), created=True)


def snapshot_due(state: State, at_us: int) -> bool:
    """Whether it is worth asking: an epoch began, or the shortest interval between two snapshots is over."""
    newest = state.weights.newest.get(NEWEST)
    if newest is None or epoch_of(state, at_us) > newest.snapshot.epoch:
        return True
    interval_us = state.policy.policy_at(at_us).policy.snapshot_min_interval_s * US_PER_S
    return at_us - newest.at_us >= interval_us


def snapshot_of(state: State, context: Context) -> WeightsSnapshot:
    """What a snapshot taken now says, due or not."""
    at_us = context.at_us
    newest = state.weights.newest.get(NEWEST)
    policy = state.policy.policy_at(at_us)
    metagraph = state.policy.metagraph_at(at_us)
    totals = {hotkey: mass.total for hotkey, mass in masses(state, policy.policy, at_us).items()}
    unsealed = WeightsSnapshot(
        number=newest.snapshot.number + 1 if newest is not None else 1,
        epoch=epoch_of(state, at_us),
        previous=newest.snapshot.digest if newest is not None else NO_DIGEST,
        digest="",
        size=context.size,
        root=context.root,
        policy_digest=policy.digest,
        metagraph_digest=metagraph.digest if metagraph is not None else NO_DIGEST,
        weights=weights_of(totals, policy.policy, allowed_hotkeys(state, at_us)),
    )
    return msgspec.structs.replace(unsealed, digest=snapshot_digest(unsealed))


def snapshot_digest(snapshot: WeightsSnapshot) -> str:
    """Lower-case hex SHA-256 of the canonical snapshot without its digest."""
    fields = msgspec.to_builtins(snapshot)
    del fields["digest"]
    return hashlib.sha256(codec.encode(fields)).hexdigest()


def allowed_hotkeys(state: State, at_us: int) -> Collection[str] | None:
    """Who may get weight: the metagraph list in force, nobody before the first; everybody in the sim profile."""
    if state.ledger.info[THE_LEDGER].profile == "sim":
        return None
    metagraph = state.policy.metagraph_at(at_us)
    return metagraph.owners.keys() if metagraph is not None else ()


def _nothing(newest: SnapshotRecord) -> Accepted:
    return Accepted((), subject=str(newest.snapshot.number), seq=newest.pos)


DECIDERS: dict[str, Decider] = {"weights.snapshot": take_snapshot}
