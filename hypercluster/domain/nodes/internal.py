"""What workers report about nodes."""

from hypercluster.domain.kernel import StrictBody


class ReclaimNode(StrictBody):
    """The node seems gone. `last_seen_us`: of the record that the worker read; a newer heartbeat makes it moot.

    Only the sim profile looks at the others: `limit_us` in place of the policy's limit, `aged_us` as further silence.
    """

    node_id: str
    last_seen_us: int | None = None
    limit_us: int | None = None
    aged_us: int = 0
