"""Every event in one sentence, for people who follow the ledger in a terminal."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from events import registry
from events.envelope import Event
from events.types import jobs, ledger, market, nodes, policy, scores, weights
from events.types.scores import Score

_HOUR_US = 3_600_000_000


def describe(event: Event) -> str:
    """What happened, in words; ids and hotkeys are shortened, text of strangers is not escaped yet."""
    sentence: Callable[[Any], str] = _SENTENCES[type(event)]
    return sentence(event)


def line(item: Mapping[str, Any]) -> str:
    """Number, time (UTC), type and sentence of an event as a server shows it."""
    head = f"{item['seq']:>8}  {when(item['at_us'])}  {item['type']:<20}"
    cls = registry.known_types().get(item["type"])
    if cls is None or cls.type_version != item["type_version"]:
        return f"{head}  (not known to this release)"
    return f"{head}  {describe(msgspec.convert(item['data'], cls))}"


def when(at_us: int) -> str:
    """ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def short(text: str) -> str:
    """The first eight characters of an id or hotkey."""
    return text if len(text) <= 12 else text[:8]


def money(micro_usd: int) -> str:
    """US dollars with six decimals, without trailing zeros."""
    text = f"{micro_usd // 1_000_000}.{micro_usd % 1_000_000:06d}".rstrip("0").rstrip(".")
    return f"{text} USD"


def hours(us: int) -> str:
    """Hours with up to three decimals."""
    text = f"{us // _HOUR_US}.{us % _HOUR_US * 1000 // _HOUR_US:03d}".rstrip("0").rstrip(".")
    return f"{text} h"


def percent(ppm: int) -> str:
    """Parts per million as a percentage."""
    text = f"{ppm // 10_000}.{ppm % 10_000:04d}".rstrip("0").rstrip(".")
    return f"{text} %"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _opened(e: ledger.LedgerOpened) -> str:
    return f"the ledger {e.origin} began ({e.profile}), with {_count(len(e.operators), 'operator')}"


def _clock(e: ledger.ClockAccepted) -> str:
    return f"an operator accepted the clock at {when(e.wall_us)}; the last event was at {when(e.last_event_us)}"


def _refused(e: ledger.CommandRefused) -> str:
    return f"{e.kind} of {short(e.hotkey)} was refused: {e.code}, {e.message}"


def _listed(e: market.OfferListed) -> str:
    price = f"{money(e.price_micro_usd_h)}/h for up to {hours(e.max_lifetime_us)}"
    return f"offer {short(e.offer_id)}: {_count(len(e.node_ids), 'node')}, {e.gpu_count} x {e.gpu_model}, {price}"


def _rented(e: market.LeaseStarted) -> str:
    price = f"{money(e.price_micro_usd_h)}/h for {hours(e.lifetime_us)}"
    return f"{short(e.renter)} rented offer {short(e.offer_id)} as lease {short(e.lease_id)}, {price}"


def _lease_ended(e: market.LeaseEnded) -> str:
    bill = f"{hours(e.billable_us)} billable, {money(e.amount_micro_usd)}"
    return f"lease {short(e.lease_id)} is {e.status} ({e.reason_code}): {bill}"


def _node(e: nodes.NodeRegistered | nodes.NodeUpdated) -> str:
    verb = "was listed" if isinstance(e, nodes.NodeRegistered) else "changed its facts"
    return f"node {short(e.node_id)} {verb}: claims {e.facts.gpu_count} x {e.facts.gpu_model}"


def _submitted(e: jobs.JobSubmitted) -> str:
    shape = f"{_count(e.spec.nnodes, 'node')} x {_count(e.spec.nproc_per_node, 'rank')}"
    return f"{short(e.submitter)} submitted job {short(e.job_id)}: {shape} of {e.spec.image_digest}"


def _waiting(e: jobs.JobWaiting) -> str:
    return f"job {short(e.job_id)} waits: {e.reason_code}, has {e.have} of {e.need}"


def _placed(e: jobs.AttemptPlaced) -> str:
    places = ", ".join(f"{short(n.node_id)} ({_count(len(n.gpus), 'rank')})" for n in e.nodes)
    return f"attempt {e.attempt_no} of job {short(e.job_id)} was placed on {places}"


def _running(e: jobs.AttemptRunning) -> str:
    seen = f"{e.program} over {e.transport} measured {e.measured_bytes_per_s} bytes/s"
    return f"attempt {e.attempt_no} of job {short(e.job_id)} runs: {seen}"


def _attempt_ended(e: jobs.AttemptEnded) -> str:
    code = f" ({e.failure_code}" + (f" at node {short(e.node_id)})" if e.node_id else ")") if e.failure_code else ""
    return f"attempt {e.attempt_no} of job {short(e.job_id)} {_outcome(e.outcome)}{code}; fault: {e.fault}"


def _outcome(status: str) -> str:
    return {"timeout": "ran out of time", "cancelled": "was cancelled"}.get(status, status)


def _cleaned(e: jobs.AttemptCleaned) -> str:
    left = f"; not confirmed by {', '.join(map(short, e.unconfirmed))}" if e.unconfirmed else ""
    return f"attempt {e.attempt_no} of job {short(e.job_id)} left nothing on its nodes{left}"


def _claimed(e: jobs.ResultClaimed) -> str:
    codes = f" with {', '.join(e.integrity_codes)}" if e.integrity_codes else ""
    return f"{short(e.hotkey)} claims {e.status} for attempt {e.attempt_no} of job {short(e.job_id)}{codes}"


def _score(s: Score) -> str:
    factors = f"correctness {s.correctness}, efficiency {percent(s.efficiency_ppm)}, fabric gate {s.fabric_gate}"
    codes = f" ({', '.join(s.codes)})" if s.codes else ""
    return f"attempt {s.attempt_no} of job {short(s.job_id)} scored {percent(s.composite_ppm)}: {factors}{codes}"


def _snapshot(e: weights.WeightsSnapshot) -> str:
    top = f", the most for {short(e.weights[0].hotkey)} ({percent(e.weights[0].ppm)})" if e.weights else ""
    return f"weights {e.number} for epoch {e.epoch} from {e.size} events: {_count(len(e.weights), 'hotkey')}{top}"


def _metagraph(e: policy.MetagraphAdopted) -> str:
    return f"the metagraph of subnet {e.netuid} at block {e.block} was adopted: {_count(e.count, 'hotkey')}"


def _provider(e: market.ProviderRegistered) -> str:
    name = f" ({e.display_name})" if e.display_name else ""
    return f"{short(e.hotkey)} became provider {short(e.provider_id)}{name}"


_SENTENCES: dict[type[Event], Callable[[Any], str]] = {
    ledger.LedgerOpened: _opened,
    ledger.RulesActivated: lambda e: f"rule set {e.rules} of release {e.release} decides from here on",
    ledger.OperatorsChanged: lambda e: f"the operators are now {', '.join(map(short, e.operators))}",
    ledger.ClockAccepted: _clock,
    ledger.CommandRefused: _refused,
    ledger.CommandNoted: lambda e: f"{e.kind} of {short(e.hotkey)} changed nothing at {short(e.subject)}",
    market.ProviderRegistered: _provider,
    market.ProviderNamed: lambda e: f"provider {short(e.provider_id)} is called {e.display_name}",
    market.OfferListed: _listed,
    market.OfferWithdrawn: lambda e: f"offer {short(e.offer_id)} was withdrawn ({e.reason_code})",
    market.LeaseStarted: _rented,
    market.LeaseEnded: _lease_ended,
    nodes.NodeRegistered: _node,
    nodes.NodeUpdated: _node,
    nodes.NodeSeen: lambda e: f"node {short(e.node_id)} is there",
    nodes.NodeOffline: lambda e: f"node {short(e.node_id)} is offline since {when(e.last_seen_us)} ({e.reason_code})",
    nodes.NodeSuspended: lambda e: f"an operator set node {short(e.node_id)} {e.status} ({e.reason_code})",
    nodes.NodeReadmitted: lambda e: f"an operator readmitted node {short(e.node_id)} ({e.reason_code})",
    jobs.JobSubmitted: _submitted,
    jobs.JobAdmitted: lambda e: f"job {short(e.job_id)} was admitted",
    jobs.JobWaiting: _waiting,
    jobs.AttemptPlaced: _placed,
    jobs.AttemptRunning: _running,
    jobs.AttemptCollecting: lambda e: f"every rank of attempt {e.attempt_no} of job {short(e.job_id)} has ended",
    jobs.AttemptEnded: _attempt_ended,
    jobs.AttemptCleaned: _cleaned,
    jobs.JobEnded: lambda e: f"job {short(e.job_id)} {_outcome(e.status)} ({e.reason_code})",
    jobs.ResultClaimed: _claimed,
    scores.ScoreRecorded: lambda e: _score(e.score),
    scores.ScoreRevised: lambda e: f"revision {e.revision} ({e.reason_code}): {_score(e.score)}",
    weights.WeightsSnapshot: _snapshot,
    policy.PolicyAdopted: lambda e: f"policy {e.policy.version} holds from {when(e.effective_us)} on",
    policy.MetagraphAdopted: _metagraph,
    policy.MetagraphPart: lambda e: f"part {e.part} of the metagraph list: {_count(len(e.entries), 'hotkey')}",
    policy.ProviderSuspended: lambda e: f"an operator set provider {short(e.provider_id)} {e.status} ({e.reason_code})",
    policy.ProviderReadmitted: lambda e: f"an operator readmitted provider {short(e.provider_id)} ({e.reason_code})",
}
