"""A job and the lease it runs on: whose it is, whether it holds, what it costs, whether its nodes can take the gang."""

from events.types.jobs import JobSpec
from hypercluster.domain.jobs import placement
from hypercluster.domain.jobs.commands import SubmitJob
from hypercluster.domain.kernel import Refused
from projections.fold import State
from projections.folds.market import Lease
from projections.folds.nodes import Node

_TEE_RANK = {"none": 0, "tdx": 1, "tdx+gpu_cc": 2}


def is_sim(state: State) -> bool:
    """Whether this ledger belongs to the sim profile."""
    return state.ledger.info["ledger"].profile == "sim"


def is_active(lease: Lease | None, at_us: int) -> bool:
    """Whether the lease holds at this time, whatever its status says: its end may not have been written yet."""
    return lease is not None and lease.status == "active" and lease.ends_at_us > at_us


def named_lease(state: State, body: SubmitJob) -> Lease | Refused | None:
    """The lease that the body names, by itself or by its pod. None only where the sim profile lets jobs run without."""
    market = state.market
    if body.lease_id is None and not is_sim(state):
        return Refused("lease_required", "rent an offer, then submit with its lease_id", "lease_id")
    of_pod = None
    if body.pod_id is not None:
        of_pod = market.lease_of_pod.get(body.pod_id)
        if of_pod is None:
            return Refused("pod_not_found", "no such pod", "pod_id")
    lease_id = body.lease_id or of_pod
    if lease_id is None:
        return None
    lease = market.leases.get(lease_id)
    if lease is None:
        return Refused("lease_not_found", "no such lease", "lease_id")
    if of_pod is not None and of_pod != lease_id:
        return Refused("pod_mismatch", "the pod belongs to another lease", "pod_id")
    return lease


def lease_refuses(state: State, lease: Lease, spec: JobSpec, submitter: str, at_us: int) -> Refused | None:
    """Why this lease cannot take the job: not the submitter's, over, too dear, too long, too small."""
    if lease.renter != submitter:
        return Refused("foreign_lease", "only the renter of a lease may run jobs on it", "lease_id")
    if not is_active(lease, at_us):
        return Refused("lease_inactive", "the lease has ended", "lease_id")
    price, lifetime = spec.max_price_micro_usd_h, spec.max_lifetime_us
    if price is not None and lease.price_micro_usd_h > price:
        message = f"the lease costs {lease.price_micro_usd_h} micro-USD per hour, the bound is {price}"
        return Refused("price_over_bound", message, "resource.max_price_per_hour")
    if lifetime is not None and lease.lifetime_us > lifetime:
        message = f"the lease lasts {lease.lifetime_us} us, the bound is {lifetime}"
        return Refused("lifetime_over_bound", message, "resource.max_lifetime_hours")
    return _too_small(state, lease, spec)


def _too_small(state: State, lease: Lease, spec: JobSpec) -> Refused | None:
    """Hardware facts cannot change under a lease: what does not fit now when all GPUs are free never will."""
    nodes = [node for node_id in lease.node_ids if (node := state.nodes.nodes.get(node_id)) is not None]
    whole = [room(node, ()) for node in nodes]
    planned = placement.plan(whole, request_of(spec))
    if isinstance(planned, placement.Rejected):
        code = "missing_ib" if planned.reason_code == placement.MISSING_IB else "capacity_insufficient"
        message = (
            f"{planned.fitting} nodes of the lease can take {spec.nproc_per_node} ranks, the job needs {spec.nnodes}"
        )
        return Refused(code, message, "lease_id")
    # The sim profile has no TEE to offer.
    if spec.tee != "none" and not is_sim(state):
        offering = sum(_TEE_RANK.get(node.facts.tee_capability, 0) >= _TEE_RANK[spec.tee] for node in nodes)
        if offering < len(nodes):
            return Refused("tee_not_offered", f"{offering} of {len(nodes)} nodes offer {spec.tee}", "tee")
    return None


def request_of(spec: JobSpec) -> placement.Request:
    """What the planner needs to know of a job."""
    return placement.Request(spec.nnodes, spec.nproc_per_node, spec.placement_policy, spec.fabric)


def room(node: Node, held: tuple[int, ...]) -> placement.NodeRoom:
    """A node as the planner sees it, without the GPUs that are held."""
    facts = node.facts
    free = tuple(gpu for gpu in range(facts.gpu_count) if gpu not in held)
    return placement.NodeRoom(node.node_id, facts.gpu_count, free, facts.has_ib, facts.ib_rate_bytes_per_s or 0)


def inventory(state: State, spec: JobSpec) -> list[placement.NodeRoom]:
    """Nodes that may take the job: those of its lease, or (sim, no lease) healthy ones that no lease holds."""
    nodes, held = state.nodes.nodes, state.jobs.gpus_held
    if spec.lease_id is not None:
        ids = state.market.leases[spec.lease_id].node_ids
        found = [node for node_id in ids if (node := nodes.get(node_id)) is not None]
    else:
        found = [node for node in nodes.values() if node.status == "healthy" and node.held_by is None]
    return [room(node, held.get(node.node_id, ())) for node in found]
