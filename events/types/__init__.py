"""All event types. Importing this package registers them."""

from events.types import jobs, ledger, market, nodes, policy, scores, weights

__all__ = ["jobs", "ledger", "market", "nodes", "policy", "scores", "weights"]
