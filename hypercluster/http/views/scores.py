"""Scores, the leaderboard and weights on the wire."""

from collections.abc import Iterable

from hypercluster.domain.weights.preview import LeaderboardRow, preview
from hypercluster.http import wire
from hypercluster.http.views import Shown
from projections.folds.scores import ScoredAttempt, Standing
from projections.folds.weights import SnapshotRecord


def score_view(scored: ScoredAttempt, role: str, hotkey: str) -> Shown:
    """Score of one attempt as it concerns one hotkey. role: demand (its submitter) or supply (a provider)."""
    score = scored.score
    return {
        "id": f"{score.job_id}/{score.attempt_no}/{role}",
        "attempt_id": f"{score.job_id}/{score.attempt_no}",
        "job_id": score.job_id,
        "attempt_no": score.attempt_no,
        "hotkey": hotkey,
        "role": role,
        "correctness": float(score.correctness),
        "efficiency": wire.ratio(score.efficiency_ppm),
        "fabric_gate": float(score.fabric_gate),
        "tee_bonus": wire.ratio(score.tee_bonus_ppm),
        "composite": wire.ratio(score.composite_ppm),
        "details": _details(scored),
        "seq": scored.pos,
        "created_at": wire.time_text(scored.at_us),
    }


def _details(scored: ScoredAttempt) -> Shown:
    score = scored.score
    return {
        "rule": score.rule,
        "revision": scored.revision,
        "revised_seq": scored.revised_pos,
        "policy_digest": score.policy_digest,
        "reason_codes": score.codes,
        "inputs": score.inputs,
        "program": score.program,
        "hardware_class": score.hardware_class,
        "fabric": score.fabric,
        "measured_bytes_per_s": score.measured_bytes_per_s,
        "expected_bytes_per_s": score.expected_bytes_per_s,
        "self_deal": any(node.relation == "self_deal" for node in score.nodes),
        "demand_void": score.demand_void,
        "supply_void": score.supply_void,
        "nodes": [
            {
                "node_id": node.node_id,
                "provider": node.provider,
                "gpus_used": node.gpus_used,
                "gpu_class": node.gpu_class,
                "class_value": wire.ratio(node.class_value_ppm),
                "value": wire.ratio(node.value),
                "relation": node.relation,
            }
            for node in score.nodes
        ],
    }


def weights_of(snapshot: SnapshotRecord | None) -> dict[str, float]:
    """The snapshot's map as Base reads it: hotkey -> share, all above 0, finite."""
    if snapshot is None:
        return {}
    return {weight.hotkey: wire.ratio(weight.ppm) for weight in snapshot.snapshot.weights}


def preview_view(snapshot: SnapshotRecord | None, standings: Iterable[Standing], now_us: int) -> Shown:
    """Preview: the newest snapshot, which is also what get_weights serves, beside the masses of now (raw_mass)."""
    found = preview(snapshot, standings)
    weights = weights_of(snapshot)
    shown: Shown = {
        "weights": weights,
        "count": len(weights),
        "empty": not weights,
        "raw_mass": {hotkey: wire.ratio(mass) for hotkey, mass in found.masses.items()},
        "raw_mass_at": wire.optional_time(found.masses_us),
    }
    if snapshot is None:
        return shown | {"snapshot": {"source": "aggregation"}}
    taken = snapshot.snapshot
    return shown | {
        "snapshot": {
            "source": "snapshot",
            "number": taken.number,
            "epoch": taken.epoch,
            "revision": taken.number,
            "push_status": "pending",
            "payload_digest": taken.digest.removeprefix("sha256:"),
            "size": taken.size,
            "root": taken.root,
            "policy_digest": taken.policy_digest,
            "metagraph_digest": taken.metagraph_digest,
            "seq": snapshot.pos,
            "at": wire.time_text(snapshot.at_us),
            "age_s": max(0, now_us - snapshot.at_us) // 1_000_000,
        },
    }


def get_weights_view(slug: str, snapshot: SnapshotRecord | None, now_us: int) -> Shown:
    """What Base pulls. Without a snapshot: an empty map, epoch 0."""
    metadata: dict[str, str] = {}
    epoch = 0
    if snapshot is not None:
        epoch = snapshot.snapshot.epoch
        metadata = {
            "snapshot_number": str(snapshot.snapshot.number),
            "snapshot_age_s": str(max(0, now_us - snapshot.at_us) // 1_000_000),
            "snapshot_digest": snapshot.snapshot.digest,
            "ledger_size": str(snapshot.snapshot.size),
            "ledger_root": snapshot.snapshot.root,
        }
    return {"challenge_slug": slug, "epoch": epoch, "weights": weights_of(snapshot), "metadata": metadata}


def leaderboard_view(row: LeaderboardRow) -> Shown:
    """Row. aggregate and roles: the mass, in credits of a whole H100 slot."""
    return {
        "hotkey": row.hotkey,
        "aggregate": wire.ratio(row.mass),
        "roles": {role: wire.ratio(mass) for role, mass in row.roles.items()},
        "spam_keep": wire.ratio(row.keep_ppm),
        "score_count": row.score_count,
        "self_deal_count": row.self_deal_count,
        "rank": row.rank,
        "as_of": wire.time_text(row.changed_us),
    }
