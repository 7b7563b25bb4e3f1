"""Kinds of internal commands and their bodies."""

from pydantic import BaseModel

from hypercluster.domain.jobs import internal as jobs
from hypercluster.domain.market import internal as market
from hypercluster.domain.nodes import internal as nodes
from hypercluster.domain.policy import internal as policy
from hypercluster.domain.weights import internal as weights

INTERNAL: dict[str, type[BaseModel]] = {
    "job.place": jobs.PlaceJob,
    "job.give_up": jobs.GiveUpJob,
    "attempt.run": jobs.AttemptIsRunning,
    "attempt.collect": jobs.AttemptIsCollecting,
    "attempt.end": jobs.AttemptIsOver,
    "attempt.clean": jobs.AttemptIsClean,
    "attempt.score": jobs.ScoreAttempt,
    "lease.expire": market.ExpireLease,
    "node.reclaim": nodes.ReclaimNode,
    "ledger.open": policy.OpenLedger,
    "policy.begin": policy.BeginPolicy,
    "weights.snapshot": weights.TakeSnapshot,
}
