"""Every type of each database in each other one: it arrives, or its loss is on the page."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from deltalake import DeltaTable
from tests.database_tables.losses import REFUSED, losses
from tests.database_tables.page import (
    DATABASES,
    PAGE,
    REMEDY,
    TABLES,
    described,
    has_no_record,
    make,
    page,
    schemas,
)
from tests.database_tables.table import KEY, same

from headrace.control import copies_of
from headrace.dataplane import DeadLetterFilter, Figures, TableResult, VerifyOptions
from headrace.runtime.app import Runtime
from headrace.sdk import Schema
from headrace.sdk.schema import day_micros
from headrace.settings import load_settings
from headrace.worker import Everyone
from headrace_plugins.databases.database import Select

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.mariadb_server import MariadbServer
    from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.spark

SINKS = {"PostgreSQL": "postgres", "MariaDB": "mysql", "SQLite": "sqlite"}
KINDS = [*SINKS, "Delta"]
SPREAD = {kind: table.spread() for kind, table in TABLES.items()}
TARGET = "every_type"


@dataclass(frozen=True)
class Copied:
    """What a connector with a sink of each kind has made of a source.

    Args:
        schema: Of the source's records.
        source: Its rows that have records, by key.
        targets: The rows of each target.
        results: What verify says of each.
        rejected: The keys of rows that have no record.
        refused: The keys of records that became dead letters of each sink.
    """

    schema: Schema
    source: Mapping[int, Mapping[str, Any]]
    targets: Mapping[str, Mapping[int, Mapping[str, Any]]]
    results: Mapping[str, TableResult]
    rejected: set[int]
    refused: Mapping[str, set[int]]


@pytest.fixture
def sides(
    postgresql: "PostgresqlServer", mariadb: "MariadbServer", tmp_path: Path
) -> Iterator[list[dict[str, str]]]:
    """Give the URLs of empty databases by their kinds: of sources, and of targets."""
    with ExitStack() as opened:
        yield [
            {
                "PostgreSQL": opened.enter_context(postgresql.database()),
                "MariaDB": opened.enter_context(mariadb.database()),
                "SQLite": f"sqlite:{tmp_path / side}.db",
                "Delta": str(tmp_path / side),
            }
            for side in ("source", "target")
        ]


def copied(
    spark: "SparkSession", source: str, sides: list[dict[str, str]], folder: Path
) -> Copied:
    with Runtime(load_settings(home=folder / "home")) as runtime:
        runtime.spark = spark
        try:
            return _copied(runtime, source, sides[0], sides[1], folder / "copy.yaml")
        finally:
            del runtime.spark


def _copied(
    runtime: Runtime,
    source: str,
    sources: Mapping[str, str],
    targets: Mapping[str, str],
    file: Path,
) -> Copied:
    table = SPREAD[source]
    make(runtime.spark, source, sources[source], table)
    if source == "PostgreSQL":  # its own types are kept, and a sink makes none
        with psycopg.connect(targets[source]) as connection:
            for statement in table.before:
                connection.execute(statement.encode())
    file.write_text(definition(table.name, source, sources[source], targets))
    definitions = runtime.definitions([file])
    outcome = runtime.run(definitions, Everyone([]), once=True)
    assert not outcome.errors
    options = VerifyOptions(settle=timedelta(0), max_differences=0)
    (report,) = runtime.verify(copies_of(definitions), options)
    letters = runtime.dead_letter_queue("letters").lines(DeadLetterFilter(), 1000)
    by_sink: dict[str, set[int]] = {kind: set() for kind in KINDS}
    for letter in letters:
        if letter["stage"] == "TASK_PUT":
            by_sink[KINDS[letter["sink"]]].add(letter["value"][KEY])
    return Copied(
        schema=described(source, sources[source], table.name),
        source=rows(source, sources[source], table.name),
        targets={kind: rows(kind, url, TARGET) for kind, url in targets.items()},
        results=dict(zip(KINDS, report.tables, strict=True)),
        rejected={
            int(each["value"].partition(",")[0])
            for each in letters
            if each["stage"] != "TASK_PUT"
        },
        refused=by_sink,
    )


def definition(table: str, source: str, url: str, targets: Mapping[str, str]) -> str:
    reads = (
        f"connector: delta, path: '{url}'"
        if source == "Delta"
        else f"connector: jdbc, connection.url: '{url}', table.include.list: {table}"
    )
    writes = [
        f"{{connector: {sink}, connection.url: '{targets[kind]}', insert.mode: upsert, "
        f"key.fields: {KEY}, table.name.format: {TARGET}}}"
        for kind, sink in SINKS.items()
    ]
    writes.append(
        f"{{connector: delta, path: '{targets['Delta']}', mode: upsert, key.fields: {KEY}}}"
    )
    return (
        f"name: copy\nsource: {{{reads}}}\nsinks: [{', '.join(writes)}]\n"
        "errors.tolerance: all\nerrors.deadletterqueue.topic.name: letters\n"
    )


def rows(kind: str, url: str, name: str) -> dict[int, dict[str, Any]]:
    """Return the rows of a table by their key, but those that have no record."""
    if kind == "Delta":
        found = DeltaTable(url).to_pyarrow_table().to_pylist(maps_as_pydicts="strict")
        return {row[KEY]: row for row in found}
    database = DATABASES[kind](url)
    with database.session() as session:
        table = database.table(session, database.named(name))
    assert table is not None
    select = Select(columns=table.columns, source=database.path(table.name))
    batches = [batch for batch, _ in database.read(select)]
    return {row[KEY]: row for batch in batches for row in batch.to_pylist()}


def values(kind: str) -> dict[int, tuple[str, str, object]]:
    """Return the one value of each row of a source: its column, its SQL, and what it is."""
    return {
        number: (column.name, sql, value)
        for column in SPREAD[kind].columns
        for number, (sql, value) in enumerate(column.values, 1)
        if sql != "NULL"
    }


@pytest.mark.parametrize("source", KINDS)
def test_every_type_of_a_database_arrives_in_each_other_one(
    spark: "SparkSession", sides: list[dict[str, str]], tmp_path: Path, source: str
) -> None:
    # One test a source, as the copy takes longer than all that is looked at.
    found = copied(spark, source, sides, tmp_path)
    _require_records(found, source)
    for target in KINDS:
        _require_values(found, target)
        _require_verified(found, target)


def _require_records(found: Copied, source: str) -> None:
    """A row without a record is a dead letter, and every other one has a record."""
    unfit = {
        number
        for number, (column, sql, value) in values(source).items()
        if has_no_record(found.schema, column, sql, value)
    }
    assert found.rejected == unfit
    assert found.source.keys() == {*range(1, SPREAD[source].length + 1)} - unfit


def _require_values(found: Copied, target: str) -> None:
    """Every value is in the target, or is a loss that the page names."""
    expected = {
        number: {each.becomes for value in row.values() for each in losses(target, value)}
        for number, row in found.source.items()
    }
    refused = {number for number, becomes in expected.items() if REFUSED in becomes}
    assert found.refused[target] == refused, target
    there = found.targets[target]
    assert found.source.keys() - there.keys() == refused, target
    changed = {
        number: (name, value, there[number][name])
        for number, row in found.source.items()
        if number in there
        for name, value in row.items()
        if not arrived(value, there[number][name])
    }
    lost = {number for number, becomes in expected.items() if becomes} - refused
    shown = {n: repr(each)[:200] for n, each in changed.items() if n not in lost}
    assert not shown, target
    assert changed.keys() == lost, target


def _require_verified(found: Copied, target: str) -> None:
    """Verify finds every row equal, or missing where it is a dead letter."""
    result = found.results[target]
    assert (result.source_rows, result.rejected) == (len(found.source), len(found.rejected))
    assert (list(result.lacking), list(result.notes)) == ([], []), target
    refused = len(found.refused[target])
    assert result.figures == Figures(keys=refused, missing=refused), target


def arrived(value: object, there: object) -> bool:
    """Return whether a value is there, in whatever type the target has for it."""
    if isinstance(value, list | dict) and isinstance(there, str):
        return _is_in_json(value, json.loads(there, parse_float=Decimal))
    if isinstance(value, list) and isinstance(there, list):
        return len(value) == len(there) and all(map(arrived, value, there))
    if isinstance(value, time) and isinstance(there, int):
        return day_micros(value) == there  # as Delta has it
    if isinstance(value, bool) and isinstance(there, int):
        return there in (0, 1) and bool(there) is value
    if isinstance(value, datetime) and isinstance(there, datetime):
        return value.replace(tzinfo=UTC) == there.replace(tzinfo=UTC)
    return same(value, there)


def _is_in_json(value: object, there: object) -> bool:
    if isinstance(value, dict) and isinstance(there, dict):
        pairs = ((value[name], there[name]) for name in value.keys() & there.keys())
        return value.keys() == there.keys() and all(_is_in_json(*pair) for pair in pairs)
    if isinstance(value, list) and isinstance(there, list):
        return len(value) == len(there) and all(map(_is_in_json, value, there))
    if isinstance(value, float) and isinstance(there, Decimal):
        return same(value, float(there))
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat()}Z" == there
    return same(value, there)


def test_the_page_is_what_the_databases_say(
    spark: "SparkSession", sides: list[dict[str, str]]
) -> None:
    assert PAGE.read_text() == page(schemas(spark, sides[0])), REMEDY
