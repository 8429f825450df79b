"""``Runtime.verify``: what differs between a source and its target is found, and repaired."""

import csv
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typing_extensions import override

from headrace.control import copies_of
from headrace.dataplane import VerifyOptions
from headrace.model import Batch, TaskId
from headrace.runtime.app import Runtime
from headrace.runtime.verification import RepairOptions, VerifyReport
from headrace.sdk import ConfigError, StateError
from headrace.settings import load_settings
from headrace.store import Store
from headrace.worker import Everyone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.model import Definition

ONCE = VerifyOptions(settle=timedelta(0))


class Copying:
    """A CSV file that is copied into a Delta table by key."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self.csv = folder / "in" / "orders.csv"
        self.csv.parent.mkdir()
        self.table = folder / "table"
        self.definition_file = folder / "copy.yaml"
        self.steps = "[]"
        self.sink = "mode: upsert, key.fields: id, delete.enabled: true"
        self.more = ""

    @property
    def definitions(self) -> "list[Definition]":
        self.definition_file.write_text(
            "name: orders\n"
            f"source: {{connector: file, path: {self.csv}, settle.ms: 0,\n"
            f"  schema: 'id BIGINT NOT NULL, name STRING, price DECIMAL(10,2)'}}\n"
            f"sink: {{connector: delta, path: {self.table}, {self.sink}}}\n"
            f"transforms: {self.steps}\n{self.more}"
        )
        return self.runtime.definitions([self.definition_file])

    def write(self, rows: "list[tuple[Any, ...]]") -> None:
        with self.csv.open("w", newline="") as file:
            csv.writer(file).writerows([("id", "name", "price"), *rows])

    def run(self) -> None:
        outcome = self.runtime.run(self.definitions, Everyone([]), once=True)
        assert not outcome.errors, outcome.errors

    def verify(
        self, options: VerifyOptions = ONCE, repair: RepairOptions | None = None
    ) -> VerifyReport:
        (report,) = self.runtime.verify(copies_of(self.definitions), options, (), repair)
        return report

    def through_a_topic(self) -> "tuple[Definition, Definition]":
        """Return the definitions of the same copy with a topic in between."""
        texts = (
            (
                "name: read\n"
                f"source: {{connector: file, path: {self.csv}, settle.ms: 0,\n"
                f"  schema: 'id BIGINT NOT NULL, name STRING, price DECIMAL(10,2)'}}\n"
                "topic: orders\n"
                "transforms: [{type: Filter, name: even, predicate: 'id % 2 = 0'}]\n"
            ),
            (
                "name: write\ntopics: [orders]\n"
                f"sink: {{connector: delta, path: {self.table}, {self.sink}}}\n"
                "transforms: [{type: 'MaskField$Value', name: mask, fields: name}]\n"
            ),
        )
        files = []
        for number, text in enumerate(texts):
            files.append(self.definition_file.with_name(f"part{number}.yaml"))
            files[-1].write_text(text)
        source, sink = self.runtime.definitions(files)
        return source, sink

    def delta(self) -> DeltaTable:
        return DeltaTable(str(self.table))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(row.values()) for row in self.delta().to_pyarrow_table().to_pylist()
        )


@pytest.fixture
def copying(runtime: Runtime, tmp_path: Path) -> Copying:
    return Copying(runtime, tmp_path)


ROWS = [(n, f"n{n}", f"{n}.50") for n in range(1, 101)]


def test_a_copy_that_is_complete_is_equal(copying: Copying) -> None:
    copying.write(ROWS)
    copying.run()
    report = copying.verify()
    (table,) = report.tables
    assert report.equal
    assert (table.source_rows, table.target_rows) == (100, 100)
    assert table.key == ("id",)
    assert table.figures.keys == 0


def test_rows_that_were_changed_deleted_and_added_behind_its_back_are_found(
    copying: Copying,
) -> None:
    copying.write(ROWS)
    copying.run()
    copying.delta().update({"price": "99.99"}, predicate="id = 7")
    copying.delta().delete("id = 8 OR id = 9")
    copying.delta().update({"id": "1000"}, predicate="id = 10")
    report = copying.verify()
    (table,) = report.tables
    found = table.figures
    assert not report.equal
    assert (found.missing, found.extra, found.different) == (3, 1, 1)
    by_kind = {(each.kind, each.key["id"]): each.columns for each in table.differences}
    assert by_kind["different", 7] == {"price": {"source": "7.50", "target": "99.99"}}
    assert by_kind["missing", 8]["name"] == {"source": "n8"}
    assert by_kind["extra", 1000]["name"] == {"target": "n10"}
    assert by_kind.keys() == {
        ("different", 7), ("missing", 8), ("missing", 9), ("missing", 10), ("extra", 1000)
    }  # fmt: skip


def test_a_repair_sends_what_differs_and_deletes_only_where_it_may(copying: Copying) -> None:
    copying.write(ROWS)
    copying.run()
    before = copying.rows()
    copying.delta().update({"price": "99.99"}, predicate="id = 7")
    copying.delta().delete("id = 8")
    copying.delta().update({"id": "1000"}, predicate="id = 10")
    (table,) = copying.verify(repair=RepairOptions()).tables
    assert (table.repaired, table.figures.extra, table.figures.keys) == (3, 1, 1)
    assert [row for row in copying.rows() if row[0] != 1000] == before

    report = copying.verify(repair=RepairOptions(delete_extra=True))
    assert report.equal
    assert report.tables[0].repaired == 1
    assert copying.rows() == before
    version = copying.delta().version()
    assert copying.verify(repair=RepairOptions()).tables[0].repaired == 0
    assert copying.delta().version() == version


def test_of_a_table_that_is_not_there_yet_all_rows_are_missing(copying: Copying) -> None:
    copying.write(ROWS)
    report = copying.verify()
    assert report.tables[0].figures.missing == 100
    with pytest.raises(ConfigError, match="does not exist yet"):
        copying.verify(repair=RepairOptions())


def test_nothing_is_repaired_while_the_connector_runs(copying: Copying) -> None:
    copying.write(ROWS)
    copying.run()
    copying.delta().delete("id = 8")
    state = copying.runtime.state
    lease = state.lease(TaskId("orders", 0), "a server", state.now(), timedelta(minutes=1))
    with pytest.raises(StateError, match="orders is running") as raised:
        copying.verify(repair=RepairOptions())
    assert "headrace connector pause orders --wait" in (raised.value.fix or "")
    assert copying.verify().tables[0].figures.missing == 1
    state.release(lease)
    assert copying.verify(repair=RepairOptions()).tables[0].repaired == 1


def test_a_repair_goes_by_what_the_source_has_when_it_writes(copying: Copying) -> None:
    copying.write(ROWS)
    copying.run()
    copying.delta().update({"id": "1000"}, predicate="id = 10")
    newer = [(n, "newer", price) if n == 10 else (n, name, price) for n, name, price in ROWS]

    def change(doing: str) -> None:
        if "looking at rows" in doing:  # all have been compared, and nothing was sent
            copying.write([*newer, (1000, "n10", "10.50")])

    options = VerifyOptions(settle=timedelta(0), report=change)
    (table,) = copying.verify(options, RepairOptions(delete_extra=True)).tables
    assert table.equal
    assert {row[:2] for row in copying.rows()} >= {(10, "newer"), (1000, "n10")}


class DyingStore(Store):
    """A store that is not reached any more once a batch is committed."""

    dying = False

    @override
    def finish_batch(self, *arguments: Any, **more: Any) -> Batch:
        if self.dying:
            problem = "The power is gone."
            raise RuntimeError(problem)
        return super().finish_batch(*arguments, **more)


def test_a_repair_that_died_after_its_commit_is_finished_and_changes_nothing_twice(
    spark: "SparkSession", tmp_path: Path
) -> None:
    store = DyingStore()
    with Runtime(load_settings(home=tmp_path / "home"), store) as runtime:
        runtime.spark = spark
        copying = Copying(runtime, tmp_path)
        copying.write(ROWS)
        copying.run()
        copying.delta().delete("id < 4")
        store.dying = True
        with pytest.raises(RuntimeError, match="power"):
            copying.verify(repair=RepairOptions())
        assert len(copying.rows()) == 100
        version = copying.delta().version()
        store.dying = False
        report = copying.verify(repair=RepairOptions())
        assert report.equal
        assert report.tables[0].repaired == 0
        assert copying.delta().version() == version
        assert not list((tmp_path / "home" / "topics" / "~repairs" / "orders").iterdir())
        del runtime.spark  # it is not the runtime's to close


def test_rows_that_are_only_appended_are_compared_and_not_repaired(copying: Copying) -> None:
    copying.sink = "mode: append"
    copying.write([*ROWS, ROWS[0]])
    copying.run()
    assert copying.verify().equal
    copying.delta().delete("id = 1")
    (table,) = copying.verify().tables
    assert (table.key, table.figures.missing) == ((), 2)
    assert table.differences[0].columns["name"] == {"source": "n1"}
    with pytest.raises(ConfigError, match="only appends rows"):
        copying.verify(repair=RepairOptions())


def test_nothing_is_deleted_where_the_sink_does_not(copying: Copying) -> None:
    copying.sink = "mode: upsert, key.fields: id"
    copying.write(ROWS)
    copying.run()
    with pytest.raises(ConfigError, match="does not allow deletes"):
        copying.verify(repair=RepairOptions(delete_extra=True))


def test_of_rows_with_one_key_the_target_keeps_any(copying: Copying) -> None:
    copying.write([*ROWS, (1, "again", "7.00")])
    copying.run()
    (table,) = copying.verify().tables
    assert table.equal
    assert (table.source_rows, table.target_rows, table.figures.repeated) == (101, 100, 1)
    copying.delta().update({"name": "'other'"}, predicate="id = 1")
    (table,) = copying.verify().tables
    assert (table.figures.different, table.figures.missing) == (1, 0)


def test_the_transforms_decide_what_is_expected(copying: Copying) -> None:
    copying.steps = (
        "[{type: Filter, name: even, predicate: 'id % 2 = 0'},"
        " {type: 'MaskField$Value', name: mask, fields: name}]"
    )
    copying.write(ROWS)
    copying.run()
    (table,) = copying.verify().tables
    assert table.equal
    assert (table.source_rows, table.filtered, table.rejected) == (50, 50, 0)


def test_rows_that_the_chain_rejects_are_counted_with_their_letters(copying: Copying) -> None:
    copying.more = "errors.tolerance: all\n"
    copying.steps = "[{type: 'Cast$Value', name: cast, spec: 'name:int32'}]"
    copying.write([(1, "1", "1.0"), (2, "x", "2.0"), (3, "3", "3.0")])
    copying.run()
    report = copying.verify()
    (table,) = report.tables
    assert report.equal
    assert (table.source_rows, table.rejected, report.dead_letters) == (2, 1, 1)


def test_one_row_among_300_000_is_found_in_a_few_jobs(
    copying: Copying, spark: "SparkSession"
) -> None:
    copying.write([(n, f"n{n}", "1.00") for n in range(300_000)])
    copying.run()
    with counted_jobs(spark) as equal:
        assert copying.verify().equal
    copying.delta().update({"name": "'N'"}, predicate="id = 123456")
    with counted_jobs(spark) as different:
        (table,) = copying.verify().tables
    assert table.figures.keys == 1
    (found,) = table.differences
    assert found.key == {"id": 123456}
    assert found.columns == {"name": {"source": "n123456", "target": "N"}}
    assert equal() <= 8
    assert different() <= 30


@contextmanager
def counted_jobs(spark: "SparkSession") -> Iterator[Callable[[], int]]:
    """Count the Spark jobs of the body, those of queries that Spark divides included."""
    context: Any = spark.sparkContext
    group = str(uuid.uuid4())
    context.setJobGroup(group, "counted")
    try:
        yield lambda: len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_rows_that_move_while_they_are_compared_are_no_differences(copying: Copying) -> None:
    copying.write(ROWS)
    copying.run()
    copying.write([*ROWS, (101, "new", "1.00")])
    copying.delta().update({"name": "'wrong'"}, predicate="id = 5")
    waits = []
    new = pa.table(
        {
            "id": [101],
            "name": ["new"],
            "price": pa.array([Decimal("1.00")], pa.decimal128(10, 2)),
        }
    )

    def move(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:  # what the pipeline brings meanwhile
            copying.delta().merge(
                new, "t.id = s.id", "s", "t"
            ).when_not_matched_insert_all().execute()

    options = VerifyOptions(settle=timedelta(seconds=3), sleep=move)
    (table,) = copying.verify(options).tables
    assert waits == [3, 6]
    assert table.moved == 1
    assert (table.figures.different, table.figures.missing) == (1, 0)


def test_what_a_sink_has_of_a_topic_is_compared_with_the_source_that_feeds_it(
    copying: Copying,
) -> None:
    copying.write(ROWS)
    source, sink = copying.through_a_topic()
    assert copying.runtime.run([source], Everyone([]), once=True).errors == {}
    assert copying.runtime.run([sink], Everyone([]), once=True).errors == {}
    (report,) = copying.runtime.verify(copies_of([source, sink]), ONCE)
    assert report.equal
    assert report.tables[0].source_rows == 50
    copying.delta().delete("id = 3")
    (report,) = copying.runtime.verify(copies_of([source, sink]), ONCE, (), RepairOptions())
    assert report.equal
    assert report.tables[0].repaired == 1
    with pytest.raises(ConfigError, match="cannot be compared with"):
        copies_of([sink])
