"""The command `hypercluster`: run one command line, turn expected errors into exit codes."""

import os
import sys
from importlib.metadata import version

from hypercluster.cli.errors import wants_object
from hypercluster.domain.codes import Exit

PROGRAM = "hypercluster"
DISTRIBUTION = "hypercluster-base"


def main() -> None:
    """Entry point: run, then leave with the exit code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line. Returns the exit code; expected errors are said on standard error, never raised."""
    if argv == ["--version"]:
        sys.stdout.write(f"{PROGRAM} {version(DISTRIBUTION)}\n")
        return Exit.DONE
    from hypercluster.cli import failures, frame  # noqa: PLC0415 -- Typer takes longer to load than the answer above

    try:
        code = frame.invoke(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return _closed_pipe()
    except failures.expected() as error:
        failure = failures.explain(error)
        failure.say(as_object=wants_object(argv))
        return failure.exit_with


def _closed_pipe() -> int:
    """The reader has gone: say nothing, and keep the interpreter from flushing into the closed pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
    return Exit.CLOSED_PIPE


if __name__ == "__main__":
    main()
