"""The numbers that decide, who owns which hotkey, and whom an operator excluded."""

import msgspec

from events.envelope import Event
from events.registry import event


class ClassValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Worth of one verified GPU class; H100_80GB is 1,000,000 ppm. `memory_mib` orders classes of one family."""

    gpu_class: str
    vendor: str
    value_ppm: int


class ExpectedBandwidth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a preflight program should reach on `nodes` nodes of one hardware class over one fabric."""

    program: str
    hardware_class: str
    fabric: str
    nodes: int
    bytes_per_s: int


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole policy. Integers only; units stand in the names, ratios are parts per million."""

    version: int
    epoch_s: int
    snapshot_min_interval_s: int
    signature_window_s: int
    liveness_window_s: int
    price_cap_micro_usd_h: int
    lifetime_cap_h: int
    job_world_size_max: int
    job_nnodes_max: int
    job_nproc_max: int
    job_timeout_s_max: int
    job_gpus_max: int
    concurrent_world_size_max: int
    large_job_world_size: int
    concurrent_large_jobs_max: int
    max_attempts: int
    max_wall_s: int
    gang_timeout_s: int
    kill_grace_s: int
    capacity_wait_s: int
    demand_share_ppm: int
    supply_share_ppm: int
    window_attempts: int
    window_age_s: int
    credit_slot_s: int
    self_deal_damping_ppm: int
    credit_requires_known_owner: int
    spam_free_fail_ppm: int
    efficiency_floor_ppm: int
    tee_bonus_tdx_ppm: int
    tee_bonus_tdx_gpu_ppm: int
    weight_top_k: int
    weight_cap_ppm: int
    weight_dust_ppm: int
    refusal_bucket: int
    refusal_refill_per_min: int
    refusal_bytes_per_day: int
    nodes_per_hotkey_max: int
    inventory_bytes_max: int
    free_text_chars_max: int
    private_retention_s: int
    unverified_value_ppm: int
    image_allowlist: tuple[str, ...]
    class_values: tuple[ClassValue, ...]
    expected_bandwidth: tuple[ExpectedBandwidth, ...]


@event("policy.adopted")
class PolicyAdopted(Event, frozen=True):
    """A policy was adopted; it holds from `effective_us`, an epoch edge (the first policy: at once)."""

    digest: str  # sha256:<hex> of the canonical document
    effective_us: int
    policy: Policy

    def stream(self) -> str:
        return "policy"


class MetagraphEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One hotkey of the subnet and the coldkey that owns it."""

    uid: int
    hotkey: str
    coldkey: str


@event("metagraph.adopted")
class MetagraphAdopted(Event, frozen=True):
    """An operator adopted the subnet's list of hotkeys and owners; `parts` events with its entries follow."""

    netuid: int
    block: int
    digest: str
    count: int
    parts: int

    def stream(self) -> str:
        return "metagraph"


@event("metagraph.part")
class MetagraphPart(Event, frozen=True):
    """Entries of the list that is being adopted. The list is in force with its last part."""

    digest: str
    part: int  # from 1
    entries: tuple[MetagraphEntry, ...]

    def stream(self) -> str:
        return "metagraph"


@event("provider.suspended")
class ProviderSuspended(Event, frozen=True):
    """An operator suspended or banned a provider: its offers are withdrawn, it cannot list."""

    provider_id: str
    status: str  # suspended | banned
    reason_code: str

    def stream(self) -> str:
        return f"provider/{self.provider_id}"


@event("provider.readmitted")
class ProviderReadmitted(Event, frozen=True):
    """An operator let a provider back in."""

    provider_id: str
    reason_code: str

    def stream(self) -> str:
        return f"provider/{self.provider_id}"
