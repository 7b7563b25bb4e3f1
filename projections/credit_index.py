"""Credit of all scored attempts under one set of terms, kept up to date score by score.

A sum over it costs as much as there are nodes and hotkeys, however many attempts were scored. Slots go to attempts in
the order of their first score, so a new score never changes the credit of another; a revision that makes a value
appear or vanish is the one case in which a node is gone through again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from events.types.scores import NodeValue, Score
from projections import window as windows
from projections.credit import PPM, US_PER_S, Terms, keep_ppm, role_credit, slot_range, slot_words
from projections.state import Journal, Table
from projections.window import Entry, Window

CURRENT = "current"


class Work(msgspec.Struct, frozen=True):
    """One attempt on one node, with a value above 0. slots: how many of first..last it was the first to take."""

    score: Score
    node: NodeValue
    first: int
    last: int
    slots: int
    supply: int
    demand: int


class Mass(msgspec.Struct, frozen=True):
    """A hotkey's mass. total = supply + demand; demand is what is left of `earned_demand` after spam."""

    supply: int
    earned_demand: int
    keep_ppm: int
    demand: int
    total: int


class CreditIndex:
    """The tables of the index.

    terms: one row, "current". slots: (node_id, word) -> bit set of taken slots. works: node_id -> table of first
    score's number -> work. scored: submitter -> table of first score's number -> the attempt's node ids. supply:
    node_id -> window; demand: hotkey -> window. nodes_of: provider -> node ids with work.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.terms: Table[str, Terms] = Table("credit_terms", journal)
        self.slots: Table[tuple[str, int], int] = Table("credit_slots", journal)
        self.works: Table[str, Table[int, Work]] = Table("credit_works", journal)
        self.scored: Table[str, Table[int, tuple[str, ...]]] = Table("scored_by_submitter", journal)
        self.supply: Table[str, Window] = Table("supply_window", journal)
        self.demand: Table[str, Window] = Table("demand_window", journal)
        self.nodes_of: Table[str, tuple[str, ...]] = Table("worked_nodes_by_provider", journal)


def built(scores: Iterable[tuple[int, Score]], terms: Terms) -> CreditIndex:
    """A new index over these scores, each with the number of its attempt's first score."""
    index = CreditIndex(Journal())
    rebuild(index, scores, terms)
    index.journal.forget()
    return index


def rebuild(index: CreditIndex, scores: Iterable[tuple[int, Score]], terms: Terms) -> None:
    """Compute the whole index again under other terms."""
    tables: tuple[Table[Any, Any], ...] = (
        index.slots,
        index.works,
        index.scored,
        index.supply,
        index.demand,
        index.nodes_of,
    )
    for table in tables:
        for key in list(table):
            del table[key]
    index.terms[CURRENT] = terms
    for pos, score in sorted(scores, key=lambda scored: scored[0]):
        add(index, pos, score)


def add(index: CreditIndex, pos: int, score: Score) -> None:
    """An attempt was scored for the first time, by event `pos`, which is above that of all others."""
    if score.submitter not in index.scored:
        index.scored[score.submitter] = Table("scored_attempt", index.journal)
    index.scored[score.submitter][pos] = tuple(node.node_id for node in score.nodes)
    terms = index.terms[CURRENT]
    first, last = slot_range(score, terms)
    for node in score.nodes:
        if node.value > 0:
            slots = _take(index, node.node_id, first, last)
            _set_work(index, pos, Work(score, node, first, last, slots, 0, 0), terms)
    _settle_demand(index, pos, score, terms)


def revise(index: CreditIndex, pos: int, score: Score) -> set[str]:
    """The attempt whose first score is event `pos` has another score now, of the same work at the same time.

    Returns hotkeys of other attempts whose credit changed with it.
    """
    terms = index.terms[CURRENT]
    first, last = slot_range(score, terms)
    concerned: set[str] = set()
    for node in score.nodes:
        held = index.works[node.node_id].get(pos) if node.node_id in index.works else None
        if held is not None and node.value > 0:
            _set_work(index, pos, replace(held, score=score, node=node), terms)
        elif held is not None or node.value > 0:
            concerned |= _retake(index, pos, Work(score, node, first, last, 0, 0, 0), terms)
    _settle_demand(index, pos, score, terms)
    return concerned


def mass_of(index: CreditIndex, hotkey: str, outcomes: Sequence[int], at_us: int) -> Mass:
    """One hotkey's mass at this time. outcomes: of its ended attempts, newest last."""
    terms = index.terms[CURRENT]
    since_us = at_us - terms.window_age_s * US_PER_S
    size = terms.window_attempts
    held = (index.supply.get(node_id, windows.EMPTY) for node_id in index.nodes_of.get(hotkey, ()))
    supply = sum(windows.amount_for(window, hotkey, size, since_us) for window in held)
    earned = windows.amount_for(index.demand.get(hotkey, windows.EMPTY), hotkey, size, since_us)
    keep = keep_ppm(outcomes, terms)
    demand = earned * keep // PPM
    return Mass(supply, earned, keep, demand, supply + demand)


def masses(index: CreditIndex, outcomes: Mapping[str, Sequence[int]], at_us: int) -> dict[str, Mass]:
    """Every hotkey with a credit in its windows. outcomes: as for `mass_of`, by hotkey."""
    found: dict[str, Mass] = {}
    for hotkey in sorted(index.nodes_of.keys() | index.demand.keys()):
        mass = mass_of(index, hotkey, outcomes.get(hotkey, ()), at_us)
        if mass.supply or mass.earned_demand:
            found[hotkey] = mass
    return found


def _take(index: CreditIndex, node_id: str, first: int, last: int) -> int:
    """Take what is free of these slots; returns how many."""
    taken = 0
    for word, bits in slot_words(first, last):
        held = index.slots.get((node_id, word), 0)
        free = bits & ~held
        if free:
            index.slots[node_id, word] = held | bits
            taken += free.bit_count()
    return taken


def _set_work(index: CreditIndex, pos: int, work: Work, terms: Terms) -> None:
    node_id, provider = work.node.node_id, work.node.provider
    supply, demand = role_credit(work.score, work.node, work.slots, terms)
    if node_id not in index.works:
        index.works[node_id] = Table("credit_work", index.journal)
    index.works[node_id][pos] = replace(work, supply=supply, demand=demand)
    if node_id not in index.nodes_of.get(provider, ()):
        index.nodes_of[provider] = (*index.nodes_of.get(provider, ()), node_id)
    _settle_supply(index, node_id, pos, terms)


def _retake(index: CreditIndex, pos: int, work: Work, terms: Terms) -> set[str]:
    """The attempt begins or ceases to take slots on this node: give all slots of the node again, in order.

    Returns submitters and providers of the works that have another number of slots now.
    """
    node_id = work.node.node_id
    if work.node.value > 0:
        _set_work(index, pos, work, terms)
    else:
        del index.works[node_id][pos]
        _settle_supply(index, node_id, pos, terms)
    concerned: set[str] = set()
    words = dict.fromkeys((word for word, _ in slot_words(work.first, work.last)), 0)
    for other, held in sorted(index.works[node_id].items()):
        taken = 0
        for word, bits in slot_words(held.first, held.last):
            taken += (bits & ~words.get(word, 0)).bit_count()
            words[word] = words.get(word, 0) | bits
        if taken != held.slots:
            _set_work(index, other, replace(held, slots=taken), terms)
            _settle_demand(index, other, held.score, terms)
            concerned |= {held.score.submitter, held.node.provider}
    for word, bits in words.items():
        if bits != index.slots.get((node_id, word), 0):
            index.slots[node_id, word] = bits
    return concerned


def _settle_supply(index: CreditIndex, node_id: str, pos: int, terms: Terms) -> None:
    work = index.works[node_id].get(pos)
    entry = _supply_entry(pos, work) if work is not None and work.supply > 0 else None

    def all_credits() -> Iterator[Entry]:
        return (_supply_entry(other, held) for other, held in index.works[node_id].items() if held.supply > 0)

    _put(index.supply, node_id, pos, entry, terms.window_attempts, all_credits)


def _settle_demand(index: CreditIndex, pos: int, score: Score, terms: Terms) -> None:
    hotkey = score.submitter

    def all_credits() -> Iterator[Entry]:
        entries = (_demand_entry(index, hotkey, other) for other in index.scored[hotkey])
        return (entry for entry in entries if entry is not None)

    _put(index.demand, hotkey, pos, _demand_entry(index, hotkey, pos), terms.window_attempts, all_credits)


def _put(
    table: Table[str, Window], key: str, pos: int, entry: Entry | None, size: int, all_credits: windows.Refill
) -> None:
    if entry is None and key not in table:
        return
    before = table.get(key, windows.EMPTY)
    after = windows.changed(before, pos, entry, size, all_credits)
    if after != before:
        table[key] = after


def _supply_entry(pos: int, work: Work) -> Entry:
    return Entry(work.score.started_us, pos, work.node.provider, work.supply)


def _demand_entry(index: CreditIndex, hotkey: str, pos: int) -> Entry | None:
    """The credit of one attempt for its submitter, over all its nodes; None where it is 0."""
    tables = (index.works.get(node_id) for node_id in index.scored[hotkey][pos])
    works = [works[pos] for works in tables if works is not None and pos in works]
    amount = sum(work.demand for work in works)
    return Entry(works[0].score.started_us, pos, hotkey, amount) if amount > 0 else None
