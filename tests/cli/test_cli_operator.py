"""What operators decide, from the command line to the ledger of a real server."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hypercluster.cli.keys import KeySigner, new_key_file
from hypercluster.cli.main import run
from hypercluster.domain.codes import Exit
from hypercluster.runtime.clock import Clock

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import serving


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("HYPER_")]:
        monkeypatch.delenv(name)


class Desk:
    """An operator and a stranger at their terminals, and the server that they talk to."""

    def __init__(self, served: serving.Served, capfd: Any, directory: Path) -> None:
        self.served, self.capfd, self.directory = served, capfd, directory

    async def says(self, line: str, who: str = "operator", code: int = Exit.DONE) -> Any:
        """Run a command; its answer, or its error."""
        argv = [*line.split(), "--url", self.served.url, "-o", "json"]
        if not line.startswith("operator policy show"):
            argv += ["--key-file", str(self.directory / f"{who}.json"), "--audience", serving.AUDIENCE]
        self.capfd.readouterr()  # what the server in this process has logged
        found = await asyncio.to_thread(run, argv)
        out, err = self.capfd.readouterr()
        assert found == code, err
        return json.loads(out) if code == Exit.DONE else json.loads(err)["error"]

    async def types(self, after: int = 3) -> list[str]:
        """The types of all events after the beginning of the ledger."""
        items = (await self.served.get(f"/v1/events?after={after}&limit=500")).json()["items"]
        return [item["type"] for item in items]

    def file(self, name: str, value: object) -> Path:
        path = self.directory / name
        path.write_text(json.dumps(value))
        return path


def keys(directory: Path) -> dict[str, KeySigner]:
    return {name: new_key_file(directory / f"{name}.json") for name in ("operator", "second", "provider")}


@contextmanager
def at_the_desk(directory: Path, capfd: Any) -> Iterator[Any]:
    """Runs a scene `async (desk, keys)` against a server of its own."""

    def play(scene: Any) -> None:
        async def act() -> None:
            people = keys(directory)
            async with serving.serving(directory / "data", operators=(people["operator"].hotkey,)) as served:
                await scene(Desk(served, capfd, directory), people)

        asyncio.run(act())

    yield play


def test_a_policy_is_shown_edited_and_adopted(tmp_path, capfd):
    async def scene(desk, people):
        policy = await desk.says("operator policy show")
        file = desk.file("policy.json", policy | {"version": 2, "window_attempts": 7})
        adopted = await desk.says(f"operator policy adopt {file}")
        assert adopted["created"] is True
        assert adopted["seq"] == 4
        shown = await desk.says("operator policy show")  # it is still to come, and is what the next edit starts from
        assert (shown["version"], shown["window_attempts"]) == (2, 7)
        again = await desk.says(f"operator policy adopt {file}")
        assert (again["created"], again["seq"]) == (False, 4)
        assert await desk.types() == ["policy.adopted", "command.noted"]

    with at_the_desk(tmp_path, capfd) as play:
        play(scene)


def test_a_policy_that_is_out_of_range_or_no_policy_is_refused(tmp_path, capfd):
    async def scene(desk, people):
        policy = await desk.says("operator policy show")
        wrong = desk.file("wrong.json", policy | {"version": 2, "epoch_s": 0})
        error = await desk.says(f"operator policy adopt {wrong}", code=Exit.USAGE)
        assert (error["code"], error["field"]) == ("policy_invalid", "policy.epoch_s")
        for text in ("[]", "{", '{"a": 1, "a": 2}'):
            (tmp_path / "no.json").write_text(text)
            assert (await desk.says(f"operator policy adopt {tmp_path}/no.json", code=Exit.USAGE))["code"] == "usage"
        missing = await desk.says(f"operator policy adopt {tmp_path}/nowhere.json", code=Exit.NOT_FOUND)
        assert missing["code"] == "file_not_found"
        assert await desk.types() == []

    with at_the_desk(tmp_path, capfd) as play:
        play(scene)


def test_a_metagraph_list_is_adopted(tmp_path, capfd):
    async def scene(desk, people):
        entries = [
            {"uid": number, "hotkey": one.hotkey, "coldkey": people["second"].hotkey}
            for number, one in enumerate(people.values())
        ]
        file = desk.file("metagraph.json", {"netuid": 7, "block": 100, "entries": entries})
        adopted = await desk.says(f"operator metagraph adopt {file}")
        assert adopted["created"] is True
        assert await desk.types() == ["metagraph.adopted", "metagraph.part"]
        older = desk.file("older.json", {"netuid": 7, "block": 99, "entries": entries[:1]})
        assert (await desk.says(f"operator metagraph adopt {older}", code=Exit.CONFLICT))[
            "code"
        ] == "metagraph_outdated"

    with at_the_desk(tmp_path, capfd) as play:
        play(scene)


def test_a_node_is_drained_suspended_and_readmitted(tmp_path, capfd):
    async def scene(desk, people):
        node = await desk.says("nodes register --gpus 1", "provider")
        target = f"--node-id {node['id']} --reason broken_fans"
        await desk.says(f"operator drain {target}")
        await desk.says(f"operator suspend {target}")
        await desk.says(f"operator readmit {target}")
        assert (await desk.types())[2:] == ["node.suspended", "node.suspended", "node.readmitted"]

    with at_the_desk(tmp_path, capfd) as play:
        play(scene)


def test_a_provider_is_banned(tmp_path, capfd):
    async def scene(desk, people):
        provider = await desk.says("providers register", "provider")
        await desk.says(f"operator suspend --provider-id {provider['id']} --reason lied --ban")
        event = (await desk.served.get("/v1/events/5")).json()
        assert (event["type"], event["data"]["status"]) == ("provider.suspended", "banned")

    with at_the_desk(tmp_path, capfd) as play:
        play(scene)


@pytest.mark.parametrize("target", ["", "--node-id a --provider-id b"])
def test_a_target_is_a_provider_or_a_node(tmp_path, capfd, target):
    new_key_file(tmp_path / "key.json")
    line = f"operator suspend --reason late {target} --key-file {tmp_path}/key.json"
    assert run(line.split()) == Exit.USAGE
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 3


def test_operators_are_replaced_and_the_old_one_is_nobody(tmp_path, capfd):
    async def scene(desk, people):
        await desk.says(f"operator operators {people['second'].hotkey}")
        refused = await desk.says("server accept-clock", code=Exit.AUTH)
        assert refused["code"] == "not_operator"
        await desk.says("server accept-clock", "second")
        assert await desk.types() == ["operators.changed", "command.refused", "clock.accepted"]

    with at_the_desk(tmp_path, capfd) as play:
        play(scene)


class Jumping(Clock):
    """A clock that an hour can be added to."""

    ahead_us = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_us


def test_writes_go_on_after_the_clock_is_accepted(tmp_path, capfd):
    async def scene(desk, people):
        clock = Jumping()
        guard = desk.served.service.writer._guard
        guard.clock = clock
        clock.ahead_us = -3_600_000_000
        stopped = await desk.says("providers register", "provider", code=Exit.LATER)
        assert stopped["code"] == "not_ready"
        assert (await desk.served.get("/ready")).status_code == 503
        await desk.says("server accept-clock")
        await desk.says("providers register", "provider")
        assert (await desk.served.get("/ready")).status_code == 200
        assert await desk.types() == ["clock.accepted", "provider.registered"]

    with at_the_desk(tmp_path, capfd) as play:
        play(scene)
