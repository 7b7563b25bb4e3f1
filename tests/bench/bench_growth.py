"""Does the writer slow down with the ledger? The rate after 1,000 stored events against that after many more."""

import tempfile
import time
from pathlib import Path
from statistics import median

from bench_writer import GROUP, prepared, rate
from rounds import is_large

from tests.support import ledgers

SAMPLE = 2_000


def grow(town: ledgers.Town, size: int) -> None:
    """Fill the ledger with commands up to this many events."""
    while town.ledger.size < size:
        rate(town, prepared(town, f"fill {town.ledger.size}", min(10_000, size - town.ledger.size)), 1_000)


def sampled(town: ledgers.Town, count: int) -> float:
    """The median rate of five samples."""
    batches = (prepared(town, f"sample {town.ledger.size} {number}", count) for number in range(5))
    return median(rate(town, commands, GROUP) for commands in batches)


def main(small: int = 1_000, size: int | None = None, count: int = SAMPLE) -> float:
    """Print the ratio of the late to the early rate."""
    size = size or (1_000_000 if is_large() else 50_000)
    with tempfile.TemporaryDirectory() as directory:
        town = ledgers.Town(Path(directory) / "data")
        grow(town, small)
        early = sampled(town, count)
        began = time.perf_counter()
        grow(town, size)
        print(f"filled to {town.ledger.size:,} events in {time.perf_counter() - began:.0f} s")
        late = sampled(town, count)
        town.close()
    print(f"writer at {size:,} events: {late:,.0f}/s against {early:,.0f}/s at {small:,}, ratio {late / early:.2f}")
    return late / early


if __name__ == "__main__":
    main()
