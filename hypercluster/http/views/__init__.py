"""Records of the read models as clients see them. Pure: what is private comes in through `reveal`."""

from collections.abc import Callable

type Shown = dict[str, object]
type Reveal = Callable[[str | None], str | None]  # a commitment -> the value, or None where it stays hidden


def hide(_commitment: str | None) -> None:
    """The `reveal` of strangers."""
    return
