"""Writes the missing golden files, never changes one: `python tests/golden/regenerate.py`.

A golden file holds one example entry of an event type and version, every field set, and the hash of its leaf. Entries
of the same version in real ledgers have the same bytes for ever; where a type must change, it gets a new version and
an upcaster, and its old golden file stays.
"""

import json
import sys
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import msgspec

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
import events.types  # noqa: E402, F401 - registers all types
from events import codec, registry  # noqa: E402
from events.envelope import ENVELOPE_VERSION, CommandRecord, Envelope, Event  # noqa: E402
from events.hashing import leaf_hash  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "events"


def file_of(cls: type[Event]) -> Path:
    """Where the golden file of a type's newest version is."""
    return GOLDEN / f"{cls.type_name}-v{cls.type_version}.json"


def example(hint: object, name: str) -> object:
    """A value of this type that is not the default, the same each time."""
    if hint is str:
        return f"{name} \u00e9\u2028\U0001f600"
    if hint is bool:
        return True
    if hint is int:
        return 1_000 + len(name)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = get_type_hints(hint)
        return hint(**{field.name: example(hints[field.name], field.name) for field in msgspec.structs.fields(hint)})
    if get_origin(hint) is tuple:
        return (example(get_args(hint)[0], name),)
    if get_origin(hint) is dict:
        return {f"{name}-KEY 1": example(get_args(hint)[1], name)}
    choices = [choice for choice in get_args(hint) if choice is not type(None)]
    if len(choices) != 1:
        raise TypeError(f"no example for {hint}")
    return example(choices[0], name)


def entry_of(event: Event) -> bytes:
    """The leaf bytes of the example event."""
    return codec.encode(
        Envelope(
            v=ENVELOPE_VERSION,
            type=event.type_name,
            tv=event.type_version,
            stream=event.stream(),
            sv=3,
            at_us=1_760_000_000_000_000,
            cmd="c0" * 32,
            n=1,
            of=2,
            actor="system",
            rules=1,
            data=msgspec.Raw(codec.encode(event)),
            command=example(CommandRecord, "command"),
        )
    )


def main() -> None:
    """Write what is missing."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for cls in registry.known_types().values():
        path = file_of(cls)
        if not path.exists():
            entry = entry_of(example(cls, "event"))
            document = {"entry": json.loads(entry), "leaf_hash": leaf_hash(entry).hex()}
            path.write_text(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
