"""How a command fails: an exit code and three lines, or one JSON object, on standard error."""

import os
from dataclasses import dataclass
from itertools import zip_longest

from hypercluster.cli.render import as_json, note
from hypercluster.domain.codes import Exit


class CliError(Exception):
    """An expected failure of a command. code: stable word; hint: the next command to run."""

    def __init__(self, message: str, *, code: str, exit_with: Exit, hint: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.code, self.exit_with, self.hint, self.field = code, exit_with, hint, field


def usage(message: str, *, hint: str = "", field: str | None = None) -> CliError:
    """The caller's input is wrong."""
    return CliError(message, code="usage", exit_with=Exit.USAGE, hint=hint, field=field)


@dataclass(frozen=True, slots=True)
class Failure:
    """What is said about an error: what happened, why, and what to do next."""

    exit_with: Exit
    code: str
    message: str
    hint: str = ""
    field: str | None = None
    request_id: str | None = None

    def say(self, *, as_object: bool) -> None:
        """Print it on standard error."""
        if as_object:
            note(as_json({"error": self.as_dict()}))
            return
        about = f" ({self.field})" if self.field else ""
        note(f"error: {self.message}{about}")
        note(f"  why: {self.code}" + (f", request {self.request_id}" if self.request_id else ""))
        note(f"  next: {self.hint or 'hypercluster --help'}")

    def as_dict(self) -> dict[str, object]:
        """For machine output, without what is not known."""
        found = {
            "code": self.code,
            "message": self.message,
            "field": self.field,
            "hint": self.hint or None,
            "request_id": self.request_id,
            "exit": int(self.exit_with),
        }
        return {name: value for name, value in found.items() if value is not None}


def wants_object(argv: list[str]) -> bool:
    """Whether errors are wanted as JSON. Read from the raw arguments: they may be what is wrong."""
    formats = ("json", "ndjson")
    for option, value in zip_longest(argv, argv[1:], fillvalue=""):
        if option == "--":
            break
        if option in ("-o", "--output"):
            return value in formats
        if option == "--json" or option.removeprefix("-o").removeprefix("=") in formats:
            return True
        if option.startswith("--output="):
            return option.removeprefix("--output=") in formats
    return os.environ.get("HYPER_OUTPUT") in formats
