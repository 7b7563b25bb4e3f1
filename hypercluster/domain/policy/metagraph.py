"""The subnet's list of hotkeys and owners, adopted by an operator: one event for the list, one for every 64 entries."""

from typing import cast

import msgspec

from events import codec
from events.types.policy import MetagraphAdopted, MetagraphEntry, MetagraphPart
from hypercluster.domain.identity.authentication import is_hotkey
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Refused, digest_of
from hypercluster.domain.policy.commands import AdoptMetagraph
from projections.fold import State
from projections.folds.ledger import THE_LEDGER

PART_ENTRIES = 64


def adopt(state: State, command: Command, context: Context) -> Decision:
    """A list of a later block replaces the one in force; the same list again changes nothing."""
    body = cast(AdoptMetagraph, command.body)
    refused = _check(body, state.ledger.info[THE_LEDGER].profile)
    if refused is not None:
        return refused
    entries = tuple(
        MetagraphEntry(uid=one.uid, hotkey=one.hotkey, coldkey=one.coldkey)
        for one in sorted(body.entries, key=lambda one: one.uid)
    )
    digest = list_digest(body.netuid, body.block, entries)
    last = state.policy.metagraph_at(context.at_us)
    if last is not None and last.digest == digest:
        return Accepted((), digest, seq=last.pos)
    if last is not None and last.netuid != body.netuid:
        return Refused("metagraph_outdated", f"this ledger follows subnet {last.netuid}", field="netuid", seq=last.pos)
    if last is not None and body.block <= last.block:
        message = f"the list of block {last.block} is in force; use one of a later block"
        return Refused("metagraph_outdated", message, field="block", seq=last.pos)
    parts = tuple(entries[start : start + PART_ENTRIES] for start in range(0, len(entries), PART_ENTRIES))
    adopted = MetagraphAdopted(
        netuid=body.netuid, block=body.block, digest=digest, count=len(entries), parts=len(parts)
    )
    rows = (MetagraphPart(digest=digest, part=number, entries=part) for number, part in enumerate(parts, 1))
    return Accepted((adopted, *rows), digest, created=True)


def list_digest(netuid: int, block: int, entries: tuple[MetagraphEntry, ...]) -> str:
    """`sha256:` and the hex of the canonical list, entries in the order of their uids."""
    rows = [msgspec.to_builtins(entry) for entry in entries]
    return digest_of(codec.encode({"netuid": netuid, "block": block, "entries": rows}))


def _check(body: AdoptMetagraph, profile: str) -> Refused | None:
    uids: set[int] = set()
    hotkeys: set[str] = set()
    for number, entry in enumerate(body.entries):
        place = f"entries.{number}"
        if entry.uid in uids:
            return Refused("metagraph_invalid", f"uid {entry.uid} comes twice", field=f"{place}.uid")
        if entry.hotkey in hotkeys:
            return Refused("metagraph_invalid", "the hotkey comes twice", field=f"{place}.hotkey")
        if not is_hotkey(entry.hotkey, profile):
            return Refused("metagraph_invalid", "not a canonical hotkey address", field=f"{place}.hotkey")
        if not is_hotkey(entry.coldkey, profile):
            return Refused("metagraph_invalid", "not a canonical coldkey address", field=f"{place}.coldkey")
        uids.add(entry.uid)
        hotkeys.add(entry.hotkey)
    return None
