"""The group of all nouns. A noun's module is loaded when the noun is named."""

import os
import sys
from importlib import import_module
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort
from typer.exceptions import Exit as Leave
from typer.main import get_command

from hypercluster.cli.errors import usage
from hypercluster.cli.nouns import NOUNS
from hypercluster.domain.codes import Exit

PROGRAM = "hypercluster"
COMPLETION = "_HYPERCLUSTER_COMPLETE"


class Nouns(TyperGroup):
    """The commands are those of the table of nouns."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all nouns."""
        return sorted(NOUNS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load the noun, or return None when there is none of this name."""
        if cmd_name not in NOUNS:
            self.commands = {name: load(name) for name in NOUNS}  # what "did you mean" chooses from
            return None
        return load(cmd_name)


_ROOT_ONLY = ("install_completion", "show_completion")


def load(name: str) -> Any:
    """The command of one noun."""
    noun = NOUNS[name]
    command: Any = get_command(getattr(import_module(noun.module), noun.attribute))
    command.name = name
    command.params = [option for option in command.params if option.name not in _ROOT_ONLY]
    vars(command)["rich_help_panel"] = _panel(command)
    return command


def _panel(command: Any) -> str | None:
    """The help panel of a command; a group stands where its first command does."""
    children = getattr(command, "commands", None)
    found: str | None = _panel(next(iter(children.values()))) if children else command.rich_help_panel
    return found


app = typer.Typer(cls=Nouns, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def hypercluster(
    ctx: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the release and leave.")] = False
) -> None:
    """A GPU market and multi-node job service whose weights anyone can recompute."""
    if version:
        sys.stdout.write(f"{PROGRAM} {installed_version('hypercluster-base')}\n")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        raise usage("name what you want to do", hint=f"{PROGRAM} --help")


def invoke(argv: list[str]) -> int:
    """Run one command line. Returns the exit code.

    Raises: TyperException on wrong usage, and whatever the command raises.
    """
    group = get_command(app)
    if COMPLETION in os.environ:
        group.main(argv, prog_name=PROGRAM, complete_var=COMPLETION)
    try:
        with group.make_context(PROGRAM, list(argv)) as context:
            group.invoke(context)
    except Leave as leave:
        return leave.exit_code
    except Abort:
        return Exit.INTERRUPTED
    return Exit.DONE
