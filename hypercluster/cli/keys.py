"""Where the command line's signatures come from: key files, Bittensor wallets, the sim profile's shared token.

One resolver for `--hotkey` everywhere, one family of errors for key material. Only hotkey files are ever read.
Libraries are imported when a key is used, so that importing this module costs nothing.
"""

# ruff: noqa: PLC0415 -- libraries are loaded when a key is used

import hmac
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

WALLETS = Path("~/.bittensor/wallets")
PASSWORD_ENV = "HYPER_HOTKEY_PASSWORD"  # noqa: S105 - the name of a variable
SCHEMES = ("sr25519", "ed25519")

_ENCRYPTED = (b"$NACL", b"$ANSIBLE_VAULT", b"gAAAAA")


class Signer(Protocol):
    """A key that can sign."""

    @property
    def hotkey(self) -> str:
        """SS58 address; with a shared token any name."""

    @property
    def scheme(self) -> str:
        """sr25519 | ed25519 | hmac."""

    def sign(self, message: bytes) -> str:
        """The signature as the header carries it."""


class KeyProblem(Exception):
    """Key material that cannot be used. `path`: where it was looked for; `hint`: what to do next."""

    def __init__(self, message: str, *, path: Path | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.path, self.hint = path, hint


@dataclass(frozen=True, slots=True)
class KeySigner:
    """A key held in this process. `raw` gives the signature's 64 bytes."""

    hotkey: str
    scheme: str
    raw: Callable[[bytes], bytes]

    def sign(self, message: bytes) -> str:
        """Hex of the signature, with the scheme before it where it is not sr25519."""
        text = self.raw(message).hex()
        return f"ed25519:{text}" if self.scheme == "ed25519" else f"0x{text}"


@dataclass(frozen=True, slots=True)
class TokenSigner:
    """The sim profile's shared token: signs as whatever hotkey it is told."""

    hotkey: str
    token: str = field(repr=False)
    scheme: str = "hmac"

    def sign(self, message: bytes) -> str:
        """Hex of HMAC-SHA256."""
        return hmac.digest(self.token.encode(), message, "sha256").hex()


def signer_from_seed(seed: bytes, scheme: str = "sr25519") -> KeySigner:
    """The key of a 32-byte seed."""
    from hypercluster.domain.identity import ss58

    if scheme == "ed25519":
        from nacl.signing import SigningKey

        key = SigningKey(seed)
        return KeySigner(ss58.encode(bytes(key.verify_key)), scheme, lambda message: key.sign(message).signature)
    import sr25519

    public, secret = sr25519.pair_from_seed(seed)
    return KeySigner(ss58.encode(public), scheme, lambda message: bytes(sr25519.sign((public, secret), message)))


def new_key_file(path: Path, scheme: str = "sr25519") -> KeySigner:
    """Make a key and write it to a new file that only its owner can read.

    Raises: KeyProblem when the file exists or cannot be written.
    """
    if scheme not in SCHEMES:
        raise KeyProblem(f"no signature scheme {scheme}", path=path, hint=f"use one of {', '.join(SCHEMES)}")
    seed = secrets.token_bytes(32)
    signer = signer_from_seed(seed, scheme)
    text = json.dumps({"scheme": scheme, "seed": seed.hex(), "ss58": signer.hotkey}, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise KeyProblem(f"{path} exists", path=path, hint="choose another name; keys are never overwritten") from error
    except OSError as error:
        raise KeyProblem(f"cannot write {path}: {error.strerror}", path=path) from error
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return signer


def from_key_file(path: Path) -> KeySigner:
    """The key in a file that `new_key_file` wrote, or in a Bittensor hotkey file.

    Raises: KeyProblem
    """
    data = _read_secret(path)
    if data.startswith(_ENCRYPTED):
        return _from_wallet_file(path)
    try:
        found = json.loads(data)
    except ValueError as error:
        raise KeyProblem(f"{path} is not a key file", path=path, hint=_NEW_KEY) from error
    if not isinstance(found, dict):
        raise KeyProblem(f"{path} is not a key file", path=path, hint=_NEW_KEY)
    if "ss58Address" in found:
        return _from_wallet_file(path)
    scheme, seed, address = found.get("scheme"), found.get("seed"), found.get("ss58")
    if scheme not in SCHEMES or not isinstance(seed, str):
        raise KeyProblem(f"{path} names no scheme and seed", path=path, hint=_NEW_KEY)
    try:
        raw = bytes.fromhex(seed)
    except ValueError as error:
        raise KeyProblem(f"the seed in {path} is not hex", path=path, hint=_NEW_KEY) from error
    if len(raw) != 32:
        raise KeyProblem(f"the seed in {path} has {len(raw)} bytes instead of 32", path=path, hint=_NEW_KEY)
    signer = signer_from_seed(raw, scheme)
    if address is not None and address != signer.hotkey:
        raise KeyProblem(f"{path} names {address} but its seed makes {signer.hotkey}", path=path)
    return signer


def from_wallet(wallet: str, hotkey: str, wallets: Path = WALLETS) -> KeySigner:
    """A hotkey of a Bittensor wallet, by names. The coldkey is not touched.

    Raises: KeyProblem
    """
    import bittensor_wallet
    from bittensor_wallet.errors import KeyFileError, PasswordError, WalletError

    root = wallets.expanduser()
    path = root / wallet / "hotkeys" / hotkey
    encrypted = _read_secret(path).startswith(_ENCRYPTED)
    password = os.environ.get(PASSWORD_ENV)
    if encrypted and not password:
        raise KeyProblem(f"{path} is encrypted", path=path, hint=f"set {PASSWORD_ENV}")
    try:
        with _stdout_to_stderr():
            pair = bittensor_wallet.Wallet(name=wallet, hotkey=hotkey, path=str(root)).get_hotkey(password=password)
    except (KeyFileError, PasswordError, WalletError) as error:
        raise KeyProblem(
            f"{path} cannot be opened: {error}", path=path, hint="check the file and its password"
        ) from error
    scheme = "ed25519" if pair.crypto_type == 0 else "sr25519"
    return KeySigner(pair.ss58_address, scheme, pair.sign)


@dataclass(frozen=True, slots=True)
class WalletHotkey:
    """One hotkey file. `ss58` or, where the file cannot be read without more, `problem`."""

    wallet: str
    name: str
    path: Path
    ss58: str | None
    problem: str | None = None


def list_hotkeys(wallets: Path = WALLETS) -> list[WalletHotkey]:
    """Every hotkey file under the wallets' directory; a broken one is listed with its problem and stops nothing."""
    found: list[WalletHotkey] = []
    for path in sorted(wallets.expanduser().glob("*/hotkeys/*")):
        if path.is_file() and not path.name.endswith("pub.txt"):
            ss58, problem = _address_in(path)
            found.append(WalletHotkey(path.parent.parent.name, path.name, path, ss58, problem))
    return found


def resolve(hotkey: str, *, wallet: str | None = None, wallets: Path = WALLETS) -> KeySigner:
    """The key that `--hotkey` means: the path of a key file, an SS58 address, or the name of a wallet's hotkey.

    wallet: look into this wallet only.

    Raises: KeyProblem; where several keys fit it lists them.
    """
    if "/" in hotkey:
        return from_key_file(Path(hotkey).expanduser())
    candidates = [
        one
        for one in list_hotkeys(wallets)
        if hotkey in (one.ss58, one.name) and (wallet is None or one.wallet == wallet)
    ]
    root, file = wallets.expanduser(), Path(hotkey)
    if file.is_file():
        if not candidates:
            return from_key_file(file)
        hint = f"say ./{hotkey} for the file, or give the hotkey's address"
        raise KeyProblem(f"{hotkey} is a file here and a hotkey of {_listed(candidates)}", path=file, hint=hint)
    if not candidates:
        where = root if wallet is None else root / wallet
        hint = "give the path of a key file, or --wallet and the name of a hotkey in it"
        raise KeyProblem(f"no hotkey {hotkey} under {where}", path=where, hint=hint)
    if len(candidates) > 1:
        raise KeyProblem(f"{hotkey} may be any of {_listed(candidates)}", path=root, hint="add --wallet to choose one")
    return from_wallet(candidates[0].wallet, candidates[0].name, wallets)


def _listed(candidates: list[WalletHotkey]) -> str:
    return ", ".join(f"{one.wallet}/{one.name}" for one in candidates)


_NEW_KEY = "make one with `hypercluster keys new FILE`"


def _read_secret(path: Path) -> bytes:
    """The file's bytes, if nobody but its owner can read it."""
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise KeyProblem(f"no key file {path}", path=path, hint=_NEW_KEY) from error
    except OSError as error:
        raise KeyProblem(f"cannot read {path}: {error.strerror}", path=path) from error
    if stat.S_IMODE(mode) & 0o077:
        raise KeyProblem(f"others can read {path}", path=path, hint=f"chmod 600 {path}")
    return data


def _from_wallet_file(path: Path) -> KeySigner:
    path = path.absolute()
    if path.parent.name != "hotkeys":
        hint = "keep it as <wallet>/hotkeys/<name>"
        raise KeyProblem(f"{path} is a wallet's hotkey outside a wallet", path=path, hint=hint)
    return from_wallet(path.parent.parent.name, path.name, path.parent.parent.parent)


def _address_in(path: Path) -> tuple[str | None, str | None]:
    try:
        data = path.read_bytes()
        if data.startswith(_ENCRYPTED):
            return None, "encrypted"
        address = json.loads(data).get("ss58Address")
    except OSError as error:
        return None, error.strerror or "cannot be read"
    except (ValueError, AttributeError):
        return None, "not a hotkey file"
    return (address, None) if isinstance(address, str) else (None, "names no address")


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """The wallet library writes remarks to file descriptor 1, where only data belongs."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
