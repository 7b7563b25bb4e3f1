"""One row of the route table: which signed request builds which command."""

from dataclasses import dataclass

from hypercluster.domain.kernel import Body


@dataclass(frozen=True, slots=True)
class Route:
    """A mutating route.

    path: template as `/v1/offers/{offer_id}/rent`. private: names of body fields whose values are replaced by
    commitments before anything is stored; a field holding an object has each of its values replaced.
    body_required: an empty body is refused with 422, else it counts as `{}`.
    """

    method: str
    path: str
    kind: str
    body: type[Body]
    private: tuple[str, ...] = ()
    body_required: bool = True
    body_max_bytes: int = 256 * 1024
