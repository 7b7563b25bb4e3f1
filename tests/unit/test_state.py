"""The journal takes changes back exactly, and says which rows a commit changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.state import Change, Journal, Table

OPERATIONS = st.lists(st.tuples(st.sampled_from(["put", "drop"]), st.integers(0, 4), st.integers(0, 9)), max_size=30)


def apply(table: Table[int, int], operations: list[tuple[str, int, int]]) -> None:
    for number, (verb, key, value) in enumerate(operations, 1):
        table.journal.pos = number
        if verb == "put":
            table[key] = value
        else:
            table.drop(key)


@given(OPERATIONS, OPERATIONS)
def test_rollback_restores_what_was_before(first, second):
    table: Table[int, int] = Table("t", Journal())
    apply(table, first)
    before, mark = dict(table), table.journal.mark()
    apply(table, second)
    table.journal.rollback(mark)
    assert dict(table) == before


@given(OPERATIONS)
def test_rollback_of_everything_leaves_nothing(operations):
    table: Table[int, int] = Table("t", Journal())
    apply(table, operations)
    table.journal.rollback()
    assert not table


def test_commit_names_changed_rows_with_their_events():
    journal = Journal()
    rows: Table[str, int] = Table("rows", journal, mirrored=True)
    hidden: Table[str, int] = Table("hidden", journal)
    journal.pos = 1
    rows["kept"], rows["gone"], hidden["x"] = 1, 1, 1
    assert journal.commit() == {("rows", "kept"): Change(1, 1, 1, False), ("rows", "gone"): Change(1, 1, 1, False)}
    journal.pos = 2
    rows["kept"] = 2
    journal.pos = 3
    rows["kept"] = 3
    del rows["gone"]
    journal.pos = 4
    rows["gone"] = 4
    assert journal.commit() == {("rows", "kept"): Change(3, 3, None, False), ("rows", "gone"): Change(4, 4, 4, True)}
    assert journal.commit() == {}


@pytest.mark.parametrize("call", [lambda t: t.pop(1), lambda t: t.clear(), lambda t: t.update({1: 2})])
def test_changes_past_the_journal_are_refused(call):
    table: Table[int, int] = Table("t", Journal())
    table[1] = 1
    with pytest.raises(TypeError, match="would not be journaled"):
        call(table)
