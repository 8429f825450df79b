"""Values of a binary log are those that a reader of the table gives."""

# ruff: noqa: S608 - names are made here

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.database_tables.mariadb import EVERY_TYPE
from tests.database_tables.table import Table
from tests.integration.changes.binlog_reading import (
    changes,
    changes_of,
    database_of,
    pieces,
    place_of,
)
from tests.integration.databases.mysql_tables import columns_of, named, read, run
from tests.mariadb_server import MariadbServer
from tests.mysql_server import Mysql8Server, MysqlServer

from headrace.sdk import ConfigError
from headrace_plugins.changes.log import Offset
from headrace_plugins.connectors.mysql.binlog_runs import BinlogColumns
from headrace_plugins.databases.database import Select


@pytest.fixture
def url(binlog_server: MariadbServer) -> Iterator[str]:
    with binlog_server.database() as url:
        yield url


@pytest.fixture
def each_url(each_server: MariadbServer) -> Iterator[str]:
    with each_server.database() as url:
        yield url


@pytest.fixture
def every_type(each_server: MariadbServer) -> Table:
    """The table with a column of every type that a server has."""
    lacks = set[str]()
    if isinstance(each_server, MysqlServer):
        lacks = {"c_text_compressed", "c_uuid", "c_inet4", "c_inet6", "c_decimal_38_38"}
    if isinstance(each_server, Mysql8Server):
        lacks.add("c_invisible")  # which 8.0.23 brought
    kept = [each for each in EVERY_TYPE.columns if each.name not in lacks]
    if lacks:
        kept = [
            replace(each, values=[v for v in each.values if v[0] != "'838:59:59.999999'"])
            for each in kept
        ]
    return replace(EVERY_TYPE, columns=kept)


def identical(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # -0.0, NaN and True are themselves


def require_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    assert [
        (name, value, row[name])
        for row, other in zip(found, expected, strict=True)
        for name, value in other.items()
        if not identical(row[name], value)
    ] == []


def inserted(url: str, after: Offset, table: str = "t") -> list[dict[str, Any]]:
    """Return the rows that were added, in the order of their first column."""
    found = [each["after"] for each in changes(url, after)[table] if each["op"] == "c"]
    return sorted(found, key=lambda row: next(iter(row.values())))


def require_read_alike(url: str, after: Offset, table: str = "t") -> None:
    """The log has the rows of a table as they are read from it."""
    expected, _ = read(database_of(url), table, nulls=True)
    require_same(inserted(url, after, table), expected)


def test_every_type_is_what_a_reader_of_the_table_gives(
    each_url: str, every_type: Table
) -> None:
    place, name = place_of(each_url), every_type.name
    run(each_url, *every_type.statements())
    expected, _ = read(database_of(each_url), name, nulls=True)
    run(each_url, f"UPDATE {name} SET c_int = 5")
    updated, _ = read(database_of(each_url), name, nulls=True)
    run(each_url, f"DELETE FROM {name}")
    found = changes(each_url, place)[name]
    require_same([each["after"] for each in found if each["op"] == "c"], expected)
    updates = [each for each in found if each["op"] == "u"]
    require_same([each["before"] for each in updates], expected)
    require_same([each["after"] for each in updates], updated)
    require_same([each["before"] for each in found if each["op"] == "d"], updated)
    assert all(each["before"] is None for each in found if each["op"] == "c")
    assert all(each["after"] is None for each in found if each["op"] == "d")


def test_columns_have_the_types_that_a_reader_of_the_table_gives(
    each_url: str, every_type: Table
) -> None:
    place = place_of(each_url)
    run(each_url, *every_type.statements())
    database = database_of(each_url)
    columns = columns_of(database, every_type.name)
    select = Select(columns=columns, source=database.path(named(database, every_type.name)))
    [(batch, _), *_] = database.read(select, nulls=True)
    [piece, *_] = pieces(each_url, place)
    [found] = piece.runs
    assert found.shape.table == named(database, every_type.name)
    assert found.shape.key == ("id",)
    assert [each.name for each in found.shape.columns if not each.schema.optional] == ["id"]
    for own, other in zip(found.shape.columns, columns, strict=True):
        assert (own.name, own.type) == (other.name, other.type)
        assert own.schema.replaced(optional=True) == other.schema.replaced(optional=True)
    sent = pickle.loads(pickle.dumps(BinlogColumns(found.shape.columns, nulls=True)))  # noqa: S301
    rows, _ = sent.parse_changes(found.rows)
    assert [(each.name, each.type) for each in rows.schema.field("after").type] == [
        (each.name, each.type) for each in batch.schema
    ]
    assert [(each.name, each.type) for each in rows.schema if each.name[-2:] != "re"] == [
        ("op", pa.string()),
        ("ts_us", pa.int64()),
        ("after", rows.schema.field("after").type),
        ("file", pa.string()),
        ("pos", pa.int64()),
        ("row", pa.int32()),
        ("server_id", pa.int64()),
        ("gtid", pa.string()),
        ("thread", pa.int64()),
    ]


def test_rows_that_no_schema_has_are_rejected_for_the_same_reasons(
    each_url: str, every_type: Table
) -> None:
    place = place_of(each_url)
    run(each_url, *every_type.statements())
    _, expected = read(database_of(each_url), every_type.name)
    rejected, rows = list[tuple[str, str]](), 0
    for piece in pieces(each_url, place):
        for each in piece.runs:
            good, bad = BinlogColumns(each.shape.columns).parse_changes(each.rows)
            rejected += bad
            rows += len(good)
    assert [why for _, why in rejected] == [why for _, why in expected]
    assert [text.partition(",")[0] for text, _ in rejected] == [
        text.partition(",")[0] for text, _ in expected
    ]
    assert rows == every_type.length - len(rejected)


def test_decimals_of_all_sizes_are_exact(url: str) -> None:
    chance = random.Random(1)  # noqa: S311 - the same each time
    sizes = [(p, s) for p in range(1, 66) for s in (0, 1, 2, 8, 9, 10, 17, 18, 30) if s <= p]
    for start in range(0, len(sizes), 40):
        part = sizes[start : start + 40]
        rows = []
        for number in range(12):
            values = [chance.choice([0, 10**p - 1, chance.randrange(10**p)]) for p, _ in part]
            signed = [value * chance.choice([-1, 1]) for value in values]
            texts = [
                "NULL" if chance.random() < 0.1 else f"{Decimal(v).scaleb(-s, _EXACT):f}"
                for v, (_, s) in zip(signed, part, strict=True)
            ]
            rows.append(f"({number}, {', '.join(texts)})")
        columns = ", ".join(f"d{p}_{s} DECIMAL({p},{s})" for p, s in part)
        name, place = f"t{start}", place_of(url)
        run(
            url,
            f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns})",
            f"INSERT INTO {name} VALUES {', '.join(rows)}",
        )
        require_read_alike(url, place, name)


_EXACT = Context(prec=70)


def test_texts_of_all_character_sets_become_utf_8(url: str) -> None:
    place = place_of(url)
    sets = run(url, "SELECT character_set_name, maxlen FROM information_schema.character_sets")
    names = [name for name, _ in sets if name != "binary"]
    run(
        url,
        *(
            f"CREATE TABLE t_{name} (id INT PRIMARY KEY, v VARCHAR(300) CHARACTER SET {name}, "
            f"c CHAR(20) CHARACTER SET {name}, e ENUM('a', 'b') CHARACTER SET {name}, "
            f"x TEXT CHARACTER SET {name})"
            for name in names
        ),
    )
    signs = [chr(n) for n in (*range(33, 127), *range(161, 0x250), *range(0x370, 0x600))]
    signs = [each for each in [*signs, *"表あ한漢字ㄅ￥｡ｱ€‰"] if each not in "'\"\\"]
    values = ", ".join(f"({n}, '{sign}')" for n, sign in enumerate(signs))
    run(
        url,
        "CREATE TABLE signs (n INT, s VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)",
        f"INSERT INTO signs VALUES {values}",
    )
    for name in names:
        kept = run(
            url,
            f"SELECT s FROM signs WHERE CONVERT(CONVERT(s USING {name}) USING utf8mb4) = s "
            "COLLATE utf8mb4_bin ORDER BY n",
        )
        text = "".join(row[0] for row in kept)
        parts = [text[at : at + 18] for at in range(0, len(text), 18)]
        values = ", ".join(
            f"({n}, '{part}', '{part}', 'b', '{part * 9}')" for n, part in enumerate(parts)
        )
        run(url, f"INSERT INTO t_{name} VALUES {values}, (-1, NULL, '', NULL, '')")
    found = changes(url, place)
    for name in names:
        expected, _ = read(database_of(url), f"t_{name}")
        rows = sorted((each["after"] for each in found[f"t_{name}"]), key=lambda row: row["id"])
        require_same(rows, expected)


def test_long_values_have_longer_lengths(url: str) -> None:
    place = place_of(url)
    many = ", ".join(f"'v{n}'" for n in range(300))
    members = ", ".join(f"'m{n}'" for n in range(64))
    run(
        url,
        f"CREATE TABLE t (id INT PRIMARY KEY, c CHAR(255), b BINARY(255), v VARCHAR(64), "
        f"w VARCHAR(63), n VARBINARY(255), e ENUM({many}), s SET({members}), u BIT(17))",
        "INSERT INTO t VALUES (1, REPEAT('é', 255), REPEAT(X'00', 255), REPEAT('é', 64), "
        "'x', REPEAT('n', 255), 'v299', 'm0,m63', b'10000000000000001')",
        "INSERT INTO t VALUES (2, '', X'01', '', '', '', 'v0', '', 0)",
        "INSERT INTO t (id) VALUES (3)",
        "INSERT IGNORE INTO t (id, e, s) VALUES (4, 'none', 'm5')",
    )
    require_read_alike(url, place)


def test_addresses_and_uuids_are_texts(url: str) -> None:
    chance = random.Random(2)  # noqa: S311
    place = place_of(url)
    uuids = [UUID(int=chance.getrandbits(128)) for _ in range(200)]
    uuids += [UUID(int=chance.getrandbits(128), version=n) for n in (1, 3, 4, 5)] * 20
    inet6 = [
        ":".join(
            chance.choice(["0", "0", "ffff", f"{chance.getrandbits(16):x}"]) for _ in "12345678"
        )
        for _ in uuids
    ]
    inet6[:4] = ["::1.2.3.4", "::ffff:0:0", "::1", "::"]
    values = ", ".join(
        f"({n}, '{uuid}', '{chance.getrandbits(8)}.0.255.{chance.getrandbits(8)}', '{six}')"
        for n, (uuid, six) in enumerate(zip(uuids, inet6, strict=True))
    )
    run(
        url,
        "CREATE TABLE t (id INT PRIMARY KEY, u UUID, i4 INET4, i6 INET6)",
        f"INSERT IGNORE INTO t VALUES {values}, (-1, NULL, NULL, NULL)",  # not all are UUIDs
    )
    require_read_alike(url, place)


def test_times_of_before_mysql_5_6_are_read(url: str, binlog_server: MariadbServer) -> None:
    place = place_of(url)
    binlog_server.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        run(
            url,
            "CREATE TABLE t (id INT PRIMARY KEY, d DATETIME, t TIME, s TIMESTAMP NULL)",
            "INSERT INTO t VALUES "
            "(1, '2024-02-29 23:59:59', '23:59:59', '2024-02-29 01:02:03'),"
            "(2, '0001-01-01', '00:00:00', '1970-01-01 00:00:01'), (3, NULL, NULL, NULL),"
            "(4, NULL, '-838:59:59', '2038-01-19 03:14:07'),"
            "(5, '9999-12-31 00:00:00', '10:00:01', NULL)",
        )
    finally:
        binlog_server.execute("SET GLOBAL mysql56_temporal_format = ON")
    require_read_alike(url, place)


def test_compressed_events_and_columns_are_read(url: str, binlog_server: MariadbServer) -> None:
    place = place_of(url)
    binlog_server.execute("SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10")
    try:
        run(
            url,
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(2000) COMPRESSED, "
            "b BLOB COMPRESSED)",
            "INSERT INTO t SELECT seq, REPEAT(seq, 200), REPEAT(X'FF', seq) FROM seq_1_to_500",
            "SET SESSION column_compression_zlib_wrap = ON",
            "INSERT INTO t SELECT -seq, REPEAT('é', 300), '' FROM seq_1_to_5",
        )
        expected, _ = read(database_of(url), "t")
        run(url, "UPDATE t SET v = CONCAT(v, 'x')", "DELETE FROM t")
    finally:
        binlog_server.execute(
            "SET GLOBAL log_bin_compress = OFF, log_bin_compress_min_len = 256"
        )
    found = changes(url, place)["t"]
    require_same(
        sorted((e["before"] for e in found if e["op"] == "u"), key=lambda row: row["id"]),
        expected,
    )
    assert [each["op"] for each in found] == ["c"] * 505 + ["u"] * 505 + ["d"] * 505


@pytest.fixture(params=["NO_LOG", "MINIMAL"])
def without_names(
    request: pytest.FixtureRequest, binlog_server: MariadbServer
) -> Iterator[None]:
    binlog_server.execute(f"SET GLOBAL binlog_row_metadata = '{request.param}'")
    yield
    binlog_server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


@pytest.mark.usefixtures("without_names")
def test_a_log_without_names_takes_them_from_the_catalog(url: str) -> None:
    place = place_of(url)
    # An ENUM whose values the catalog cannot show is refused.
    kept = [each for each in EVERY_TYPE.columns if each.name != "c_enum"]
    table = type(EVERY_TYPE)(name="t", quote="`", columns=kept)
    run(url, *table.statements(), "INSERT INTO t (id, c_char) VALUES (99, 'a')")
    require_read_alike(url, place)


@pytest.mark.usefixtures("without_names")
@pytest.mark.parametrize(
    "change", ["DROP COLUMN v", "MODIFY v BLOB", "ADD COLUMN w INT", "MODIFY n DECIMAL(9,3)"]
)
def test_a_log_without_names_of_a_table_that_has_changed_is_refused(
    url: str, change: str
) -> None:
    place = place_of(url)
    run(
        url,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), n DECIMAL(9,2))",
        "INSERT INTO t VALUES (1, 'a', 1)",
        f"ALTER TABLE t {change}",
    )
    with pytest.raises(ConfigError, match="SET GLOBAL binlog_row_metadata = 'FULL';"):
        pieces(url, place)


def test_a_table_that_has_changed_since_is_as_the_log_has_it(url: str) -> None:
    place = place_of(url)
    run(url, *EVERY_TYPE.statements())
    columns = columns_of(database_of(url), EVERY_TYPE.name)
    found = pieces(url, place)
    run(url, f"DROP TABLE {EVERY_TYPE.name}")
    later = pieces(url, place, end=found[-1].end)
    # What a plugin of the server has made of bytes, only its catalog knows.
    plugins = {"c_uuid", "c_inet4", "c_inet6"}
    for own, other in zip(later[0].runs[0].shape.columns, columns, strict=True):
        if own.name not in plugins:
            assert own.schema.replaced(optional=True) == other.schema.replaced(optional=True)
    before, after = (
        [
            {name: value for name, value in each["after"].items() if name not in plugins}
            for each in changes_of(given)[EVERY_TYPE.name]
        ]
        for given in (found, later)
    )
    require_same(after, before)
    assert later[0].runs[0].shape.key == ("id",)
