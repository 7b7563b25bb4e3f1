"""Why a snapshot is refused."""

from hypercluster.domain import codes
from hypercluster.domain.codes import Code

SNAPSHOT_NOT_ALONE = "snapshot_not_alone"

codes.register(
    {SNAPSHOT_NOT_ALONE: Code(409, "a snapshot is folded from the last committed events and decided before others")}
)
