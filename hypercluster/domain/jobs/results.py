"""Posted results. A claim is kept, shown and compared; it can lower the poster's own side, never raise anything."""

from collections.abc import Callable
from typing import cast

from events.envelope import Event
from events.types.jobs import ResultClaimed
from hypercluster.domain import strict_json
from hypercluster.domain.jobs.commands import PostResult
from hypercluster.domain.jobs.faults import INTEGRITY_CODES
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Refused, digest_of
from hypercluster.domain.scores import claims
from projections.fold import State
from projections.folds.jobs import Attempt, Job, attempt_key


def post(state: State, command: Command, context: Context) -> Decision:
    """Keep a claim about an attempt that exists. Its status ends nothing."""
    body = cast(PostResult, command.body)
    job = state.jobs.jobs.get(command.path["job_id"])
    if job is None:
        return Refused("job_not_found", "no such job")
    key = attempt_key(job.job_id, body.attempt_no)
    attempt = state.jobs.attempts.get(key)
    roles = _roles(state, job, attempt, command.actor)
    if not roles:
        return Refused("forbidden", "only the submitter, the renter and the nodes' providers may post results")
    if attempt is None:
        return Refused("attempt_not_found", "no such attempt", "attempt_no")
    digest = envelope_digest(body)
    earlier = state.jobs.claims.get(f"{key}/{command.actor}")
    if earlier is not None:
        if earlier.envelope_digest == digest:
            return Accepted((), subject=key, seq=earlier.pos)
        return Refused("result_conflict", "this hotkey posted another result for the attempt", seq=earlier.pos)
    claim = _claim(job, body, command.actor, roles, digest)
    events: tuple[Event, ...] = (claim,)
    if key in state.scores.attempts and not claim.verified:
        events += claims.revise(state, key, claim, context.at_us)
    return Accepted(events, subject=key, created=True)


def envelope_digest(body: PostResult) -> str:
    """`sha256:` of the sorted compact JSON of every field, defaults filled in: any difference is another result."""
    return digest_of(strict_json.dumps(body.model_dump()).encode())


def _claim(job: Job, body: PostResult, hotkey: str, roles: tuple[str, ...], digest: str) -> ResultClaimed:
    codes = tuple(sorted(INTEGRITY_CODES.intersection(body.integrity_codes or ())))
    return ResultClaimed(
        job_id=job.job_id,
        attempt_no=body.attempt_no,
        hotkey=hotkey,
        roles=roles,
        status=body.status,
        envelope_digest=digest,
        integrity_codes=codes,
        output_digest=body.output_digest,
        fabric_report_digest=body.fabric_report_digest,
        failure_code=body.failure_code,
        verified=body.verified and not codes,
    )


def _roles(state: State, job: Job, attempt: Attempt | None, hotkey: str) -> tuple[str, ...]:
    """What the hotkey is to this attempt: submitter, renter, provider; none for a stranger."""
    lease = None if job.spec.lease_id is None else state.market.leases.get(job.spec.lease_id)
    providers = {_provider_of(state, ranks.node_id) for ranks in attempt.nodes} if attempt is not None else set()
    if attempt is None and lease is not None:
        providers = {lease.provider}
    found = (
        ("submitter", job.submitter == hotkey),
        ("renter", lease is not None and lease.renter == hotkey),
        ("provider", hotkey in providers),
    )
    return tuple(role for role, holds in found if holds)


def _provider_of(state: State, node_id: str) -> str:
    provider_id = state.nodes.nodes[node_id].provider_id
    return state.market.providers[provider_id].hotkey


DECIDERS: dict[str, Callable[[State, Command, Context], Decision]] = {"result.post": post}
