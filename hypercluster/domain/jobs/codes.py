"""Refusal codes of jobs, attempts and posted results."""

from hypercluster.domain.codes import Code, register
from hypercluster.domain.market import codes as _market  # noqa: F401 (its import registers lease_not_found, not_due)

CODES: dict[str, Code] = {
    # the job's shape
    "image_not_allowed": Code(422, "the image is not `name@sha256:<64 hex>`, or not in the policy's allowlist"),
    "path_unsafe": Code(422, "an entrypoint token is empty, or holds a shell character or a system path"),
    "invalid_entrypoint": Code(422, "the entrypoint has too many tokens or is too long"),
    "world_size_mismatch": Code(422, "world_size is not nnodes x nproc_per_node"),
    "budget_exceeded": Code(422, "the job is larger or longer than the policy allows; `field` names the number"),
    "invalid_resource": Code(422, "resource is too large, or gpus or a bound in it is not a number of its kind"),
    "invalid_backend": Code(422, "backend is not nccl or gloo"),
    "invalid_fabric": Code(422, "fabric is not auto, ib, eth or nvlink_only"),
    "invalid_tee": Code(422, "tee is not none, tdx or tdx+gpu_cc"),
    "invalid_placement_policy": Code(422, "placement_policy is not pack or spread"),
    "invalid_teardown": Code(422, "teardown is not keep or terminate"),
    "invalid_env": Code(422, "an env key is no identifier, or there are too many or too large entries"),
    "env_key_reserved": Code(422, "the launcher sets this env key itself; `field` names it"),
    # the lease it runs on
    "lease_required": Code(422, "jobs run on nodes of a lease: name it with lease_id"),
    "foreign_lease": Code(403, "the lease belongs to another hotkey"),
    "lease_inactive": Code(409, "the lease has ended"),
    "pod_not_found": Code(404, "there is no such pod"),
    "pod_mismatch": Code(409, "the pod is not that of the lease"),
    "price_over_bound": Code(409, "the lease costs more than the job's resource bound"),
    "lifetime_over_bound": Code(409, "the lease lasts longer than the job's resource bound"),
    "capacity_insufficient": Code(409, "the lease's nodes cannot hold the job even when all their GPUs are free"),
    "missing_ib": Code(409, "too few nodes of the lease have InfiniBand"),
    "tee_not_offered": Code(409, "too few nodes of the lease offer the TEE that the job asks for"),
    "too_many_jobs": Code(409, "this hotkey has too many jobs that have not ended"),
    # jobs, attempts, results
    "job_not_found": Code(404, "no such job"),
    "attempt_not_found": Code(404, "the job has no such attempt"),
    "forbidden": Code(403, "only those concerned may do this"),
    "already_terminal": Code(409, "the job has ended"),
    "result_conflict": Code(409, "this hotkey posted another result for the attempt; `seq` names it"),
    # what workers report
    "attempt_over": Code(409, "the attempt has ended; nothing may be started for it any more"),
    "attempt_not_running": Code(409, "the attempt has not come that far"),
    "attempt_live": Code(409, "the attempt has not ended"),
}

register(CODES)
