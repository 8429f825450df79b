"""Messages of pgoutput as columns of texts."""

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.changes.log_messages import (
    UNCHANGED,
    Values,
    begin,
    commit,
    delete,
    insert,
    relation,
    truncate,
    update,
)

from headrace.sdk import SourceError
from headrace_plugins.connectors.postgres.pgoutput import (
    DecodedRows,
    Relation,
    RelationColumn,
    RowMessages,
    Transaction,
    commit_end,
    patched,
    truncated,
)

TRANSACTION = Transaction(lsn=100, ts_us=1, xid=9)


@dataclass(frozen=True)
class Change:
    """What one message says, as a person would write it."""

    op: str
    before: Values | None
    after: Values | None
    lsn: int
    mark: str = "K"

    @property
    def message(self) -> bytes:
        if self.op == "c":
            assert self.after is not None
            return insert(self.after, lsn=self.lsn)
        if self.op == "u":
            assert self.after is not None
            return update(self.after, old=self.before, mark=self.mark, lsn=self.lsn)
        if self.op == "d":
            assert self.before is not None
            return delete(self.before, mark=self.mark, lsn=self.lsn)
        return truncate(7, lsn=self.lsn)


def decoded(columns: int, *messages: bytes) -> DecodedRows:
    rows = RowMessages(columns)
    for message in messages:
        if message[25:26] == b"T":
            rows.add_truncation(message, TRANSACTION)
        else:
            rows.messages.append(message)
            rows.transactions.append(TRANSACTION)
    return rows.decoded()


def read_back(rows: DecodedRows) -> list[Change]:
    """Return what was decoded, row by row; the mark of a row before is no longer known."""
    changes = []
    for n, op in enumerate(rows.op.to_pylist()):
        before: list[object] | None = None
        after: list[object] | None = None
        if rows.has_before[n]:
            assert rows.before is not None
            before = [each[n].as_py() for each in rows.before]
        if rows.has_after[n]:
            after = [each[n].as_py() for each in rows.after]
            for number, unsent in rows.unchanged.items():
                if unsent[n]:
                    assert after[number] is None
                    after[number] = UNCHANGED
        else:
            assert all(each[n].as_py() is None for each in rows.after)
            assert not any(unsent[n] for unsent in rows.unchanged.values())
        changes.append(Change(op, before, after, int(rows.lsn[n])))
    return changes


def same(*changes: Change, columns: int) -> None:
    """Check that changes come back as they were sent."""
    found = read_back(decoded(columns, *(each.message for each in changes)))
    expected = [
        Change(
            each.op,
            # What a row before does not send is as good as null.
            each.before and [None if v is UNCHANGED else v for v in each.before],
            each.after and list(each.after),
            each.lsn,
        )
        for each in changes
    ]
    assert found == expected


def test_an_insert_has_a_row_after_it() -> None:
    same(Change("c", None, ["1", "a"], 50), columns=2)


def test_an_update_has_a_row_after_it() -> None:
    same(Change("u", None, ["1", "a"], 50), columns=2)


@pytest.mark.parametrize("mark", "KO")
def test_an_update_may_have_the_row_before_or_its_key(mark: str) -> None:
    before = ["1", None] if mark == "K" else ["1", "x"]
    same(Change("u", before, ["2", "a"], 50, mark), columns=2)


@pytest.mark.parametrize("mark", "KO")
def test_a_delete_has_a_row_before_it(mark: str) -> None:
    same(Change("d", ["1", None], None, 50, mark), columns=2)


def test_a_truncation_has_no_row() -> None:
    same(Change("t", None, None, 50), columns=2)


def test_truncations_between_rows_leave_these_alone() -> None:
    same(
        Change("t", None, None, 1),
        Change("c", None, ["1", "a"], 2),
        Change("t", None, None, 3),
        Change("t", None, None, 4),
        Change("d", ["1", None], None, 5),
        Change("u", ["2", "b"], ["3", UNCHANGED], 6, "O"),
        Change("t", None, None, 7),
        columns=2,
    )


def test_nulls_and_empty_texts_are_told_apart() -> None:
    same(
        Change("c", None, ["", None], 1),
        Change("c", None, [None, ""], 2),
        Change("c", None, [None, None], 3),
        Change("c", None, ["", ""], 4),
        columns=2,
    )


def test_texts_of_more_than_one_byte_a_sign_are_whole() -> None:
    texts = ["é", "表🎉", "\U0010ffff", "a\x01\x7f"]
    same(*(Change("c", None, [t, t * 3], n) for n, t in enumerate(texts)), columns=2)


def test_a_text_may_look_like_what_is_around_it() -> None:
    same(
        Change("u", ["N\0\0", "n"], ["t\0\0\0\1", "u"], 1, "O"),
        Change("u", None, ["K", "O"], 2),
        columns=2,
    )


def test_what_is_not_sent_is_told_from_null() -> None:
    same(
        Change("u", None, ["1", UNCHANGED, None], 1),
        Change("u", ["1", None, None], ["2", None, UNCHANGED], 2),
        Change("u", ["1", "x", "y"], ["1", UNCHANGED, UNCHANGED], 3, "O"),
        Change("c", None, ["3", None, None], 4),
        columns=3,
    )


def test_rows_with_a_row_before_are_mixed_with_others() -> None:
    same(
        Change("c", None, ["1", "a"], 1),
        Change("u", ["1", "a"], ["2", "b"], 2, "O"),
        Change("d", ["2", "b"], None, 3, "O"),
        Change("u", None, ["3", "c"], 4),
        Change("u", ["3", None], ["4", "dd"], 5),
        columns=2,
    )


def test_there_may_be_no_column_at_all() -> None:
    same(Change("c", None, [], 1), Change("d", [], None, 2), columns=0)


values = st.one_of(st.none(), st.just(UNCHANGED), st.text(st.characters(codec="utf-8")))


@st.composite
def lists_of_changes(draw: st.DrawFn) -> tuple[int, list[Change]]:
    columns = draw(st.integers(1, 4))
    row = st.lists(values, min_size=columns, max_size=columns)
    kinds = draw(st.lists(st.sampled_from(["c", "u", "uo", "d", "t"]), min_size=1, max_size=12))
    changes = []
    for lsn, kind in enumerate(kinds):
        before = draw(row) if kind in {"uo", "d"} else None
        after = draw(row) if kind in {"c", "u", "uo"} else None
        changes.append(Change(kind[0], before, after, lsn, draw(st.sampled_from("KO"))))
    return columns, changes


@given(lists_of_changes())
def test_whatever_is_sent_comes_back(drawn: tuple[int, list[Change]]) -> None:
    columns, changes = drawn
    same(*changes, columns=columns)


def test_begin_says_where_the_commit_is_and_when_and_whose() -> None:
    found = Transaction.begun(begin(0x1_0000_0002, 1_700_000_000_123_456, 2**32 - 1))
    assert found == Transaction(0x1_0000_0002, 1_700_000_000_123_456, 2**32 - 1)


def test_commit_says_where_the_transaction_ends() -> None:
    assert commit_end(commit(0x10, 0x7FFF_0000_0000_0040)) == 0x7FFF_0000_0000_0040


def test_a_relation_has_its_names_and_columns() -> None:
    message = relation(
        'ünd "so" 🎉', [("id", 20, -1, True), ("with blank", 1700, 655366, False)], schema="a.b"
    )
    assert Relation.parsed(message) == Relation(
        7,
        "a.b",
        'ünd "so" 🎉',
        "d",
        (
            RelationColumn("id", 20, -1, in_identity=True),
            RelationColumn("with blank", 1700, 655366, in_identity=False),
        ),
    )


def test_a_relation_without_a_schema_is_of_the_catalog() -> None:
    assert Relation.parsed(relation("t", [], schema="")).schema == "pg_catalog"


def test_a_truncation_may_be_of_several_tables() -> None:
    assert truncated(truncate(7, 4_000_000_000, 9)) == (7, 4_000_000_000, 9)


def test_patched_texts_are_others_in_some_rows() -> None:
    texts = pa.array(["a", None, "c", None])
    found = patched(texts, np.array([1, 2]), ["b", None])
    assert found.to_pylist() == ["a", "b", None, None]


@pytest.mark.parametrize("size", [2, 30, 100_000, (1 << 32) - 1, None])
def test_a_value_that_ends_behind_its_message_is_refused(size: int | None) -> None:
    def message(size: int) -> bytes:
        return insert(("x",))[:-5] + struct.pack("!I", size) + b"x"

    cut = insert(("x",))[:-6] if size is None else message(size)
    for messages in ([cut, message(1)], [message(1), cut]):
        with pytest.raises(SourceError, match="exceed its message"):
            RowMessages(1, messages, [TRANSACTION] * 2).decoded()
