"""Codes of this area: what a score may carry, and why a score is refused."""

from hypercluster.domain import codes
from hypercluster.domain.codes import Code
from hypercluster.domain.jobs.faults import INTEGRITY_CODES, MEASURED_INTEGRITY_CODES

NO_EXPECTED_VALUE = "no_expected_value"
BELOW_EFFICIENCY_FLOOR = "below_efficiency_floor"
TRANSPORT_FORBIDDEN = "transport_forbidden"
CREDIT_SLOT_USED = "credit_slot_used"

ZEROING = INTEGRITY_CODES | MEASURED_INTEGRITY_CODES  # any of these makes the composite 0

codes.register(
    {
        "attempt_not_scorable": Code(409, "the attempt has not ended, or it ended in a way that is not scored"),
    }
)
