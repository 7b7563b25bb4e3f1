"""Rows mirror the folds' records, whatever way the events were grouped."""

import pytest

from projections.folds.market import Provider
from projections.state import Journal, Table
from projections.tables import ReadModels, ReadView


def provider(number: int, status: str = "active") -> Provider:
    return Provider(f"p{number}", f"5hotkey{number}", status, created_us=number, updated_us=number)


def history(table: Table[str, Provider]):
    """Steps of a history: each yields after one event."""
    for number in range(1, 6):
        table.journal.pos = number
        table[f"p{number}"] = provider(number)
        yield number
    table.journal.pos = 6
    table["p2"] = provider(2, "banned")
    yield 6
    table.journal.pos = 7
    del table["p3"]
    yield 7
    table.journal.pos = 8
    table["p3"] = provider(3)
    yield 8


def write(path, group_size: int) -> ReadView:
    models = ReadModels(path, b"ledger")
    table: Table[str, Provider] = Table("provider", Journal(), mirrored=True)
    for number in history(table):
        if number % group_size == 0 or number == 8:
            models.apply(table.journal.commit(), [], number)
    assert models.position() == 8
    models.close()
    return ReadView(path)


@pytest.mark.parametrize("group_size", [2, 3, 5, 100])
def test_grouping_does_not_change_the_rows(tmp_path, group_size):
    assert write(tmp_path / "a.sqlite3", 1).dump() == write(tmp_path / "b.sqlite3", group_size).dump()


def test_rows_are_found_by_column_and_paged(tmp_path):
    view = write(tmp_path / "a.sqlite3", 1)
    assert [row.record.provider_id for row in view.find("provider", limit=2)] == ["p1", "p2"]
    assert [row.record.provider_id for row in view.find("provider", after=2)] == ["p4", "p5", "p3"]
    assert [row.created for row in view.find("provider", newest_first=True, after=5)] == [4, 2, 1]
    assert view.find("provider", {"hotkey": "5hotkey2"})[0].record == provider(2, "banned")
    assert view.get("provider", "p2") == provider(2, "banned")
    assert view.get("provider", "p9") is None
    assert view.count("provider") == 5


def test_rows_of_another_ledger_are_thrown_away(tmp_path):
    write(tmp_path / "a.sqlite3", 1)
    models = ReadModels(tmp_path / "a.sqlite3", b"another ledger")
    assert models.position() == 0
    models.close()
    assert ReadView(tmp_path / "a.sqlite3").dump() == []


def test_unknown_names_are_refused(tmp_path):
    view = write(tmp_path / "a.sqlite3", 1)
    with pytest.raises(KeyError):
        view.find("provider; DROP TABLE provider")
    with pytest.raises(KeyError):
        view.find("provider", {"hotkey = '' OR 1": "x"})
