"""What appending does to tables: their schema, their features, their files."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from tests.integration.plugins.connectors.delta_writing import (
    batch_of,
    held,
    rows_of,
    sink,
    write,
)

from headrace.sdk import ConfigError, Mark, RecordError
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.schema_evolution import Handling

pytestmark = pytest.mark.spark

APP = "copy/0"
Records = Callable[..., DataFrame]


class TestEvolution:
    def test_new_columns_are_added_also_inside_structs_lists_and_maps(
        self, tmp_path: Path, records: Records, spark: SparkSession
    ) -> None:
        task = sink(tmp_path / "t")
        before = (
            "id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>"
        )
        after = (
            "id INT, l ARRAY<STRUCT<a: INT, b: STRING>>, s STRUCT<b: STRING, a: INT>, "
            "m MAP<STRING, STRUCT<b: INT>>, x DOUBLE"
        )
        write(task, records([(1, (1,), [(1,)], {"k": (1,)})], before), 1)
        write(task, records([(2, [(2, "b")], ("b", 2), {"k": (3,)}, 0.5)], after), 2)
        expected = [
            {"id": 1, "s": {"a": 1, "b": None}, "l": [{"a": 1, "b": None}], "x": None},
            {"id": 2, "s": {"a": 2, "b": "b"}, "l": [{"a": 2, "b": "b"}], "x": 0.5},
        ]
        for row, maps in zip(expected, ((1, None), (None, 3)), strict=True):
            row["m"] = {"k": {"a": maps[0], "b": maps[1]}}
        read = spark.read.format("delta").load(str(tmp_path / "t")).orderBy("id").collect()
        assert [row.asDict(recursive=True) for row in read] == expected

    def test_columns_are_matched_whatever_their_case_and_narrow_types_are_cast(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t")
        write(task, records([(1, "a")]), 1)
        write(task, records([(2, "b")], "ID INT, Name STRING"), 2)
        assert rows_of(tmp_path / "t") == [(1, "a"), (2, "b")]

    def test_ignore_leaves_unknown_columns_out(self, tmp_path: Path, records: Records) -> None:
        task = sink(tmp_path / "t")
        write(task, records([(1, "a")]), 1)
        frame = records([(2, "b", 3)], "id BIGINT, name STRING, extra INT")
        write(task, frame, 2, evolution=Handling.IGNORE)
        assert rows_of(tmp_path / "t") == [(1, "a"), (2, "b")]

    def test_reject_names_the_unknown_column(self, tmp_path: Path, records: Records) -> None:
        task = sink(tmp_path / "t")
        write(task, records([(1, "a")]), 1)
        frame = records([(2, "b", 3)], "id BIGINT, name STRING, extra INT")
        with pytest.raises(ConfigError) as raised:
            task.write(frame, batch_of(frame, 2, evolution=Handling.REJECT))
        assert raised.value.field == "extra"

    def test_a_type_that_cannot_grow_names_the_column_and_says_how_it_could(
        self, tmp_path: Path, records: Records, spark: SparkSession
    ) -> None:
        task = sink(tmp_path / "t")
        write(task, records([(1, (1,))], "id INT, s STRUCT<a: INT>"), 1)
        frame = records([(2, (2,))], "id INT, s STRUCT<a: BIGINT>")
        with pytest.raises(ConfigError, match="enableTypeWidening") as raised:
            task.write(frame, batch_of(frame, 2))
        assert raised.value.field == "s.a"
        assert str(tmp_path / "t") in raised.value.problem
        statement = str(raised.value.fix).partition("with Spark: ")[2].partition(". ")[0]
        task = sink(tmp_path / "t", table_properties="delta.enableTypeWidening=true")
        with pytest.raises(ConfigError, match="new tables only"):
            task.write(frame, batch_of(frame, 2))
        spark.sql(statement)
        write(task, frame, 2)
        read = spark.read.format("delta").load(str(tmp_path / "t")).orderBy("id").collect()
        assert [row["s"]["a"] for row in read] == [1, 2]
        frame = records([(2, 2)], "id INT, s INT")
        with pytest.raises(ConfigError) as raised:
            task.write(frame, batch_of(frame, 2))
        assert raised.value.field == "s"

    def test_a_smallint_grows_to_int_in_any_table(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t")
        write(task, records([(1,)], "id SMALLINT"), 1)
        write(task, records([(70_000,)], "id INT"), 2)
        assert rows_of(tmp_path / "t") == [(1,), (70_000,)]
        assert held(task, Mark(APP, 2, 1)) == {"batch": 2}

    def test_types_grow_in_a_table_with_type_widening(
        self, tmp_path: Path, records: Records, spark: SparkSession
    ) -> None:
        task = sink(tmp_path / "t", table_properties="delta.enableTypeWidening=true")
        write(task, records([(1, 1.5)], "id INT, x FLOAT"), 1)
        write(task, records([(2**40, 2.5)], "id BIGINT, x DOUBLE"), 2)
        read = spark.read.format("delta").load(str(tmp_path / "t")).orderBy("id").collect()
        assert [tuple(row) for row in read] == [(1, 1.5), (2**40, 2.5)]
        assert held(task, Mark(APP, 2, 1)) == {"batch": 2}


class TestSparkTables:
    """Tables that only Spark may write to, for what they ask of a writer."""

    @pytest.fixture
    def constrained(self, tmp_path: Path, spark: SparkSession) -> Path:
        path = tmp_path / "t"
        spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, name STRING) USING delta")
        spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT small CHECK (id < 10)")
        return path

    def test_a_constraint_holds_and_the_mark_is_kept(
        self, constrained: Path, records: Records
    ) -> None:
        task = sink(constrained)
        assert write(task, records([(1, "a"), (2, "b")]), 1) == 2
        assert held(task, Mark(APP, 1, 1)) == {"batch": 1}
        with pytest.raises(StaleEpochError):
            write(sink(constrained), records([(1, "a"), (2, "b")]), 1, epoch=2)
        with pytest.raises(RecordError, match="constraint small: id < 10"):
            write(task, records([(11, "a")]), 2)
        assert rows_of(constrained) == [(1, "a"), (2, "b")]
        assert list((constrained / "_headrace").rglob("0000000000001-*")) == []

    def test_a_batch_that_another_owner_wrote_is_refused(
        self, constrained: Path, records: Records
    ) -> None:
        frame = records([(1, "a")])
        late = sink(constrained).write(frame, batch_of(frame, 1, epoch=1))
        write(sink(constrained), frame, 1, epoch=2)
        with pytest.raises(StaleEpochError):
            late.commit("late")
        write(sink(constrained), records([(2, "b")]), 2, epoch=2)
        with pytest.raises(StaleEpochError):
            late.commit("later")
        assert rows_of(constrained) == [(1, "a"), (2, "b")]

    def test_an_empty_batch_keeps_its_mark(self, constrained: Path, records: Records) -> None:
        task = sink(constrained)
        assert write(task, records([]), 1) == 0
        assert held(task, Mark(APP, 1, 1)) == {"batch": 1}

    def test_new_columns_are_added_to_a_table_with_column_mapping(
        self, tmp_path: Path, records: Records, spark: SparkSession
    ) -> None:
        path = tmp_path / "t"
        spark.sql(
            f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )
        task = sink(path)
        write(task, records([(1, "a")]), 1)
        read = spark.read.format("delta").load(str(path)).collect()
        assert [tuple(row) for row in read] == [(1, "a")]
        assert held(task, Mark(APP, 1, 1)) == {"batch": 1}

    @pytest.mark.parametrize("more", [{}, {"mode": "upsert", "key_fields": "id"}])
    def test_each_batch_suits_a_table_whose_columns_have_metadata(
        self, tmp_path: Path, records: Records, spark: SparkSession, more: dict[str, str]
    ) -> None:
        # With each load deltalake returns the metadata of columns in another order.
        more |= {"table_properties": "delta.columnMapping.mode=name"}
        columns = "id BIGINT, a STRING, b STRING, c STRING, d STRING"
        for n in range(4):
            write(sink(tmp_path / "t", **more), records([(n, *"abcd")], columns), n + 1)
        nested = f"{columns}, e STRUCT<f: INT>"
        write(sink(tmp_path / "t", **more), records([(4, *"abcd", (1,))], nested), 5)
        read = spark.read.format("delta").load(str(tmp_path / "t")).orderBy("id").collect()
        assert [row["id"] for row in read] == list(range(5))
        assert [row["e"] and row["e"]["f"] for row in read] == [None] * 4 + [1]

    @pytest.mark.parametrize("first", ["id BIGINT", "id BIGINT, v VARIANT"])
    def test_columns_are_added_to_and_beside_those_of_variants(
        self, tmp_path: Path, records: Records, spark: SparkSession, first: str
    ) -> None:
        def variants(number: int, columns: Sequence[str]) -> DataFrame:
            parts = {"id": f"{number}L", "v": f"parse_json('[{number}]')", "x": f"{number}"}
            struct = ", ".join(f"'{name}', {parts[name]}" for name in columns)
            return records([(0,)], "id INT").selectExpr(
                f"named_struct({struct}) AS value", "* EXCEPT (value)"
            )

        names = [column.split()[0] for column in first.split(", ")]
        write(sink(tmp_path / "t"), variants(1, names), 1)
        write(sink(tmp_path / "t"), variants(2, ["id", "v", "x"]), 2)
        read = spark.read.format("delta").load(str(tmp_path / "t")).orderBy("id")
        assert [tuple(row) for row in read.selectExpr("id", "to_json(v)", "x").collect()] == [
            (1, "[1]" if "v" in names else None, None),
            (2, "[2]", 2),
        ]

    def test_files_are_added_to_a_table_with_deletion_vectors(
        self, tmp_path: Path, records: Records, spark: SparkSession
    ) -> None:
        path = tmp_path / "t"
        spark.sql(
            f"CREATE TABLE delta.`{path}` (id BIGINT, name STRING) USING delta "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b')")  # noqa: S608
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")  # noqa: S608
        write(sink(path), records([(3, "c")]), 1)
        read = spark.read.format("delta").load(str(path)).orderBy("id").collect()
        assert [tuple(row) for row in read] == [(2, "b"), (3, "c")]


class TestFiles:
    def test_files_have_the_statistics_by_which_readers_skip_them(
        self, tmp_path: Path, records: Records
    ) -> None:
        ddl = (
            "i BIGINT, s STRING, d DECIMAL(12, 2), t TIMESTAMP, day DATE, x DOUBLE, b BOOLEAN, "
            "n STRUCT<a: INT>"
        )
        time = datetime(2024, 1, 1, 1, 2, 3, 456789, tzinfo=UTC)
        given = [
            (1, "a", Decimal("1.25"), time, date(2024, 1, 1), 0.5, True, (1,)),
            (5, "z" * 40, None, time, date(2024, 1, 2), 1.5, False, (2,)),
        ]
        frame = records(given, ddl).coalesce(1)
        write(sink(tmp_path / "t"), frame, 1)
        log = max((tmp_path / "t" / "_delta_log").glob("*.json"))
        (add,) = [a["add"] for a in map(json.loads, log.read_text().splitlines()) if "add" in a]
        instants = "2024-01-01T01:02:03.456Z", "2024-01-01T01:02:03.457Z"
        assert json.loads(add["stats"]) == {
            "numRecords": 2,
            "minValues": {
                "i": 1,
                "s": "a",
                "d": 1.25,
                "t": instants[0],
                "day": "2024-01-01",
                "x": 0.5,
            },
            "maxValues": {"i": 5, "d": 1.25, "t": instants[1], "day": "2024-01-02", "x": 1.5},
            "nullCount": dict.fromkeys(("i", "s", "t", "day", "x", "b"), 0) | {"d": 1},
        }

    def test_each_topic_has_a_table_of_its_own(self, tmp_path: Path, records: Records) -> None:
        task = sink(f"{tmp_path}/${{topic}}/bronze")
        write(task, records([(1, "a")]), 1, topic="db.orders")
        write(task, records([(2, "b")]), 1, topic="db.people")
        assert rows_of(tmp_path / "db.orders" / "bronze") == [(1, "a")]
        assert rows_of(tmp_path / "db.people" / "bronze") == [(2, "b")]
        frame = records([(1, "a")])
        with pytest.raises(ConfigError, match="used as a folder"):
            task.write(frame, batch_of(frame, 1, topic="../up"))

    def test_many_small_appends_are_joined_and_the_mark_and_receipt_stay(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t", optimize_interval_commits="4")
        for number in range(1, 6):
            write(task, records([(number, "x")]).coalesce(1), number)
        table = DeltaTable(tmp_path / "t")
        assert len(table.file_uris()) <= 3
        assert (tmp_path / "t" / "_delta_log" / "_last_checkpoint").exists()
        assert rows_of(tmp_path / "t") == [(number, "x") for number in range(1, 6)]
        assert held(task, Mark(APP, 5, 1)) == {"batch": 5}
        with pytest.raises(StaleEpochError):
            task.committed(Mark(APP, 4, 1), "t")

    def test_upkeep_that_fails_does_not_fail_the_batch(
        self, tmp_path: Path, records: Records
    ) -> None:
        task = sink(tmp_path / "t", optimize_interval_commits="1")
        write(task, records([(1, "a")]).coalesce(1), 1)
        lost = DeltaTable(tmp_path / "t").file_uris()[0]
        content = pq.read_table(lost)
        Path(lost).unlink()
        write(task, records([(2, "b")]).coalesce(1), 2)
        assert held(task, Mark(APP, 2, 1)) == {"batch": 2}
        assert content.num_rows == 1

    def test_a_table_that_others_wrote_is_appended_to(
        self, tmp_path: Path, records: Records
    ) -> None:
        write_deltalake(tmp_path / "t", pa.table({"id": [1], "other": ["o"]}))
        task, ignored = sink(tmp_path / "t"), Handling.IGNORE
        write(task, records([(2, "b")]), 1, evolution=ignored)
        assert rows_of(tmp_path / "t") == [(1, "o"), (2, None)]
