"""The public key that signs a ledger's checkpoints, in the forms in which people pass it on."""

import re

from nacl.signing import VerifyKey

from events import checkpoint
from events.checkpoint import Checkpoint
from events.errors import BadCheckpoint

_HEX = re.compile(r"[0-9a-f]{64}")


class BadKey(ValueError):
    """The text is no Ed25519 public key in a known form."""


def read_key(text: str) -> bytes:
    """The 32 bytes of a key given as 64 lower-case hex digits or as a verifier key line `name+id+base64`.

    Raises: BadKey
    """
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    try:
        return bytes(checkpoint.parse_verifier_key(text)[2])
    except BadCheckpoint as error:
        raise BadKey(f"neither 64 hex digits nor a verifier key line: {error}") from error


def verify_note(note: str, origin: str, key: bytes) -> Checkpoint:
    """The checkpoint in a note that this key signed for this origin.

    Raises: BadCheckpoint
    """
    return checkpoint.verify(note, checkpoint.verifier_key(origin, VerifyKey(key)))
