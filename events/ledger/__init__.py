"""The ledger: one SQLite file of immutable events, one writer, any number of readers."""

from events.ledger.append import Ledger
from events.ledger.backup import Backup, backup
from events.ledger.batch import Batch
from events.ledger.read import LedgerReader, Stored

__all__ = ["Backup", "Batch", "Ledger", "LedgerReader", "Stored", "backup"]
