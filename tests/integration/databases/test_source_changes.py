"""What the source of databases does with tables that are changed while it reads them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.databases.source_reading import KINDS, Following, databases, read, run

from headrace.sdk import ConfigError, DataLostError, HeadraceError, ReadLimit, RetriableError
from headrace.sdk.sources import StreamRows

pytestmark = pytest.mark.spark
Follow = Callable[..., Following]
MODES = [{"mode": "bulk"}, {"mode": "incrementing", "incrementing_column_name": "id"}]
TABLE = (
    "CREATE TABLE t (id bigint NOT NULL PRIMARY KEY, v varchar(20))",
    "INSERT INTO t VALUES (1, '10'), (2, '20'), (3, '30')",
)
INTO_NUMBER = {
    "postgresql": "ALTER TABLE t ALTER COLUMN v TYPE int USING v::int",
    "mysql": "ALTER TABLE t MODIFY COLUMN v int",
}
INTO_TEXT = {
    "postgresql": "ALTER TABLE t ALTER COLUMN v TYPE varchar(20) USING 'v' || v",
    "mysql": "ALTER TABLE t MODIFY COLUMN v varchar(20)",
}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with databases(request, tmp_path) as made:
        run(made, *TABLE)
        yield made


@pytest.fixture(params=KINDS[:2])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with databases(request, tmp_path) as made:
        run(made, *TABLE)
        yield made


@pytest.fixture(params=MODES, ids=["bulk", "incrementing"])
def keys(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


def planned(source: Following) -> list[StreamRows]:
    """Return what a batch reads, which no executor has begun with."""
    end = source.task.latest(source.position, ReadLimit())
    return list(source.task.streams(source.spark, source.position, end))


def change(url: str, statements: dict[str, str]) -> None:
    run(url, statements[url.partition(":")[0]])


def test_a_type_that_changes_before_a_batch_is_read_is_the_new_one(
    follow: Follow, server: str, keys: dict[str, str]
) -> None:
    source = follow(server, **keys)
    end = source.task.latest(source.position, ReadLimit())
    change(server, INTO_NUMBER)
    assert source.rows(end) == [{"id": n, "v": n * 10} for n in range(1, 4)]


def test_a_type_that_changes_while_a_batch_is_read_loses_no_rows(
    follow: Follow, server: str, keys: dict[str, str]
) -> None:
    change(server, INTO_NUMBER)
    source = follow(server, **keys)
    streams = planned(source)
    change(server, INTO_TEXT)
    run(server, "UPDATE t SET v = 'none' WHERE id = 2")
    with pytest.raises(RetriableError, match=r"\bt\b"):
        read(streams)
    assert source.ids() == [1, 2, 3]


@pytest.mark.parametrize("change", ["RENAME COLUMN v TO w", "DROP COLUMN v"])
def test_a_column_that_goes_while_a_batch_is_read_is_an_error_and_no_other_value(
    follow: Follow, url: str, keys: dict[str, str], change: str
) -> None:
    source = follow(url, **keys)
    streams = planned(source)
    run(url, f"ALTER TABLE t {change}")
    with pytest.raises(HeadraceError, match=r"\bv\b"):
        read(streams)
    left = {} if change.startswith("DROP") else {"w"}
    assert [row.keys() for row in source.new()] == [{"id", *left}] * 3


def test_the_column_of_the_mode_that_goes_is_an_error(follow: Follow, url: str) -> None:
    source = follow(url, **MODES[1])
    source.new()
    run(url, "ALTER TABLE t RENAME COLUMN id TO other")
    with pytest.raises(ConfigError, match="has no column id"):
        source.new()


@pytest.mark.parametrize("change", ["DROP TABLE t", "ALTER TABLE t RENAME TO u"])
@pytest.mark.parametrize("tables", ["t", "t*"])
def test_a_table_that_goes_while_a_batch_is_read_is_an_error_and_not_empty(
    follow: Follow, url: str, keys: dict[str, str], change: str, tables: str
) -> None:
    source = follow(url, table_include_list=tables, **keys)
    streams = planned(source)
    run(url, change)
    with pytest.raises(HeadraceError, match=r"\bt\b"):
        read(streams)
    source = follow(url, table_include_list=tables, **keys)
    run(url, *TABLE)
    end = source.task.latest(source.position, ReadLimit())
    run(url, "DROP TABLE t")
    with pytest.raises((DataLostError, ConfigError), match=r"\bt\b"):
        source.rows(end)


def test_a_table_that_takes_the_place_of_one_is_not_taken_for_empty(
    server: str, keys: dict[str, str], follow: Follow
) -> None:
    source = follow(server, **keys)
    streams = planned(source)
    run(
        server,
        "CREATE TABLE made (id bigint NOT NULL PRIMARY KEY, v varchar(20))",
        "INSERT INTO made VALUES (1, '10'), (2, '20'), (3, '30')",
        "DROP TABLE t",
        "ALTER TABLE made RENAME TO t",
    )
    try:
        found = read(streams)
    except RetriableError:
        return
    assert [row["id"] for row in found] == [1, 2, 3]
