"""Whose fault a failure is, and whether the attempt is scored: the table of the policy as data."""

SUBMITTER = "submitter"
PROVIDER = "provider"
NOBODY = "nobody"
NONE = "none"

# What a posted claim may state and what voids a score.
INTEGRITY_CODES = frozenset(
    {
        "attestation_fail",
        "image_mutation",
        "image_compose_mutation",
        "rank_desync",
        "inventory_spoof",
        "fabric_lie",
        "forbidden_eth_fallback",
        "quote_invalid",
        "quote_sig_invalid",
        "integrity_fail",
        "allreduce_out_of_band",
        "gpu_probe_fail",
        "gpu_probe_mismatch",
    }
)

# Found by the challenge itself: the node named cheated or did not do its part.
MEASURED_INTEGRITY_CODES = frozenset({"preflight_mismatch", "rank_missing", "transport_forbidden"})

_SUBMITTER_CODES = frozenset({"rank_failed", "timeout", "output_over_quota", "image_not_found"})
_HOST_CODES = frozenset(
    {
        "node_unreachable",
        "node_lost",
        "host_key_mismatch",
        "container_runtime_missing",
        "endpoint_forbidden",
        "ssh_auth_failed",
    }
)
_NOBODY_CODES = frozenset({"cancelled", "no_capacity", "gang_timeout", "control_plane_lost", "lease_ended"})

FAULTS: dict[str, str] = {
    **dict.fromkeys(_SUBMITTER_CODES, SUBMITTER),
    **dict.fromkeys(INTEGRITY_CODES | MEASURED_INTEGRITY_CODES | _HOST_CODES, PROVIDER),
    **dict.fromkeys(_NOBODY_CODES, NOBODY),
}

_SCORED = _SUBMITTER_CODES | INTEGRITY_CODES | MEASURED_INTEGRITY_CODES


def fault_of(failure_code: str | None) -> str:
    """none | submitter | provider | nobody. None is success; a code outside the table is nobody's fault."""
    return NONE if failure_code is None else FAULTS.get(failure_code, NOBODY)


def is_scored(failure_code: str | None) -> bool:
    """Whether an attempt that ended so gets a score. None is success."""
    return failure_code is None or failure_code in _SCORED


def is_integrity(failure_code: str | None) -> bool:
    """Whether the code makes the composite 0 whatever the factors say."""
    return failure_code in INTEGRITY_CODES or failure_code in MEASURED_INTEGRITY_CODES


def outcome_of(failure_code: str | None) -> str:
    """succeeded | timeout | cancelled | failed: how an attempt that ended with this code, and its job, are called."""
    if failure_code is None:
        return "succeeded"
    return failure_code if failure_code in ("timeout", "cancelled") else "failed"
