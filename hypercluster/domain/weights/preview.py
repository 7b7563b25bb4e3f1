"""The leaderboard and the weight preview, from mirrored rows: their cost does not grow with the number of attempts.

Standings are as of the newest event that concerns a hotkey and, for all of them, as of the newest snapshot; weights are
those of the newest snapshot, never guessed between two. Both say the time that they are of.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hypercluster.domain.weights.pipeline import by_mass
from projections.folds.scores import Standing
from projections.folds.weights import SnapshotRecord


@dataclass(frozen=True, slots=True)
class LeaderboardRow:
    """One hotkey's place, from 1. mass = supply + demand; roles: which of the two it has a mass in."""

    hotkey: str
    rank: int
    mass: int
    supply: int
    demand: int
    keep_ppm: int
    score_count: int
    self_deal_count: int
    changed_us: int

    @property
    def roles(self) -> dict[str, int]:
        """Mass by role, without roles that have none."""
        return {role: mass for role, mass in (("supply", self.supply), ("demand", self.demand)) if mass}


@dataclass(frozen=True, slots=True)
class Preview:
    """Weights in ppm by hotkey, with the snapshot that holds them, and the masses now. Times in microseconds.

    number, epoch and taken_us are None before the first snapshot; masses_us: the newest change among the masses.
    """

    weights: dict[str, int]
    masses: dict[str, int]
    masses_us: int | None
    number: int | None
    epoch: int | None
    digest: str | None
    taken_us: int | None


def leaderboard_rows(standings: Iterable[Standing]) -> list[LeaderboardRow]:
    """All rows by (-mass, hotkey bytes)."""
    found = {standing.hotkey: standing for standing in standings}
    order = by_mass({hotkey: standing.total for hotkey, standing in found.items()})
    return [_row(found[hotkey], rank) for rank, hotkey in enumerate(order, 1)]


def preview(newest: SnapshotRecord | None, standings: Iterable[Standing]) -> Preview:
    """What Base gets at the moment, beside the masses of the standings."""
    rows = [standing for standing in standings if standing.total > 0]
    masses = {standing.hotkey: standing.total for standing in rows}
    masses_us = max((standing.changed_us for standing in rows), default=None)
    if newest is None:
        return Preview({}, masses, masses_us, None, None, None, None)
    snapshot = newest.snapshot
    weights = {weight.hotkey: weight.ppm for weight in snapshot.weights}
    return Preview(weights, masses, masses_us, snapshot.number, snapshot.epoch, snapshot.digest, newest.at_us)


def _row(standing: Standing, rank: int) -> LeaderboardRow:
    return LeaderboardRow(
        hotkey=standing.hotkey,
        rank=rank,
        mass=standing.total,
        supply=standing.supply,
        demand=standing.demand,
        keep_ppm=standing.keep_ppm,
        score_count=standing.score_count,
        self_deal_count=standing.self_deal_count,
        changed_us=standing.changed_us,
    )
