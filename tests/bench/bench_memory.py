"""Memory of the writer's process after many commands: bytes per command, against the bytes of their entries."""

import tempfile
from pathlib import Path

from bench_writer import prepared, rate
from rounds import is_large

from tests.support import ledgers

STEP = 5_000


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main(count: int | None = None) -> float:
    """Print what one command leaves behind in memory, as a ratio to the bytes of its entry."""
    count = count or (100_000 if is_large() else 10_000)
    with tempfile.TemporaryDirectory() as directory:
        town = ledgers.Town(Path(directory) / "data")
        rate(town, prepared(town, "warm", 1_000), 1_000)
        before, entries = resident_bytes(), 0
        done = 0
        while done < count:
            commands = prepared(town, f"step {done}", min(STEP, count - done))
            entries += sum(len(command.record.text or "") + len(command.record.body or "") for command in commands)
            rate(town, commands, 1_000)
            done += len(commands)
            del commands
        grown = resident_bytes() - before
        town.close()
    ratio = grown / entries
    print(f"memory after {count:,} commands: {grown / 2**20:.1f} MiB more, {grown // count:,} bytes a command, "
          f"ratio {ratio:.2f} to their signed texts and bodies")  # fmt: skip
    return ratio


if __name__ == "__main__":
    main()
