"""Preflights: what is recomputed, and what a node that lies gets."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from hypercluster.domain.jobs import preflight as rules
from hypercluster.effects.calibrate import calibrate
from hypercluster.effects.networks import NodeFailure
from hypercluster.effects.plan import places
from hypercluster.effects.preflight import PreflightRun, Seat, Sizes, run_preflight
from hypercluster.effects.remote import preflight_ring
from tests.support.clusters import Lab, lab, plan_for, remains, run


async def preflight(it: Lab, sizes: Sizes | None = None, timeout_s: float = 15) -> PreflightRun:
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(it.ssh.session(t.node_id, t.endpoint, t.user, t.host_key))
            for t in it.targets
        ]
        seats = [Seat(place.rank, sessions[place.node_index], "") for place in places(it.targets)]
        return await run_preflight(seats, marker="m", timeout_s=timeout_s, sizes=sizes or Sizes())


def seen(**changes: object) -> rules.Transcript:
    """A correct transcript of three ranks, made without a network."""
    nonce, seeds, size = bytes([9]) * 32, [bytes([rank]) * 32 for rank in range(3)], 1000
    result = rules.xor_all([rules.expand(seed, 2 * size) for seed in seeds])
    ranks = tuple(
        rules.RankRecord(
            rank=rank,
            node_id=f"n{rank}",
            seed=seed.hex(),
            answer="answered",
            digest=rules.answer_digest(nonce, rank, result),
            node_us=10,
            heard_us=20 + rank,
        )
        for rank, seed in enumerate(seeds)
    )
    whole = rules.Transcript(
        format=1,
        marker="m",
        program="ring-xor-1",
        transport="eth",
        nonce=nonce.hex(),
        buffer_bytes=size,
        iterations=2,
        load_us=5,
        elapsed_us=100,
        ranks=ranks,
    )
    return msgspec.structs.replace(whole, **changes)


def with_rank(rank: int, transcript: rules.Transcript | None = None, **changes: object) -> rules.Transcript:
    whole = transcript or seen()
    ranks = [msgspec.structs.replace(r, **changes) if r.rank == rank else r for r in whole.ranks]
    return msgspec.structs.replace(whole, ranks=tuple(ranks))


def judge(transcript: rules.Transcript) -> rules.Verdict:
    return rules.judge(rules.encode(transcript))


def test_bandwidth_is_bus_bandwidth_over_the_longest_clock() -> None:
    assert judge(seen()) == rules.Verdict(True, None, None, None, "ring-xor-1", "eth", 26_666_666)
    assert judge(with_rank(1, node_us=99)).measured_bytes_per_s == 26_666_666, "a node's clock raises nothing"
    assert judge(with_rank(1, node_us=200)).measured_bytes_per_s == 13_333_333, "it may lower"


@dataclass
class Blame:
    code: str
    rank: int


@pytest.mark.parametrize(
    ("transcript", "blame"),
    [
        pytest.param(with_rank(1, digest="00" * 32), Blame("preflight_mismatch", 1), id="wrong digest"),
        pytest.param(with_rank(2, digest=seen().ranks[1].digest), Blame("preflight_mismatch", 2), id="a neighbour's"),
        pytest.param(seen(nonce="aa" * 32), Blame("preflight_mismatch", 0), id="replayed under another nonce"),
        pytest.param(with_rank(0, seed="aa" * 32), Blame("preflight_mismatch", 0), id="not this input"),
        pytest.param(with_rank(2, answer="garbled", digest=None), Blame("preflight_mismatch", 2), id="garbage"),
        pytest.param(with_rank(1, answer="early", digest=None), Blame("preflight_mismatch", 1), id="early"),
        pytest.param(with_rank(2, answer="missing", digest=None), Blame("rank_missing", 2), id="silent"),
        pytest.param(
            with_rank(0, with_rank(2, answer="missing", digest=None), answer="failed", digest=None),
            Blame("rank_missing", 2),
            id="silence before the one who waited for it",
        ),
        pytest.param(
            with_rank(0, with_rank(2, answer="failed", digest=None, heard_us=1), answer="failed", digest=None),
            Blame("rank_missing", 2),
            id="who failed first",
        ),
        pytest.param(
            with_rank(0, with_rank(2, digest="00" * 32), answer="missing", digest=None),
            Blame("preflight_mismatch", 2),
            id="a lie before silence",
        ),
    ],
)
def test_verdicts(transcript: rules.Transcript, blame: Blame) -> None:
    verdict = judge(transcript)
    assert (verdict.ok, verdict.failure_code, verdict.rank) == (False, blame.code, blame.rank)
    assert (verdict.node_id, verdict.measured_bytes_per_s) == (f"n{blame.rank}", 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"{}", id="no transcript"),
        pytest.param(b" " + rules.encode(seen()), id="blank"),
        pytest.param(rules.encode(seen()).replace(b'"elapsed_us":100', b'"elapsed_us":100.0'), id="float"),
        pytest.param(rules.encode(seen(elapsed_us=-1)), id="negative"),
        pytest.param(rules.encode(seen(program="digest-1", transport="none")), id="digest-1 with three ranks"),
        pytest.param(rules.encode(seen(transport="ib")), id="a transport that sockets are not"),
        pytest.param(rules.encode(seen(buffer_bytes=2**40)), id="too large to recompute"),
        pytest.param(rules.encode(seen(ranks=())), id="no ranks"),
        pytest.param(rules.encode(seen(ranks=seen().ranks[::-1])), id="out of order"),
        pytest.param(rules.encode(with_rank(0, seed="zz")), id="no seed"),
        pytest.param(rules.encode(with_rank(0, answer="missing")), id="a digest of a rank that is missing"),
    ],
)
def test_what_is_no_transcript(data: bytes) -> None:
    with pytest.raises(rules.TranscriptInvalid):
        rules.judge(data)


def test_node_and_challenge_compute_the_same_chain() -> None:
    for rounds in (1, 5):
        assert preflight_ring.digest_chain(b"n" * 32, b"data", rounds) == rules.digest_chain(b"n" * 32, b"data", rounds)


@pytest.mark.parametrize("gpus", [1, 3])
def test_real_ranks_pass_and_the_transcript_stands_alone(tmp_path: Path, gpus: int) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=2, gpus=gpus) as it:
            first = await preflight(it, Sizes(buffer_bytes=10_001, iterations=3))
            assert first.verdict.ok and first.verdict == rules.judge(first.transcript)
            record = rules.decode(first.transcript)
            assert len({rank.seed for rank in record.ranks}) == 2 * gpus
            assert len({rank.digest for rank in record.ranks}) == 2 * gpus
            assert max(rank.node_us or 0 for rank in record.ranks) > 0 and record.elapsed_us > 0
            again = rules.decode((await preflight(it)).transcript)
            assert again.nonce != record.nonce and not {r.seed for r in again.ranks} & {r.seed for r in record.ranks}

    asyncio.run(play())


def test_one_rank_digests_alone(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=1, gpus=1) as it:
            verdict = (await preflight(it)).verdict
            assert (verdict.ok, verdict.program, verdict.transport) == (True, "digest-1", "none")

    asyncio.run(play())


WRONG = """
    def rewrite(source):
        return source.replace('hashlib.sha256(nonce + start["rank"]', 'hashlib.sha256(b"x" + nonce + start["rank"]')
"""
EARLY = """
    def rewrite(source):
        return source.replace(
            'wire.pack_json({"ready": True}))',
            'wire.pack_json({"ready": True}) + wire.pack_json({"digest": "00" * 32, "us": 1}))',
        )
"""
GARBAGE = """
    def rewrite(source):
        return source.replace('wire.pack_json(answer)', 'wire.pack(b"J", b"[1, 2")')
"""
SLOW_CLOCK = """
    def rewrite(source):
        return source.replace('* 1_000_000)}', '* 1_000_000) + 7_000_000}')
"""
FAST_CLOCK = """
    def rewrite(source):
        return source.replace('int((time.monotonic() - began) * 1_000_000)}', '0}')
"""
GONE = """
    def rewrite(source):
        return source.replace('began = time.monotonic()', 'os._exit(0)')
"""
SILENT = """
    def rewrite(source):
        return source.replace('began = time.monotonic()', 'time.sleep(30)')
"""


@pytest.mark.parametrize(
    ("lie", "code", "answer"),
    [
        pytest.param(WRONG, "preflight_mismatch", "answered", id="wrong digest"),
        pytest.param(EARLY, "preflight_mismatch", "early", id="digest before the barrier"),
        pytest.param(GARBAGE, "preflight_mismatch", "garbled", id="garbage"),
        pytest.param(GONE, "rank_missing", "missing", id="program ends"),
        pytest.param(SILENT, "rank_missing", "missing", id="program hangs"),
    ],
)
def test_a_node_that_lies_is_named(tmp_path: Path, lie: str, code: str, answer: str) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=3, gpus=1, lies={1: lie}) as it:
            outcome = await preflight(it, timeout_s=4)
            verdict = outcome.verdict
            assert (verdict.failure_code, verdict.node_id, verdict.rank) == (code, "sim-1", 1)
            assert rules.decode(outcome.transcript).ranks[1].answer == answer
            assert rules.judge(outcome.transcript) == verdict

    asyncio.run(play())


def test_a_nodes_clock_can_only_lower(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=2, gpus=1, lies={0: FAST_CLOCK, 1: SLOW_CLOCK}) as it:
            outcome = await preflight(it)
            record = rules.decode(outcome.transcript)
            assert outcome.verdict.ok and record.ranks[0].node_us == 0 and record.elapsed_us < 7_000_000
            assert outcome.verdict.measured_bytes_per_s <= 64 * 1024 * 4 // 7

    asyncio.run(play())


def test_a_lie_ends_the_gang_before_the_entrypoint(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=2, gpus=2, lies={1: WRONG}) as it:
            proof = tmp_path / "ran"
            plan = plan_for(it.targets, f"open({str(proof)!r}, 'w')")
            outcome = await run(plan, it.ssh)
            assert (outcome.phase, outcome.failure_code) == ("preflight", "preflight_mismatch")
            assert (outcome.node_id, outcome.rank) == ("sim-1", 2)
            assert outcome.transcript is not None and not rules.judge(outcome.transcript).ok
            assert not proof.exists() and remains(plan) == set()

    asyncio.run(play())


def test_when_nobody_answers_nobody_is_blamed(tmp_path: Path) -> None:
    sleepy = "def rewrite(s): return s.replace('def main() -> None:', 'def main():\\n    time.sleep(30)')"

    async def play() -> None:
        async with lab(tmp_path, nodes=1, gpus=2, lies={0: sleepy}) as it:
            with pytest.raises(NodeFailure) as failure:
                await preflight(it, timeout_s=1)
            assert failure.value.code == "gang_timeout"

    asyncio.run(play())


def test_calibration_proposes_rows_below_what_was_measured(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=2, gpus=1) as it:
            sizes = Sizes(buffer_bytes=4096)
            arguments = {"ssh": it.ssh, "hardware_class": "unverified", "marker": "c", "sizes": sizes}
            rows = await calibrate(it.targets, runs=1, **arguments)
            assert [(row.program, row.fabric, row.nodes) for row in rows] == [
                ("digest-1", "none", 1),
                ("ring-xor-1", "eth", 2),
            ]
            assert all(row.bytes_per_s > 0 for row in rows)
            assert await calibrate(it.targets, runs=1, share_ppm=0, **arguments) == [
                msgspec.structs.replace(row, bytes_per_s=0) for row in rows
            ]

    asyncio.run(play())
