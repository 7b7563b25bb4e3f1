"""Evidence by content, on real files."""

import hashlib
from pathlib import Path

import pytest

from events.blobs import BlobStore
from events.errors import BlobMissing, LedgerDamaged


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def files(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_blob_is_named_by_its_bytes(store: BlobStore, tmp_path: Path):
    digest = store.put(b"evidence")
    assert digest == "sha256:" + hashlib.sha256(b"evidence").hexdigest()
    assert store.put(b"evidence") == digest
    assert (store.get(digest), store.has(digest)) == (b"evidence", True)
    assert [path.read_bytes() for path in files(tmp_path)] == [b"evidence"]


def test_a_private_blob_lies_apart_salted_for_this_user_only(store: BlobStore, tmp_path: Path):
    digest = store.put(b"output", private=True)
    assert digest != store.put(b"output", private=True)
    assert digest != "sha256:" + hashlib.sha256(b"output").hexdigest()
    assert store.put(b"output", private=True, salt=bytes(32)) == store.put(b"output", private=True, salt=bytes(32))
    assert store.get(digest) == b"output"
    for path in files(tmp_path):
        assert path.relative_to(tmp_path).parts[:2] == ("blobs", "private")
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError, match="32 bytes"):
        store.put(b"output", private=True, salt=b"short")


def test_private_blobs_can_be_deleted_and_public_ones_cannot(store: BlobStore):
    private, public = store.put(b"output", private=True), store.put(b"evidence")
    assert (store.delete(private), store.delete(private), store.delete(public)) == (True, False, False)
    assert store.get(public) == b"evidence"
    with pytest.raises(BlobMissing):
        store.get(private)


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:../../secret", "sha256:" + "A" * 64, "md5:" + "a" * 64])
def test_what_is_no_digest_is_missing(store: BlobStore, digest: str, tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"x")
    assert not store.has(digest)
    assert not store.delete(digest)
    with pytest.raises(BlobMissing):
        store.get(digest)


def test_a_damaged_blob_is_an_error_and_is_healed_by_its_bytes(store: BlobStore, tmp_path: Path):
    digest = store.put(b"evidence")
    files(tmp_path)[0].write_bytes(b"evidencf")
    with pytest.raises(LedgerDamaged):
        store.get(digest)
    assert store.put(b"evidence") == digest
    assert store.get(digest) == b"evidence"


def test_an_empty_blob(store: BlobStore):
    assert store.get(store.put(b"")) == b""
