"""What the answer to an accepted command shows: the object that it made or changed."""

from collections.abc import Callable

from hypercluster.domain.kernel import Accepted
from hypercluster.http.reading import Reader
from hypercluster.http.views import Shown
from hypercluster.http.views.market import offer_view
from projections.folds.jobs import Job
from projections.folds.market import Lease, Provider
from projections.folds.nodes import Node

type Presenter = Callable[[Reader, Accepted], Shown]


def present(kind: str, reader: Reader, decision: Accepted) -> Shown:
    """The answer's object, for the signer of the command."""
    presenter = PRESENTERS.get(kind)
    if presenter is None:
        return {"id": decision.subject, "created": decision.created}
    return presenter(reader, decision)


def _registered_provider(reader: Reader, decision: Accepted) -> Shown:
    return _provider(reader, decision) | {"created": decision.created}


def _provider(reader: Reader, decision: Accepted) -> Shown:
    return reader.provider(reader.found("provider", decision.subject, Provider))


def _node(reader: Reader, decision: Accepted) -> Shown:
    return reader.node(reader.found("node", decision.subject, Node)) | {"created": decision.created}


def _heartbeat(reader: Reader, decision: Accepted) -> Shown:
    """The subject is one node, or the provider whose nodes are all alive."""
    node = reader.service.view.get("node", decision.subject)
    nodes = [node] if isinstance(node, Node) else reader.nodes_of(decision.subject)
    return {"items": [reader.node(one) for one in nodes]}


def _offer(reader: Reader, decision: Accepted) -> Shown:
    return offer_view(reader.offer(decision.subject))


def _lease(reader: Reader, decision: Accepted) -> Shown:
    lease = reader.found("lease", decision.subject, Lease)
    return {"lease": reader.lease(lease), "pod": reader.pod(lease)}


def _submitted_job(reader: Reader, decision: Accepted) -> Shown:
    return _job(reader, decision) | {"created": decision.created}


def _job(reader: Reader, decision: Accepted) -> Shown:
    return reader.job(reader.found("job", decision.subject, Job))


def _result(reader: Reader, decision: Accepted) -> Shown:
    job_id, _, attempt_no = decision.subject.partition("/")
    shown = reader.attempt(*reader.job_and_attempt(job_id, int(attempt_no)))
    return shown | {"created": decision.created, "attempt": shown}


PRESENTERS: dict[str, Presenter] = {
    "provider.register": _registered_provider,
    "provider.heartbeat": _provider,
    "node.register": _node,
    "node.heartbeat": _heartbeat,
    "offer.create": _offer,
    "offer.withdraw": _offer,
    "offer.rent": _lease,
    "lease.terminate": _lease,
    "job.submit": _submitted_job,
    "job.cancel": _job,
    "result.post": _result,
}
