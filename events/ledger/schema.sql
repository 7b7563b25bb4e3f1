-- One ledger file. `entry` holds the exact leaf bytes; every other column can be derived from the entries.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE stream (sid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE kind (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (name, version)
) STRICT;

CREATE TABLE event (
    pos INTEGER PRIMARY KEY,
    sid INTEGER NOT NULL,
    version INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    cmd_id BLOB UNIQUE CHECK (length(cmd_id) = 16), -- on the first event of a command
    entry BLOB NOT NULL,
    chain BLOB NOT NULL CHECK (length(chain) = 32),
    UNIQUE (sid, version)
) STRICT;

-- Full tiles of the Merkle tree: tile `number` of `level` holds 256 hashes.
CREATE TABLE tile (
    level INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hashes BLOB NOT NULL CHECK (length(hashes) = 8192),
    PRIMARY KEY (level, number)
) STRICT;

CREATE TABLE checkpoint (size INTEGER PRIMARY KEY, root BLOB NOT NULL, note TEXT NOT NULL) STRICT;

-- These stop accidents. Against somebody who holds the file stand the signed root and those who have seen it.
CREATE TRIGGER event_gapless BEFORE INSERT ON event
WHEN NEW.pos <> (SELECT coalesce(max(pos), 0) + 1 FROM event)
BEGIN SELECT RAISE(ABORT, 'an event takes the number after the last one'); END;

CREATE TRIGGER event_update BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'an event never changes'); END;

CREATE TRIGGER event_delete BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'an event is never deleted'); END;

CREATE TRIGGER tile_update BEFORE UPDATE ON tile
BEGIN SELECT RAISE(ABORT, 'a full tile never changes'); END;

CREATE TRIGGER tile_delete BEFORE DELETE ON tile
BEGIN SELECT RAISE(ABORT, 'a tile is never deleted'); END;
