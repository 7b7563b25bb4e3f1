"""From a score to credit: the arithmetic of slots, shares and spam. Pure, integers with floor division.

Terms are the numbers of the policy that this arithmetic needs. Slots are counted from 1970 in steps of
`credit_slot_s`; an attempt covers the slot of its start, that of its end and all between.
"""

from collections.abc import Iterator, Sequence

import msgspec

from events.types.policy import Policy
from events.types.scores import NodeValue, Score

PPM = 1_000_000
US_PER_S = 1_000_000
WORD_SLOTS = 4096  # slots per bit set

SELF_DEAL = "self_deal"
OWNER_UNKNOWN = "owner_unknown"


class Terms(msgspec.Struct, frozen=True):
    """What decides how credit is given and summed up. Names and units are those of the policy."""

    credit_slot_s: int
    window_attempts: int
    window_age_s: int
    supply_share_ppm: int
    demand_share_ppm: int
    self_deal_damping_ppm: int
    credit_requires_known_owner: int
    spam_free_fail_ppm: int


def terms_of(policy: Policy) -> Terms:
    """The terms of a policy."""
    return Terms(**{name: getattr(policy, name) for name in Terms.__struct_fields__})


def slot_range(score: Score, terms: Terms) -> tuple[int, int]:
    """The first and the last slot that the attempt covers, both included."""
    slot_us = terms.credit_slot_s * US_PER_S
    first = score.started_us // slot_us
    return first, max(first, score.ended_us // slot_us)


def slot_words(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The slots from first to last as (number of the word, bit set within it)."""
    for word in range(first // WORD_SLOTS, last // WORD_SLOTS + 1):
        low = max(first - word * WORD_SLOTS, 0)
        high = min(last - word * WORD_SLOTS, WORD_SLOTS - 1)
        yield word, ((1 << (high - low + 1)) - 1) << low


def is_self_deal(score: Score, node: NodeValue) -> bool:
    """Whether submitter and provider are one party, as far as is known."""
    return node.relation == SELF_DEAL or node.provider == score.submitter


def role_credit(score: Score, node: NodeValue, slots: int, terms: Terms) -> tuple[int, int]:
    """What `slots` slots on this node give the provider (supply) and the submitter (demand)."""
    if node.relation == OWNER_UNKNOWN and terms.credit_requires_known_owner:
        return 0, 0
    credit = node.value * slots
    supply, demand = credit * terms.supply_share_ppm // PPM, credit * terms.demand_share_ppm // PPM
    if is_self_deal(score, node):
        kept = PPM - terms.self_deal_damping_ppm
        supply, demand = supply * kept // PPM, demand * kept // PPM
    return 0 if node.provider in score.supply_void else supply, 0 if score.demand_void else demand


def keep_ppm(outcomes: Sequence[int], terms: Terms) -> int:
    """The share of its demand that a submitter keeps. outcomes: newest last, 1 where the submitter was at fault."""
    window = outcomes[-terms.window_attempts :] if terms.window_attempts > 0 else ()
    if not window:
        return PPM
    failed_ppm = sum(window) * PPM // len(window)
    return PPM - max(0, failed_ppm - terms.spam_free_fail_ppm) * PPM // (PPM - terms.spam_free_fail_ppm)
