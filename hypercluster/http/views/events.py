"""Ledger events on the wire."""

import msgspec

from events.envelope import Recorded
from hypercluster.http import wire
from hypercluster.http.views import Shown


def event_view(recorded: Recorded) -> Shown:
    """One event: where it stands, who caused it, and its own fields as stored."""
    envelope = recorded.envelope
    return {
        "seq": recorded.pos,
        "type": envelope.type,
        "type_version": envelope.tv,
        "stream": envelope.stream,
        "stream_version": envelope.sv,
        "at": wire.time_text(recorded.at_us),
        "at_us": recorded.at_us,
        "actor": envelope.actor,
        "command": envelope.cmd,
        "n": envelope.n,
        "of": envelope.of,
        "rules": envelope.rules,
        "data": envelope.data,
    }


def event_detail(recorded: Recorded) -> Shown:
    """One event with its exact leaf: `entry` holds the bytes that are hashed, unchanged."""
    return event_view(recorded) | {"entry": msgspec.Raw(recorded.entry)}
