"""Private values in a real file: kept, found, deleted without a trace."""

from pathlib import Path

import apsw
import pytest

from events.errors import LedgerDamaged, NotALedger
from events.hashing import commit_value
from events.private import PrivateStore, PrivateValue

SALT = bytes(range(16))


def value(text: str, owner: str = "job/1", salt: bytes = SALT) -> PrivateValue:
    return PrivateValue(commit_value(salt, text), owner, "env", salt, text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private.sqlite3"


def test_values_are_found_by_their_commitments(path: Path):
    one, two = value("one"), value("two\u2028", "job/2")
    with PrivateStore(path) as store:
        store.put([one, two])
        store.put([one])
        store.put([])
        assert (store.get(one.commitment), store.get(two.commitment)) == ("one", "two\u2028")
        assert store.get("hmac-sha256:" + "0" * 64) is None
    with PrivateStore(path) as store:
        assert store.get(one.commitment) == "one"
    assert path.stat().st_mode & 0o777 == 0o600


def test_all_or_none(path: Path):
    one, wrong = value("one"), PrivateValue("hmac-sha256:" + "0" * 64, "job/1", "env", SALT, "two")
    with PrivateStore(path) as store:
        with pytest.raises(ValueError, match="commitment"):
            store.put([one, wrong])
        assert store.get(one.commitment) is None


def test_what_is_deleted_is_gone_from_the_disk(path: Path):
    secret = "tell-nobody-" * 400
    with PrivateStore(path) as store:
        store.put([value(secret), value("kept", "job/2")])
        assert any(b"tell-nobody" in file.read_bytes() for file in path.parent.iterdir())
        assert (store.delete_owner("job/1"), store.delete_owner("job/1")) == (1, 0)
        assert not any(b"tell-nobody" in file.read_bytes() for file in path.parent.iterdir())
        assert store.get(value("kept").commitment) == "kept"


def test_a_changed_value_is_not_handed_out(path: Path):
    with PrivateStore(path) as store:
        store.put([value("one")])
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE private SET value = 'other'")
    connection.close()
    with PrivateStore(path) as store, pytest.raises(LedgerDamaged):
        store.get(value("one").commitment)


def test_another_file_is_not_touched(path: Path):
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NotALedger):
        PrivateStore(path)
    assert path.read_bytes() == before
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(NotALedger):
        PrivateStore(path)
