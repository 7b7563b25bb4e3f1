"""What a verification found: per level how much was checked, what could not be, and the first wrong number."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

LEVEL_NAMES = {1: "bytes", 2: "signatures", 3: "decisions", 4: "scores and weights"}

type Progress = Callable[[int, int, int], None]  # level, events done, events in all


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first thing that does not hold. pos: number of the event, None when it concerns no single event."""

    pos: int | None
    reason: str


@dataclass(slots=True)
class Level:
    """One level of the verification.

    checked: how many things held, in the unit of the level (events, signatures, decisions, scores).
    withheld: reason -> how often evidence lies outside what was given. unverifiable: reason -> how often
    nobody could check it. ran: False when an earlier level failed or the level was not asked for.
    """

    number: int
    ran: bool = False
    checked: int = 0
    withheld: Counter[str] = field(default_factory=Counter)
    unverifiable: Counter[str] = field(default_factory=Counter)
    wrong: Wrong | None = None

    @property
    def name(self) -> str:
        """What the level looks at."""
        return LEVEL_NAMES[self.number]

    @property
    def state(self) -> str:
        """passed | failed | not run"""
        if self.wrong is not None:
            return "failed"
        return "passed" if self.ran else "not run"

    def found_wrong(self, pos: int | None, reason: str) -> None:
        """Note what is wrong; the lowest number stays."""
        if self.wrong is None or (pos is not None and (self.wrong.pos is None or pos < self.wrong.pos)):
            self.wrong = Wrong(pos, reason)

    def as_dict(self) -> dict[str, object]:
        """For machine output."""
        wrong = None if self.wrong is None else {"pos": self.wrong.pos, "reason": self.wrong.reason}
        return {
            "level": self.number,
            "name": self.name,
            "state": self.state,
            "checked": self.checked,
            "withheld": dict(sorted(self.withheld.items())),
            "unverifiable": dict(sorted(self.unverifiable.items())),
            "first_wrong": wrong,
        }


@dataclass(slots=True)
class Report:
    """The whole verification of one ledger file.

    size: events in the file. root: Merkle root over all of them, hex, once level 1 has run. key: verifier's
    public key, hex. key_given: whether the caller named it; False: it was taken from the ledger itself.
    checkpoint: size of the checkpoint that the caller gave, or None. rules: rule set -> release that can
    decide it again, for events that this release cannot.
    """

    ledger: str
    size: int = 0
    root: str = ""
    origin: str = ""
    profile: str = ""
    key: str = ""
    key_given: bool = False
    checkpoint: int | None = None
    rules: dict[int, str] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found. Withheld and unverifiable items do not count against it."""
        return all(level.wrong is None for level in self.levels)

    @property
    def failed(self) -> Level | None:
        """The level that stopped the verification."""
        return next((level for level in self.levels if level.wrong is not None), None)

    def as_dict(self) -> dict[str, object]:
        """For machine output."""
        return {
            "schema": "hypercluster.verification/v1",
            "ok": self.ok,
            "ledger": self.ledger,
            "size": self.size,
            "root": self.root,
            "origin": self.origin,
            "profile": self.profile,
            "key": self.key,
            "key_source": "given" if self.key_given else "the ledger itself",
            "checkpoint_size": self.checkpoint,
            "other_rules": {str(number): release for number, release in sorted(self.rules.items())},
            "levels": [level.as_dict() for level in self.levels],
        }
