"""SQLite: its catalog, one writer, and staging in files of its own."""

# ruff: noqa: S608 - the names are the tests' own

import multiprocessing
import sqlite3
import time as clock
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.databases.sqlite_file import described, load, read, run

from headrace.sdk import ConfigError, HeadraceError, RecordError, RetriableError, Schema
from headrace.sdk.connector import Verdict
from headrace.sdk.errors import StorageUnavailableError
from headrace_plugins.connectors.jdbc.settings import JdbcSourceSettings
from headrace_plugins.connectors.jdbc.source import JdbcSource
from headrace_plugins.connectors.sqlite.sink import SqliteSink
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import DatabaseError, Merge, Select, Session
from headrace_plugins.databases.selection import Selection
from headrace_plugins.databases.sqlite import Sqlite

FROM_STREAM = {"table.name.format": "${schema}.${table}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "odd ?name#%.db"


@pytest.fixture
def database(file: Path) -> Sqlite:
    return Sqlite(address_of(f"sqlite:{file}"))


# --- the catalog --------------------------------------------------------------------------


def test_the_catalog_tells_keys_defaults_and_what_is_generated(
    database: Sqlite, file: Path
) -> None:
    run(
        file,
        "CREATE TABLE parent (a TEXT, b INT, c TEXT UNIQUE, PRIMARY KEY (b, a)) WITHOUT ROWID",
        "CREATE TABLE child (id INTEGER PRIMARY KEY, a TEXT NOT NULL DEFAULT 'x', b INT, "
        "twice GENERATED ALWAYS AS (b * 2), FOREIGN KEY (b, a) REFERENCES parent (b, a))",
        "CREATE UNIQUE INDEX some ON child (b) WHERE b > 0",
        "CREATE UNIQUE INDEX expression ON child (lower(a))",
        "CREATE TABLE headrace_marks (x)",
        "CREATE VIEW looking AS SELECT id FROM child",
        "INSERT INTO parent VALUES ('p', 1, 'c'), ('q', 2, 'd')",
        "ANALYZE",
    )
    with database.session() as session:
        assert database.tables(session) == [TableName("", "child"), TableName("", "parent")]
        names = ["child", "main.parent", "looking", "missing"]
        found = database.describe(session, [database.named(name) for name in names])
    parent, child = found[TableName("", "parent")], found[TableName("", "child")]
    assert set(found) == {parent.name, child.name, TableName("", "looking")}
    assert parent.key == ("b", "a")
    assert set(parent.unique) == {("b", "a"), ("c",)}
    assert parent.rows == 2
    assert [each.schema.optional for each in parent.columns] == [False, False, True]
    assert child.key == ("id",)
    assert child.unique == (("id",),)
    assert child.parents == (TableName("", "parent"),)
    assert [each.name for each in child.columns if each.has_default] == ["id", "a"]
    assert [each.name for each in child.columns if each.generated] == ["twice"]
    assert [each.name for each in child.columns if each.schema.optional] == ["b", "twice"]


def test_a_table_of_another_schema_is_refused_and_quotes_make_it_a_name(
    database: Sqlite,
) -> None:
    with pytest.raises(ConfigError, match="SQLite has no schemas") as refused:
        database.named("public.orders")
    assert refused.value.field == "table.name.format"
    assert "${table}" in refused.value.fix
    assert database.named('"public.orders"') == TableName("", "public.orders")
    assert database.named("MAIN.orders") == database.named("orders") == TableName("", "orders")


@pytest.mark.parametrize(
    ("props", "field"),
    [
        ({"table.name.format": "public.orders"}, "table.name.format"),
        ({"table.name.format": "public.${table}"}, "table.name.format"),
        ({"table.mapping": '[{"from": "a", "to": "public.b"}]'}, "table.mapping[0].to"),
        (
            {"table.mapping": '[{"from": "a"}]', "table.name.format": "p.b"},
            "table.mapping[0].to",
        ),
        ({"table.mapping": '[{"from": "a", "to": "b"}]', "table.name.format": "p.b"}, None),
        ({"table.name.format": "main.orders"}, None),
        (FROM_STREAM, None),
    ],
)
def test_a_schema_is_refused_at_validation_where_it_is_known(
    props: dict[str, str], field: str | None
) -> None:
    config = SqliteSink.config_def().parse({"connection.url": "sqlite:a.db", **props})
    assert [each.field for each in SqliteSink.check(config)] == ([field] if field else [])


def test_a_table_of_the_schema_main_is_excluded(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE a (x)", "CREATE TABLE secret (x)")
    props = {"connection.url": f"sqlite:{file}", "table.exclude.list": "main.secret"}
    settings = JdbcSourceSettings.from_config(JdbcSource.config_def().parse(props))
    with database.session() as session:
        found = Selection.of(settings, database).tables(database, session)
    assert [table.name.name for table in found] == ["a"]


def test_a_key_that_is_no_rowid_may_hold_nulls(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (k TEXT PRIMARY KEY)", "INSERT INTO t VALUES (NULL)")
    assert described(database, "t").columns[0].schema.optional
    assert read(database, "t") == ([{"k": None}], [])


def test_columns_of_a_query_have_types_and_the_query_is_not_run(
    database: Sqlite, file: Path
) -> None:
    run(file, "CREATE TABLE t (day DATE, price DECIMAL(10,2), n INT)")
    query = (
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) "
        "SELECT day, price, n + 1 AS more, CAST(n AS INTEGER) AS whole, i, day FROM t, r"
    )
    with database.session() as session:
        columns = database.query_columns(session, query)
        assert columns == database.query_columns(session, query)
    assert [(each.name, each.schema.bare()) for each in columns] == [
        ("day", Schema.date()),
        ("price", Schema.decimal(2, precision=10)),
        ("more", Schema.string()),
        ("whole", Schema.int64()),
        ("i", Schema.string()),
        ("day:1", Schema.date()),
    ]


def test_the_rows_of_a_query_are_read(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (n INT)", "INSERT INTO t VALUES (1), (2)")
    query = "SELECT n, n AS n, n * 1.5 AS more FROM t"
    with database.session() as session:
        columns = database.query_columns(session, query)
    select = Select(columns=columns, source=f"({query}) q", where="n > 1")
    [(batch, _)] = database.read(select)
    assert [column.to_pylist() for column in batch.columns] == [[2], [2], ["3.0"]]


def test_ranges_of_a_table_hold_each_row_once(database: Sqlite, file: Path) -> None:
    run(
        file,
        "CREATE TABLE t (rowid TEXT, id INTEGER PRIMARY KEY)",
        "WITH RECURSIVE n(i) AS (SELECT -50 UNION ALL SELECT i + 3 FROM n WHERE i < 500) "
        "INSERT INTO t SELECT 'x', i FROM n",
        "CREATE TABLE w (id INTEGER PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE e (id)",
        "CREATE VIEW v AS SELECT * FROM t",
    )
    with database.session() as session:
        ranges = database.physical_ranges(session, described(database, "t"), 4)
        for name in "wev":
            assert database.physical_ranges(session, described(database, name), 4) == []
    parts = [[row["id"] for row in read(database, "t", where)[0]] for where in ranges]
    assert len(parts) == 4
    assert sorted(chain.from_iterable(parts)) == [row["id"] for row in read(database, "t")[0]]
    assert all(40 < len(part) < 50 for part in parts)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**63 - 1,
        -0.1,
        float("-inf"),
        "it's \0 ä",
        b"\0'",
    ],
)
def test_literals_are_the_values_that_they_were_made_of(
    database: Sqlite, value: object
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert connection.execute(f"SELECT {database.literal(value)}").fetchone() == (value,)


def test_literals_of_times_and_decimals_compare_with_what_is_stored(
    database: Sqlite, file: Path
) -> None:
    columns = {"d": Schema.decimal(2, precision=9), "t": Schema.timestamp()}
    columns |= {"l": Schema.decimal(2, precision=30), "day": Schema.date()}
    at = datetime(2024, 2, 29, 1, 2, 3, 400, tzinfo=UTC)
    row: list[Any] = [Decimal("9.50"), at, Decimal("9.50"), date(2024, 2, 29)]
    with database.session() as session:
        types = ", ".join(f"{n} {database.column_type(s)}" for n, s in columns.items())
        session.execute(f"CREATE TABLE t ({types})")
        load(database, TableName("", "t"), columns, [[value] for value in row], session)
        for name, value in zip(columns, row, strict=True):
            literal = database.literal(value)
            assert session.value(f"SELECT count(*) FROM t WHERE {name} = {literal}") == 1


def test_the_clock_is_in_utc(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (x)")
    with database.session() as session:
        assert abs(database.now(session) - datetime.now(UTC)) < timedelta(seconds=30)


# --- sessions and errors ------------------------------------------------------------------


def test_looking_makes_no_file_and_writing_makes_one(database: Sqlite, file: Path) -> None:
    with database.session() as session:
        session.rollback()
        with pytest.raises(ConfigError, match=r"The file .* does not exist"):
            database.tables(session)
        assert not file.exists()
        session.execute("CREATE TABLE t (x INTEGER)")
        session.commit()
    assert described(database, "t") is not None


def test_reading_makes_no_file(database: Sqlite, file: Path) -> None:
    with pytest.raises(ConfigError, match=r"The file .* does not exist"):
        list(database.read(Select(columns=(), source="t")))
    assert not file.exists()


def test_a_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The folder .* does not exist"):
        Sqlite(address_of(f"sqlite:{tmp_path}/none/x.db")).session()


def test_what_is_no_database_is_refused(database: Sqlite, file: Path) -> None:
    file.write_text("this is a text, and no database\n" * 100)
    with pytest.raises(ConfigError, match="not a database"):
        database.session()


def test_a_session_undoes_what_is_not_committed(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (x INTEGER)")
    with database.session() as session:
        assert session.execute("INSERT INTO t VALUES (?), (2)", (1,)) == 2
        session.execute("CREATE UNIQUE INDEX i ON t (x)")
        with pytest.raises(RecordError), session.savepoint():
            session.execute("INSERT INTO t VALUES (3), (1)")
        session.commit()
        session.execute("ALTER TABLE t RENAME TO u")
    assert read(database, "t")[0] == [{"x": 1}, {"x": 2}]


def test_a_transaction_that_is_gone_is_not_continued(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (x INTEGER UNIQUE ON CONFLICT ROLLBACK)")
    with database.session() as session:
        session.execute("INSERT INTO t VALUES (1)")
        with (
            pytest.raises(DatabaseError, match=r"The whole transaction .* UNIQUE"),
            session.savepoint(),
        ):
            session.execute("INSERT INTO t VALUES (1)")


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ("(1, 'x', 1)", "id"),
        ("(2, NULL, 1)", "n"),
        ("(2, 'x', 0)", None),
        ("('a', 'x', 1)", None),
    ],
)
def test_rows_that_constraints_refuse_name_their_column(
    database: Sqlite, file: Path, values: str, column: str | None
) -> None:
    run(
        file,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT NOT NULL, c INT CHECK (c > 0))",
        "INSERT INTO t VALUES (1, 'x', 1)",
    )
    with database.session() as session, pytest.raises(RecordError) as raised:
        session.execute(f"INSERT INTO t VALUES {values}")
    assert raised.value.field == column


def test_a_strict_table_refuses_other_types(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (n INTEGER) STRICT")
    with database.session() as session, pytest.raises(RecordError) as raised:
        session.execute("INSERT INTO t VALUES ('text')")
    assert raised.value.field == "n"


def test_foreign_keys_are_enforced(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE p (id INTEGER PRIMARY KEY)", "CREATE TABLE c (p REFERENCES p)")
    staging = database.staging(TableName("", "c"), "none")
    with database.merging_session(staging) as session, pytest.raises(RecordError):
        session.execute("INSERT INTO c VALUES (7)")


def test_a_full_disk_is_waited_for(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (x)")
    with database.session() as session:
        session.rows("PRAGMA max_page_count = 2")
        with pytest.raises(StorageUnavailableError), session.savepoint():
            session.execute("INSERT INTO t VALUES (zeroblob(100000))")


def test_a_locked_file_is_waited_for_and_then_tried_again(
    database: Sqlite, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(file, "CREATE TABLE t (x)")
    monkeypatch.setattr("headrace_plugins.databases.sqlite._WAIT_SECONDS", 0.3)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RetriableError, match="locked"):
            described(database, "t")
        other.execute("COMMIT")
        other.execute("BEGIN IMMEDIATE")
        with database.session() as session:
            assert session.rows("SELECT * FROM t") == []
            with pytest.raises(RetriableError, match="locked"):
                database.take_over(session, "task")
            other.execute("COMMIT")
            database.take_over(session, "task")


# --- staging ------------------------------------------------------------------------------

_STAGED = {"id": Schema.int64(), "text": Schema.string(optional=True)}


def staged(database: Sqlite, digest: str = "d1") -> TableName:
    name = database.staging(TableName("", "t"), digest)
    with database.staging_session(name) as session:
        session.execute(f'CREATE TABLE {database.path(name)} ("id" INTEGER, "text" TEXT)')
        session.commit()
    return name


def _load_part(database: Sqlite, name: TableName, number: int, count: int) -> None:
    with database.staging_session(name) as session:
        ids = range(number * count, (number + 1) * count)
        values = [list(ids), [f"text {i}" for i in ids]]
        assert load(database, name, _STAGED, values, session) == count
        session.commit()


def _load_forever(database: Sqlite, name: TableName, began: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array([1, 2]), "text": pa.array(["a", "b"])})
        began.touch()
        clock.sleep(600)

    with database.staging_session(name) as session:
        database.load(session, name, _STAGED, rows())


def test_several_processes_load_at_once(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    name, fork = staged(database), multiprocessing.get_context("fork")
    parts = [
        fork.Process(target=_load_part, args=(database, name, number, 30_000))
        for number in range(4)
    ]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    assert [part.exitcode for part in parts] == [0] * 4
    with database.merging_session(name) as session:
        path = database.path(name)
        session.execute(f"INSERT INTO t SELECT * FROM {path}")
        session.commit()
    rows, _ = read(database, "t")
    assert rows == [{"id": i, "text": f"text {i}"} for i in range(120_000)]


@pytest.fixture
def loading(
    database: Sqlite, file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TableName, Callable[[], None]]]:
    """A staging table that a process is loading a part into, and what kills it."""
    run(file, "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    name, began = staged(database), tmp_path_factory.mktemp("loading") / "began"
    process = multiprocessing.get_context("fork").Process(
        target=_load_forever, args=(database, name, began)
    )
    process.start()
    deadline = clock.monotonic() + 60
    while not began.exists():
        assert clock.monotonic() < deadline
        clock.sleep(0.01)

    def kill() -> None:
        process.kill()
        process.join()

    yield name, kill
    kill()


def test_a_part_that_waits_for_rows_keeps_no_other_from_loading(
    database: Sqlite, loading: tuple[TableName, Callable[[], None]]
) -> None:
    name, kill = loading
    _load_part(database, name, 0, 10)
    kill()
    with database.merging_session(name) as session:
        assert session.value(f"SELECT count(*) FROM {database.path(name)}") == 10


def test_a_killed_attempt_leaves_a_file_that_is_found_and_dropped(
    database: Sqlite, file: Path, loading: tuple[TableName, Callable[[], None]]
) -> None:
    name, kill = loading
    kill()
    left = [path.name for path in file.parent.iterdir()]
    assert sorted(left) == [file.name, f"{file.name}.headrace-d1"]
    database.drop_staging(name)
    database.drop_staging(name)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_part_after_its_staging_table_was_dropped_makes_no_file(
    database: Sqlite, file: Path
) -> None:
    run(file, "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    name = staged(database)
    database.drop_staging(name)
    with pytest.raises(HeadraceError):
        _load_part(database, name, 0, 10)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_rows_of_a_savepoint_are_not_staged_when_it_is_undone(
    database: Sqlite, file: Path
) -> None:
    run(file, "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    name = staged(database)
    with database.staging_session(name) as session:
        for number in range(4):
            try:
                with session.savepoint():
                    load(database, name, _STAGED, [[number], ["x"]], session)
                    assert number % 2 == 0
            except AssertionError:
                pass
        session.commit()
    with database.merging_session(name) as session:
        found = session.rows(f"SELECT id FROM {database.path(name)}")
    assert found == [(0,), (2,)]


# --- merging ------------------------------------------------------------------------------


@pytest.fixture
def merging(database: Sqlite, file: Path) -> Iterator[tuple[Session, TableName]]:
    """A target with the keys 1 to 3, and 2 to 4 staged."""
    run(file, "CREATE TABLE t (id INTEGER, k TEXT, text TEXT)", "CREATE TABLE u (id, k, text)")
    run(file, "CREATE UNIQUE INDEX i ON u (id, k)")
    name = database.staging(TableName("", "t"), "m")
    with database.staging_session(name) as session:
        session.execute(f"CREATE TABLE {database.path(name)} (id INTEGER, k TEXT, text TEXT)")
        session.execute(
            f"INSERT INTO {database.path(name)} VALUES (2, 'k', 'new'), (3, 'k', NULL), "
            "(4, 'k', 'new')"
        )
        session.commit()
    with database.merging_session(name) as session:
        for table in "tu":
            session.execute(
                f"INSERT INTO {table} VALUES (1, 'k', 'old'), (2, 'k', 'old'), "
                "(3, 'k', 'old'), (NULL, 'k', 'old')"
            )
        yield session, name


def merge(database: Sqlite, table: str, name: TableName, where: str = "1 = 1") -> Merge:
    return Merge(
        target=table,
        staging=database.path(name),
        columns=['"id"', '"k"', '"text"'],
        keys=['"id"', '"k"'],
        unique=table == "u",
        where=where,
    )


@pytest.mark.parametrize("table", ["t", "u"])
def test_upserting_updates_and_inserts(
    database: Sqlite, merging: tuple[Session, TableName], table: str
) -> None:
    session, name = merging
    for statement in database.upsert(merge(database, table, name)):
        session.execute(statement)
    assert session.rows(f"SELECT id, text FROM {table} ORDER BY id") == [
        *[(None, "old"), (1, "old"), (2, "new"), (3, None), (4, "new")]
    ]


def test_updating_inserts_nothing(database: Sqlite, merging: tuple[Session, TableName]) -> None:
    session, name = merging
    changes = [('"text"', "'changed'")]
    where = f"{database.differs('t.text', 's.text')} AND s.id > 2"
    assert session.execute(database.update(merge(database, "t", name, where), changes)) == 1
    assert session.rows("SELECT id, text FROM t WHERE text <> 'old'") == [(3, "changed")]


@pytest.mark.parametrize("table", ["t", "u"])
def test_deleting_removes_the_staged_keys(
    database: Sqlite, merging: tuple[Session, TableName], table: str
) -> None:
    session, name = merging
    statement = database.delete(merge(database, table, name, "s.id <> 3"))
    assert session.execute(statement) == 1
    assert session.rows(f"SELECT id FROM {table} ORDER BY id") == [(None,), (1,), (3,)]


@pytest.mark.parametrize("unique", [True, False])
def test_merging_many_rows_does_not_look_at_each_pair(
    database: Sqlite, file: Path, *, unique: bool
) -> None:
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
        "INSERT INTO {} SELECT i, 'k', 'x' FROM n"
    )
    key = ", UNIQUE (id, k)" if unique else ""
    run(file, f"CREATE TABLE u (id INT, k TEXT, text TEXT{key})", numbers.format(60_000, "u"))
    name = database.staging(TableName("", "u"), "m")
    with database.staging_session(name) as session:
        session.execute(f"CREATE TABLE {database.path(name)} (id INTEGER, k TEXT, text TEXT)")
        session.execute(numbers.format(60_000, database.path(name)))
        session.commit()
    job = Merge(
        target="u",
        staging=database.path(name),
        columns=["id", "k", "text"],
        keys=["id", "k"],
        unique=unique,
        where="1 = 1",
    )
    with database.merging_session(name) as session:
        began = clock.process_time()
        for statement in [*database.upsert(job), database.delete(job)]:
            session.execute(statement)
        assert clock.process_time() - began < 10  # each pair takes minutes


def test_renaming_is_undone_with_the_transaction(database: Sqlite, file: Path) -> None:
    run(file, "CREATE TABLE a (x)", "CREATE TABLE b (y)")
    renames = [("b", "old"), ("a", "b")]
    with database.session() as session:
        database.rename(session, [(TableName("", o), TableName("", n)) for o, n in renames])
        assert {str(name) for name in database.tables(session)} == {"b", "old"}
        session.rollback()
        assert {str(name) for name in database.tables(session)} == {"a", "b"}


# --- health -------------------------------------------------------------------------------


def findings(database: Sqlite) -> dict[str, Any]:
    with database.session() as session:
        return {each.requirement: each for each in database.examine(session)}


def test_a_table_name_that_comes_from_streams_is_not_examined(file: Path) -> None:
    props = {"connection.url": f"sqlite:{file}", **FROM_STREAM}
    found = list(SqliteSink.examine(SqliteSink.config_def().parse(props)))
    assert Verdict.FAILED not in {each.verdict for each in found}, found


def test_a_file_is_examined(database: Sqlite, file: Path) -> None:
    assert findings(database)["a file"].verdict is Verdict.WARNING
    assert not file.exists()
    run(file, "PRAGMA journal_mode = WAL", "CREATE TABLE t (x)")
    found = findings(database)
    assert {each.verdict for each in found.values()} == {Verdict.OK}
    assert len(found) == 5


def test_a_damaged_file_is_found(database: Sqlite, file: Path) -> None:
    run(
        file,
        "CREATE TABLE t (x TEXT UNIQUE)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
        "INSERT INTO t SELECT 'text ' || i FROM n",
    )
    pages = bytearray(file.read_bytes())
    pages[8192:12288] = b"\xff" * 4096
    file.write_bytes(pages)
    found = findings(database)["an intact file"]
    assert found.verdict is Verdict.FAILED
    assert ".recover" in found.fix
