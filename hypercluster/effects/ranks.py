"""One rank of a gang as the control plane sees it."""

from typing import Any

from hypercluster.effects.networks import NodeFailure
from hypercluster.effects.plan import Place, RankOutput
from hypercluster.effects.remote import wire
from hypercluster.effects.ssh import Garbled, Program, ProgramEnded, Session, parse_object

COUNT_MAX = 2**53 - 1


class RankRun:
    """Its agent, what it wrote so far, and how it ended. failure: why the gang cannot succeed, once that is known.
    unasked: its agent ended it although nobody here had asked for that."""

    def __init__(self, place: Place, cap_bytes: int) -> None:
        self.place = place
        self.failure: NodeFailure | None = None
        self.unasked = False
        self._cap = cap_bytes
        self._program: Program | None = None
        self._kept = {b"O": bytearray(), b"E": bytearray()}
        self._written = {b"O": 0, b"E": 0}
        self._exit_code: int | None = None
        self._stopping = False

    async def start(self, session: Session, order: dict[str, Any], mark: str) -> None:
        """Start its agent and wait until it is ready. Raises NodeFailure."""
        try:
            self._program = await session.start("rank_agent", f"{mark}/agent-{self.place.rank}")
            await self._program.send(order)
            if (await self._program.receive_json()).get("ready") is not True:
                raise Garbled
        except (ProgramEnded, Garbled):
            raise self._fail("rank_missing") from None

    def release(self) -> None:
        """Let it start the entrypoint."""
        self._tell({"go": True})

    def stop(self) -> None:
        """Have it end the rank: TERM, grace, KILL."""
        self._stopping = True
        self._tell({"stop": True})

    def _tell(self, message: dict[str, Any]) -> None:
        if self._program is not None:
            self._program.write_soon(wire.pack_json(message))

    async def follow(self) -> None:
        """Keep what it writes until it has ended; never raises, sets `failure`."""
        try:
            while not await self._take_frame():
                pass
        except (NodeFailure, Garbled):  # our own program does not send what has no meaning
            self.failure = self._fail("node_lost")
        except ProgramEnded:  # whoever shares the rank's user can kill its agent: the job itself, in the first place
            self.failure = self._fail("rank_failed")

    async def _take_frame(self) -> bool:
        if self._program is None:
            raise ProgramEnded
        kind, payload = await self._program.receive()
        if kind == b"J":
            self._take_ending(parse_object(payload))
            return True
        kept = self._kept[kind]
        kept += payload[: self._cap - len(kept)]
        self._written[kind] += len(payload)
        return False

    def _take_ending(self, ending: dict[str, Any]) -> None:
        code, killed = ending.get("exit"), ending.get("killed")
        counts = {b"O": ending.get("stdout"), b"E": ending.get("stderr")}
        for kind, count in counts.items():
            if type(count) is not int or not 0 <= count <= COUNT_MAX:
                raise Garbled
            self._written[kind] = max(self._written[kind], count)
        if type(killed) is not bool or not (killed or (type(code) is int and -128 < code < 256)):
            raise Garbled
        if killed:
            if not self._stopping:  # a stale lease, or a signal from whoever shares the rank's user
                self.unasked = True
                self.failure = self._fail("rank_failed")
            return
        self._exit_code = code
        if code != 0:
            self.failure = self._fail("rank_failed")

    def _fail(self, code: str) -> NodeFailure:
        return NodeFailure(code, self.place.node.node_id, self.place.rank)

    def output(self) -> RankOutput:
        """As far as it is known."""
        stdout, stderr = bytes(self._kept[b"O"]), bytes(self._kept[b"E"])
        written_out, written_err = self._written[b"O"], self._written[b"E"]
        return RankOutput(
            rank=self.place.rank,
            exit_code=self._exit_code,
            stdout=stdout,
            stdout_bytes=written_out,
            stderr=stderr,
            stderr_bytes=written_err,
            truncated=written_out > len(stdout) or written_err > len(stderr),
        )
