"""Jobs, attempts and logs on the wire."""

from collections.abc import Sequence

from events.types.jobs import RankResult
from hypercluster.http import wire
from hypercluster.http.replies import raw_json
from hypercluster.http.views import Reveal, Shown
from projections.folds.jobs import Attempt, Claim, Job
from projections.folds.scores import ScoredAttempt


def job_view(job: Job, reveal: Reveal | None = None) -> Shown:
    """Job. reveal: opens env values for the submitter; without it env is null."""
    spec = job.spec
    return {
        "id": job.job_id,
        "job_id": job.job_id,
        "submitter_hotkey": job.submitter,
        "client_request_id": job.client_request_id,
        "status": job.status,
        "image_digest": spec.image_digest,
        "entrypoint": spec.entrypoint,
        "world_size": spec.world_size,
        "nnodes": spec.nnodes,
        "nproc_per_node": spec.nproc_per_node,
        "backend": spec.backend,
        "fabric": spec.fabric,
        "fabric_mode": spec.fabric,
        "tee": spec.tee,
        "tee_mode": spec.tee,
        "env": {key: reveal(value) for key, value in spec.env.items()} if reveal and spec.env else None,
        "resource": raw_json(spec.resource),
        "timeout_s": spec.timeout_s,
        "placement_policy": spec.placement_policy,
        "teardown": spec.teardown,
        "lease_id": spec.lease_id,
        "pod_id": None,
        "attempts": job.attempts,
        "waiting": _waiting(job),
        "admitted_at": wire.optional_time(job.admitted_us),
        "started_at": wire.optional_time(job.started_us),
        "finished_at": wire.optional_time(job.finished_us),
        "failure_code": job.failure_code,
        "created_at": wire.time_text(job.created_us),
        "updated_at": wire.time_text(job.updated_us),
    }


def _waiting(job: Job) -> Shown | None:
    """Why the job has not started, in numbers."""
    if job.waiting_code is None or job.status != "placing":
        return None
    return {"code": job.waiting_code, "have": job.waiting_have, "need": job.waiting_need}


def job_detail(job: Job, attempt: Attempt | None, reveal: Reveal | None = None) -> Shown:
    """JobDetail: the job with its newest attempt and that attempt's placement."""
    shown = job_view(job, reveal)
    shown["proofs"] = []
    if attempt is None:
        return shown
    shown["proof_summary"] = {"proof_tier": "none", "verified": False, "verify_mode": "none"}
    shown["placement"] = _placement(job, attempt)
    shown["latest_attempt"] = {
        "attempt_no": attempt.attempt_no,
        "status": attempt.status,
        "fabric_report_digest": None,
        "output_digest": _output_digest(attempt),
        "finished_at": wire.optional_time(attempt.ended_us),
    }
    return shown


def _placement(job: Job, attempt: Attempt) -> Shown:
    return {
        "id": _attempt_id(attempt),
        "job_id": attempt.job_id,
        "attempt_no": attempt.attempt_no,
        "rankmap": rank_map(attempt),
        "master_node": attempt.master_node,
        "placement_policy": job.spec.placement_policy,
        "policy_digest": attempt.policy_digest,
        "created_at": wire.time_text(attempt.placed_us),
    }


def rank_map(attempt: Attempt) -> list[Shown]:
    """One row per rank, counted through the nodes in rank order."""
    rows: list[Shown] = []
    for node in attempt.nodes:
        for local_rank, gpu in enumerate(node.gpus):
            rows.append({"rank": len(rows), "node_id": node.node_id, "local_rank": local_rank, "gpu_index": gpu})
    return rows


def attempt_view(job: Job, attempt: Attempt, scored: ScoredAttempt | None, claims: Sequence[Claim]) -> Shown:
    """Attempt, with what was measured and what was claimed about it kept apart."""
    own = next((claim for claim in claims if claim.hotkey == job.submitter), None)
    ended = attempt.ended_us is not None
    return {
        "id": _attempt_id(attempt),
        "job_id": attempt.job_id,
        "attempt_no": attempt.attempt_no,
        "status": attempt.status,
        "launcher_log_uri": f"/v1/jobs/{attempt.job_id}/attempts/{attempt.attempt_no}/logs" if ended else None,
        "fabric_report_digest": None,
        "metrics": _metrics(job, attempt, scored),
        "output_digest": _output_digest(attempt),
        "result_digest": own.envelope_digest if own else None,
        "failure_code": attempt.failure_code,
        "fault": attempt.fault,
        "failed_node_id": attempt.node_id,
        "failed_rank": attempt.rank,
        "lease_id": attempt.lease_id,
        "rankmap": rank_map(attempt),
        "ranks": [rank_view(result) for result in attempt.ranks],
        "claims": [_claim(claim) for claim in claims],
        "cleaned": attempt.cleaned,
        "unconfirmed_nodes": attempt.unconfirmed,
        "placed_at": wire.time_text(attempt.placed_us),
        "started_at": wire.optional_time(attempt.started_us),
        "finished_at": wire.optional_time(attempt.ended_us),
    }


def rank_view(result: RankResult) -> Shown:
    """How one rank ended, and how much it wrote."""
    return {
        "rank": result.rank,
        "exit_code": result.exit_code,
        "stdout_digest": result.stdout,
        "stdout_bytes": result.stdout_bytes,
        "stderr_digest": result.stderr,
        "stderr_bytes": result.stderr_bytes,
        "truncated": result.truncated,
    }


def _attempt_id(attempt: Attempt) -> str:
    return f"{attempt.job_id}/{attempt.attempt_no}"


def _output_digest(attempt: Attempt) -> str | None:
    """The digest of rank 0's standard output."""
    return next((result.stdout for result in attempt.ranks if result.rank == 0), None)


def _metrics(job: Job, attempt: Attempt, scored: ScoredAttempt | None) -> Shown | None:
    """What the challenge measured; null before preflight is through."""
    if attempt.started_us is None:
        return None
    found: Shown = {
        "source": "challenge",
        "program": attempt.program,
        "transport": attempt.transport,
        "measured_bytes_per_s": attempt.measured_bytes_per_s,
        "allreduce_gbps": wire.gbps(attempt.measured_bytes_per_s),
        "transcript_digest": attempt.transcript,
        "world_size": job.spec.world_size,
        "wall_time_s": None if attempt.ended_us is None else (attempt.ended_us - attempt.started_us) / 1_000_000,
    }
    if scored is not None:
        score = scored.score
        found["composite"] = wire.ratio(score.composite_ppm)
        found["efficiency"] = wire.ratio(score.efficiency_ppm)
        found["fabric_gate"] = float(score.fabric_gate)
        found["reason_codes"] = score.codes
    return found


def _claim(claim: Claim) -> Shown:
    return {
        "hotkey": claim.hotkey,
        "roles": claim.roles,
        "status": claim.status,
        "verified": claim.verified,
        "envelope_digest": claim.envelope_digest,
        "output_digest": claim.output_digest,
        "fabric_report_digest": claim.fabric_report_digest,
        "failure_code": claim.failure_code,
        "integrity_codes": claim.integrity_codes,
        "seq": claim.pos,
        "at": wire.time_text(claim.at_us),
    }


def log_of(result: RankResult, stream: str) -> tuple[str | None, int]:
    """Digest of what was kept of a rank's stream, and how many bytes it wrote. stream: stdout | stderr."""
    if stream == "stdout":
        return result.stdout, result.stdout_bytes
    return result.stderr, result.stderr_bytes


def log_headers(kept: int, written: int, truncated: bool) -> dict[str, str]:
    """What the bytes of a log cannot say themselves: how many are kept, how many were written."""
    return {
        "X-Log-Kept-Bytes": str(kept),
        "X-Log-Total-Bytes": str(written),
        "X-Log-Truncated": "true" if truncated else "false",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
