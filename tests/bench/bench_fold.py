"""Read, decode and fold N events, against the same loop without the project's types: rows, orjson, a dictionary."""

import tempfile
import time
from pathlib import Path

import orjson
from rounds import compare, is_large

from events.ledger import LedgerReader
from events.registry import decode
from events.types.market import LeaseEnded, LeaseStarted, OfferListed, ProviderRegistered
from events.types.nodes import NodeFacts, NodeRegistered, NodeSeen
from projections.fold import State, evolve
from tests.support import ledger_files

PAGE = 1000
NODES = 200


def history(number: int) -> list[object]:
    """The events of command `number`: nodes first, then heartbeats, one in ten an offer, its lease and the end."""
    if number == 0:
        return [ProviderRegistered(provider_id="p", hotkey="5provider")]
    if number <= NODES:
        facts = NodeFacts(gpu_model="H100", gpu_count=8, ssh_user="miner", ssh_endpoint="hmac-sha256:" + "0" * 64)
        return [NodeRegistered(node_id=f"node-{number}", provider_id="p", facts=facts)]
    node = f"node-{number % NODES + 1}"
    if number % 10:
        return [NodeSeen(node_id=node)]
    lease, offer = f"lease-{number}", f"offer-{number}"
    listed = OfferListed(
        offer_id=offer,
        provider_id="p",
        node_ids=(node,),
        mode="single",
        gpu_model="H100",
        gpu_count=8,
        require_ib=False,
        tee="none",
        price_micro_usd_h=1,
        max_lifetime_us=1,
    )
    started = LeaseStarted(
        lease_id=lease,
        pod_id=f"pod-{number}",
        offer_id=offer,
        renter="5renter",
        provider_id="p",
        provider="5provider",
        node_ids=(node,),
        mode="single",
        price_micro_usd_h=1,
        lifetime_us=1,
        ends_at_us=1,
    )
    ended = LeaseEnded(lease_id=lease, status="expired", reason_code="max_lifetime", billable_us=1, amount_micro_usd=1)
    return [listed, started, ended]


def write(path: Path, size: int) -> None:
    """A ledger of about `size` events."""
    ledger = ledger_files.new_ledger(path)
    number = 0
    while ledger.size < size:
        batch = ledger.batch(ledger_files.START_US + number)
        for _ in range(PAGE):
            ledger_files.add(batch, number + 2, history(number))
            number += 1
        ledger.commit(batch)
    ledger.close()


def ours(path: Path) -> float:
    """Events per second through the project's types."""
    reader, state, after = LedgerReader(path), State(), 0
    began = time.perf_counter()
    while page := reader.entries(after, PAGE):
        for pos, entry in page:
            evolve(state, decode(pos, entry))
        state.journal.forget()
        after = page[-1][0]
    took = time.perf_counter() - began
    reader.close()
    return after / took


def bare(path: Path) -> float:
    """Events per second with dictionaries: the newest data of each stream, and a count of each type."""
    reader, after = LedgerReader(path), 0
    newest: dict[str, dict[str, object]] = {}
    counts: dict[str, int] = {}
    began = time.perf_counter()
    while page := reader.entries(after, PAGE):
        for _, entry in page:
            event = orjson.loads(entry)
            newest[event["stream"]] = {**newest.get(event["stream"], {}), **event["data"], "at_us": event["at_us"]}
            counts[event["type"]] = counts.get(event["type"], 0) + 1
        after = page[-1][0]
    took = time.perf_counter() - began
    reader.close()
    return after / took


def main(size: int | None = None) -> float:
    """Print the ratio of rates; 0.5 is twice the time."""
    size = size or (1_000_000 if is_large() else 100_000)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "challenge.sqlite3"
        write(path, size)
        return compare(f"fold of {size:,} events", lambda: ours(path), lambda: bare(path), 3)


if __name__ == "__main__":
    main()
