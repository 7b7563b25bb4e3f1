"""Ends whatever an attempt left on this node and removes its directory. Doing it again is harmless.

Input: {"tag", "mark", "grace_s"}. Output: {"left": number of things that could not be removed}.
"""

from __future__ import annotations

import sys

from hypercluster.effects.remote import places, processes, wire


def main() -> None:
    start = wire.receive_json(sys.stdin.buffer)
    left = processes.end(lambda: processes.marked(start["mark"]), float(start["grace_s"]))
    gone = places.remove(start["tag"])
    wire.send(sys.stdout.buffer, wire.pack_json({"left": len(left) + (0 if gone else 1)}))
