"""Policy version 1 as this release ships it, for both profiles. `check.py` says what a policy may hold."""

import msgspec
from msgspec.structs import replace

from events import codec
from events.types.policy import ClassValue, ExpectedBandwidth, Policy
from hypercluster.domain.kernel import PPM, digest_of

# USD cents per GPU hour. The mutable price catalogue never feeds weights: this table does.
_CENTS_PER_H = {
    "H100_80GB": 249,
    "H200_141GB": 349,
    "A100_80GB": 189,
    "A100_40GB": 129,
    "A10_24GB": 45,
    "A40_48GB": 85,
    "A6000_48GB": 75,
    "L40S_48GB": 115,
    "L40_48GB": 95,
    "L4_24GB": 40,
    "V100_32GB": 55,
    "V100_16GB": 39,
    "T4_16GB": 22,
    "RTX_4090": 45,
    "RTX_3090": 28,
}

_CLASS_VALUES = tuple(
    ClassValue(gpu_class=name, vendor="nvidia", value_ppm=cents * PPM // _CENTS_PER_H["H100_80GB"])
    for name, cents in _CENTS_PER_H.items()
)

POLICY_V1 = Policy(
    version=1,
    epoch_s=360,
    snapshot_min_interval_s=60,
    signature_window_s=300,
    liveness_window_s=120,
    price_cap_micro_usd_h=1_000_000_000,
    lifetime_cap_h=720,
    job_world_size_max=64,
    job_nnodes_max=16,
    job_nproc_max=8,
    job_timeout_s_max=86_400,
    job_gpus_max=128,
    concurrent_world_size_max=64,
    large_job_world_size=4,
    concurrent_large_jobs_max=4,
    max_attempts=3,
    max_wall_s=86_400,
    gang_timeout_s=300,
    kill_grace_s=10,
    capacity_wait_s=3_600,
    demand_share_ppm=300_000,
    supply_share_ppm=700_000,
    window_attempts=50,
    window_age_s=259_200,
    credit_slot_s=900,
    self_deal_damping_ppm=1_000_000,
    credit_requires_known_owner=1,
    spam_free_fail_ppm=200_000,
    efficiency_floor_ppm=0,
    tee_bonus_tdx_ppm=1_080_000,
    tee_bonus_tdx_gpu_ppm=1_200_000,
    weight_top_k=256,
    weight_cap_ppm=1_000_000,
    weight_dust_ppm=1,
    refusal_bucket=120,
    refusal_refill_per_min=60,
    refusal_bytes_per_day=64 * 1024 * 1024,
    nodes_per_hotkey_max=256,
    inventory_bytes_max=4 * 1024,
    free_text_chars_max=256,
    private_retention_s=14 * 86_400,
    unverified_value_ppm=1_000,
    image_allowlist=(),
    class_values=_CLASS_VALUES,
    expected_bandwidth=(),
)

# (program, transport, nodes, bytes/s): what loopback reaches on a small machine, two ranks to a node, with some room.
_LOOPBACK = (
    ("ring-xor-1", "eth", 1, 24_000_000),
    ("ring-xor-1", "eth", 2, 14_000_000),
    ("ring-xor-1", "eth", 3, 9_000_000),
    ("ring-xor-1", "eth", 4, 8_000_000),
    ("digest-1", "none", 1, 500_000_000),
)

SIM_POLICY = replace(
    POLICY_V1,
    epoch_s=5,
    snapshot_min_interval_s=1,
    gang_timeout_s=20,
    kill_grace_s=2,
    capacity_wait_s=20,
    credit_slot_s=1,
    credit_requires_known_owner=0,
    unverified_value_ppm=1_000_000,
    expected_bandwidth=tuple(
        ExpectedBandwidth(
            program=program, hardware_class="unverified", fabric=fabric, nodes=nodes, bytes_per_s=bytes_per_s
        )
        for program, fabric, nodes, bytes_per_s in _LOOPBACK
    ),
)


def policy_of(profile: str) -> Policy:
    """The policy that a new ledger of this profile begins with."""
    return SIM_POLICY if profile == "sim" else POLICY_V1


def policy_digest(policy: Policy) -> str:
    """`sha256:` and the hex of the canonical document. Raises: events.errors.CodecError"""
    return digest_of(codec.encode(msgspec.to_builtins(policy)))
