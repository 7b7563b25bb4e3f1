"""Which folds' records become rows, and by which of their values rows can be found."""

from collections.abc import Callable
from typing import Any, NamedTuple

from projections.folds import identity, jobs, ledger, market, nodes, scores, weights

type Column = Callable[[Any], str | int | None]


class Mirror(NamedTuple):
    """A mirrored table: the record class of its rows and its indexed columns."""

    record: type
    columns: dict[str, Column]


MIRRORS: dict[str, Mirror] = {
    "ledger": Mirror(ledger.LedgerInfo, {}),
    "key": Mirror(identity.KeyRecord, {}),
    "provider": Mirror(market.Provider, {"hotkey": lambda r: r.hotkey}),
    "node": Mirror(nodes.Node, {"provider_id": lambda r: r.provider_id, "status": lambda r: r.status}),
    "offer": Mirror(
        market.Offer,
        {
            "provider_id": lambda r: r.provider_id,
            "status": lambda r: r.status,
            "gpu_model": lambda r: r.gpu_model,
            "mode": lambda r: r.mode,
            "tee": lambda r: r.tee,
            "require_ib": lambda r: int(r.require_ib),
        },
    ),
    "lease": Mirror(
        market.Lease,
        {
            "renter": lambda r: r.renter,
            "provider": lambda r: r.provider,
            "provider_id": lambda r: r.provider_id,
            "offer_id": lambda r: r.offer_id,
            "pod_id": lambda r: r.pod_id,
            "status": lambda r: r.status,
        },
    ),
    "job": Mirror(jobs.Job, {"submitter": lambda r: r.submitter, "status": lambda r: r.status}),
    "attempt": Mirror(
        jobs.Attempt, {"job_id": lambda r: r.job_id, "status": lambda r: r.status, "cleaned": lambda r: int(r.cleaned)}
    ),
    "claim": Mirror(jobs.Claim, {"job_id": lambda r: r.job_id}),
    "score": Mirror(
        scores.ScoredAttempt, {"submitter": lambda r: r.score.submitter, "job_id": lambda r: r.score.job_id}
    ),
    "standing": Mirror(scores.Standing, {"total": lambda r: r.total}),
    "snapshot": Mirror(weights.SnapshotRecord, {}),
}
