"""What the snapshot worker asks for. An internal command; its cause is the event at the head, its attempt the epoch."""

from hypercluster.domain.kernel import StrictBody


class TakeSnapshot(StrictBody):
    """A snapshot may be due. epoch: the one that the worker saw; the decision counts with that of its own time."""

    epoch: int
