"""The nouns of the command line. Each is a module with `app`, loaded when its name is typed."""

from typing import NamedTuple


class Noun(NamedTuple):
    """Where a noun lives. attribute: `app` for a group, else the name of a single command's app."""

    module: str
    attribute: str = "app"


NOUNS: dict[str, Noun] = {
    "calibrate": Noun("hypercluster.cli.calibrate"),
    "cluster": Noun("hypercluster.cli.cluster"),
    "demo": Noun("hypercluster.cli.demo"),
    "events": Noun("hypercluster.cli.events"),
    "health": Noun("hypercluster.cli.service", "health"),
    "jobs": Noun("hypercluster.cli.jobs"),
    "keys": Noun("hypercluster.cli.keys_commands"),
    "leaderboard": Noun("hypercluster.cli.scores", "leaderboard"),
    "leases": Noun("hypercluster.cli.market", "leases"),
    "ledger": Noun("hypercluster.cli.ledger"),
    "marketplace": Noun("hypercluster.cli.market", "marketplace"),
    "nodes": Noun("hypercluster.cli.nodes"),
    "offers": Noun("hypercluster.cli.market", "offers"),
    "operator": Noun("hypercluster.cli.operator"),
    "providers": Noun("hypercluster.cli.nodes", "providers"),
    "replay": Noun("hypercluster.cli.replay"),
    "score": Noun("hypercluster.cli.scores", "score"),
    "scores": Noun("hypercluster.cli.scores", "score"),
    "serve": Noun("hypercluster.cli.serve"),
    "server": Noun("hypercluster.cli.operator", "server"),
    "version": Noun("hypercluster.cli.service", "version"),
    "weights": Noun("hypercluster.cli.scores", "weights"),
}
