"""Writes the generated pages of docs/reference: `uv run python tests/support/catalogue.py`."""

import inspect
import sys
from pathlib import Path

import msgspec

import events.types
from events import registry
from events.envelope import CommandRecord, Envelope, Event

sys.path.insert(0, str(Path(__file__).parent))
import pages_of_use

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "docs" / "reference" / "events.md"
CODES = ROOT / "docs" / "reference" / "codes.md"
CLI = ROOT / "docs" / "reference" / "cli.md"
SETTINGS = ROOT / "docs" / "reference" / "settings.md"

HEAD = """# Event catalogue

Generated from `events/types` by `tests/support/catalogue.py`; a test fails when it is stale. Integers only: money in
micro-USD, ratios in parts per million (`_ppm`), times in microseconds since 1970 (`_us`), bandwidth in bytes a second.
A field that is absent has its default.

"""


def type_name(annotation: object) -> str:
    """A type as a reader of JSON would say it."""
    text = inspect.formatannotation(annotation)
    for noise in ("events.types.", "events.envelope.", "typing.", "builtins."):
        text = text.replace(noise, "")
    return text.rpartition(".")[2] if "." in text and "[" not in text else text


def fields_table(struct: type[msgspec.Struct]) -> str:
    """The fields of a record as a Markdown table."""
    rows = ["| field | type | default |", "| --- | --- | --- |"]
    for field in msgspec.structs.fields(struct):
        default = (
            "" if field.required else "`" + repr(field.default if field.default is not msgspec.NODEFAULT else {}) + "`"
        )
        rows.append(f"| `{field.encode_name}` | {type_name(field.type).replace('|', chr(92) + '|')} | {default} |")
    return "\n".join(rows)


def records() -> list[type[msgspec.Struct]]:
    """Records that stand inside events, by name."""
    modules = [getattr(events.types, name) for name in events.types.__all__]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and not issubclass(value, Event)
    }
    return sorted(found, key=lambda struct: struct.__name__)


def section(title: str, struct: type[msgspec.Struct]) -> str:
    """One heading with the docstring and the fields."""
    return f"### {title}\n\n{inspect.getdoc(struct)}\n\n{fields_table(struct)}\n"


def events_page() -> str:
    """The whole event catalogue."""
    parts = [HEAD, "## Events\n"]
    parts += [section(f"{name} (version {cls.type_version})", cls) for name, cls in registry.known_types().items()]
    parts += ["## Records inside events\n", *(section(struct.__name__, struct) for struct in records())]
    parts += ["## Around every event\n", section("Envelope", Envelope), section("CommandRecord", CommandRecord)]
    return "\n".join(parts)


def codes_page() -> str:
    """The table of refusal codes, with HTTP status and exit code."""
    from hypercluster.domain import deciding  # noqa: PLC0415, F401  importing the deciders registers their codes
    from hypercluster.domain.codes import CODES as TABLE  # noqa: PLC0415
    from hypercluster.domain.codes import exit_code  # noqa: PLC0415

    rows = [
        f"| `{name}` | {code.status} | {int(exit_code(code.status))} | {code.meaning} |"
        for name, code in sorted(TABLE.items())
    ]
    head = "# Refusal codes\n\nGenerated from `hypercluster.domain.codes`; a test fails when it is stale.\n\n"
    return head + "| code | HTTP | exit | meaning |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    """Every generated page and what it should hold."""
    return {
        EVENTS: events_page(),
        CODES: codes_page(),
        CLI: pages_of_use.cli_page(),
        SETTINGS: pages_of_use.settings_page(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
