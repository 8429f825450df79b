"""Which messages are of transactions that have ended."""

from headrace_plugins.connectors.postgres.pgoutput import RowMessages, Transaction


def test_those_of_the_last_transaction_are_apart() -> None:
    first, last = Transaction(1, 1, 1), Transaction(1, 1, 1)  # equal, and not the same
    rows = RowMessages(2, [b"a", b"b", b"c", b"d"], [first, first, last, last])
    ended, own = rows.before(last)
    assert (ended.messages, own.messages) == ([b"a", b"b"], [b"c", b"d"])
    assert (ended.transactions, own.transactions) == ([first, first], [last, last])
    assert (ended.columns, own.columns) == (2, 2)


def test_there_may_be_none_of_one_of_them() -> None:
    first, last = Transaction(1, 1, 1), Transaction(2, 1, 2)
    rows = RowMessages(1, [b"a"], [first])
    assert [each.messages for each in rows.before(last)] == [[b"a"], []]
    assert [each.messages for each in rows.before(first)] == [[], [b"a"]]
