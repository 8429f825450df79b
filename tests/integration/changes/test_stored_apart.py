"""Values that are stored apart (TOAST) and not sent with an update that leaves them alone."""

# ruff: noqa: S608 - tests write their own SQL

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.integration.changes.change_reading import Following, rows, run, transact

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
LONG = "(SELECT string_agg(md5(n::text || {}), '') FROM generate_series(1, 200) n)"
"""More than 6 kB that do not compress."""


def long(seed: object) -> str:
    return LONG.format(f"'{seed}'")


def table(url: str, key: str = "id int PRIMARY KEY", columns: str = "doc text, v int") -> None:
    run(url, f"CREATE TABLE t ({key}, {columns})")


def of_table(url: str, order: str = "1") -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as database:
        return database.execute(f"SELECT * FROM t ORDER BY {order}".encode()).fetchall()


def test_an_update_has_what_it_leaves_alone(url: str, follow: Follow) -> None:
    table(url, columns="doc text, other text, v int")
    run(
        url, f"INSERT INTO t SELECT n, {long('a')}, {long('b')}, 0 FROM generate_series(1, 9) n"
    )
    following = follow(url)
    following.new()
    run(
        url,
        "UPDATE t SET v = id",
        f"UPDATE t SET doc = {long('c')} WHERE id < 4",
        "UPDATE t SET other = NULL WHERE id = 5",
        "UPDATE t SET v = v + 1, doc = '' WHERE id > 7",
    )
    found = following.changes()
    assert {op for op, _, _ in found} == {"u"}
    assert all(after["doc"] is not None for _, _, after in found)
    assert following.replica.rows("t") == of_table(url)


def test_the_row_before_has_it_where_that_is_whole(url: str, follow: Follow) -> None:
    table(url, key="id int")
    run(
        url,
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"INSERT INTO t VALUES (1, {long('a')}, 0), (1, NULL, 0), (2, {long('b')}, 0)",
    )
    [(doc,)] = rows(url, "SELECT doc FROM t WHERE doc IS NOT NULL AND id = 1")
    following = follow(url)
    following.new()
    transact(url, "UPDATE t SET v = 1 WHERE id = 1", "DELETE FROM t WHERE id = 1")
    found = following.changes()
    assert [(op, after and after["doc"]) for op, _, after in found] == [
        ("u", doc),
        ("u", None),
        ("d", None),
        ("d", None),
    ]
    assert len(following.replica.counts("t")) == 1


def test_a_row_that_has_gone_meanwhile_is_deleted_later(url: str, follow: Follow) -> None:
    table(url)
    run(url, f"INSERT INTO t SELECT n, {long('a')}, 0 FROM generate_series(1, 3) n")
    following = follow(url)
    following.new()
    following.task.stop()
    run(
        url,
        "UPDATE t SET v = 1",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        f"UPDATE t SET doc = {long('b')}, v = 2 WHERE id = 3",
    )
    following.restart()
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_a_column_that_must_have_a_value_has_one(url: str, follow: Follow) -> None:
    table(url, columns="doc text NOT NULL, data bytea NOT NULL, v int")
    data = "decode(md5(n::text), 'hex')"
    run(
        url,
        f"INSERT INTO t SELECT m, {long('a')}, (SELECT string_agg({data}, '') "
        "FROM generate_series(1, 400) n), 0 FROM generate_series(1, 2) m",
    )
    following = follow(url)
    following.new()
    following.task.stop()
    run(url, "UPDATE t SET v = 1", "DELETE FROM t WHERE id = 1")
    following.restart()
    found = following.changes()
    assert [op for op, _, _ in found] == ["u", "u", "d"]
    assert found[0][2]["doc"] == "__debezium_unavailable_value"
    assert found[0][2]["data"] == b"__debezium_unavailable_value"
    assert following.replica.rows("t") == of_table(url)


@pytest.mark.parametrize(
    ("type_", "key"),
    [
        ("char(9)", "'ab'"),
        ('"char"', "'a'"),
        ("numeric", "1.50"),
        ("numeric(9,3)", "1.5"),
        ("timestamptz", "'2024-01-01 12:00:00.5+07'"),
        ("interval", "'1 mon -1 day'"),
        ("uuid", "'00000000-0000-0000-0000-00000000000a'"),
        ("bytea", "'\\x00ff'"),
        ("mood", "'it''s 100%'"),
        ('"odd %s type"', "'x'"),
        ("bit(3)", "'101'"),
        ("float8", "0.1"),
        ("text[]", "'{a,\"b c\",NULL}'"),
        ("inet", "'10.0.0.1/24'"),
    ],
)
def test_rows_are_found_by_keys_of_any_type(
    url: str, follow: Follow, type_: str, key: str
) -> None:
    run(
        url,
        "CREATE TYPE mood AS ENUM ('it''s 100%')",
        'CREATE DOMAIN "odd %s type" AS varchar(5)',
    )
    table(url, key=f"id {type_}, k2 int, PRIMARY KEY (k2, id)")
    run(url, f"INSERT INTO t VALUES ({key}, 7, {long('a')}, 0)")
    following = follow(url)
    following.new()
    run(url, "UPDATE t SET v = 1")
    [(_, _, after)] = following.changes()
    assert after["v"] == 1
    assert after["doc"] == of_table(url)[0]["doc"]


def test_a_key_may_be_stored_apart_itself(url: str, follow: Follow) -> None:
    key = "(SELECT string_agg(md5(n::text || {}), '') FROM generate_series(1, 75) n)"
    table(url, key="id text PRIMARY KEY")
    run(url, "ALTER TABLE t ALTER COLUMN id SET STORAGE EXTERNAL")
    run(url, *(f"INSERT INTO t VALUES ({key.format(n)}, {long(n)}, {n})" for n in (1, 2)))
    following = follow(url)
    following.new()
    run(url, "UPDATE t SET v = v + 1", "DELETE FROM t WHERE v = 3")
    found = following.changes()
    assert [op for op, _, _ in found] == ["u", "u", "d"]
    assert following.replica.rows("t") == of_table(url)


def test_what_a_dropped_column_had_is_no_matter_for_the_others(
    url: str, follow: Follow
) -> None:
    table(url, columns="gone text, doc text, v int")
    run(url, f"INSERT INTO t VALUES (1, {long('a')}, {long('b')}, 0)")
    following = follow(url)
    following.new()
    following.task.stop()
    run(url, "UPDATE t SET v = 1", "ALTER TABLE t DROP COLUMN gone", "UPDATE t SET v = 2")
    following.restart()
    found = following.changes()
    doc = of_table(url)[0]["doc"]
    assert [after["doc"] for _, _, after in found] == [doc, doc]


def test_rows_are_found_where_the_table_has_another_name_by_now(
    url: str, follow: Follow
) -> None:
    table(url)
    run(url, f"INSERT INTO t VALUES (1, {long('a')}, 0)", "CREATE TABLE u (id int PRIMARY KEY)")
    following = follow(url)
    following.new()
    following.task.stop()
    run(url, "UPDATE t SET v = 1", "ALTER TABLE t RENAME TO v", "ALTER TABLE u RENAME TO t")
    following.restart()
    [after] = [r["after"] for t, r in following.new() if t == "t" and r["op"] == "u"]
    assert len(after["doc"]) == 6400


def test_names_are_quoted(url: str, follow: Follow) -> None:
    run(
        url,
        'CREATE SCHEMA "100% ""s"""',
        'CREATE TABLE "100% ""s"""."a.b %s" ("Key %" int PRIMARY KEY, "d %s ""x" text, v int)',
        f'INSERT INTO "100% ""s"""."a.b %s" VALUES (1, {long("a")}, 0)',
    )
    following = follow(url)
    following.new()
    run(url, 'UPDATE "100% ""s"""."a.b %s" SET v = 1')
    [(_, _, after)] = following.changes()
    assert len(after['d %s "x']) == 6400
