"""What happened: event types, canonical bytes, hashes, the ledger, evidence.

The ledger, blobs and private values are imported from their modules, so that pure code loads no SQLite.
"""

from events.envelope import CommandRecord, Envelope, Event, Recorded
from events.errors import LedgerError

__all__ = ["CommandRecord", "Envelope", "Event", "LedgerError", "Recorded"]
