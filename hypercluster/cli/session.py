"""What a command needs to talk to a server: options in, answers out. Commands describe only what they ask for."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate
from urllib.parse import urlencode

import typer

from hypercluster.cli import keys, options, render
from hypercluster.cli.client import Client, new_private_salt
from hypercluster.cli.errors import usage
from hypercluster.cli.keys import Signer
from hypercluster.cli.render import Format

AUDIENCE = "hypercluster"

_READ = ("url", "host", "port", "output", "json")
_SIGN = ("hotkey", "wallet", "wallet_path", "key_file", "audience")
_HINTS: dict[str, Any] = {
    "url": options.Url,
    "host": options.Host,
    "port": options.Port,
    "output": options.Output,
    "json": options.Json,
    "hotkey": options.Hotkey,
    "wallet": options.Wallet,
    "wallet_path": options.WalletPath,
    "key_file": options.KeyFile,
    "audience": options.Audience,
}
_DEFAULTS: dict[str, object] = {"output": Format.TABLE, "json": False}


@dataclass(frozen=True, slots=True)
class Session:
    """One command's way to the server and to the terminal."""

    client: Client
    form: Format
    bare: bool
    signs: bool

    def get(self, path: str, query: Mapping[str, object | None] | None = None, *, signed: bool = False) -> Any:
        """The answer to a read; query values of None are left out."""
        given = {key: value for key, value in (query or {}).items() if value is not None}
        return self.client.request("GET", f"{path}?{urlencode(given)}" if given else path, signed=signed)

    def post(self, path: str, body: Mapping[str, object] | None = None, *, private: bool = False) -> Any:
        """The answer to a signed write. private: the body holds private fields, so a salt is added."""
        given = dict(body or {})
        if private:
            given.setdefault("private_salt", new_private_salt())
        return self.client.request("POST", path, body=given)

    def show(self, data: Any, *, line: str | None = None, columns: Sequence[str] = ()) -> None:
        """Print an answer. With `--json` lists are bare arrays, as the reference prints them."""
        if self.bare:
            items = data.get("items") if isinstance(data, dict) else None
            render.show(data if items is None else items, Format.JSON)
            return
        render.show(data, self.form, line=line, columns=columns)


def signer_of(
    hotkey: str | None, wallet: str | None, wallet_path: str | None, key_file: str | None, *, required: bool
) -> Signer | None:
    """The key that signs, from the options; None where none is named and none is required.

    Raises: CliError, KeyProblem
    """
    if key_file is not None:
        return keys.from_key_file(Path(key_file).expanduser())
    wallets = Path(wallet_path) if wallet_path else keys.WALLETS
    if hotkey is None and wallet is None:
        if required:
            hint = "add --key-file FILE, or --wallet NAME --hotkey NAME; `hypercluster keys new FILE` makes a key"
            raise usage("this command must be signed and no key is named", hint=hint, field="--key-file")
        return None
    return keys.resolve(hotkey or "default", wallet=wallet, wallets=wallets)


type Body[**P] = Callable[Concatenate[Session, P], None]


def command[**P](
    app: typer.Typer, name: str, *, example: str, signed: bool | None = False, panel: str | None = None
) -> Callable[[Body[P]], Body[P]]:
    """Register a command whose first parameter is a `Session`; the shared options are added to its own.

    signed: True for writes, False for public reads, None for reads that show more to a hotkey when one is named.
    """
    shared = _READ if signed is False else _READ + _SIGN

    def register(function: Body[P]) -> Body[P]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [*(_keyword(parameter) for parameter in own), *(_parameter(option) for option in shared)]

        def run(**given: Any) -> None:
            values = {option: given.pop(option) for option in shared}
            with _client(values, signed) as (client, signs):
                session = Session(client, values["output"], values["json"], signs)
                function(session, **given)  # type: ignore[call-arg]

        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = function.__doc__
        app.command(name, epilog=f"Example: {example}", rich_help_panel=panel)(run)
        return function

    return register


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parameter(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=_HINTS[name])


@contextmanager
def _client(values: Mapping[str, Any], signed: bool | None) -> Iterator[tuple[Client, bool]]:
    """A client for the options, closed in the end, and whether it can sign."""
    signer = None
    if signed is not False:
        named = (values[option] for option in ("hotkey", "wallet", "wallet_path", "key_file"))
        signer = signer_of(*named, required=signed is True)
    url = options.base_url(values["url"], values["host"], values["port"])
    with Client(url, signer, values.get("audience") or AUDIENCE) as client:
        yield client, signer is not None
