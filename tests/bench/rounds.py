"""Two ways of doing the same, measured in turns: the ratio of their medians is what a benchmark prints."""

import sys
from collections.abc import Callable
from statistics import median

ROUNDS = 5


def compare(name: str, ours: Callable[[], float], baseline: Callable[[], float], rounds: int = ROUNDS) -> float:
    """Both give a rate (higher is better); they take turns. Prints and returns ours / baseline."""
    pairs = [(ours(), baseline()) for _ in range(rounds)]
    first, second = (median(column) for column in zip(*pairs, strict=True))
    spread = sorted(a / b for a, b in pairs)
    print(
        f"{name}: {first:,.0f}/s against {second:,.0f}/s, ratio {first / second:.2f} "
        f"({spread[0]:.2f} to {spread[-1]:.2f} in {rounds} rounds)"
    )
    return first / second


def is_large() -> bool:
    """Whether the long form was asked for."""
    return "--large" in sys.argv
