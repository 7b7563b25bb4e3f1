"""What workers report about jobs: facts, never decisions. Each is one internal command with a cause.

kind                 cause (event number)                      attempt
job.place            the event that may have made room         job.submitted's number
job.give_up          job.submitted                             0
attempt.run          attempt.placed                            0
attempt.collect      attempt.running                           0
attempt.end          attempt.placed                            0
attempt.clean        attempt.ended                             0
attempt.score        attempt.ended                             0
lease.expire         lease.started                             0
node.reclaim         the event that changed the node last       0
weights.snapshot     the event with the number at the head     epoch
"""

from pydantic import Field

from hypercluster.domain.kernel import StrictBody


class PlaceJob(StrictBody):
    """There may be room for this job now."""

    job_id: str


class GiveUpJob(StrictBody):
    """The job has waited for longer than capacity_wait_s."""

    job_id: str


class AttemptIsRunning(StrictBody):
    """Preflight is through on all ranks; the entrypoint was released. Recomputed from the transcript."""

    job_id: str
    attempt_no: int
    program: str
    transport: str
    measured_bytes_per_s: int
    transcript: str


class AttemptIsCollecting(StrictBody):
    """Every rank has ended."""

    job_id: str
    attempt_no: int


class RankReport(StrictBody):
    """How one rank ended."""

    rank: int
    exit_code: int | None = None
    stdout: str | None = None
    stdout_bytes: int = 0
    stderr: str | None = None
    stderr_bytes: int = 0
    truncated: bool = False


class AttemptIsOver(StrictBody):
    """The gang has ended, by itself or not. `failure_code` is None when every rank exited 0.

    phase: connect | preflight | main | collect. node_id and rank: the first that failed.
    """

    job_id: str
    attempt_no: int
    phase: str
    failure_code: str | None = None
    node_id: str | None = None
    rank: int | None = None
    transcript: str | None = None
    ranks: tuple[RankReport, ...] = Field(default=(), strict=False)


class AttemptIsClean(StrictBody):
    """Nothing of the attempt is left on its nodes."""

    job_id: str
    attempt_no: int
    unconfirmed: tuple[str, ...] = Field(default=(), strict=False)


class ScoreAttempt(StrictBody):
    """The attempt has ended and can be scored."""

    job_id: str
    attempt_no: int
