"""Appending, reading, reopening, copying: what a healthy ledger does."""

import hashlib
import sys
import threading
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from events import checkpoint, codec, registry
from events.envelope import CommandRecord
from events.errors import CodecError, CommandRepeated, EventTooLarge, LedgerError, WrongKey
from events.hashing import chain_next, chain_start, leaf_hash
from events.ledger import Ledger, LedgerReader, backup
from events.merkle import Tree, verify_consistency, verify_inclusion
from events.types.ledger import RulesActivated
from events.types.market import ProviderNamed
from events.types.nodes import NodeSeen

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from ledger_files import KEY, ORIGIN, START_US, add, command_hash, fill, new_ledger, opening


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "challenge.sqlite3"


def test_what_is_added_is_what_readers_see(path: Path):
    with new_ledger(path) as ledger:
        batch = ledger.batch(START_US + 5)
        first = add(batch, 1, [NodeSeen(node_id="a"), NodeSeen(node_id="b"), NodeSeen(node_id="a")])
        second = add(batch, 2, [NodeSeen(node_id="a")])
        ledger.commit(batch)
        with LedgerReader(path) as reader:
            stored = reader.page(1)
            assert reader.stream("node/a") == [stored[0], stored[2], stored[3]]
            assert reader.stream("node/a", after=1, limit=1) == [stored[2]]
            assert reader.entries(1) == [(row.pos, row.entry) for row in stored]
    assert [registry.decode(row.pos, row.entry) for row in stored] == first + second
    assert [(row.pos, row.stream, row.version) for row in stored] == [
        (2, "node/a", 1),
        (3, "node/b", 1),
        (4, "node/a", 2),
        (5, "node/a", 3),
    ]
    assert {(row.type, row.type_version) for row in stored} == {("node.seen", 1)}
    ids = [row.cmd_id for row in stored]
    assert ids == [
        (1).to_bytes(6, "big") + command_hash(1)[:10],
        None,
        None,
        (2).to_bytes(6, "big") + command_hash(2)[:10],
    ]
    envelope = first[1].envelope
    assert (envelope.n, envelope.of, envelope.command, envelope.at_us) == (2, 3, None, START_US + 5)
    assert first[0].envelope.command is not None
    assert all(codec.encode(codec.decode(row.entry)) == row.entry for row in stored)


def test_chain_tree_and_checkpoint_are_those_of_the_rules(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 700, group=37)
        tree, chain = Tree(), chain_start(ORIGIN)
        with LedgerReader(path) as reader:
            for row in reader.page(0, 10_000):
                chain = chain_next(chain, leaf_hash(row.entry))
                tree.append(leaf_hash(row.entry))
                assert row.chain == chain
            assert reader.tree().root() == tree.root() == ledger.root()
            proof = reader.tree().inclusion_proof(400)
            leaf = leaf_hash(reader.entries(400, 1)[0][1])
        head = checkpoint.verify(ledger.checkpoint(), ledger.vkey)
    assert (head.origin, head.size, head.root) == (ORIGIN, 701, tree.root())
    assert verify_inclusion(leaf, 400, 701, proof, head.root)


def test_a_ledger_goes_on_after_reopening(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 300)
        before = (ledger.size, ledger.last_at_us, ledger.root(), ledger.checkpoint())
    with Ledger.open(path, KEY) as ledger:
        assert (ledger.size, ledger.last_at_us, ledger.root(), ledger.checkpoint()) == before
        fill(ledger, 300)
        with LedgerReader(path) as reader:
            versions = [row.version for row in reader.stream("node/n3", limit=10_000)]
            tree = reader.tree()
            heads = [checkpoint.verify(note, ledger.vkey) for note in reader.checkpoints()]
            proof = tree.consistency_proof(before[0], ledger.size)
            assert heads
            assert all(tree.root(head.size) == head.root for head in heads)
        assert versions == list(range(1, len(versions) + 1))
        assert verify_consistency(before[0], ledger.size, proof, before[2], ledger.root())


def test_only_the_newest_checkpoint_of_a_block_is_kept(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 2_200, group=50)
        ledger.idle()
        with LedgerReader(path) as reader:
            sizes = [checkpoint.verify(note, ledger.vkey).size for note in reader.checkpoints()]
    assert sizes == [1001, 2001, 2201]


def test_an_empty_ledger_can_be_reopened(path: Path):
    Ledger.create(path, KEY, ORIGIN).close()
    with Ledger.open(path, KEY) as ledger:
        assert (ledger.size, ledger.last_at_us) == (0, 0)
        batch = ledger.batch(START_US)
        add(batch, 0, [opening()])
        ledger.commit(batch)
        assert ledger.size == 1


@pytest.mark.parametrize(
    "event", [NodeSeen(node_id="a"), opening("other.example"), opening(key=SigningKey(b"\x02" * 32))], ids=repr
)
def test_the_first_event_must_open_this_ledger(path: Path, event: NodeSeen):
    with Ledger.create(path, KEY, ORIGIN) as ledger:
        batch = ledger.batch(START_US)
        add(batch, 0, [event])
        with pytest.raises(ValueError, match="must open"):
            ledger.commit(batch)
        assert ledger.size == 0


def test_create_and_open_refuse_what_they_must(path: Path, tmp_path: Path):
    new_ledger(path).close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, KEY, ORIGIN)
    assert path.read_bytes() == before
    with pytest.raises(WrongKey):
        Ledger.open(path, SigningKey(b"\x02" * 32))
    with pytest.raises(LedgerError, match="plus sign"):
        Ledger.create(tmp_path / "other", KEY, "a+b")
    assert not (tmp_path / "other").exists()
    Ledger.open(path, KEY).close()  # a refused open let go of the lock


def test_a_repeated_command_is_refused_before_and_after_the_commit(path: Path):
    with new_ledger(path) as ledger:
        batch = ledger.batch(START_US)
        add(batch, 5, [NodeSeen(node_id="a"), NodeSeen(node_id="a")])
        with pytest.raises(CommandRepeated) as caught:
            add(batch, 5, [NodeSeen(node_id="a")])
        assert caught.value.pos == 2
        add(batch, 4, [NodeSeen(node_id="a")])
        ledger.commit(batch)
        for number, pos in ((5, 2), (4, 4)):
            with pytest.raises(CommandRepeated) as caught:
                add(ledger.batch(START_US), number, [NodeSeen(node_id="b")])
            assert caught.value.pos == pos
            assert ledger.command(command_hash(number), number) == pos
        with LedgerReader(path) as reader:
            assert reader.command(command_hash(4), 4) == 4
            assert reader.command(command_hash(4), 5) is None
            clash = command_hash(4)[:10] + bytes(22)  # the same 16 bytes, another command
            assert reader.command(clash, 4) is None


def test_a_rollback_leaves_no_trace(path: Path, tmp_path: Path):
    with new_ledger(path) as ledger, new_ledger(tmp_path / "plain") as plain:
        batch = ledger.batch(START_US + 1)
        add(batch, 1, [NodeSeen(node_id="a")])
        mark = batch.mark()
        add(batch, 2, [NodeSeen(node_id="a"), NodeSeen(node_id="c")])
        batch.rollback(mark)
        with pytest.raises(CodecError):
            add(batch, 3, [NodeSeen(node_id="a"), NodeSeen(node_id="\ud800")])
        assert batch.mark() == mark
        again = add(batch, 2, [NodeSeen(node_id="a")])
        assert (again[0].pos, again[0].envelope.sv) == (3, 2)
        ledger.commit(batch)
        straight = plain.batch(START_US + 1)
        add(straight, 1, [NodeSeen(node_id="a")])
        add(straight, 2, [NodeSeen(node_id="a")])
        plain.commit(straight)
        assert ledger.root() == plain.root()


def test_what_does_not_fit_or_has_no_form_is_refused_alone(path: Path):
    with new_ledger(path) as ledger:
        batch = ledger.batch(START_US)
        for event, error in (
            (ProviderNamed(provider_id="p", display_name="x" * codec.LEAF_MAX_BYTES), EventTooLarge),
            (RulesActivated(rules=2**53, release="1"), CodecError),
            (RulesActivated(rules=1.0, release="1"), CodecError),  # type: ignore[arg-type]
            (RulesActivated(rules="1", release="1"), CodecError),  # type: ignore[arg-type]
            (RulesActivated(rules=None, release="1"), CodecError),  # type: ignore[arg-type]
            (RulesActivated(rules=object(), release="1"), CodecError),  # type: ignore[arg-type]
        ):
            with pytest.raises(error):
                add(batch, 1, [NodeSeen(node_id="a"), event])
        assert batch.rows == []
        record = CommandRecord(kind="k", origin="internal", received_us=2**53)
        with pytest.raises(CodecError):
            batch.add([NodeSeen(node_id="a")], cmd=bytes(32), cmd_ms=1, actor="system", rules=1, command=record)
        with pytest.raises(ValueError, match="first event"):
            add(batch, 1, [])
        with pytest.raises(ValueError, match="48 bits"):
            batch.add([NodeSeen(node_id="a")], cmd=b"short", cmd_ms=1, actor="system", rules=1, command=record)
        ledger.commit(batch)
        assert ledger.size == 1


def test_the_largest_leaf_fits(path: Path):
    def entry(ledger: Ledger, width: int) -> bytes:
        batch = ledger.batch(START_US)
        return add(batch, 1, [ProviderNamed(provider_id="p", display_name="x" * width)])[0].entry

    with new_ledger(path) as ledger:
        room = codec.LEAF_MAX_BYTES - len(entry(ledger, 0))
        assert len(entry(ledger, room)) == codec.LEAF_MAX_BYTES
        with pytest.raises(EventTooLarge):
            entry(ledger, room + 1)


def test_time_never_runs_backwards_and_a_stale_batch_is_refused(path: Path):
    with new_ledger(path) as ledger:
        with pytest.raises(ValueError, match="backwards"):
            ledger.batch(START_US - 1)
        stale, fresh = ledger.batch(START_US), ledger.batch(START_US)
        add(stale, 1, [NodeSeen(node_id="a")])
        add(fresh, 2, [NodeSeen(node_id="a")])
        ledger.commit(fresh)
        with pytest.raises(ValueError, match="was made after event 1"):
            ledger.commit(stale)
        assert ledger.size == 2


def test_readers_follow_a_running_writer(path: Path):
    with new_ledger(path) as ledger:
        stop, problems, reached = threading.Event(), [], []

        def follow() -> None:
            after, chain = 0, chain_start(ORIGIN)
            with LedgerReader(path) as reader:
                while True:
                    ended = stop.is_set()
                    rows = reader.page(after, 50)
                    for row in rows:
                        chain = chain_next(chain, leaf_hash(row.entry))
                        if row.chain != chain:
                            problems.append(row.pos)
                        after = row.pos
                    if ended and not rows:
                        reached.append(after)
                        return

        followers = [threading.Thread(target=follow) for _ in range(2)]
        for follower in followers:
            follower.start()
        fill(ledger, 1_500, group=20)
        ledger.idle()
        stop.set()
        for follower in followers:
            follower.join()
        assert (problems, reached) == ([], [ledger.size] * 2)


def test_a_backup_is_one_whole_file(path: Path, tmp_path: Path):
    target, seen = tmp_path / "copy.sqlite3", []
    with new_ledger(path) as ledger:
        fill(ledger, 600)
        done = backup(path, target, lambda pages, total: seen.append((pages, total)))
        assert (done.size, done.root) == (ledger.size, ledger.root())
        fill(ledger, 1)  # the writer goes on
        with pytest.raises(LedgerError, match="exists already"):
            backup(path, target)
    assert seen[-1][0] == seen[-1][1] > 0
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith("copy")) == ["copy.sqlite3"]
    with Ledger.open(target, KEY) as copy:
        assert copy.root() == done.root


def test_a_backup_is_taken_while_the_writer_writes(path: Path, tmp_path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 3_000)
        sizes: list[int] = []

        def go_on(pages: int, total: int) -> None:
            if len(sizes) < 50:
                fill(ledger, 1)
            sizes.append(ledger.size)

        done = backup(path, tmp_path / "copy", go_on)
        assert done.size == 3_001 < ledger.size


def test_the_wal_is_emptied_when_idle(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 300)
        wal = path.with_name(path.name + "-wal")
        assert wal.stat().st_size > 0
        ledger.idle()
        assert wal.stat().st_size == 0
        with LedgerReader(path) as reader:
            assert hashlib.sha256(reader.entries(300, 1)[0][1]).digest()
    assert not wal.exists()
