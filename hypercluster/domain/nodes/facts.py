"""From a registration's body to the facts that stand in the ledger."""

from decimal import Decimal
from typing import NamedTuple

from events.types.nodes import NodeFacts
from hypercluster.domain import strict_json
from hypercluster.domain.kernel import Refused
from hypercluster.domain.nodes.commands import RegisterNode
from hypercluster.domain.nodes.ssh_text import is_host_key, is_user
from hypercluster.domain.prices import Number, floor

MB_PER_GB = 1000
BYTES_PER_S_PER_GBPS = 125_000_000
IB_RATE_GBPS_MAX = 100_000
RESERVED_PREFIXES = ("gpu_probe_", "measured_")  # words of the challenge's own probe

_UP = ("", "ACTIVE", "UP")


class _Inventory(NamedTuple):
    text: str | None
    has_ib: bool
    ib_rate_bytes_per_s: int | None


def facts_of(body: RegisterNode, old: NodeFacts | None, inventory_bytes_max: int) -> NodeFacts | Refused:
    """The node's claims after this registration.

    What the body leaves out keeps its old value; gpu_model, gpu_count and tee_capability are always replaced. Memory
    is in MB of 10^6 bytes, an InfiniBand rate in bytes/s, both rounded down.
    """
    gpu_model = body.gpu_model.strip()
    if not gpu_model:
        return Refused("invalid_gpu_model", "gpu_model is blank", field="gpu_model")
    if body.ssh_user is not None and not is_user(body.ssh_user):
        return Refused("invalid_ssh_user", "ssh_user is a Unix user name other than root", field="ssh_user")
    if body.ssh_host_key is not None and not is_host_key(body.ssh_host_key):
        hint = "the first two words of the machine's ssh_host_ed25519_key.pub"
        return Refused("invalid_ssh_host_key", "not a whole SSH public key", field="ssh_host_key", hint=hint)
    kept = old or NodeFacts(gpu_model=gpu_model, gpu_count=body.gpu_count)
    inventory = _inventory(body.inventory, kept, inventory_bytes_max)
    if isinstance(inventory, Refused):
        return inventory
    return NodeFacts(
        gpu_model=gpu_model,
        gpu_count=body.gpu_count,
        tee_capability=body.tee_capability.strip().lower() or "none",
        hostname=body.hostname or kept.hostname,
        ssh_endpoint=body.ssh_endpoint or kept.ssh_endpoint,
        ssh_user=body.ssh_user or kept.ssh_user,
        ssh_host_key=body.ssh_host_key or kept.ssh_host_key,
        cpu_cores=body.cpu_cores or kept.cpu_cores,
        mem_mb=kept.mem_mb if body.mem_gb is None else floor(body.mem_gb, MB_PER_GB),
        location_hint=body.location_hint or kept.location_hint,
        inventory=inventory.text,
        has_ib=inventory.has_ib,
        ib_rate_bytes_per_s=inventory.ib_rate_bytes_per_s,
    )


def _inventory(claimed: dict[str, object] | None, kept: NodeFacts, bytes_max: int) -> _Inventory | Refused:
    if claimed is None:
        return _Inventory(kept.inventory, kept.has_ib, kept.ib_rate_bytes_per_s)
    cleaned = {key: value for key, value in claimed.items() if not key.startswith(RESERVED_PREFIXES)}
    text = strict_json.dumps(cleaned)
    if len(text.encode()) > bytes_max:
        return Refused("inventory_too_large", f"the inventory exceeds {bytes_max} bytes", field="inventory")
    devices = cleaned.get("ib_devices")
    devices = devices if isinstance(devices, list) else []
    rates = [rate for rate in (_rate(cleaned), *(_rate(one) for one in devices if _is_up(one))) if rate is not None]
    if any(rate > IB_RATE_GBPS_MAX for rate in rates):
        return Refused("invalid_inventory", f"an InfiniBand rate above {IB_RATE_GBPS_MAX} Gbit/s", field="inventory")
    given = _rate(cleaned)
    has_ib = cleaned.get("has_ib") is True or cleaned.get("ib") is True or bool(devices) or (given or 0) > 0
    return _Inventory(text, has_ib, floor(max(rates), BYTES_PER_S_PER_GBPS) if rates else None)


def _rate(claimed: object) -> Number | None:
    """`ib_rate_gbps` of an inventory or `rate_gbps` of a device, where it is a number and not negative."""
    if not isinstance(claimed, dict):
        return None
    value = claimed.get("ib_rate_gbps", claimed.get("rate_gbps"))
    if isinstance(value, bool) or not isinstance(value, Decimal | int) or value < 0:
        return None
    return value


def _is_up(device: object) -> bool:
    """A device counts unless it says that it is in another state than active."""
    if not isinstance(device, dict):
        return False
    return str(device.get("state", "ACTIVE")).strip().upper() in _UP
