"""A small job that really computes over the network: every rank sums its share, a ring adds the shares up.

Run as one process per rank with the usual variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Rank 0 hands out the
addresses; then WORLD_SIZE - 1 rounds pass partial sums round the ring. Each rank checks the total against the closed
form and exits 1 if it differs. Standard library only.
"""

import json
import os
import socket
import sys
import time

COUNT = 400_000
TIMEOUT_S = 20.0


def share(rank: int, world: int) -> int:
    """Sum of squares of this rank's share of 1..COUNT."""
    return sum(number * number for number in range(rank + 1, COUNT + 1, world))


def total() -> int:
    """The closed form that all shares must add up to."""
    return COUNT * (COUNT + 1) * (2 * COUNT + 1) // 6


def dial(address: tuple[str, int]) -> socket.socket:
    """Connect, waiting for a peer that has not started yet."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return socket.create_connection(address, timeout=TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def exchange(rank: int, world: int, own: tuple[str, int], master: tuple[str, int]) -> list[tuple[str, int]]:
    """Every rank's listening address, in rank order. Rank 0 collects them and sends the list to all."""
    if rank == 0:
        return _collect(world, own, master)
    with dial(master) as link, link.makefile("rw") as lines:
        lines.write(json.dumps([rank, *own]) + "\n")
        lines.flush()
        return [(str(host), int(port)) for host, port in json.loads(lines.readline())]


def _collect(world: int, own: tuple[str, int], master: tuple[str, int]) -> list[tuple[str, int]]:
    addresses = {0: own}
    with socket.create_server(master) as server:
        server.settimeout(TIMEOUT_S)
        links = []
        while len(addresses) < world:
            link, _ = server.accept()
            link.settimeout(TIMEOUT_S)
            lines = link.makefile("rw")
            rank, host, port = json.loads(lines.readline())
            addresses[rank] = (host, port)
            links.append((link, lines))
        ordered = [addresses[rank] for rank in range(world)]
        for link, lines in links:
            lines.write(json.dumps(ordered) + "\n")
            lines.close()
            link.close()
    return ordered


def ring_sum(rank: int, world: int, value: int, server: socket.socket, addresses: list[tuple[str, int]]) -> int:
    """Add up all ranks' values by passing them round the ring."""
    following = dial(addresses[(rank + 1) % world])
    previous, _ = server.accept()
    previous.settimeout(TIMEOUT_S)
    with following, previous, following.makefile("w") as out, previous.makefile("r") as into:
        passing = result = value
        for _ in range(world - 1):
            out.write(f"{passing}\n")
            out.flush()
            passing = int(into.readline())
            result += passing
    return result


def main() -> int:
    """Exit 0 when the ring's total equals the closed form."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    host = os.environ.get("HYPER_NODE_ADDR", master[0])
    with socket.create_server((host, 0)) as server:
        server.settimeout(TIMEOUT_S)
        own = (host, int(server.getsockname()[1]))
        addresses = exchange(rank, world, own, master)
        found = ring_sum(rank, world, share(rank, world), server, addresses) if world > 1 else share(0, 1)
    print(f"rank {rank} of {world}: sum of squares up to {COUNT} is {found}")  # noqa: T201
    return 0 if found == total() else 1


if __name__ == "__main__":
    sys.exit(main())
