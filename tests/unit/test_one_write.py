"""An answer that is written in parts leaves in one piece, and nothing of it is lost or held back for long."""

import asyncio
from collections.abc import Callable

from hypercluster.http.connection import HELD_BYTES_MAX, OneWrite


class Pieces(asyncio.Transport):
    """Notes what is handed on, and in which order it is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.seen.append(bytes(data))

    def write_eof(self) -> None:
        self.seen.append("eof")

    def close(self) -> None:
        self.seen.append("close")

    def is_closing(self) -> bool:
        return "close" in self.seen


def seen_after(act: Callable[[OneWrite, Pieces], None]) -> list[bytes | str]:
    """What has been handed on one turn of the event loop after `act`."""

    async def turn() -> list[bytes | str]:
        pieces = Pieces()
        act(OneWrite(pieces, asyncio.get_running_loop()), pieces)
        await asyncio.sleep(0)
        return pieces.seen

    return asyncio.run(turn())


def test_head_and_body_leave_together() -> None:
    def act(transport: OneWrite, pieces: Pieces) -> None:
        transport.write(b"head ")
        transport.write(b"body")
        assert pieces.seen == []

    assert seen_after(act) == [b"head body"]


def test_a_lone_head_leaves_by_itself() -> None:
    assert seen_after(lambda transport, _: transport.write(b"head")) == [b"head"]


def test_what_was_written_leaves_before_the_end() -> None:
    def act(transport: OneWrite, _: Pieces) -> None:
        transport.write(b"last words")
        transport.write_eof()
        transport.close()

    assert seen_after(act) == [b"last words", "eof", "close"]


def test_a_long_answer_is_handed_on_at_once() -> None:
    """Else the transport could not slow its sender down."""

    def act(transport: OneWrite, pieces: Pieces) -> None:
        for _ in range(3):
            transport.write(b"x" * HELD_BYTES_MAX)
        assert sum(len(piece) for piece in pieces.seen) >= 2 * HELD_BYTES_MAX

    assert sum(len(piece) for piece in seen_after(act)) == 3 * HELD_BYTES_MAX


def test_nothing_is_written_to_a_transport_that_closed_meanwhile() -> None:
    def act(transport: OneWrite, pieces: Pieces) -> None:
        transport.write(b"too late")
        pieces.close()

    assert seen_after(act) == ["close"]
