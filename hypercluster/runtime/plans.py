"""From a placed attempt to the plan that the launcher carries out: private values are looked up here."""

from typing import cast

from hypercluster.effects.gang import GangPlan, NodeTarget
from hypercluster.runtime.service import Service
from projections.folds.jobs import Attempt, Job
from projections.folds.nodes import Node


def gang_plan(service: Service, attempt: Attempt) -> GangPlan:
    """Everything that the launcher needs. A private value that was deleted is empty: connecting then fails."""
    job = cast(Job, service.view.get("job", attempt.job_id))
    policy = service.policy()
    return GangPlan(
        job_id=attempt.job_id,
        attempt_no=attempt.attempt_no,
        marker=f"{attempt.job_id}/{attempt.attempt_no}",
        nodes=tuple(_target(service, ranks.node_id, ranks.gpus) for ranks in attempt.nodes),
        master_node=attempt.master_node,
        entrypoint=job.spec.entrypoint,
        env={key: service.private(value) or "" for key, value in job.spec.env.items()},
        timeout_s=job.spec.timeout_s,
        kill_grace_s=policy.kill_grace_s,
        gang_timeout_s=policy.gang_timeout_s,
        image_digest=job.spec.image_digest,
        fabric=job.spec.fabric,
        backend=job.spec.backend,
        profile=service.profile,
        output_cap_bytes=service.settings.output_cap_bytes,
    )


def _target(service: Service, node_id: str, gpus: tuple[int, ...]) -> NodeTarget:
    facts = cast(Node, service.view.get("node", node_id)).facts
    return NodeTarget(
        node_id=node_id,
        endpoint=service.private(facts.ssh_endpoint) or "" if facts.ssh_endpoint else "",
        user=facts.ssh_user or "",
        host_key=facts.ssh_host_key or "",
        gpus=gpus,
    )
