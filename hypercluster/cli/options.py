"""The options that many commands share, each defined once."""

from typing import Annotated

import typer

from hypercluster.cli.render import Format

MARKET = "Market"
JOBS = "Jobs"
TRUTH = "Truth"
OPERATE = "Operate"

DEFAULT_URL = "http://127.0.0.1:3200"

Url = Annotated[str | None, typer.Option("--url", envvar="HYPER_URL", help=f"Server. Default: {DEFAULT_URL}.")]
Host = Annotated[str | None, typer.Option("--host", help="Host of the server, instead of --url.")]
Port = Annotated[int | None, typer.Option("--port", help="Port of the server, instead of --url.", min=1, max=65535)]
Output = Annotated[Format, typer.Option("--output", "-o", envvar="HYPER_OUTPUT", help="How to print the answer.")]
Json = Annotated[bool, typer.Option("--json", help="Print the bare JSON that older scripts expect.")]
Hotkey = Annotated[
    str | None, typer.Option("--hotkey", envvar="HYPER_HOTKEY", help="Hotkey: address, wallet hotkey name or key file.")
]
Wallet = Annotated[str | None, typer.Option("--wallet", envvar="HYPER_WALLET", help="Name of the Bittensor wallet.")]
WalletPath = Annotated[
    str | None, typer.Option("--wallet-path", envvar="HYPER_WALLET_PATH", help="Directory of the wallets.")
]
KeyFile = Annotated[str | None, typer.Option("--key-file", envvar="HYPER_KEY_FILE", help="Key file that signs.")]
Audience = Annotated[
    str | None, typer.Option("--audience", envvar="HYPER_AUDIENCE", help="What requests are signed for.")
]
Limit = Annotated[int, typer.Option("--limit", help="How many at most.", min=1, max=500)]


def base_url(url: str | None, host: str | None, port: int | None) -> str:
    """The server's address without a trailing slash; --url wins."""
    if url is not None:
        return url.rstrip("/")
    if host is None and port is None:
        return DEFAULT_URL
    name = host or "127.0.0.1"
    return f"http://{f'[{name}]' if ':' in name else name}:{port or 3200}"
