"""Facts that a worker reported, recomputed from the transcript that it cites."""

from hypercluster.domain.jobs.internal import AttemptIsOver, AttemptIsRunning
from hypercluster.domain.jobs.preflight import Transcript, TranscriptInvalid, Verdict, judge
from hypercluster.domain.jobs.preflight import decode as decode_transcript
from hypercluster.domain.kernel import Command
from projections.fold import State
from projections.folds.jobs import Attempt
from replay.level_bytes import Mismatch
from replay.report import Level
from replay.source import Source

NO_TRANSCRIPT = "a worker's word without a transcript"
TRANSCRIPT_WITHHELD = "transcript that is not beside the ledger"
PREFLIGHT_FAILURES = frozenset({"preflight_mismatch", "rank_missing"})


def check_facts(source: Source, level: Level, state: State, command: Command) -> None:
    """Compare what the command claims with what its transcript shows; count what cannot be compared.

    Raises: Mismatch
    """
    match command.body:
        case AttemptIsRunning() as claim:
            _check_running(source, level, state, claim)
        case AttemptIsOver(failure_code=code, phase="preflight") as claim if code in PREFLIGHT_FAILURES:
            _check_failed_preflight(source, level, state, claim)
        case AttemptIsOver():
            level.unverifiable[NO_TRANSCRIPT] += 1
        case _:
            pass


def _check_running(source: Source, level: Level, state: State, claim: AttemptIsRunning) -> None:
    verdict = _verdict(source, level, state, claim.job_id, claim.attempt_no, claim.transcript)
    if verdict is None:
        return
    if not verdict.ok:
        raise Mismatch(
            f"its transcript shows {verdict.failure_code} at rank {verdict.rank}, the worker reported success"
        )
    found = (verdict.program, verdict.transport, verdict.measured_bytes_per_s)
    told = (claim.program, claim.transport, claim.measured_bytes_per_s)
    if found != told:
        raise Mismatch(f"its transcript shows {found}, the worker reported {told}")


def _check_failed_preflight(source: Source, level: Level, state: State, claim: AttemptIsOver) -> None:
    if claim.transcript is None:
        level.unverifiable[NO_TRANSCRIPT] += 1
        return
    verdict = _verdict(source, level, state, claim.job_id, claim.attempt_no, claim.transcript)
    if verdict is None:
        return
    found = (verdict.failure_code, verdict.rank, verdict.node_id)
    told = (claim.failure_code, claim.rank, claim.node_id)
    if found != told:
        raise Mismatch(f"its transcript shows {found}, the worker reported {told}")


def _verdict(source: Source, level: Level, state: State, job_id: str, attempt_no: int, digest: str) -> Verdict | None:
    data = source.blob(digest)
    if data is None:
        level.withheld[TRANSCRIPT_WITHHELD] += 1
        return None
    try:
        transcript, verdict = decode_transcript(data), judge(data)
    except TranscriptInvalid as error:
        raise Mismatch(f"its transcript cannot be read: {error}") from error
    _check_attempt(transcript, state.jobs.attempts.get(f"{job_id}/{attempt_no}"), f"{job_id}/{attempt_no}")
    return verdict


def _check_attempt(transcript: Transcript, attempt: Attempt | None, key: str) -> None:
    """A transcript speaks for one attempt and for the nodes on which its ranks were placed."""
    if transcript.marker != key:
        raise Mismatch(f"its transcript is that of attempt {transcript.marker}")
    placed = [] if attempt is None else [node.node_id for node in attempt.nodes for _ in node.gpus]
    if [record.node_id for record in transcript.ranks] != placed:
        raise Mismatch("its transcript names other nodes than the placement")
