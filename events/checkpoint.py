"""Checkpoints: the size and root of the tree in a C2SP signed note, with Ed25519.

Formats: c2sp.org/signed-note v1.0.0 and c2sp.org/tlog-checkpoint v1.0.0.
"""

import base64
import binascii
import hashlib
import re

import msgspec
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from events.errors import BadCheckpoint

NOTE_MAX_BYTES = 128 * 1024
SIGNATURES_MAX = 64
SIZE_MAX = 2**63 - 1

_ED25519 = b"\x01"
_SIGNATURE_MARK = "\u2014 "
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")


class Checkpoint(msgspec.Struct, frozen=True):
    """What a log says about itself: its name, its number of entries, its root (32 bytes). Extensions: further lines."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()


class SignatureLine(msgspec.Struct, frozen=True):
    """One signature under a note: who, by which key (4-byte id), and the bytes that follow the id."""

    name: str
    key_id: bytes
    signature: bytes


class Note(msgspec.Struct, frozen=True):
    """A parsed note, nothing verified: `text` is what was signed, its last newline included."""

    text: str
    signatures: tuple[SignatureLine, ...]
    checkpoint: Checkpoint


def verifier_key(name: str, key: VerifyKey) -> str:
    """The public key as one line: `name+<8 hex of the key id>+<base64>`.

    Raises: BadCheckpoint for a name that a note cannot carry.
    """
    check_name(name)
    public = _ED25519 + bytes(key)
    return f"{name}+{_key_id(name, public).hex()}+{base64.b64encode(public).decode()}"


def sign(origin: str, size: int, root: bytes, key: SigningKey) -> str:
    """The checkpoint of a log as a signed note. The same input gives the same text.

    Raises: BadCheckpoint for an origin that a note cannot carry, a negative size, a root that is not 32 bytes.
    """
    check_name(origin)
    if not 0 <= size <= SIZE_MAX or len(root) != 32:
        raise BadCheckpoint("a checkpoint has a size of at least 0 and a root of 32 bytes")
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    signature = key.sign(text.encode()).signature
    key_id = _key_id(origin, _ED25519 + bytes(key.verify_key))
    return f"{text}\n{_SIGNATURE_MARK}{origin} {base64.b64encode(key_id + signature).decode()}\n"


def parse(note: str) -> Note:
    """Take a note apart. Nothing is verified.

    Raises: BadCheckpoint
    """
    _check_characters(note)
    text, blank, tail = note.rpartition("\n\n")
    if not blank or not tail.endswith("\n"):
        raise BadCheckpoint("a note is text, an empty line, and signature lines")
    text += "\n"
    lines = tail[:-1].split("\n")
    if len(lines) > SIGNATURES_MAX:
        raise BadCheckpoint(f"more than {SIGNATURES_MAX} signatures")
    return Note(text, tuple(_signature_line(line) for line in lines), _body(text))


def verify(note: str, vkey: str) -> Checkpoint:
    """The checkpoint in a note that this key signed under this name, which must also be the log's origin.

    Signatures of other keys are passed over.

    Raises: BadCheckpoint
    """
    name, key_id, key = parse_verifier_key(vkey)
    parsed = parse(note)
    mine = [line for line in parsed.signatures if (line.name, line.key_id) == (name, key_id)]
    if not mine:
        raise BadCheckpoint(f"no signature by {name}+{key_id.hex()}")
    for line in mine:
        try:
            key.verify(parsed.text.encode(), line.signature)
        except (BadSignatureError, ValueError) as error:
            raise BadCheckpoint(f"the signature by {name}+{key_id.hex()} is wrong") from error
    if parsed.checkpoint.origin != name:
        raise BadCheckpoint(f"the note speaks for {parsed.checkpoint.origin}, the key for {name}")
    return parsed.checkpoint


def parse_verifier_key(vkey: str) -> tuple[str, bytes, VerifyKey]:
    """Name, key id (4 bytes) and key of a verifier key line.

    Raises: BadCheckpoint
    """
    name, _, rest = vkey.partition("+")
    key_hex, _, encoded = rest.partition("+")
    check_name(name)
    public = _base64(encoded, "the verifier key")
    if public[:1] != _ED25519 or len(public) != 33:
        raise BadCheckpoint("the verifier key is not an Ed25519 key")
    if _key_id(name, public).hex() != key_hex:
        raise BadCheckpoint("the verifier key's id does not belong to its name and key")
    return name, bytes.fromhex(key_hex), VerifyKey(public[1:])


def check_name(name: str) -> None:
    """Refuse a name, of a key or of a log, that no note can carry.

    Raises: BadCheckpoint
    """
    if not name or "+" in name or any(c.isspace() for c in name):
        raise BadCheckpoint(f"{name!r} is not a key name: it is empty, or holds white space or a plus sign")
    _check_characters(name)


def _key_id(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + public).digest()[:4]


def _check_characters(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadCheckpoint("a note is valid Unicode") from error
    if size > NOTE_MAX_BYTES:
        raise BadCheckpoint(f"a note has at most {NOTE_MAX_BYTES} bytes")
    if any(c < " " and c != "\n" for c in text):
        raise BadCheckpoint("a note holds no control characters but newlines")


def _signature_line(line: str) -> SignatureLine:
    if not line.startswith(_SIGNATURE_MARK):
        raise BadCheckpoint("a signature line begins with an em dash and a space")
    name, space, encoded = line.removeprefix(_SIGNATURE_MARK).partition(" ")
    check_name(name)
    raw = _base64(encoded, "a signature")
    if not space or len(raw) < 5:
        raise BadCheckpoint("a signature is a key id of 4 bytes and at least one byte more")
    return SignatureLine(name, raw[:4], raw[4:])


def _body(text: str) -> Checkpoint:
    lines = text[:-1].split("\n")
    if len(lines) < 3 or not lines[0] or "" in lines[3:]:
        raise BadCheckpoint("a checkpoint is origin, size, root, and no empty line")
    if not _SIZE.fullmatch(lines[1]) or int(lines[1]) > SIZE_MAX:
        raise BadCheckpoint("the size is not a decimal number without leading zeros")
    root = _base64(lines[2], "the root")
    if len(root) != 32:
        raise BadCheckpoint("the root is not 32 bytes")
    return Checkpoint(lines[0], int(lines[1]), root, tuple(lines[3:]))


def _base64(text: str, what: str) -> bytes:
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise BadCheckpoint(f"{what} is not base64") from error
    # The decoder forgives stray bits in the last character; a signed text has one spelling only.
    if base64.b64encode(raw).decode() != text:
        raise BadCheckpoint(f"{what} is not standard base64")
    return raw
