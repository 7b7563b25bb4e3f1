"""A service that stops hears out what is over already: work that was done is not done again."""

import asyncio
from pathlib import Path

import pytest

from events.ledger import LedgerReader
from hypercluster.runtime.store import recorded_pages
from tests.support.clusters import start_cluster
from tests.support.crash_rig import Work, node_body
from tests.support.serving import Key, serving


def test_a_report_under_way_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with serving(tmp_path / "data", "sim", combined_worker=True) as served:
            service, provider, reporting = served.service, Key(), asyncio.Event()
            key_file = tmp_path / "challenge.pub"
            key_file.write_text(service.ssh_public_key)
            cluster = start_cluster(tmp_path / "hosts", key_file)
            keep = service.keep

            async def slow(data: bytes, *, private: bool) -> str:
                if private:  # a rank's output: its gang is over
                    reporting.set()
                    await asyncio.sleep(0.3)
                return await keep(data, private=private)

            monkeypatch.setattr(service, "keep", slow)
            try:
                await served.post("/v1/providers/register", {}, provider)
                await served.post("/v1/nodes", node_body(cluster.hosts[0]), provider)
                answer = await served.post("/v1/jobs", Work(tmp_path / "work").spec(), Key())
                assert answer.status_code == 200, answer.text
                async with asyncio.timeout(15):
                    await reporting.wait()
            finally:
                await asyncio.to_thread(cluster.end)

    asyncio.run(play())
    reader = LedgerReader(tmp_path / "data" / "challenge.sqlite3")
    try:
        events = [one for page in recorded_pages(reader) for one in page]
    finally:
        reader.close()
    ended = [one.event for one in events if one.envelope.type == "attempt.ended"]
    assert [getattr(event, "outcome", None) for event in ended] == ["succeeded"]
