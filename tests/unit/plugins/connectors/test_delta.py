"""The Delta sink without Spark: how batches fit tables, file statistics, configuration."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType
from deltalake.schema import Schema as DeltaSchema
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.delta import file_stats
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace_plugins.connectors.delta.columns import (
    Fit,
    Json,
    ddl,
    fit,
    moved,
    nullable,
    required,
    widens,
)
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.delta.table import definition_of

SCALARS = [
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "boolean",
    "date",
    "timestamp",
    "decimal(10,2)",
    "decimal(38,2)",
    "decimal(3,0)",
]


def field(name: str, kind: Json, *, null: bool = True, **metadata: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": null, "metadata": metadata}


def struct(*fields: Mapping[str, Any]) -> Json:
    return {"type": "struct", "fields": list(fields)}


kinds = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.builds(
            lambda kind, null: {"type": "array", "elementType": kind, "containsNull": null},
            inner,
            st.booleans(),
        ),
        st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, min_size=1).map(
            lambda members: struct(*(field(n, k, null=False) for n, k in members.items()))
        ),
    ),
    max_leaves=5,
)
tables = st.dictionaries(st.sampled_from(["id", "x", "y", "z"]), kinds, min_size=1).map(
    lambda columns: [field(name, kind) for name, kind in columns.items()]
)


@given(tables)
def test_a_table_made_for_a_batch_takes_it_again_without_a_change(batch: list[Any]) -> None:
    made = fit(None, batch, policy=EvolutionPolicy())
    again = fit(made.fields, batch, policy=EvolutionPolicy(Handling.REJECT))
    assert again == Fit(made.fields, {f["name"]: f["name"] for f in batch})


@given(tables)
def test_everything_in_a_new_table_may_be_null(batch: list[Any]) -> None:
    assert not required(nullable(struct(*batch)))


@given(tables, tables)
def test_a_table_that_evolved_for_a_batch_takes_it_without_a_change(
    old: list[Any], new: list[Any]
) -> None:
    try:
        evolved = fit(old, new, policy=EvolutionPolicy(), may_widen=True)
    except ConfigError:
        return
    again = fit(evolved.fields, new, policy=EvolutionPolicy(Handling.REJECT))
    assert (again.added, again.widened, again.fields) == ((), (), evolved.fields)
    assert {f["name"] for f in old} <= {f["name"] for f in evolved.fields}


@given(st.sampled_from(SCALARS), st.sampled_from(SCALARS), st.sampled_from(SCALARS))
def test_widening_is_an_order(one: str, two: str, three: str) -> None:
    assert widens(one, one)
    if one != two:
        assert not (widens(one, two) and widens(two, one))
    if widens(one, two) and widens(two, three):
        assert widens(one, three)


@pytest.mark.parametrize(
    ("narrow", "wide", "fits"),
    [
        ("integer", "decimal(12,2)", True),
        ("integer", "decimal(11,2)", False),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("long", "double", False),
        ("integer", "float", False),
        ("void", "binary", True),
        ("date", "timestamp", False),
    ],
)
def test_a_type_holds_another_only_if_no_value_is_bent(
    narrow: str, wide: str, fits: bool
) -> None:
    assert widens(narrow, wide) is fits


def test_added_and_widened_columns_are_named_by_their_path() -> None:
    old = [field("id", "short"), field("s", struct(field("a", "integer")))]
    new = [field("ID", "integer"), field("s", struct(field("B", "string"))), field("n", "date")]
    plan = fit(old, new, policy=EvolutionPolicy())
    assert plan.widened == ("ID",)
    assert plan.added == ("s.B", "n")
    assert plan.names == {"ID": "id", "s": "s", "n": "n"}
    assert (
        ddl(plan.schema) == "STRUCT<`id`: INT, `s`: STRUCT<`a`: INT, `B`: STRING>, `n`: DATE>"
    )


def test_ignored_columns_are_left_out_of_structs_too() -> None:
    old = [field("s", struct(field("a", "integer")))]
    new = [field("s", struct(field("a", "integer"), field("b", "string"))), field("n", "date")]
    plan = fit(old, new, policy=EvolutionPolicy(Handling.IGNORE))
    assert plan == Fit(tuple(old), {"s": "s"})
    sql = moved("v.s", new[0]["type"], plan.type_of("s"))
    assert sql == "IF(v.s IS NULL, NULL, named_struct('a', v.s.`a`))"


def test_a_value_of_the_same_type_is_passed_as_it_is() -> None:
    kind = struct(field("a", "integer", comment="x"))
    assert moved("v", kind, struct(field("a", "integer", null=False))) == "v"


class TestStatistics:
    def stats(self, tmp_path: Path, table: pa.Table, **options: Any) -> dict[str, Any]:
        pq.write_table(table, tmp_path / "f.parquet", **options)
        stats: dict[str, Any] = json.loads(file_stats(pq.read_metadata(tmp_path / "f.parquet")))
        return stats

    def test_there_are_no_bounds_beyond_the_years_that_python_has(self, tmp_path: Path) -> None:
        end_of_time = [253402300800000000, 9 * 10**18, -(9 * 10**18)]
        for micros in end_of_time:
            times = pa.array([micros], pa.timestamp("us", tz="UTC"))
            stats = self.stats(tmp_path, pa.table({"t": times}))
            assert stats["numRecords"] == 1
            assert "t" not in stats["maxValues"]
        days = pa.table({"d": pa.array([10**7], pa.date32())})
        assert self.stats(tmp_path, days)["maxValues"] == {}

    def test_they_cover_all_row_groups(self, tmp_path: Path) -> None:
        table = pa.table({"i": [3, 1, None, None, 9, 2]})
        assert self.stats(tmp_path, table, row_group_size=2) == {
            "numRecords": 6,
            "minValues": {"i": 1},
            "maxValues": {"i": 9},
            "nullCount": {"i": 2},
        }

    def test_bounds_are_never_narrower_than_the_values(self, tmp_path: Path) -> None:
        time = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
        table = pa.table(
            {
                "t": pa.array([time], pa.timestamp("us", "UTC")),
                "naive": pa.array([time.replace(tzinfo=None)], pa.timestamp("us")),
                "text": ["é" * 40],
                "big": pa.array([Decimal("12345678901234567.89")], pa.decimal128(20, 2)),
                "inf": [float("inf")],
                "flag": [True],
                "bytes": [b"x"],
                "none": pa.array([None], pa.int64()),
            }
        )
        stats = self.stats(tmp_path, table)
        low, high = "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000"
        big = pytest.approx(12345678901234567.89)
        assert stats["minValues"] == {
            "t": f"{low}Z",
            "naive": low,
            "text": "é" * 32,
            "big": big,
        }
        assert stats["maxValues"] == {"t": f"{high}Z", "naive": high, "big": big}
        assert stats["nullCount"] == dict.fromkeys(table.column_names, 0) | {"none": 1}

    def test_the_last_microsecond_of_all_and_large_decimals_have_exact_bounds(
        self, tmp_path: Path
    ) -> None:
        """Bounds of other columns alone make ``deltalake`` pass over the whole file."""
        last = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
        most = "9" * 38
        table = pa.table(
            {
                "t": pa.array(
                    [last, last.replace(microsecond=999_000)], pa.timestamp("us", "UTC")
                ),
                "whole": pa.array([Decimal(most), Decimal(f"-{most}")], pa.decimal128(38, 0)),
                "part": pa.array([Decimal("1E-38"), Decimal(0)], pa.decimal128(38, 38)),
                "zero": [-0.0, 0.0],
            }
        )
        pq.write_table(table, tmp_path / "f.parquet", row_group_size=1)
        text = file_stats(pq.read_metadata(tmp_path / "f.parquet"))
        stats = json.loads(text, parse_float=Decimal)
        assert stats["maxValues"]["t"] == "9999-12-31T23:59:59.999999Z"
        assert stats["minValues"]["t"] == "9999-12-31T23:59:59.999Z"
        assert (stats["minValues"]["whole"], stats["maxValues"]["whole"]) == (
            -int(most),
            int(most),
        )
        assert stats["maxValues"]["part"] == Decimal("1E-38")
        assert "E-" not in text

    def test_columns_with_dots_and_members_of_structs_are_left_out(
        self, tmp_path: Path
    ) -> None:
        table = pa.table({"a.b": [1], "a": [{"b": 5}], "l": [[1]]})
        assert self.stats(tmp_path, table) == {
            "numRecords": 1,
            "minValues": {},
            "maxValues": {},
            "nullCount": {},
        }


class TestConfiguration:
    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("path", "s3://bucket/table"),
            ("path", ""),
            ("mode", "overwrite"),
            ("table.properties", "delta.appendOnly"),
            ("optimize.interval.commits", "-1"),
        ],
    )
    def test_a_bad_value_names_its_key(self, key: str, text: str) -> None:
        with pytest.raises(ConfigErrors) as raised:
            DeltaSink.config_def().parse({"path": "/t", key: text})
        assert {error.field for error in raised.value.errors} == {key}

    def test_deletions_need_upserts(self) -> None:
        props = {"path": "/t", "delete.enabled": "true"}
        (error,) = DeltaSink.check(DeltaSink.config_def().parse(props))
        assert error.field == "delete.enabled"
        upsert = DeltaSink.config_def().parse(props | {"mode": "upsert"})
        assert list(DeltaSink.check(upsert)) == []


@pytest.mark.parametrize("path", ["/data/p%20q/t", "file:///data/p%2520q/t"])
def test_a_folder_whose_name_deltalake_would_decode_is_refused(path: str) -> None:
    with pytest.raises(ConfigErrors, match="two hexadecimal digits"):
        DeltaSink.config_def().parse({"path": path})
    assert DeltaSink.config_def().parse({"path": "/data/50%/t"})


def test_a_definition_does_not_depend_on_the_rows_or_the_order_of_metadata(
    tmp_path: Path,
) -> None:
    metadata = {"delta.identity.highWaterMark": 7, "delta.identity.start": 1, "comment": "no"}
    facts = {name: str(number) for number, name in enumerate("abcdef")} | metadata
    DeltaTable.create(
        tmp_path, DeltaSchema([Field("id", PrimitiveType("long"), metadata=facts)])
    )
    log = tmp_path / "_delta_log"
    [change] = [
        line
        for line in (log / f"{0:020}.json").read_text().splitlines()
        if '"metaData"' in line
    ]
    later = change.replace('highWaterMark\\":7', 'highWaterMark\\":9')
    assert later != change
    planned = definition_of(DeltaTable(tmp_path))
    (log / f"{1:020}.json").write_text(later)
    assert definition_of(DeltaTable(tmp_path)) == planned
    (log / f"{2:020}.json").write_text(later.replace("comment", "remark"))
    assert definition_of(DeltaTable(tmp_path)) != planned
    assert definition_of(None) != planned
