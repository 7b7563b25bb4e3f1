"""The events of a ledger: of a server, or of a file."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from hypercluster.cli import options, render
from hypercluster.cli.client import ApiError, Client, Unreachable
from hypercluster.cli.errors import CliError
from hypercluster.cli.options import TRUTH
from hypercluster.cli.render import Format
from hypercluster.domain.codes import Exit

if TYPE_CHECKING:
    from events.ledger import LedgerReader

app = typer.Typer(help="What happened, event by event.")

POLL_S = 0.5
RETRY_S = 2.0
PAGE = 500

File = Annotated[Path | None, typer.Option("--ledger", help="Read this ledger file instead of asking a server.")]
After = Annotated[int, typer.Option("--after", help="Only events with higher numbers.", min=0)]
Type = Annotated[str | None, typer.Option("--type", help="Only this type, as job.ended or lease.*")]
Count = Annotated[int, typer.Option("--limit", help="How many at most.", min=1)]


@app.command("list", epilog="Example: hypercluster events list --ledger challenge.sqlite3", rich_help_panel=TRUTH)
def list_events(
    ledger: File = None,
    after: After = 0,
    limit: Count = 50,
    type: Type = None,
    url: options.Url = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Events after a number, oldest first; one line each."""
    items: list[dict[str, Any]] = []
    with _source(ledger, url, type) as pages:
        cursor = after
        while len(items) < limit:
            page = pages(cursor, PAGE if type else min(PAGE, limit - len(items)))
            if not page:
                break
            cursor = int(page[-1]["seq"])
            items += [item for item in page if matches(item, type)]
    del items[limit:]
    _show(items, output)


@app.command("show", epilog="Example: hypercluster events show 12 --ledger challenge.sqlite3", rich_help_panel=TRUTH)
def show_event(
    number: Annotated[int, typer.Argument(help="Number of the event.", min=1)],
    ledger: File = None,
    url: options.Url = None,
    output: options.Output = Format.JSON,
) -> None:
    """One event with everything that its leaf holds."""
    if ledger is None:
        with Client(options.base_url(url, None, None)) as client:
            found = client.request("GET", f"/v1/events/{number}", signed=False)
    else:
        with _reader(ledger) as reader:
            entries = reader.entries(number - 1, 1)
        if not entries:
            message = f"there is no event {number}"
            raise CliError(message, code="event_not_found", exit_with=Exit.NOT_FOUND, hint="hypercluster events list")
        found = _item(*entries[0]) | {"entry": json.loads(entries[0][1])}
    render.show(found, output, line=_line(found))


@app.command("watch", epilog="Example: hypercluster events watch --type 'lease.*' -o ndjson", rich_help_panel=TRUTH)
def watch(
    ledger: File = None,
    after: Annotated[int | None, typer.Option("--after", help="Start after this number; default: now.", min=0)] = None,
    type: Type = None,
    url: options.Url = None,
    output: options.Output = Format.TABLE,
    limit: Annotated[int | None, typer.Option("--limit", help="Stop after so many events.", min=1)] = None,
) -> None:
    """Follow the ledger until interrupted; comes back by itself after a lost connection, without a gap."""
    follow = _follow_file(ledger, after) if ledger is not None else _follow_server(url, after)
    shown = 0
    for item in follow:
        if not matches(item, type):
            continue
        render.write(render.escape(_line(item)) if output is Format.TABLE else render.as_json(item))
        render.flush()
        shown += 1
        if limit is not None and shown >= limit:
            return


def matches(item: dict[str, Any], pattern: str | None) -> bool:
    """Whether the event is of this type; `lease.*` takes every type of the noun."""
    if pattern is None:
        return True
    name = str(item.get("type"))
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _show(items: list[dict[str, Any]], output: Format) -> None:
    if output is Format.TABLE:
        for item in items:
            render.write(render.escape(_line(item)))
        return
    render.show({"items": items, "next": items[-1]["seq"] if items else None}, output)


def _line(item: dict[str, Any]) -> str:
    from hypercluster.cli import describe  # noqa: PLC0415 -- every event type is loaded with it

    return describe.line(item)


def _item(pos: int, entry: bytes) -> dict[str, Any]:
    """An event of a file, in the shape in which a server shows it."""
    from events.registry import decode  # noqa: PLC0415
    from hypercluster.cli import describe  # noqa: PLC0415

    envelope = decode(pos, entry).envelope
    return {
        "seq": pos,
        "type": envelope.type,
        "type_version": envelope.tv,
        "stream": envelope.stream,
        "stream_version": envelope.sv,
        "at": describe.when(envelope.at_us),
        "at_us": envelope.at_us,
        "actor": envelope.actor,
        "command": envelope.cmd,
        "n": envelope.n,
        "of": envelope.of,
        "rules": envelope.rules,
        "data": json.loads(bytes(envelope.data)),
    }


@contextmanager
def _source(
    ledger: Path | None, url: str | None, type: str | None
) -> Iterator[Callable[[int, int], list[dict[str, Any]]]]:
    """A function (after, limit) -> events, of a file or of a server."""
    if ledger is not None:
        with _reader(ledger) as reader:
            yield lambda after, limit: [_item(pos, entry) for pos, entry in reader.entries(after, limit)]
        return
    with Client(options.base_url(url, None, None)) as client:
        yield lambda after, limit: _asked(client, after, limit, type)


def _asked(client: Client, after: int, limit: int, type: str | None) -> list[dict[str, Any]]:
    """A page of the server's events; it chooses the type."""
    query = {"after": after, "limit": limit} | ({"type": type} if type else {})
    found: list[dict[str, Any]] = client.request("GET", f"/v1/events?{urlencode(query)}", signed=False)["items"]
    return found


@contextmanager
def _reader(ledger: Path) -> "Iterator[LedgerReader]":
    from events.ledger import LedgerReader  # noqa: PLC0415 -- SQLite is loaded with it

    if not ledger.exists():
        raise FileNotFoundError(2, "no such file", str(ledger))
    with LedgerReader(ledger) as reader:
        yield reader


def _follow_file(ledger: Path, after: int | None) -> Iterator[dict[str, Any]]:
    with _reader(ledger) as reader:
        cursor = reader.size() if after is None else after
        while True:
            page = reader.entries(cursor, PAGE)
            for pos, entry in page:
                yield _item(pos, entry)
                cursor = pos
            if not page:
                time.sleep(POLL_S)


def _follow_server(url: str | None, after: int | None) -> Iterator[dict[str, Any]]:
    """Events as they come. A lost connection is taken up again after the last number that was seen."""
    with Client(options.base_url(url, None, None)) as client:
        cursor = after
        while True:
            try:
                for item in _streamed(client, cursor):
                    cursor = int(item["seq"])
                    yield item
            except Unreachable as error:
                if cursor is None:
                    raise
                render.note(f"connection lost ({error}); trying again after event {cursor}")
            except ApiError as error:
                if error.status < 500 and error.status != 429:
                    raise
                render.note(f"{error}; trying again")
            time.sleep(RETRY_S)


def _streamed(client: Client, after: int | None) -> Iterator[dict[str, Any]]:
    path = "/v1/events/stream" if after is None else f"/v1/events/stream?after={after}"
    with client.lines(path, headers={"Accept": "text/event-stream"}) as lines:
        for line in lines:
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))
