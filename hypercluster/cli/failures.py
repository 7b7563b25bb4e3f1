"""From every family of expected errors to what is said about it. Loaded before a command runs, so kept light."""

import errno

from typer.exceptions import TyperException

from events import errors as ledger
from hypercluster.cli.client import ApiError, ClientError, Unreachable
from hypercluster.cli.errors import CliError, Failure
from hypercluster.cli.keys import KeyProblem
from hypercluster.domain.codes import Exit, exit_code

_LEDGER: tuple[tuple[type[Exception], Exit, str], ...] = (
    (ledger.LedgerDamaged, Exit.INTEGRITY, "ledger_damaged"),
    (ledger.NotALedger, Exit.USAGE, "not_a_ledger"),
    (ledger.BadCheckpoint, Exit.INTEGRITY, "bad_checkpoint"),
    (ledger.LedgerLocked, Exit.CONFLICT, "ledger_locked"),
    (ledger.DiskFull, Exit.LATER, "disk_full"),
    (ledger.LedgerReadOnly, Exit.USAGE, "ledger_read_only"),
    (ledger.BlobMissing, Exit.NOT_FOUND, "blob_missing"),
    (ledger.UnknownEvent, Exit.USAGE, "unknown_event"),
    (ledger.WrongKey, Exit.USAGE, "wrong_key"),
    (ledger.CodecError, Exit.INTEGRITY, "ledger_damaged"),
    (ledger.LedgerError, Exit.FAULT, "ledger_error"),
)

_NO_ADDRESS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

_NEXT = {
    Exit.AUTH: "hypercluster keys show",
    Exit.LATER: "run the same command again later",
    Exit.CONFLICT: "look at the object's state, then decide again",
    Exit.NOT_FOUND: "check the id with the noun's list command",
    Exit.USAGE: "correct the input",
    Exit.FAULT: "report the request id to the operator",
}


def expected() -> tuple[type[BaseException], ...]:
    """The families of errors that are no faults of ours."""
    return (CliError, TyperException, ledger.LedgerError, ClientError, KeyProblem, OSError)


def explain(error: BaseException) -> Failure:
    """What to say about an expected error."""
    match error:
        case CliError():
            return Failure(error.exit_with, error.code, str(error), error.hint, error.field)
        case TyperException():
            path = getattr(getattr(error, "ctx", None), "command_path", "hypercluster")
            return Failure(Exit.USAGE, "usage", error.format_message(), f"{path} --help")
        case ApiError():
            return _explain_api(error)
        case Unreachable():
            return Failure(Exit.UNREACHABLE, "unreachable", str(error), "hypercluster health --url URL")
        case ledger.LedgerError():
            family = next(row for row in _LEDGER if isinstance(error, row[0]))
            return Failure(family[1], family[2], str(error), error.hint)
        case OSError():
            return _explain_system(error)
        case _:
            return Failure(Exit.USAGE, "key_unusable", str(error), getattr(error, "hint", None) or "")


def _explain_api(error: ApiError) -> Failure:
    exit_with = exit_code(error.status)
    hint = error.hint or _NEXT.get(exit_with, "")
    return Failure(exit_with, error.code, error.message, hint, error.field, error.request_id)


def _explain_system(error: OSError) -> Failure:
    if error.errno in _NO_ADDRESS or (error.errno or 0) < 0:  # names that do not resolve have negative numbers
        return _explain_address(error)
    path = f": {error.filename}" if error.filename else ""
    message = f"{error.strerror or error}{path}"
    if isinstance(error, FileNotFoundError):
        return Failure(Exit.NOT_FOUND, "file_not_found", message, "check the path")
    return Failure(Exit.USAGE, "file_unusable", message, "check the path and its permissions")


def _explain_address(error: OSError) -> Failure:
    taken = error.errno == errno.EADDRINUSE
    hint = "stop the program that listens there, or choose another --port" if taken else "correct --host"
    exit_with = Exit.CONFLICT if taken else Exit.USAGE
    return Failure(exit_with, "address_taken" if taken else "address_unusable", error.strerror or str(error), hint)
