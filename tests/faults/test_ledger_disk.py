"""Full disks, missing rights, kill -9: what the ledger then keeps and says."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from events.blobs import BlobStore
from events.errors import (
    DiskFull,
    LedgerError,
    LedgerReadOnly,
)
from events.ledger import Ledger, LedgerReader, backup

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
from ledger_files import (  # noqa: E402
    KEY,
    NOBODY,
    ORIGIN,
    chain_is_whole,
    fill,
    in_child,
    new_ledger,
    open_ways,
    sibling,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "challenge.sqlite3"


# --- the disk ---


@pytest.fixture
def small_disk(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this user cannot mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_loses_nothing_and_the_ledger_goes_on(small_disk: Path):
    path = small_disk / "challenge.sqlite3"
    with new_ledger(path) as ledger:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(300_000))
        with pytest.raises(DiskFull) as caught:
            fill(ledger, 10_000, group=50)
        assert caught.value.hint
        before = (ledger.size, ledger.root(), ledger.checkpoint())
        for _ in range(3):
            with pytest.raises(DiskFull):
                fill(ledger, 400, group=400)
        assert (ledger.size, ledger.root(), ledger.checkpoint()) == before
        with LedgerReader(path) as reader:
            assert reader.size() == ledger.size
        ballast.unlink()
        fill(ledger, 20, group=10)
        assert ledger.size == before[0] + 20
        root = ledger.root()
    with Ledger.open(path, KEY) as ledger:
        assert ledger.root() == root
    assert chain_is_whole(path) == before[0] + 20


def test_a_full_disk_refuses_a_new_ledger_a_backup_and_a_blob(small_disk: Path, tmp_path: Path):
    with new_ledger(tmp_path / "source") as ledger:
        fill(ledger, 4_000, group=500)
    with pytest.raises(DiskFull):
        backup(tmp_path / "source", small_disk / "copy")
    assert not list(small_disk.iterdir())
    with pytest.raises(DiskFull):
        BlobStore(small_disk / "blobs").put(bytes(2_000_000))
    assert not [file for file in small_disk.rglob("*") if file.is_file()]
    (small_disk / "ballast").write_bytes(bytes(1_020_000))
    with pytest.raises(DiskFull):
        Ledger.create(small_disk / "challenge.sqlite3", KEY, ORIGIN)


def test_a_limit_on_file_sizes_is_a_full_disk(path: Path):
    def limited() -> None:
        with new_ledger(path) as ledger:
            fill(ledger, 100)
            limit = sibling(path, "-wal").stat().st_size + 20_000
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            with pytest.raises(DiskFull):
                fill(ledger, 1_000, group=200)
            size = ledger.size
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            fill(ledger, 200, group=200)
            assert ledger.size == size + 200

    in_child(limited)
    assert chain_is_whole(path) >= 301


def test_a_disk_that_turns_read_only(small_disk: Path):
    path = small_disk / "challenge.sqlite3"
    with new_ledger(path) as ledger:
        fill(ledger, 10)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(LedgerReadOnly):
        Ledger.open(path, KEY)
    with pytest.raises(LedgerReadOnly):
        Ledger.create(small_disk / "other", KEY, ORIGIN)
    with pytest.raises(LedgerReadOnly):
        BlobStore(small_disk / "blobs").put(b"x")
    assert chain_is_whole(path) == 11  # reading goes on


# --- permissions ---


def test_reading_in_a_directory_that_cannot_be_written(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 30)
    for suffix in (".lock", ".head"):
        sibling(path, suffix).chmod(0o444)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    open_ways(path.parent)
    try:
        in_child(lambda: read_as_nobody(path, 31), user=NOBODY)
        in_child(lambda: writing_is_refused(path), user=NOBODY)
    finally:
        path.parent.chmod(0o755)


def read_as_nobody(path: Path, size: int) -> None:
    assert not os.access(path.parent, os.W_OK)
    assert chain_is_whole(path) == size


def writing_is_refused(path: Path) -> None:
    with pytest.raises(LedgerReadOnly):
        Ledger.open(path, KEY)


def test_reading_beside_a_running_writer_without_write_access(path: Path):
    open_ways(path.parent)
    with new_ledger(path) as ledger:
        fill(ledger, 30)
        path.parent.chmod(0o555)
        try:
            in_child(lambda: read_as_nobody(path, 31), user=NOBODY)
        finally:
            path.parent.chmod(0o755)


def test_a_wal_that_nobody_may_replay_is_said(path: Path, tmp_path: Path):
    ledger = new_ledger(path)
    fill(ledger, 30)
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    shutil.copy(sibling(path, "-wal"), copy.parent)
    ledger.close()
    copy.parent.chmod(0o555)
    open_ways(tmp_path)

    def read() -> None:
        with pytest.raises(LedgerReadOnly, match="-wal") as caught:
            LedgerReader(copy)
        assert "copy the ledger together" in caught.value.hint

    try:
        in_child(read, user=NOBODY)
    finally:
        copy.parent.chmod(0o755)


def test_a_file_that_may_not_be_read_is_said(path: Path):
    new_ledger(path).close()
    path.chmod(0)
    open_ways(path.parent)

    def read() -> None:
        with pytest.raises(LedgerError, match="may not be read"):
            LedgerReader(path)

    in_child(read, user=NOBODY)


def test_a_file_read_as_unchangeable_is_read_anew_once_somebody_writes(path: Path):
    with new_ledger(path) as ledger:
        fill(ledger, 5)
    path.parent.chmod(0o555)
    open_ways(path.parent)
    reads, answers = os.pipe(), os.pipe()

    def follow() -> None:
        with LedgerReader(path) as reader:
            assert reader.size() == 6
            os.write(answers[1], b"1")
            assert os.read(reads[0], 1) == b"1"
            assert reader.size() == 8
            assert len(reader.entries(0)) == 8

    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            follow()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    try:
        assert os.read(answers[0], 1) == b"1"
        path.parent.chmod(0o755)
        with Ledger.open(path, KEY) as ledger:
            fill(ledger, 2)
            path.parent.chmod(0o555)
            os.write(reads[1], b"1")
            _, status = os.waitpid(child, 0)
            path.parent.chmod(0o755)
    finally:
        path.parent.chmod(0o755)
        for end in (*reads, *answers):
            os.close(end)
    assert os.waitstatus_to_exitcode(status) == 0


# --- kill -9 ---

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from ledger_files import KEY, fill
from events.ledger import Ledger
ledger = Ledger.open(sys.argv[1], KEY)
while True:
    fill(ledger, 7, group=3)
    print(ledger.size, flush=True)
"""


def test_kill_9_loses_nothing_that_was_acknowledged(path: Path):
    new_ledger(path).close()
    acknowledged = 1
    for round_number in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(SUPPORT)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(0.05 + 0.03 * round_number)
        writer.send_signal(signal.SIGKILL)
        lines = [first, *writer.stdout.readlines()]
        writer.wait()
        writer.stdout.close()
        whole = [line for line in lines if line.endswith(b"\n")]
        assert whole
        acknowledged = int(whole[-1])
        with Ledger.open(path, KEY) as ledger:
            assert ledger.size >= acknowledged
            size, root = ledger.size, ledger.root()
        assert chain_is_whole(path) == size
        with LedgerReader(path) as reader:
            assert reader.tree().root() == root
