"""What posted results can do to a score: lower the poster's own side, nothing else. Pure.

A claim that says `verified: false` or names a known integrity code voids the demand of the submitter (the renter is
the submitter) or the supply of the provider who posted it. The other side keeps what it has.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from events.envelope import Event
from events.types.jobs import ResultClaimed
from events.types.scores import Score, ScoreRevised
from hypercluster.domain.jobs.faults import INTEGRITY_CODES
from projections.fold import State
from projections.folds.jobs import Attempt, Claim

CLAIM = "claim"  # reason of a revision


class Voids(NamedTuple):
    """Sides without credit."""

    demand: bool
    supply: tuple[str, ...]


def is_damaging(claim: Claim | ResultClaimed) -> bool:
    """Whether the claim speaks against its poster."""
    return not claim.verified or not INTEGRITY_CODES.isdisjoint(claim.integrity_codes)


def claims_on(state: State, attempt: Attempt, hotkeys: Iterable[str]) -> tuple[Claim, ...]:
    """What these hotkeys posted about the attempt, in order of posting."""
    key = f"{attempt.job_id}/{attempt.attempt_no}"
    found = (state.jobs.claims.get(f"{key}/{hotkey}") for hotkey in {attempt.submitter, *hotkeys})
    return tuple(sorted((claim for claim in found if claim is not None), key=lambda claim: claim.pos))


def voids(submitter: str, providers: Iterable[str], claims: Iterable[Claim | ResultClaimed]) -> Voids:
    """Which sides the claims void. providers: those of the attempt's nodes; claims of others void nothing."""
    posters = {claim.hotkey for claim in claims if is_damaging(claim)}
    return Voids(submitter in posters, tuple(sorted(posters.intersection(providers))))


def revise(state: State, attempt_key: str, claim: ResultClaimed | Claim, at_us: int) -> tuple[Event, ...]:
    """The revision of a scored attempt that this new claim brings, or nothing.

    attempt_key: "<job_id>/<attempt_no>". A ResultClaimed is of the same command and has no number yet: the revision
    stands right behind it, so that only claims that are in the ledger already are named as inputs. at_us is that of
    both.
    """
    scored = state.scores.attempts.get(attempt_key)
    if scored is None:
        return ()
    score = scored.score
    added = voids(score.submitter, (node.provider for node in score.nodes), [claim])
    supply_void = tuple(sorted({*score.supply_void, *added.supply}))
    revised = replace(score, demand_void=score.demand_void or added.demand, supply_void=supply_void)
    if revised == score:
        return ()
    if isinstance(claim, Claim):
        revised = replace(revised, inputs=_with(score, claim.pos))
    return (ScoreRevised(revision=scored.revision + 1, reason_code=CLAIM, score=revised),)


def _with(score: Score, pos: int) -> tuple[int, ...]:
    return tuple(sorted({*score.inputs, pos}))
