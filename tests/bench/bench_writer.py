"""The writer in-process: commands decided and committed in groups, against one commit for each command."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rounds import compare, is_large

from hypercluster.runtime.writer import Submission
from tests.support import ledgers

GROUP = 100


def prepared(town: ledgers.Town, prefix: str, count: int) -> list[Submission]:
    """Signed registrations of `count` fresh hotkeys: every one is accepted and makes an event."""
    people = (ledgers.person(f"{prefix}-{number}", "ed25519") for number in range(count))
    return [town.request(one, "POST", "/v1/providers/register", {"display_name": prefix}) for one in people]


def rate(town: ledgers.Town, commands: Sequence[Submission], group: int) -> float:
    """Commands per second in groups of this size."""
    began = time.perf_counter()
    for first in range(0, len(commands), group):
        town.submit(commands[first : first + group])
    return len(commands) / (time.perf_counter() - began)


def main(count: int | None = None) -> float:
    """Print the ratio of grouped to single commits."""
    count = count or (5_000 if is_large() else 1_000)
    with tempfile.TemporaryDirectory() as directory:
        town = ledgers.Town(Path(directory) / "data")
        turns = iter(range(1_000))
        ratio = compare(
            f"writer, groups of {GROUP} against single commits",
            lambda: rate(town, prepared(town, f"group {next(turns)}", count), GROUP),
            lambda: rate(town, prepared(town, f"single {next(turns)}", count), 1),
        )
        town.close()
    return ratio


if __name__ == "__main__":
    main()
