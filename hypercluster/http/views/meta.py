"""Health, version and policy on the wire."""

from collections.abc import Iterable, Sequence

import msgspec

from hypercluster.http import wire
from hypercluster.http.ports import Check, Service
from hypercluster.http.views import Shown
from projections.folds.policy import PolicyRecord

CAPABILITIES = ("challenge.scoring", "challenge.ordinary_proof", "challenge.state")

# The release of Base's SDK whose contract is served; orchestrators compare these texts.
BASE_DISTRIBUTION = "base"
BASE_VERSION = "3.1.2"
API_VERSION = "1.0"
SDK_VERSION = "1.0.0"


def is_ready(checks: Iterable[Check]) -> bool:
    """Whether every required check is ok."""
    return all(check.status == "ok" for check in checks if check.required)


def health_view(service: Service) -> Shown:
    """Health. Exactly the keys that Base's schema knows."""
    checks = service.readiness()
    ready = is_ready(checks)
    calm = "ok" if all(check.status == "ok" for check in checks) else "degraded"
    return {
        "status": calm if ready else "unhealthy",
        "slug": service.slug,
        "version": service.settings.version,
        "role": "challenge",
        "ready": ready,
        "capabilities": CAPABILITIES,
        "checks": [{"name": check.name, "status": check.status, "required": check.required} for check in checks],
    }


def version_view(service: Service) -> Shown:
    """Version."""
    return {
        "distribution_name": BASE_DISTRIBUTION,
        "artifact_version": BASE_VERSION,
        "release_id": f"v{BASE_VERSION}",
        "api_version": API_VERSION,
        "challenge_slug": service.slug,
        "challenge_version": service.settings.version,
        "sdk_contract_version": SDK_VERSION,
        "sdk_version": SDK_VERSION,
        "role": "challenge",
        "capabilities": CAPABILITIES,
    }


def policy_view(policies: Sequence[PolicyRecord], now_us: int) -> Shown:
    """The policy in force, and those that are adopted but not in force yet."""
    number = next((i for i in range(len(policies) - 1, 0, -1) if policies[i].effective_us <= now_us), 0)
    return _policy(policies[number]) | {"upcoming": [_policy(policy) for policy in policies[number + 1 :]]}


def _policy(record: PolicyRecord) -> Shown:
    return {
        "digest": record.digest,
        "effective_at": wire.time_text(record.effective_us),
        "seq": record.pos,
        "policy": msgspec.to_builtins(record.policy),
    }
