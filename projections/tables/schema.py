"""The SQL of the read models. The file may be deleted at any time: it is rebuilt from the ledger."""

from projections.tables.mirrors import MIRRORS

TABLES_VERSION = 1

_FIXED = """
CREATE TABLE progress(one INTEGER PRIMARY KEY CHECK (one = 1), pos INTEGER NOT NULL, version TEXT NOT NULL,
                      ledger BLOB NOT NULL) STRICT;
CREATE TABLE event_tag(tag TEXT NOT NULL, pos INTEGER NOT NULL, PRIMARY KEY (tag, pos)) STRICT, WITHOUT ROWID;
"""


def create_statements() -> str:
    """All tables and indexes, as one script."""
    script = [_FIXED]
    for name, mirror in MIRRORS.items():
        columns = "".join(f', "{column}" ANY' for column in mirror.columns)
        script.append(
            f'CREATE TABLE "{name}"(key TEXT NOT NULL UNIQUE, created INTEGER NOT NULL, pos INTEGER NOT NULL,'
            f" record BLOB NOT NULL{columns}) STRICT;"
            f'CREATE INDEX "{name}_by_created" ON "{name}"(created);'
        )
        script += [f'CREATE INDEX "{name}_by_{c}" ON "{name}"("{c}", created);' for c in mirror.columns]
    return "\n".join(script)
