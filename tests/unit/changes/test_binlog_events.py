"""Events that MySQL alone writes, and statements of which the log tells."""

import struct
import tracemalloc
import zlib
from uuid import UUID

import pyarrow as pa
import pytest

from headrace_plugins.connectors.mysql import binlog_events as events
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import DatabaseError

SERVER = UUID("5aa72a7f-44a8-11ea-947f-0242ac190002")


def test_a_gtid_of_mysql_has_the_time_of_the_commit_since_8_0() -> None:
    body = b"\0" + SERVER.bytes + struct.pack("<qBqq", 258, 2, 118, 119)
    old = events.gtid(events.GTID, body, 1)
    assert old == (f"{SERVER}:258", False, None)
    moment = 1_583_812_517_644_225
    stamped = body + moment.to_bytes(7, "little") + b"\xfc\xc5\x03"
    assert events.gtid(events.GTID, stamped, 1).ts_us == moment
    # Where it was committed on another server first, a bit says that its own time follows.
    copied = body + (moment | 1 << 55).to_bytes(7, "little") + bytes(7) + b"\xfc\xc5\x03"
    assert events.gtid(events.GTID, copied, 1).ts_us == moment
    assert events.gtid(events.ANONYMOUS_GTID, stamped, 1) == (None, False, moment)


def payload_of(inner: bytes, size: int | None = None, method: int = 0) -> events.Payload:
    """Return a transaction that says of itself that it has so many bytes."""
    data = inner if method else pa.compress(inner, "zstd", asbytes=True)
    size_text = b"\xfe" + (len(inner) if size is None else size).to_bytes(8, "little")
    method_text = b"\xfc\xff\x00" if method else b"\x00"
    head = bytes([2, len(method_text)]) + method_text + bytes([3, len(size_text)]) + size_text
    return events.Payload(head + b"\0" + data)


def event_of(body: bytes, size: int | None = None) -> bytes:
    size = events.HEADER.size + len(body) if size is None else size
    return events.HEADER.pack(1, events.XID, 1, size, 0, 0) + body


@pytest.mark.parametrize("method", [0, 255])
def test_a_compressed_transaction_is_its_events(method: int) -> None:
    inner = [event_of(b"x" * 5_000_000), event_of(b""), event_of(b"abc")]
    payload = payload_of(b"".join(inner), method=method)
    assert [payload.next() for _ in range(4)] == [*inner, None]


@pytest.mark.parametrize(
    ("inner", "size"),
    [
        (event_of(b"") + bytes(1 << 28), events.HEADER.size),
        (event_of(b"", size=0xFFFFFFFF) + bytes(1 << 28), 1 << 40),
        (event_of(b"", size=0), None),
        (event_of(b""), 2 * events.HEADER.size),
        (event_of(b"", size=100), 100),
        (event_of(b"ab")[:-1], None),
        (event_of(b"")[:5], None),
    ],
)
def test_a_transaction_that_is_not_what_it_declares_is_refused_in_little_memory(
    inner: bytes, size: int | None
) -> None:
    payload = payload_of(inner, size)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        with pytest.raises(DatabaseError, match="cannot be decompressed"):
            list(iter(payload.next, None))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        assert pa.total_allocated_bytes() - before < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_damaged_transaction_is_refused() -> None:
    payload = events.Payload(b"\2\1\0\0" + b"not zstd")
    with pytest.raises(DatabaseError, match="cannot be decompressed"):
        payload.next()


def test_a_value_that_is_not_what_it_declares_is_refused_in_little_memory() -> None:
    bomb = zlib.compress(bytes(1 << 28))
    whole = events.inflated(b"\3\xe8", zlib.compress(bytes(1000)))
    assert whole == bytes(1000)
    tracemalloc.start()
    try:
        for size, data in [
            (b"\5", bomb),
            (b"\xff" * 7, b"x"),
            (b"\3\xe7", zlib.compress(bytes(1000))),
            (b"\3\xe9", zlib.compress(bytes(1000))),
            (b"\3\xe8", zlib.compress(bytes(1000))[:-1]),
        ]:
            with pytest.raises(DatabaseError, match="cannot be decompressed"):
                events.inflated(size, data)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(DatabaseError, match="method 7"):
        events.Payload(b"\x02\x01\x07\x00")
    with pytest.raises(DatabaseError, match="method 1"):
        events.decompressed(b"\x11\x05")


def test_rows_of_the_second_version_have_more_in_front() -> None:
    assert events.rows_begin(23, b"\1\0\2", 0) == 2
    assert events.rows_begin(30, b"\1\0\2\0", 0) == 4
    assert events.rows_begin(31, b"\1\0\5\0abc", 0) == 7


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("TRUNCATE t", TableName("own", "t")),
        ("truncate\n table `a``b`.`c d`", TableName("a`b", "c d")),
        ("TRUNCATE TABLE `other`.t", TableName("other", "t")),
        ("TRUNCATETABLE", None),
        ("DROP TABLE t /* TRUNCATE t */", None),
        ("ALTER TABLE t TRUNCATE PARTITION p", None),
    ],
)
def test_a_statement_that_empties_a_table_is_known(
    statement: str, table: TableName | None
) -> None:
    assert events.truncated(statement, "own") == table
    commented = events.plain(f"/* a */ -- b\n# c\n {statement}")
    assert events.truncated(commented, "own") == table


def test_names_in_a_statement_have_their_schemas() -> None:
    found = events.names_in("INSERT INTO other . `t 1` SELECT a FROM u", "own")
    assert {TableName("other", "t 1"), TableName("own", "u")} <= found


def test_a_list_that_does_not_end_is_refused() -> None:
    with pytest.raises(DatabaseError, match="wrong length"):
        list(events._lists(b"\xfe" + (1 << 60).to_bytes(8, "little")))


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE /* all */ t",
        "TRUNCATE/**/t",
        "TRUNCATE`t`",
        "TRUNCATE -- x\n t",
        "TRUNCATE # x\n t",
        "/*!40000 TRUNCATE TABLE t */",
        "/*M!100100 TRUNCATE */ t",
        'TRUNCATE TABLE "t"',
        "SET STATEMENT max_statement_time=5, sql_mode=' FOR TRUNCATE u' FOR TRUNCATE TABLE t",
    ],
)
def test_a_statement_that_empties_a_table_may_have_comments(statement: str) -> None:
    assert events.truncated(events.plain(statement), "own") == TableName("own", "t")


def test_what_is_quoted_is_no_comment() -> None:
    statement = "ALTER TABLE t COMMENT 'a /* b', ADD c INT COMMENT \"-- DROP PARTITION\""
    assert events.plain(statement) == statement
    assert events.stored_otherwise(statement, "own") == set()


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("ALTER TABLE t TRUNCATE PARTITION p0", {"own.t"}),
        ("alter online table `o`.t drop partition p0, p1", {"o.t"}),
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE o.u", {"own.t", "o.u"}),
        ("ALTER TABLE t DISCARD TABLESPACE", {"own.t"}),
        ("ALTER TABLE t DROP COLUMN c", set()),
        ("ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (9))", set()),
    ],
)
def test_rows_that_go_with_their_partition_are_known(statement: str, tables: set[str]) -> None:
    found = events.stored_otherwise(statement, "own")
    assert {str(each) for each in found} == tables


def test_a_table_may_be_made_in_place_of_another() -> None:
    found = events.replaced("CREATE OR REPLACE TABLE o.t (id INT)", "own")
    assert found == TableName("o", "t")
    assert events.replaced("CREATE TABLE t (id INT)", "own") is None
