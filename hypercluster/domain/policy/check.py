"""What a policy may hold. Deciders rely on these ranges: no division by zero, no ratio above one, no repeated row."""

from collections.abc import Iterable

from events.types.policy import Policy
from hypercluster.domain.kernel import PPM, Refused

_LARGE = 2**50  # products with it are integers anyway; it keeps every number in the canonical set

# name: (lowest, highest)
_RANGES = {
    "version": (1, 2**31),
    "epoch_s": (1, 86_400),
    "snapshot_min_interval_s": (1, 86_400),
    "signature_window_s": (1, 3_600),
    "liveness_window_s": (2, 86_400),
    "price_cap_micro_usd_h": (1, _LARGE),
    "lifetime_cap_h": (1, 87_600),
    "job_world_size_max": (1, 4_096),
    "job_nnodes_max": (1, 512),
    "job_nproc_max": (1, 64),
    "job_timeout_s_max": (1, 2_592_000),
    "job_gpus_max": (1, 4_096),
    "concurrent_world_size_max": (1, _LARGE),
    "large_job_world_size": (1, _LARGE),
    "concurrent_large_jobs_max": (0, _LARGE),
    "max_attempts": (1, 100),
    "max_wall_s": (1, 31_536_000),
    "gang_timeout_s": (1, 86_400),
    "kill_grace_s": (0, 3_600),
    "capacity_wait_s": (1, 2_592_000),
    "demand_share_ppm": (0, PPM),
    "supply_share_ppm": (0, PPM),
    "window_attempts": (1, 1_000),  # the folds keep no more outcomes per submitter
    "window_age_s": (1, 31_536_000),
    "credit_slot_s": (1, 86_400),
    "self_deal_damping_ppm": (0, PPM),
    "credit_requires_known_owner": (0, 1),
    "spam_free_fail_ppm": (0, PPM - 1),
    "efficiency_floor_ppm": (0, PPM),
    "tee_bonus_tdx_ppm": (PPM, 10 * PPM),
    "tee_bonus_tdx_gpu_ppm": (PPM, 10 * PPM),
    "weight_top_k": (1, 256),
    "weight_cap_ppm": (1, PPM),
    "weight_dust_ppm": (0, PPM),
    "refusal_bucket": (0, 1_000_000),
    "refusal_refill_per_min": (0, 1_000_000),
    "refusal_bytes_per_day": (0, _LARGE),
    "nodes_per_hotkey_max": (1, 100_000),
    "inventory_bytes_max": (0, 16 * 1024),
    "free_text_chars_max": (0, 4_096),
    "private_retention_s": (0, 315_360_000),
    "unverified_value_ppm": (0, 100 * PPM),
}

CLASS_VALUE_MAX_PPM = 100 * PPM


def check_policy(policy: Policy) -> Refused | None:
    """Refuse a policy whose numbers are out of range or whose tables are inconsistent; `field` names the place."""
    for name, (lowest, highest) in _RANGES.items():
        if not lowest <= getattr(policy, name) <= highest:
            return _invalid(name, f"must be {lowest} to {highest}")
    if policy.demand_share_ppm + policy.supply_share_ppm != PPM:
        return _invalid("supply_share_ppm", f"the two shares must add up to {PPM}")
    return _check_classes(policy) or _check_bandwidths(policy) or _check_images(policy)


def _check_classes(policy: Policy) -> Refused | None:
    rows = policy.class_values
    if _repeats(row.gpu_class for row in rows):
        return _invalid("class_values", "a GPU class comes twice")
    if not all(row.gpu_class and row.vendor and 0 <= row.value_ppm <= CLASS_VALUE_MAX_PPM for row in rows):
        return _invalid("class_values", f"a row needs a class, a vendor and a value up to {CLASS_VALUE_MAX_PPM}")
    return None


def _check_bandwidths(policy: Policy) -> Refused | None:
    rows = policy.expected_bandwidth
    if _repeats((row.program, row.hardware_class, row.fabric, row.nodes) for row in rows):
        return _invalid("expected_bandwidth", "a row comes twice")
    if not all(row.program and row.nodes >= 1 and 1 <= row.bytes_per_s <= _LARGE for row in rows):
        return _invalid("expected_bandwidth", "a row needs a program, a node and a positive bandwidth")
    return None


def _check_images(policy: Policy) -> Refused | None:
    if _repeats(policy.image_allowlist) or not all(policy.image_allowlist):
        return _invalid("image_allowlist", "an image is empty or comes twice")
    return None


def _repeats(keys: Iterable[object]) -> bool:
    found = list(keys)
    return len(set(found)) != len(found)


def _invalid(name: str, message: str) -> Refused:
    return Refused("policy_invalid", f"{name}: {message}", field=f"policy.{name}")
