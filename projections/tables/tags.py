"""The words by which an event can be found: its type, its stream, the hotkeys and the job it speaks of."""

from events.envelope import Recorded

_HOTKEY_FIELDS = ("hotkey", "submitter", "renter", "provider")
SYSTEM = "system"


def tags_of(recorded: Recorded) -> set[str]:
    """`type:…`, `stream:…`, `hotkey:…` (the actor and every party named) and `job:…`."""
    envelope, event = recorded.envelope, recorded.event
    tags = {f"type:{envelope.type}", f"stream:{envelope.stream}"}
    if envelope.actor != SYSTEM:
        tags.add(f"hotkey:{envelope.actor}")
    subject = getattr(event, "score", event)
    for field in _HOTKEY_FIELDS:
        value = getattr(subject, field, None)
        if value:
            tags.add(f"hotkey:{value}")
    job_id = getattr(subject, "job_id", None)
    if job_id:
        tags.add(f"job:{job_id}")
    return tags
