"""What a preflight proves, recomputed from its transcript. Pure: the launcher, the decider and replay use it alike.

A transcript holds everything that the control plane knew and saw: the seeds of the secret inputs, the nonce that
released the barrier, each rank's answer, and the time between the two. `docs/explanation/preflight.md` says why.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

RING: Literal["ring-xor-1"] = "ring-xor-1"
DIGEST: Literal["digest-1"] = "digest-1"
TRANSPORTS: dict[str, str] = {RING: "eth", DIGEST: "none"}  # sockets; one rank alone crosses no network
BUFFER_BYTES_MAX = 1 << 30

type Program = Literal["ring-xor-1", "digest-1"]
type Answer = Literal["answered", "missing", "failed", "garbled", "early", "unheard"]


class TranscriptInvalid(ValueError):
    """The bytes are no canonical transcript of this format."""


class RankRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank: the seed of its secret input and what came back.

    seed: 32 bytes in hex. digest: 32 bytes in hex, None unless `answer` is "answered". node_us: the duration that
    the node claims. answer: missing = no answer in time or its program ended, failed = it reported that it could not
    take part, garbled = an answer without meaning, early = an answer before the barrier was released, unheard = the run
    was over before its answer was due. heard_us: when that was known, since the run began.
    """

    rank: int
    node_id: str
    seed: str
    answer: Answer
    digest: str | None
    node_us: int | None
    heard_us: int | None


class Transcript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One preflight. buffer_bytes: size of one collective (ring) or of the whole input (digest chain).

    elapsed_us: from releasing the barrier to the last digest, by the control plane's monotonic clock.
    load_us: from the first byte of input to the last rank's word that it is ready. 0 where it did not come that far.
    """

    format: Literal[1]
    marker: str
    program: Program
    transport: str
    nonce: str
    buffer_bytes: int
    iterations: int
    load_us: int
    elapsed_us: int
    ranks: tuple[RankRecord, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """failure_code: preflight_mismatch | rank_missing, then with the first rank concerned and its node."""

    ok: bool
    failure_code: str | None
    rank: int | None
    node_id: str | None
    program: str
    transport: str
    measured_bytes_per_s: int


def input_bytes(program: str, buffer_bytes: int, iterations: int) -> int:
    """How much secret input a rank gets. Every collective has its own: repeating one could be answered from memory."""
    return buffer_bytes * iterations if program == RING else buffer_bytes


def expand(seed: bytes, size: int) -> bytes:
    """A rank's secret input, incompressible for whoever does not hold the seed."""
    return hashlib.shake_256(seed).digest(size)


def xor_all(inputs: Sequence[bytes]) -> bytes:
    """The result of an XOR all-reduce over equally long inputs."""
    total = 0
    for data in inputs:
        total ^= int.from_bytes(data, "little")
    return total.to_bytes(len(inputs[0]), "little")


def digest_chain(nonce: bytes, data: bytes, iterations: int) -> bytes:
    """The result of the one-rank program: each round needs the one before it."""
    state = nonce
    for _ in range(iterations):
        state = hashlib.sha256(state + data).digest()
    return state


def answer_digest(nonce: bytes, rank: int, result: bytes) -> str:
    """What `rank` must answer: it differs from rank to rank and from run to run."""
    return hashlib.sha256(nonce + rank.to_bytes(4, "big") + result).hexdigest()


def encode(transcript: Transcript) -> bytes:
    """Canonical JSON: sorted keys, no blanks, integers and hex."""
    return msgspec.json.encode(transcript, order="sorted")


def decode(data: bytes) -> Transcript:
    """Raises TranscriptInvalid."""
    try:
        transcript = msgspec.json.decode(data, type=Transcript)
    except msgspec.MsgspecError as error:
        raise TranscriptInvalid(str(error)) from error
    if encode(transcript) != data:
        raise TranscriptInvalid("not in canonical form")
    _check(transcript)
    return transcript


def _check(transcript: Transcript) -> None:
    ranks = transcript.ranks
    size = input_bytes(transcript.program, transcript.buffer_bytes, transcript.iterations)
    optional = (number for record in ranks for number in (record.node_us, record.heard_us) if number is not None)
    numbers = (transcript.load_us, transcript.elapsed_us, *optional)
    if [record.rank for record in ranks] != list(range(len(ranks))):
        raise TranscriptInvalid("ranks are not 0 to n - 1")
    if (len(ranks) == 1) != (transcript.program == DIGEST) or not ranks:
        raise TranscriptInvalid("this program does not run on this number of ranks")
    if min(numbers) < 0 or transcript.buffer_bytes < 1 or transcript.iterations < 1 or size > BUFFER_BYTES_MAX:
        raise TranscriptInvalid("a number is out of range")
    if any(not is_hash(text) for text in (transcript.nonce, *(record.seed for record in ranks))):
        raise TranscriptInvalid("nonce and seeds are 32 bytes in hex")
    if transcript.transport != TRANSPORTS[transcript.program]:
        raise TranscriptInvalid("this program does not use this transport")
    if any((record.answer == "answered") != (record.digest is not None) for record in ranks):
        raise TranscriptInvalid("a digest stands where none was given, or is lacking")


def is_hash(text: str) -> bool:
    """32 bytes in lower-case hex."""
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def judge(transcript: bytes) -> Verdict:
    """Recompute everything. A rank that lied comes before one that was silent, a lower rank before a higher.

    Raises TranscriptInvalid.
    """
    seen = decode(transcript)
    failure = _failure(seen)
    if failure is None:
        return Verdict(True, None, None, None, seen.program, seen.transport, bandwidth(seen))
    code, record = failure
    return Verdict(False, code, record.rank, record.node_id, seen.program, seen.transport, 0)


def _failure(seen: Transcript) -> tuple[str, RankRecord] | None:
    nonce = bytes.fromhex(seen.nonce)
    result = b"" if all(record.digest is None for record in seen.ranks) else _result(seen, nonce)
    for record in seen.ranks:
        wrong = record.digest is not None and record.digest != answer_digest(nonce, record.rank, result)
        if wrong or record.answer in {"garbled", "early"}:
            return "preflight_mismatch", record
    absent = [record for record in seen.ranks if record.answer != "answered"]
    return ("rank_missing", min(absent, key=_blame)) if absent else None


def _blame(record: RankRecord) -> tuple[int, int, int]:
    """Silence first: a rank that failed was most often waiting for one that is missing. Then who failed first."""
    order = ("missing", "failed", "unheard").index(record.answer)
    return order, (record.heard_us or 0) if record.answer == "failed" else 0, record.rank


def _result(seen: Transcript, nonce: bytes) -> bytes:
    size = input_bytes(seen.program, seen.buffer_bytes, seen.iterations)
    inputs = [expand(bytes.fromhex(record.seed), size) for record in seen.ranks]
    return xor_all(inputs) if seen.program == RING else digest_chain(nonce, inputs[0], seen.iterations)


def bandwidth(seen: Transcript) -> int:
    """Bytes/s, rounded down. Ring: bus bandwidth, buffer * 2(n - 1) / n * iterations over time. One rank: bytes
    digested over time. The time is the control plane's, or a node's own where that is longer."""
    elapsed_us = max(1, seen.elapsed_us, *(record.node_us or 0 for record in seen.ranks))
    n = len(seen.ranks)
    total = seen.buffer_bytes * seen.iterations * 1_000_000
    return total // elapsed_us if seen.program == DIGEST else total * 2 * (n - 1) // (n * elapsed_us)
