"""Where an attempt keeps its files on a node."""

from __future__ import annotations

import os
import shutil


def scratch(tag: str) -> str:
    """The attempt's own directory below the SSH user's home. `tag` is lower-case hex."""
    if not tag or not set(tag) <= set("0123456789abcdef"):
        raise ValueError("a tag is lower-case hex")
    return os.path.join(os.path.expanduser("~"), ".hypercluster", tag)  # noqa: PTH118, PTH111


def remove(tag: str) -> bool:
    """Remove the attempt's directory; True when nothing of it is left."""
    path = scratch(tag)
    shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def lease(tag: str) -> str:
    """The file that the control plane renews while it wants the attempt to live."""
    return os.path.join(scratch(tag), "lease")  # noqa: PTH118
