"""Files that are no ledger, damage, older copies, second writers: what the ledger then says."""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from events import checkpoint
from events.errors import (
    LedgerDamaged,
    LedgerError,
    LedgerLocked,
    LedgerTruncated,
    NotALedger,
)
from events.ledger import Ledger, LedgerReader, backup
from events.types.nodes import NodeSeen

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from ledger_files import (
    KEY,
    ORIGIN,
    START_US,
    add,
    chain_is_whole,
    fill,
    in_child,
    new_ledger,
    sibling,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "challenge.sqlite3"


def edit(path: Path, *statements: str) -> None:
    """Change the file behind the ledger's back, triggers dropped."""
    connection = apsw.Connection(str(path))
    for trigger in ("event_gapless", "event_update", "event_delete", "tile_update", "tile_delete"):
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(statement)
    connection.close()


# --- a file that is none ---


def as_directory(path: Path) -> None:
    path.mkdir()


def as_another_database(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE event (pos)")
    connection.close()


def of_a_later_format(path: Path) -> None:
    new_ledger(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=2")
    connection.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "does not exist"),
        (as_directory, "is not a file"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: path.write_bytes(b"garbage " * 2_000), "no SQLite database"),
        (lambda path: path.write_bytes(b"x"), "no database"),
        (as_another_database, "another program"),
        (of_a_later_format, "has format 2"),
    ],
)
def test_what_is_no_ledger_is_named(path: Path, make: Callable[[Path], None], says: str):
    make(path)
    for use in (LedgerReader, lambda path: Ledger.open(path, KEY), lambda path: backup(path, path.parent / "copy")):
        with pytest.raises(NotALedger, match=says) as caught:
            use(path)
        assert caught.value.hint
    assert not (path.parent / "copy").exists()


def test_missing_tables_are_named(path: Path):
    new_ledger(path).close()
    edit(path, "DROP TABLE tile", "DROP TABLE checkpoint")
    for use in (LedgerReader, lambda path: Ledger.open(path, KEY)):
        with pytest.raises(LedgerDamaged, match="checkpoint, tile"):
            use(path)


def test_a_file_cut_in_the_middle_is_damaged(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 600)
    data = path.read_bytes()
    for size in (len(data) // 2, len(data) - 4096, 5000):
        path.write_bytes(data[:size])
        with pytest.raises(LedgerDamaged):
            Ledger.open(path, KEY)
        with pytest.raises(LedgerDamaged):
            backup(path, path.parent / "copy")


# --- damage ---


def test_every_flipped_byte_of_an_entry_is_found_and_its_event_named(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 20)
        size = ledger.size
    for pos in range(1, size + 1):
        copy = path.parent / f"copy-{pos}"
        shutil.copy(path, copy)
        edit(copy, f"UPDATE event SET entry = CAST(replace(entry, '\"at_us\"', '\"at_uz\"') AS BLOB) WHERE pos = {pos}")
        with pytest.raises(LedgerError) as caught:
            Ledger.open(copy, KEY)
        if pos > 1:  # event 1 cannot even be read
            assert isinstance(caught.value, LedgerDamaged)
            assert caught.value.pos == pos
        with pytest.raises(LedgerDamaged) as damaged:
            backup(copy, path.parent / "target")
        assert damaged.value.pos == pos


def test_random_damage_is_never_a_foreign_error(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 300)
    data = path.read_bytes()
    for number in range(60):
        broken = bytearray(data)
        start = number * len(data) // 60
        broken[start : start + 64] = bytes(byte ^ 0x5A for byte in broken[start : start + 64])
        path.write_bytes(bytes(broken))
        try:
            backup(path, path.parent / f"copy-{number}")
        except LedgerError:
            continue
        # The damage hit what no row uses; then every event must still be right.
        with LedgerReader(path.parent / f"copy-{number}") as reader:
            assert reader.size() == 301


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE event SET chain = zeroblob(32) WHERE pos = 250", LedgerDamaged),
        ("UPDATE tile SET hashes = zeroblob(8192) WHERE level = 0 AND number = 0", LedgerDamaged),
        ("DELETE FROM tile WHERE level = 0 AND number = 0", LedgerDamaged),
        ("DELETE FROM event WHERE pos = 100", LedgerDamaged),
        ("DELETE FROM event WHERE pos > 280", LedgerTruncated),
        ("DELETE FROM event", LedgerTruncated),
        ("UPDATE checkpoint SET note = replace(note, '301', '300')", LedgerDamaged),
        ("DELETE FROM meta", LedgerDamaged),
    ],
)
def test_a_start_refuses_a_file_that_contradicts_itself(path: Path, statement: str, error: type[LedgerError]):
    with new_ledger(path) as ledger:
        fill(ledger, 300)
    sibling(path, ".head").unlink()
    edit(path, statement)
    with pytest.raises(error):
        Ledger.open(path, KEY)


def test_a_reader_names_a_missing_event(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 20)
    edit(path, "DELETE FROM event WHERE pos = 7")
    with LedgerReader(path) as reader:
        assert len(reader.entries(0, 6)) == 6
        for read in (reader.entries, reader.page):
            with pytest.raises(LedgerDamaged) as caught:
                read(0)
            assert caught.value.pos == 7


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET entry = x'00' WHERE pos = 2",
        "DELETE FROM event WHERE pos = 3",
        "INSERT INTO event SELECT pos + 2, sid, version + 50, kind, NULL, entry, chain FROM event WHERE pos = 3",
        "INSERT OR REPLACE INTO event SELECT pos, sid, version, kind, NULL, entry, chain FROM event WHERE pos = 2",
        "INSERT INTO event SELECT pos + 1, sid, version, kind, NULL, entry, chain FROM event WHERE pos = 3",
        "INSERT INTO event SELECT pos + 1, sid, version + 50, kind, x'00', entry, chain FROM event WHERE pos = 3",
        "UPDATE tile SET hashes = zeroblob(8192)",
        "DELETE FROM tile",
    ],
)
def test_the_schema_refuses_changes_and_gaps(path: Path, statement: str):
    with new_ledger(path) as ledger:
        fill(ledger, 2)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO tile VALUES (0, 0, zeroblob(8192))")
    with pytest.raises(apsw.ConstraintError):
        connection.execute(statement)
    connection.close()


def test_a_reader_cannot_write(path: Path):
    new_ledger(path).close()
    with LedgerReader(path) as reader, pytest.raises(apsw.ReadOnlyError):
        reader._connection.execute("DELETE FROM checkpoint")


# --- an older copy in place of the ledger ---


def test_a_copy_without_its_wal_is_seen_by_the_head_file(path: Path, tmp_path: Path):
    ledger = new_ledger(path)
    ledger.idle()
    fill(ledger, 50)  # these stand in the -wal file only
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    shutil.copy(sibling(path, ".head"), copy.parent)
    with pytest.raises(LedgerTruncated, match="1 events; a checkpoint over 51"):
        Ledger.open(copy, KEY)
    shutil.copy(sibling(path, "-wal"), copy.parent)
    with Ledger.open(copy, KEY) as whole:
        assert whole.size == 51
    ledger.close()


def test_a_restored_backup_does_not_write_over_what_was_signed_since(path: Path, tmp_path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 10)
        backup(path, tmp_path / "backup")
        fill(ledger, 10)
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(LedgerTruncated):
        Ledger.open(path, KEY)


def test_another_history_of_the_same_length_is_damage(path: Path, tmp_path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 10)
    with new_ledger(tmp_path / "fork") as fork:
        fill(fork, 9)
        batch = fork.batch(fork.last_at_us + 1)
        add(batch, 77, [NodeSeen(node_id="other")])
        fork.commit(batch)
    shutil.copy(tmp_path / "fork", path)
    with pytest.raises(LedgerDamaged, match="another root"):
        Ledger.open(path, KEY)


@pytest.mark.parametrize("content", [b"", b"\x00" * 300, b"\xff\xfe", b"ledger"])
def test_an_unreadable_head_file_is_no_obstacle(path: Path, content: bytes):
    new_ledger(path).close()
    sibling(path, ".head").write_bytes(content)
    with Ledger.open(path, KEY) as ledger:
        assert checkpoint.verify(sibling(path, ".head").read_text(), ledger.vkey).size == 1


# --- two writers ---


def test_a_second_writer_is_refused(path: Path):
    with new_ledger(path):
        with pytest.raises(LedgerLocked):
            Ledger.open(path, KEY)
        with pytest.raises(LedgerLocked):
            Ledger.create(path, KEY, ORIGIN)

        def other_process() -> None:
            with pytest.raises(LedgerLocked):
                Ledger.open(path, KEY)

        in_child(other_process)
    Ledger.open(path, KEY).close()


def test_a_foreign_program_holding_the_file_fails_one_commit_only(path: Path):
    with new_ledger(path) as ledger:
        foreign = apsw.Connection(str(path))
        foreign.execute("BEGIN IMMEDIATE")
        batch = ledger.batch(START_US)
        add(batch, 1, [NodeSeen(node_id="a")])
        with pytest.raises(LedgerLocked):
            ledger.commit(batch)
        foreign.execute("ROLLBACK")
        foreign.close()
        ledger.commit(batch)
        assert ledger.size == 2
    assert chain_is_whole(path) == 2


def test_a_failed_sync_of_the_head_file_fails_no_commit(path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    with new_ledger(path) as ledger:
        monkeypatch.setattr(os, "pwrite", fail)
        fill(ledger, 3)
        assert ledger.size == 4
        monkeypatch.undo()


def test_a_closed_ledger_says_so(path: Path):
    ledger = new_ledger(path)
    batch = ledger.batch(START_US)
    add(batch, 1, [NodeSeen(node_id="a")])
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError):
        ledger.commit(batch)
    reader = LedgerReader(path)
    reader.close()
    with pytest.raises(LedgerError, match="closed"):
        reader.size()


def test_a_foreign_program_that_appended_stops_the_writer_until_a_restart(path: Path):
    with new_ledger(path) as ledger:
        foreign = apsw.Connection(str(path))
        foreign.execute("INSERT INTO event SELECT 2, sid, 2, kind, NULL, entry, chain FROM event WHERE pos = 1")
        foreign.close()
        batch = ledger.batch(START_US)
        add(batch, 1, [NodeSeen(node_id="a")])
        with pytest.raises(LedgerDamaged):
            ledger.commit(batch)
        assert ledger.size == 1
        with pytest.raises(LedgerDamaged, match="unknown"):
            ledger.batch(START_US)
        with pytest.raises(LedgerDamaged, match="unknown"):
            ledger.commit(batch)
    with pytest.raises(LedgerDamaged) as caught:
        Ledger.open(path, KEY)
    assert caught.value.pos == 2
