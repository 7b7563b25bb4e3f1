"""Finds records and shows them to one reader."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from hypercluster.http.auth import Viewer
from hypercluster.http.errors import Problem
from hypercluster.http.ports import Service
from hypercluster.http.views import Reveal, Shown, hide
from hypercluster.http.views.jobs import attempt_view, job_detail, job_view
from hypercluster.http.views.market import lease_view, pod_view, provider_view
from hypercluster.http.views.nodes import node_view
from projections.folds.jobs import Attempt, Claim, Job
from projections.folds.market import Lease, Offer, Provider
from projections.folds.nodes import Node
from projections.folds.scores import ScoredAttempt, Standing
from projections.tables import Row

FAMILY_MAX = 500  # rows that belong to one object: nodes of a provider, claims about an attempt


class Reader:
    """The read models as one viewer may see them."""

    def __init__(self, service: Service, viewer: Viewer) -> None:
        self.service, self.viewer = service, viewer
        self._hotkeys: dict[str, str | None] = {}

    def found[T](self, table: str, key: str, kind: type[T]) -> T:
        """The record with this key.

        Raises: Problem (<table>_not_found)
        """
        record = self.service.view.get(table, key)
        if not isinstance(record, kind):
            raise Problem(f"{table}_not_found", f"there is no {table} {key}")
        return record

    def reveal_to(self, *owners: str | None) -> Reveal:
        """Opens commitments when the viewer is one of the owners."""
        if not self.viewer.sees(*owners):
            return hide
        return lambda commitment: None if commitment is None else self.service.private(commitment)

    def provider_of(self, hotkey: str) -> Provider:
        """The provider of a hotkey.

        Raises: Problem (provider_not_found)
        """
        rows = self.service.view.find("provider", {"hotkey": hotkey}, limit=1)
        if not rows:
            raise Problem("provider_not_found", "this hotkey is not a provider")
        return cast(Provider, rows[0].record)

    def nodes_of(self, provider_id: str) -> list[Node]:
        """All nodes of a provider."""
        return [row.record for row in self.service.view.find("node", {"provider_id": provider_id}, limit=FAMILY_MAX)]

    def provider(self, provider: Provider) -> Shown:
        """Provider with the newest sign of life of its nodes."""
        seen = [node.last_seen_us for node in self.nodes_of(provider.provider_id)]
        return provider_view(provider, max(seen, default=None))

    def node(self, node: Node) -> Shown:
        """Node; its provider sees the address."""
        return node_view(node, self.reveal_to(self._owner(node.provider_id)))

    def lease(self, lease: Lease) -> Shown:
        """Lease; its parties see the reason that was given."""
        return lease_view(lease, self.reveal_to(lease.renter, lease.provider))

    def pod(self, lease: Lease) -> Shown:
        """Pod; its provider sees the addresses, its renter while the lease runs."""
        running = lease.status == "active" and lease.ends_at_us > self.service.now_us()
        found = (self.service.view.get("node", node_id) for node_id in lease.node_ids)
        nodes = [node for node in found if isinstance(node, Node)]
        return pod_view(lease, nodes, self.reveal_to(lease.provider, lease.renter if running else None))

    def job(self, job: Job) -> Shown:
        """Job; its submitter sees the environment."""
        return job_view(job, self._env_of(job))

    def job_detail(self, job: Job) -> Shown:
        """Job with its newest attempt."""
        attempt = self.service.view.get("attempt", f"{job.job_id}/{job.attempts}")
        return job_detail(job, attempt if isinstance(attempt, Attempt) else None, self._env_of(job))

    def attempt(self, job: Job, attempt: Attempt) -> Shown:
        """Attempt with its score and the claims about it."""
        key = f"{job.job_id}/{attempt.attempt_no}"
        rows = self.service.view.find("claim", {"job_id": job.job_id}, limit=FAMILY_MAX)
        claims: list[Claim] = [row.record for row in rows if row.record.attempt_no == attempt.attempt_no]
        scored = self.service.view.get("score", key)
        return attempt_view(job, attempt, scored if isinstance(scored, ScoredAttempt) else None, claims)

    def job_and_attempt(self, job_id: str, attempt_no: int) -> tuple[Job, Attempt]:
        """Both records.

        Raises: Problem (job_not_found, attempt_not_found)
        """
        job = self.found("job", job_id, Job)
        attempt = self.service.view.get("attempt", f"{job_id}/{attempt_no}")
        if not isinstance(attempt, Attempt):
            raise Problem("attempt_not_found", f"job {job_id} has no attempt {attempt_no}")
        return job, attempt

    def offer(self, offer_id: str) -> Offer:
        """The offer with this id."""
        return self.found("offer", offer_id, Offer)

    def standings(self) -> list[Standing]:
        """All standings: one for each hotkey that a score ever concerned."""
        found: list[Standing] = []
        after = 0
        while rows := self.service.view.find("standing", {}, after=after, limit=FAMILY_MAX):
            found += [row.record for row in rows]
            after = rows[-1].created
        return found

    def _env_of(self, job: Job) -> Reveal | None:
        return self.reveal_to(job.submitter) if self.viewer.sees(job.submitter) else None

    def _owner(self, provider_id: str) -> str | None:
        if provider_id not in self._hotkeys:
            provider = self.service.view.get("provider", provider_id)
            self._hotkeys[provider_id] = provider.hotkey if isinstance(provider, Provider) else None
        return self._hotkeys[provider_id]


def page(rows: Iterable[Row], limit: int, show: Callable[[Any], Shown]) -> Shown:
    """One page of a list. rows: up to limit + 1, so that the end is known; `next` is null there."""
    listed = list(rows)
    more = len(listed) > limit
    listed = listed[:limit]
    return {"items": [show(row.record) for row in listed], "next": listed[-1].created if more else None}


def merged(reader: Reader, table: str, wheres: Iterable[Mapping[str, str | int]], after: int, limit: int) -> list[Row]:
    """Rows that match any of the conditions, in the order of their creation, each once, up to limit + 1."""
    rows: dict[int, Row] = {}
    for where in wheres:
        rows.update((row.created, row) for row in reader.service.view.find(table, where, after=after, limit=limit + 1))
    return [rows[created] for created in sorted(rows)][: limit + 1]
