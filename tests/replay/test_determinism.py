"""Folding the same ledger gives the same state in every process, whatever its hash seed, time zone or directory."""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import ledgers

from events import registry
from events.ledger import LedgerReader
from projections.fold import State, evolve
from projections.state import Journal, Table
from replay.digests import fold_digests

ROOT = Path(__file__).parents[2]

FOLD = """
import json, sys
from events import registry
from events.ledger import LedgerReader
from projections.fold import State, evolve
from replay.digests import fold_digests
state = State()
with LedgerReader(sys.argv[1]) as reader:
    for pos, entry in reader.entries(0, 10_000):
        evolve(state, registry.decode(pos, entry))
print(json.dumps(fold_digests(state)))
"""


def folded_elsewhere(ledger: Path, **settings: str) -> dict[str, str]:
    environment = os.environ | settings | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", FOLD, str(ledger)]
    done = subprocess.run(command, env=environment, cwd=ledger.parent, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_digests_do_not_depend_on_the_process(tmp_path):
    town = ledgers.history(tmp_path / "data", jobs_run=2)
    town.close()
    state = State()
    with LedgerReader(town.path) as reader:
        for pos, entry in reader.entries(0, 10_000):
            evolve(state, registry.decode(pos, entry))
    own = fold_digests(state)
    assert own == fold_digests(town.state)
    for seed, zone in (("0", "UTC"), ("1", "Asia/Kolkata"), ("4242", "America/New_York")):
        assert folded_elsewhere(town.path, PYTHONHASHSEED=seed, TZ=zone) == own
    assert {"job", "lease", "score", "snapshot"} <= own.keys()


def test_a_digest_sees_rows_and_keys_but_not_their_order():
    state = State()
    empty = fold_digests(state)
    state.market.by_hotkey["a"] = "1"
    state.market.by_hotkey["b"] = "2"
    forwards = fold_digests(state)
    assert forwards != empty
    del state.market.by_hotkey["a"]
    state.market.by_hotkey["a"] = "1"
    assert fold_digests(state) == forwards
    state.market.by_hotkey["a"] = "2"
    assert fold_digests(state) != forwards


def test_a_nested_table_counts_with_its_rows():
    state, journal = State(), Journal()
    state.identity.nonces[1] = Table("nonce", journal)
    before = fold_digests(state)
    state.identity.nonces[1]["ada", "nonce"] = None
    assert fold_digests(state) != before
