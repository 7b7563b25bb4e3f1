"""Scores, the leaderboard and the weights that follow from them."""

from typing import Annotated, Any

import typer

from hypercluster.cli.errors import CliError
from hypercluster.cli.options import TRUTH, Limit
from hypercluster.cli.session import Session, command
from hypercluster.domain.codes import Exit

score = typer.Typer(help="Scored attempts of a hotkey.")
weights = typer.Typer(help="What Base is told.")
leaderboard = typer.Typer()


@score.callback()
def _score() -> None:
    """Scored attempts of a hotkey."""


@weights.callback()
def _weights() -> None:
    """What Base is told."""


SCORE_COLUMNS = (
    "attempt_id",
    "role",
    "correctness",
    "efficiency",
    "fabric_gate",
    "tee_bonus",
    "composite",
    "created_at",
)


@command(score, "show", panel=TRUTH, example="hypercluster score show --hotkey HOTKEY")
def show_score(
    session: Session,
    hotkey: Annotated[str, typer.Option("--hotkey", envvar="HYPER_HOTKEY", help="Address of the hotkey.")],
    limit: Limit = 50,
) -> None:
    """The newest scored attempts of a hotkey, with their factors."""
    session.show(session.get(f"/v1/scores/{hotkey}", {"limit": limit}), columns=SCORE_COLUMNS)


@command(leaderboard, "leaderboard", panel=TRUTH, example="hypercluster leaderboard --limit 10")
def show_leaderboard(session: Session, limit: Limit = 100) -> None:
    """Hotkeys by the mass that their scores give them."""
    columns = ("rank", "hotkey", "aggregate", "score_count", "self_deal_count")
    session.show(session.get("/v1/leaderboard", {"limit": limit}), columns=columns)


@command(weights, "preview", panel=TRUTH, example="hypercluster weights preview -o json")
def preview(session: Session) -> None:
    """The weight of every hotkey as the newest snapshot has it."""
    found = session.get("/v1/weight-preview")
    if not sound(found):
        message = "the server's answer is no map of non-negative weights"
        raise CliError(message, code="malformed_weights", exit_with=Exit.FAULT, hint="report it to the operator")
    session.show(found)


def sound(preview: Any) -> bool:
    """Whether the answer holds a map of finite weights that are not negative."""
    found = preview.get("weights") if isinstance(preview, dict) else None
    if not isinstance(found, dict):
        return False
    return all(isinstance(w, int | float) and not isinstance(w, bool) and 0 <= w < float("inf") for w in found.values())
