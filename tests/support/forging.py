"""What an operator who holds the file and the key could do to a ledger: change the past and rebuild every hash."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from events import checkpoint, codec
from events.hashing import chain_next, chain_start, leaf_hash
from events.merkle import Tree

type Change = Callable[[int, dict[str, Any]], None]


def copy(ledger: Path, directory: Path) -> Path:
    """A copy with its evidence, its triggers dropped."""
    shutil.copytree(ledger.parent, directory)
    path = directory / ledger.name
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
    connection.close()
    return path


def execute(path: Path, sql: str, *values: object) -> None:
    """One change, behind the back of the ledger's code."""
    with sqlite3.connect(path) as connection:
        connection.execute(sql, values)
    connection.close()


def entries(path: Path) -> list[bytes]:
    """The leaves, in order."""
    connection = sqlite3.connect(path)
    found = [entry for (entry,) in connection.execute("SELECT entry FROM event ORDER BY pos")]
    connection.close()
    return found


def rewrite(path: Path, origin: str, key: SigningKey, change: Change) -> None:
    """Change entries, then rebuild what depends on them: chain, roots and digests of later snapshots, checkpoint.

    change: called with each event's number and decoded entry, which it may alter in place.
    """
    connection = sqlite3.connect(path)
    tree, chain, previous = Tree(), chain_start(origin), None
    connection.execute("DELETE FROM tile")
    connection.execute("DELETE FROM checkpoint")
    for pos, entry in enumerate(entries(path), 1):
        value: Any = codec.decode(entry)
        change(pos, value)
        if value["type"] == "weights.snapshot":
            previous = _rebuilt_snapshot(value["data"], tree, previous)
        forged = codec.encode(value)
        chain = chain_next(chain, leaf_hash(forged))
        tree.append(leaf_hash(forged))
        connection.execute("UPDATE event SET entry = ?, chain = ? WHERE pos = ?", (forged, chain, pos))
    note = checkpoint.sign(origin, tree.size, tree.root(), key)
    connection.execute("INSERT INTO checkpoint VALUES (?, ?, ?)", (tree.size, tree.root(), note))
    connection.commit()
    connection.close()


def _rebuilt_snapshot(data: dict[str, Any], tree: Tree, previous: str | None) -> str:
    data["root"] = tree.root(data["size"]).hex()
    if previous is not None:
        data["previous"] = previous
    without = {name: value for name, value in data.items() if name != "digest"}
    data["digest"] = hashlib.sha256(codec.encode(without)).hexdigest()
    return str(data["digest"])
