"""Nodes on the wire."""

from hypercluster.http import wire
from hypercluster.http.replies import raw_json
from hypercluster.http.views import Reveal, Shown
from projections.folds.nodes import Node


def node_view(node: Node, reveal: Reveal) -> Shown:
    """Node. reveal: shows hostname and address to the node's provider.

    gpu_probe_status is `none` while the challenge has not measured the node; what a provider claims never sets it.
    """
    facts = node.facts
    return {
        "id": node.node_id,
        "provider_id": node.provider_id,
        "hostname": reveal(facts.hostname),
        "ssh_endpoint": reveal(facts.ssh_endpoint),
        "ssh_user": facts.ssh_user,
        "ssh_host_key": facts.ssh_host_key,
        "gpu_model": facts.gpu_model,
        "gpu_count": facts.gpu_count,
        "cpu_cores": facts.cpu_cores,
        "mem_gb": wire.gigabytes(facts.mem_mb),
        "location_hint": facts.location_hint,
        "tee_capability": facts.tee_capability,
        "status": node.status,
        "last_heartbeat": wire.time_text(node.last_seen_us),
        "has_ib": facts.has_ib,
        "ib_rate_gbps": wire.gbps(facts.ib_rate_bytes_per_s),
        "inventory": raw_json(facts.inventory),
        "gpu_probe_status": "none",
        "created_at": wire.time_text(node.created_us),
        "updated_at": wire.time_text(node.updated_us),
    }
