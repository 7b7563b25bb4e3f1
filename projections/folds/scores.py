"""Scored attempts, and per hotkey how its newest attempts ended."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from events.types.scores import Score
from projections.state import Journal, Table


class ScoredAttempt(msgspec.Struct, frozen=True):
    """The latest revision of an attempt's score. `pos` is that of its first score: the order among attempts."""

    score: Score
    pos: int
    revised_pos: int
    revision: int
    at_us: int


class EndedAttempts(msgspec.Struct, frozen=True):
    """The newest ended attempts of one submitter, oldest first: 1 where the submitter was at fault, else 0."""

    outcomes: tuple[int, ...]


class ScoresState:
    """attempts: "<job_id>/<attempt_no>" -> score."""

    def __init__(self, journal: Journal) -> None:
        self.attempts: Table[str, ScoredAttempt] = Table("score", journal, mirrored=True)
        self.ended: Table[str, EndedAttempts] = Table("ended_attempts", journal)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}
