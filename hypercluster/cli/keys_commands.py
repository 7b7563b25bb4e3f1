"""Keys that sign requests."""

from pathlib import Path
from typing import Annotated

import typer

from hypercluster.cli import keys, options, render
from hypercluster.cli.options import OPERATE
from hypercluster.cli.render import Format
from hypercluster.cli.session import signer_of

app = typer.Typer(help="Keys that sign requests.")


@app.command("new", epilog="Example: hypercluster keys new key.json", rich_help_panel=OPERATE)
def new(
    path: Annotated[Path, typer.Argument(help="File to make; never overwritten.")],
    scheme: Annotated[str, typer.Option("--scheme", help="sr25519 or ed25519.")] = "sr25519",
    output: options.Output = Format.TABLE,
) -> None:
    """Make a key and write it to a file that only its owner can read."""
    signer = keys.new_key_file(path, scheme)
    found = {"hotkey": signer.hotkey, "scheme": signer.scheme, "path": str(path)}
    render.show(found, output, line=f"hotkey={signer.hotkey}")


@app.command("show", epilog="Example: hypercluster keys show --key-file key.json", rich_help_panel=OPERATE)
def show(
    hotkey: options.Hotkey = None,
    wallet: options.Wallet = None,
    wallet_path: options.WalletPath = None,
    key_file: options.KeyFile = None,
    output: options.Output = Format.TABLE,
) -> None:
    """The key that would sign; without one named, the hotkeys of all wallets."""
    signer = signer_of(hotkey, wallet, wallet_path, key_file, required=False)
    if signer is not None:
        render.show({"hotkey": signer.hotkey, "scheme": signer.scheme}, output, line=f"hotkey={signer.hotkey}")
        return
    found = keys.list_hotkeys(Path(wallet_path) if wallet_path else keys.WALLETS)
    items = [
        {"wallet": one.wallet, "name": one.name, "hotkey": one.ss58, "problem": one.problem, "path": str(one.path)}
        for one in found
    ]
    render.show({"items": items}, output, columns=("wallet", "name", "hotkey", "problem"))
