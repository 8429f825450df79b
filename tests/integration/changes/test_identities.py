"""A position stands for one log and its tables, whatever has the same name later."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.changes.change_reading import Following, run

from headrace.sdk import ConfigError, DataLostError, Position, StateError
from headrace_plugins.changes.position import check_condition
from headrace_plugins.connectors.postgres.settings import PostgresSourceSettings
from headrace_plugins.connectors.postgres.source import PostgresSource

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
TABLE = ("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")


def test_a_slot_that_is_moved_between_two_looks_is_told_of(url: str, follow: Follow) -> None:
    run(url, *TABLE)
    following = follow(url, table_poll_interval_ms="600000")
    following.changes()
    following.stop_reading()
    run(url, "INSERT INTO t VALUES (2, 1)")
    run(url, "SELECT pg_replication_slot_advance('s', pg_current_wal_lsn())")
    run(url, "INSERT INTO t VALUES (3, 1)")
    with pytest.raises(DataLostError, match="after the stored position"):
        following.changes()


def test_another_name_of_the_slot_is_another_log(url: str, follow: Follow) -> None:
    run(url, *TABLE)
    following = follow(url, publication_name="p")
    following.changes()
    following.restart(slot_name="other")
    with pytest.raises(StateError, match=r"slot\.name"):
        following.plan()


def test_a_table_that_is_left_out_for_a_while_is_read_again(url: str, follow: Follow) -> None:
    run(url, *TABLE, "CREATE TABLE u (id int PRIMARY KEY)")
    following = follow(url)
    following.changes()
    following.restart(table_exclude_list="t")
    run(url, "INSERT INTO t VALUES (2, 1)")
    following.changes()
    following.restart(table_exclude_list="")
    assert [after["id"] for _, _, after in following.changes()] == [1, 2]


def test_a_slot_of_somebody_else_is_left_alone(url: str, follow: Follow) -> None:
    run(url, *TABLE, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    following = follow(url)
    with pytest.raises(ConfigError, match="cannot be read"):
        following.plan()
    assert following.slot["slot_name"] == "s"


@pytest.mark.parametrize("sql", ["TABLE t (id)", "TABLE t WHERE (id > 5)"])
def test_a_publication_of_some_columns_or_rows_is_refused(
    url: str, follow: Follow, sql: str
) -> None:
    run(url, *TABLE, f"CREATE PUBLICATION s FOR {sql}")
    following = follow(url)
    with pytest.raises(ConfigError, match="some columns or rows"):
        following.plan()


def test_connectors_whose_names_are_alike_have_slots_of_their_own() -> None:
    config = PostgresSource.config_def().parse({"connection.url": "postgresql:///d"})
    settings = PostgresSourceSettings.from_config(config)
    names = ["shop", "a-b", "a_b", "A.B", "магазин", "магазон", "x" * 100, "x" * 101]
    slots = [settings.slot(name) for name in names]
    assert slots[0] == "headrace_shop"
    assert len(set(slots)) == len(names)
    assert all(len(slot) <= 63 and slot.isascii() for slot in slots)


@pytest.mark.parametrize(
    "condition", ["id > 5", "v = 'a;b(' AND (id IN (1, 2) OR \"V;\" IS NULL)", "v LIKE '%--%'"]
)
def test_a_condition_is_taken_that_ends_where_it_ends(condition: str) -> None:
    check_condition(condition)


@pytest.mark.parametrize(
    "condition",
    [
        *("", "id > 5; DROP TABLE t", "id > 5) OR (1=1", "(id > 5", "id > 5 -- all", "v = 'a"),
        *(
            "id > 5 /* x */",
            "v = $$a$$",
            "v = E'\\'; DROP TABLE t; --'",
            "1=1)) TO PROGRAM 'x'",
        ),
    ],
)
def test_a_condition_that_could_be_more_is_refused(condition: str) -> None:
    with pytest.raises(ConfigError, match="condition"):
        check_condition(condition)


def test_rows_of_a_condition_come_again(url: str, follow: Follow) -> None:
    run(url, *TABLE, "INSERT INTO t VALUES (2, 1), (3, 1)")
    following = follow(url)
    following.changes()
    asked = {"table": "public.t", "where": "id > 1"}
    following.commit(following.position.moved(asked, {"round": 0}))
    assert [after["id"] for _, _, after in following.changes()] == [2, 3]
    assert isinstance(following.position, Position)
