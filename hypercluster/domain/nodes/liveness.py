"""When a node counts as seen, and when as gone."""

from events.types.policy import Policy
from hypercluster.domain.kernel import US_PER_S
from projections.folds.nodes import Node


def is_seen_due(node: Node, at_us: int, policy: Policy) -> bool:
    """Whether a heartbeat now is worth an event: half a window since the last, or the node was offline."""
    return node.status == "offline" or 2 * (at_us - node.last_seen_us) >= policy.liveness_window_s * US_PER_S


def silence_limit_us(policy: Policy) -> int:
    """One and a half liveness windows."""
    return 3 * policy.liveness_window_s * US_PER_S // 2


def is_gone(node: Node, at_us: int, limit_us: int) -> bool:
    """Whether the node was not seen for so long."""
    return at_us - node.last_seen_us >= limit_us
