"""Signed notes: what is accepted, and everything that is not."""

import base64

import pytest
from nacl.signing import SigningKey

from events import checkpoint
from events.errors import BadCheckpoint

KEY, OTHER = SigningKey(b"\x07" * 32), SigningKey(b"\x08" * 32)
ORIGIN, ROOT = "ledger.example/hyper", bytes(range(32))
VKEY = checkpoint.verifier_key(ORIGIN, KEY.verify_key)
NOTE = checkpoint.sign(ORIGIN, 70_000, ROOT, KEY)


def test_the_example_of_the_format_verifies():
    # The public example of the Go note package, which C2SP's signed-note took over.
    vkey = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    note = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n\n"
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )
    name, key_id, key = checkpoint.parse_verifier_key(vkey)
    assert (name, key_id.hex()) == ("PeterNeumann", "c74f20a3")
    text, _, line = note.rpartition("\n\n")
    key.verify((text + "\n").encode(), base64.b64decode(line.split(" ")[2])[4:])


def test_a_checkpoint_comes_back_and_is_the_same_each_time():
    assert checkpoint.verify(NOTE, VKEY) == checkpoint.Checkpoint(ORIGIN, 70_000, ROOT)
    assert checkpoint.sign(ORIGIN, 70_000, ROOT, KEY) == NOTE
    assert NOTE.startswith(f"{ORIGIN}\n70000\n{base64.b64encode(ROOT).decode()}\n\n— {ORIGIN} ")


def test_signatures_of_strangers_are_passed_over():
    stranger = checkpoint.sign("witness.example", 1, ROOT, OTHER).rpartition("\n\n")[2]
    before = NOTE.replace("\n\n", "\n\n" + stranger * 15, 1)
    assert checkpoint.verify(before, VKEY).size == 70_000
    assert checkpoint.verify(NOTE + stranger, VKEY).size == 70_000
    assert len(checkpoint.parse(NOTE + stranger).signatures) == 2


def test_extension_lines_are_read():
    text = NOTE.rpartition("\n\n")[0] + "\nextension\n"
    key_id = bytes.fromhex(VKEY.split("+")[1])
    line = base64.b64encode(key_id + KEY.sign(text.encode()).signature).decode()
    assert checkpoint.verify(f"{text}\n— {ORIGIN} {line}\n", VKEY).extensions == ("extension",)


def wrong_signature() -> str:
    head, _, encoded = NOTE[:-1].rpartition(" ")
    raw = bytearray(base64.b64decode(encoded))
    raw[-1] ^= 1
    return f"{head} {base64.b64encode(bytes(raw)).decode()}\n"


@pytest.mark.parametrize(
    "note",
    [
        "",
        "x",
        NOTE[:-1],
        NOTE + "\n",
        NOTE.replace("70000", "70001"),
        NOTE.replace("70000", "070000"),
        NOTE.replace("70000", "-1"),
        NOTE.replace("70000", "٧"),
        NOTE.replace("70000", str(2**63)),
        NOTE.replace("70000", "70 000"),
        NOTE.replace("=\n", "\n", 1),
        NOTE.replace("—", "-"),
        NOTE.replace("\n\n", "\n"),
        NOTE.replace("\n\n", "\n\x00\n\n"),
        NOTE.replace("\n\n", "\n\n\n", 1),
        NOTE.replace("\n\n", "\n\ud800\n\n"),
        NOTE + "— ledger.example/x AAAA\n",
        NOTE + "— led ger AAAAAAAA\n",
        NOTE + "— ledger\n",
        wrong_signature(),
        NOTE + wrong_signature().rpartition("\n\n")[2],
        checkpoint.sign(ORIGIN, 70_000, ROOT, OTHER),
        checkpoint.sign("another.example", 70_000, ROOT, KEY),
        NOTE + NOTE.rpartition("\n\n")[2] * 64,
        NOTE.replace("\n\n", "\n" + "x" * checkpoint.NOTE_MAX_BYTES + "\n\n"),
    ],
)
def test_anything_else_is_refused(note: str):
    with pytest.raises(BadCheckpoint):
        checkpoint.verify(note, VKEY)


def test_a_key_does_not_speak_for_another_log():
    text = NOTE.rpartition("\n\n")[0].replace(ORIGIN, "another.example") + "\n"
    key_id = bytes.fromhex(VKEY.split("+")[1])
    line = base64.b64encode(key_id + KEY.sign(text.encode()).signature).decode()
    with pytest.raises(BadCheckpoint, match="speaks for"):
        checkpoint.verify(f"{text}\n— {ORIGIN} {line}\n", VKEY)


@pytest.mark.parametrize("origin", ["", "a b", "a+b", "a\nb", "a\u2003b", "a\x00b", "\ud800"])
def test_what_cannot_name_a_log_is_refused(origin: str):
    with pytest.raises(BadCheckpoint):
        checkpoint.sign(origin, 1, ROOT, KEY)


@pytest.mark.parametrize(
    "vkey",
    ["", "x", ORIGIN, VKEY + "A", VKEY.replace(ORIGIN, "other"), VKEY.upper(), f"{ORIGIN}+00000000+AQ=="],
)
def test_a_key_that_is_none_is_refused(vkey: str):
    with pytest.raises(BadCheckpoint):
        checkpoint.verify(NOTE, vkey)


@pytest.mark.parametrize(("size", "root"), [(-1, ROOT), (2**63, ROOT), (1, b"short")])
def test_only_a_size_and_a_root_are_signed(size: int, root: bytes):
    with pytest.raises(BadCheckpoint):
        checkpoint.sign(ORIGIN, size, root, KEY)
