"""Which events a reader wants, and how to find them without reading the whole ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from events import registry
from events.envelope import Recorded
from hypercluster.http.errors import Problem
from hypercluster.http.ports import Service
from hypercluster.http.query import NUMBER_MAX, Query, path_id
from projections.tables.tags import tags_of

FILTERS = ("type", "stream", "hotkey", "job")
SCAN_MAX = 1000  # events looked at for one answer
CHUNK = 100


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Groups of tags; an event passes when it carries one tag of each group. No groups: every event passes."""

    groups: tuple[frozenset[str], ...] = ()

    def passes(self, recorded: Recorded) -> bool:
        """Whether the event is wanted."""
        tags = tags_of(recorded)
        return all(not group.isdisjoint(tags) for group in self.groups)


@dataclass(frozen=True, slots=True)
class Span:
    """after and before are event numbers, since_us and until_us times; after and since include their bound's successor.

    since_us itself is included, until_us is not.
    """

    after: int = 0
    before: int | None = None
    since_us: int | None = None
    until_us: int | None = None


def filter_of(query: Query) -> EventFilter:
    """The filter of a request. Types may be several, separated by commas, or end in `.*`.

    Raises: Problem (invalid_query)
    """
    groups: list[frozenset[str]] = []
    job, hotkey, stream, types = (query.text(name) for name in ("job", "hotkey", "stream", "type"))
    if job is not None:
        groups.append(frozenset({f"job:{path_id(job, 'job')}"}))
    if stream is not None:
        groups.append(frozenset({f"stream:{stream}"}))
    if hotkey is not None:
        groups.append(frozenset({f"hotkey:{path_id(hotkey, 'hotkey')}"}))
    if types is not None:
        groups.append(frozenset(f"type:{name}" for name in _expand(types)))
    return EventFilter(tuple(groups))


def _expand(types: str) -> list[str]:
    """Type names behind a list of names and wildcards."""
    known = registry.known_types()
    found: list[str] = []
    for wanted in types.split(","):
        prefix = wanted.removesuffix("*")
        matching = [name for name in known if name.startswith(prefix)] if wanted.endswith(".*") else []
        if wanted in known:
            matching = [wanted]
        if not matching:
            raise Problem("invalid_query", "no event type of this name", field="type", hint=", ".join(known))
        found += matching
    return found


def find_events(service: Service, wanted: EventFilter, span: Span, limit: int) -> tuple[list[Recorded], int | None]:
    """Events in the order of the ledger, and the cursor to go on from, None at the end.

    A page may hold fewer than `limit` events and still have a cursor: one answer looks at a bounded number of events.
    """
    found: list[Recorded] = []
    position = max(span.after, _number_before(service, span.since_us) if span.since_us is not None else 0)
    scanned = 0
    while scanned < SCAN_MAX:
        chunk, reached = _chunk(service, wanted, position, span.before)
        for recorded in chunk:
            if span.until_us is not None and recorded.at_us >= span.until_us:
                return found, None
            position = recorded.pos
            if wanted.passes(recorded):
                found.append(recorded)
                if len(found) == limit:
                    return found, position
        scanned += len(chunk)
        if reached:
            return found, None
    return found, position


def _chunk(service: Service, wanted: EventFilter, after: int, before: int | None) -> tuple[Sequence[Recorded], bool]:
    """The next candidates, found by the first group of tags where there is one; and whether they are the last."""
    end = min(before or NUMBER_MAX, service.head() + 1)
    if wanted.groups:
        numbers = service.view.tagged(sorted(wanted.groups[0]), after=after, before=end, limit=CHUNK)
        return service.events(numbers), len(numbers) < CHUNK
    limit = max(0, min(CHUNK, end - after - 1))
    return (service.event_page(after, limit) if limit else []), limit < CHUNK


def _number_before(service: Service, since_us: int) -> int:
    """The number of the last event before this time; times never decrease, so halving finds it."""
    low, high = 0, service.head()
    while low < high:
        middle = (low + high + 1) // 2
        events = service.events([middle])
        if events and events[0].at_us < since_us:
            low = middle
        else:
            high = middle - 1
    return low
