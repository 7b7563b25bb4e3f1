"""What workers report about leases."""

from hypercluster.domain.kernel import StrictBody


class ExpireLease(StrictBody):
    """The lease has reached its hard lifetime."""

    lease_id: str
