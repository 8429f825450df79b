"""The generator without Spark: pace, lanes, DDL, positions, the Python gears."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import (
    CaptureSource,
    ConfigError,
    ConfigErrors,
    FrameSource,
    Position,
    ReadLimit,
    Schema,
    SplitSource,
    StreamSplitSource,
    Struct,
)
from headrace.sdk.arrow import to_arrow
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.datagen.connector import (
    DEFAULT_SCHEMA,
    CaptureGenerator,
    DatagenSource,
    SplitGenerator,
    StreamGenerator,
)
from headrace_plugins.connectors.datagen.generator import (
    BLOCK_ROWS,
    GeneratorOptions,
    Lane,
    Plan,
    Rate,
)

PLAN = Plan(schema=parse_ddl(DEFAULT_SCHEMA, field="schema"), seed=7)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Context:
    """A task's context without a runtime."""

    connector = "orders"
    task = 0
    application = "orders-1a2b3c-0"
    scratch = Path()

    def __init__(self, position: Position) -> None:
        self._position = position

    def position(self) -> Position:
        return self._position

    def check_file(self, path: str) -> None:
        raise AssertionError

    def stopping(self) -> bool:
        return False

    @property
    def schemas(self) -> Any:
        raise AssertionError

    @property
    def ledger(self) -> Any:
        raise AssertionError


def at(row: int) -> Position:
    return Position.of({"generator": "g"}, {"row": row})


def config(**texts: str) -> Any:
    props = {key.replace("_", "."): text for key, text in texts.items()}
    return DatagenSource.config_def().parse({"name": "g"} | props)


def errors_of(**texts: str) -> list[str | None]:
    return [error.field for error in DatagenSource.check(config(**texts))]


def table(generator: SplitGenerator, start: int, end: int) -> pa.Table:
    splits = generator.splits(at(start), at(end))
    batches = [batch for split in splits for batch in generator.read(split)]
    return pa.Table.from_batches(batches, to_arrow(PLAN.schema))


class TestRows:
    def test_a_row_is_the_same_however_the_range_is_divided(self) -> None:
        whole = table(SplitGenerator(GeneratorOptions(name="g", plan=PLAN)), 0, 30_000)
        many = SplitGenerator(GeneratorOptions(name="g", plan=PLAN, partitions=3))
        parts = [table(many, start, start + 6_000) for start in range(0, 30_000, 6_000)]
        assert pa.concat_tables(parts).combine_chunks() == whole.combine_chunks()

    def test_another_seed_gives_other_values_and_the_same_row_numbers(self) -> None:
        one = table(SplitGenerator(GeneratorOptions(name="g", plan=PLAN)), 0, 50)
        other_plan = Plan(schema=PLAN.schema, seed=8)
        other = table(SplitGenerator(GeneratorOptions(name="g", plan=other_plan)), 0, 50)
        assert one["id"] == other["id"]
        assert one["reference"] != other["reference"]

    def test_the_same_seed_gives_the_same_values_in_every_release(self) -> None:
        row = table(SplitGenerator(GeneratorOptions(name="g", plan=PLAN)), 3, 4).to_pylist()[0]
        assert row["id"] == 3
        assert row["updated_at"] == datetime(2025, 1, 1, 0, 0, 0, 3000, UTC)
        assert row["reference"] == "4DDF46F6"

    def test_nulls_have_the_asked_share_and_spare_required_columns(self) -> None:
        plan = Plan(schema=PLAN.schema, nulls=0.25)
        rows = table(SplitGenerator(GeneratorOptions(name="g", plan=plan)), 0, 8_000)
        assert rows["id"].null_count == 0
        for name in rows.column_names[1:]:
            assert 1_700 < rows[name].null_count < 2_300

    def test_no_rows_at_the_end_of_a_range_give_no_splits(self) -> None:
        assert SplitGenerator(GeneratorOptions(name="g", plan=PLAN)).splits(at(5), at(5)) == []


class TestStreams:
    def test_rows_are_dealt_out_and_the_column_appears_at_the_row_that_was_asked_for(
        self,
    ) -> None:
        generator = StreamGenerator(
            GeneratorOptions(name="g", plan=PLAN, streams=3, change_after=50)
        )
        got: dict[str, list[tuple[int, bool]]] = {}
        for split in generator.splits(at(0), at(100)):
            for stream, rows in generator.read(split):
                has_column = "added" in rows.schema.names
                ids = rows.column("id").to_pylist()
                got.setdefault(stream, []).extend((row, has_column) for row in ids)
        assert got == {
            f"g-{stream}": [(row, row >= 50) for row in range(stream, 100, 3)]
            for stream in range(3)
        }


class TestCapture:
    def test_it_gives_the_rows_of_the_split_gear_as_records(self) -> None:
        capture = CaptureGenerator(GeneratorOptions(name="g", plan=PLAN, rows=700))
        capture.start(Context(at(3)))
        records = [record for _ in range(3) for record in capture.poll() or ()]
        capture.stop()
        rows = table(SplitGenerator(GeneratorOptions(name="g", plan=PLAN)), 3, 700).to_pylist()
        assert [record.value.get("reference") for record in records] == [
            row["reference"] for row in rows
        ]
        assert isinstance(records[0].value, Struct)
        assert records[0].value.get("attributes") == dict(rows[0]["attributes"])
        assert records[0].source_offset == {"row": 4}
        assert records[-1].source_offset == {"row": 700}
        assert {record.topic for record in records} == {""}  # the connector's own

    def test_it_polls_nothing_while_the_rate_allows_nothing(self) -> None:
        clock = Clock()
        capture = CaptureGenerator(GeneratorOptions(name="g", plan=PLAN, rate=10, clock=clock))
        capture.start(Context(Position()))
        assert capture.poll() is None
        clock.now += 0.5
        assert len(capture.poll() or ()) == 5

    @pytest.mark.parametrize("kind", [SplitGenerator, CaptureGenerator])
    def test_one_that_waits_for_its_rate_has_not_ended(
        self, kind: type[SplitGenerator | CaptureGenerator]
    ) -> None:
        generator = kind(GeneratorOptions(name="g", plan=PLAN, rows=5, rate=10, clock=Clock()))
        generator.start(Context(Position()))
        assert not generator.ended(Position())
        assert generator.ended(at(5))


class TestLatest:
    def test_it_stops_at_the_rows_the_limit_and_the_bound(self) -> None:
        generator = SplitGenerator(GeneratorOptions(name="g", plan=PLAN, rows=100))
        generator.start(Context(Position()))
        assert generator.latest(Position(), ReadLimit()) == at(100)
        assert generator.latest(at(10), ReadLimit(rows=20)) == at(30)
        assert generator.latest(at(10), ReadLimit(until=at(15))) == at(15)
        assert generator.latest(at(100), ReadLimit()) == at(100)
        assert generator.latest(at(99), ReadLimit(size_bytes=1)) == at(100)
        assert generator.ended(at(100))
        assert not generator.ended(at(99))

    def test_without_a_number_of_rows_there_is_no_end(self) -> None:
        generator = SplitGenerator(GeneratorOptions(name="g", plan=PLAN))
        assert not generator.ended(at(10**12))
        assert generator.latest(at(10**12), ReadLimit(rows=5)) == at(10**12 + 5)

    def test_a_restart_begins_a_new_budget_where_the_position_stands(self) -> None:
        clock = Clock()
        generator = SplitGenerator(GeneratorOptions(name="g", plan=PLAN, rate=100, clock=clock))
        generator.start(Context(at(5_000)))
        assert generator.latest(at(5_000), ReadLimit()) == at(5_000)
        clock.now += 1
        assert generator.latest(at(5_000), ReadLimit()) == at(5_100)


class TestRate:
    def test_no_more_rows_pass_than_the_rate_and_the_time_allow(self) -> None:
        clock = Clock()
        rate = Rate(10, clock)
        row = rate.grant(0, 1000)
        for step in (0.25, 0.125, 1.0, 3.0, 0.125):
            clock.now += step
            row += rate.grant(row, 1000)
            assert row <= 10 * (clock.now - 100)
        assert row == 45

    def test_what_was_not_used_is_saved_for_a_second_at_most(self) -> None:
        clock = Clock()
        rate = Rate(10, clock)
        rate.grant(0, 0)
        for _ in range(60):
            clock.now += 1
            rate.grant(0, 0)
        assert rate.grant(0, 1000) == 10

    def test_asking_again_for_rows_that_were_not_read_costs_nothing(self) -> None:
        clock = Clock()
        rate = Rate(10, clock)
        rate.grant(0, 0)
        clock.now += 1
        assert [rate.grant(0, 100) for _ in range(3)] == [10, 10, 10]

    def test_a_rate_of_zero_is_no_limit(self) -> None:
        assert Rate(0, Clock()).grant(5, 10**9) == 10**9


@given(
    of=st.integers(1, 5),
    rows=st.integers(0, 8 * BLOCK_ROWS),
    cut=st.floats(0, 1),
)
def test_lanes_share_the_rows_without_gap_or_overlap(of: int, rows: int, cut: float) -> None:
    seen: list[range] = []
    for part in range(of):
        lane = Lane(part, of)
        length = lane.length(rows)
        middle = int(length * cut)
        for start, end in ((0, middle), (middle, length)):
            seen += [range(a, b) for a, b in lane.ranges(start, end)]
    assert sum(map(len, seen)) == rows
    starts = sorted(((r.start, r.stop) for r in seen if r), key=lambda pair: pair[0])
    place = 0
    for start, stop in starts:
        assert start == place
        place = stop


class TestTasks:
    def test_each_task_has_a_position_and_a_share_of_the_rate_of_its_own(self) -> None:
        connector = DatagenSource()
        connector.config = config(rows="30000", rate="100")
        made = [DatagenSource.config_def().parse(texts) for texts in connector.task_configs(2)]
        tasks = [DatagenSource.task(one) for one in made]
        ends = [
            task.latest(Position(), ReadLimit())
            for task in tasks
            if isinstance(task, FrameSource)
        ]
        assert [dict(partition) for end in ends for partition, _ in end.items()] == [
            {"generator": "g", "of": 2, "part": 0},
            {"generator": "g", "of": 2, "part": 1},
        ]
        assert [dict(offset) for end in ends for _, offset in end.items()] == [
            {"row": 20_000},
            {"row": 10_000},
        ]

    @pytest.mark.parametrize(
        ("texts", "gear"),
        [
            ({}, FrameSource),
            ({"gear": "split"}, SplitSource),
            ({"gear": "capture"}, CaptureSource),
            ({"streams": "3"}, StreamSplitSource),
        ],
    )
    def test_the_gear_is_the_configured_one(self, texts: Mapping[str, str], gear: type) -> None:
        assert issubclass(DatagenSource.task_class(config(**texts)), gear)
        assert isinstance(DatagenSource.task(config(**texts)), gear)


class TestConfiguration:
    def test_combinations_that_cannot_work_name_the_key(self) -> None:
        assert errors_of(streams="2", gear="frame") == ["streams"]
        assert errors_of(gear="split", bad_ratio="0.1") == ["bad.ratio"]
        assert errors_of(schema_change_after="5") == ["schema.change.after"]
        assert errors_of(streams="2", gear="split", schema_change_after="5") == []

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("schema", "id BIGNUM"),
            ("schema", ""),
            ("schema", "m MAP<DATE, INT>"),
            ("start_time", "yesterday"),
            ("rate", "-1"),
            ("bad_ratio", "2"),
            ("rows", "-5"),
            ("gear", "reverse"),
        ],
    )
    def test_a_bad_value_names_its_key(self, key: str, text: str) -> None:
        with pytest.raises(ConfigErrors) as raised:
            config(**{key: text})
        assert [error.field for error in raised.value.errors] == [key.replace("_", ".")]

    def test_positions_of_another_kind_are_refused(self) -> None:
        DatagenSource.alter_offsets(config(), at(5))
        for partition, offset in (
            ({"generator": "g"}, {"row": -1}),
            ({"file": "x"}, {"row": 1}),
        ):
            with pytest.raises(ConfigError, match="Invalid position"):
                DatagenSource.alter_offsets(config(), Position.of(partition, offset))


class TestDdl:
    def test_it_reads_every_type(self) -> None:
        text = (
            "`a b` TINYINT NOT NULL, c decimal(12, 2), d Array<Map<string, smallint>>, "
            "e STRUCT<f: BINARY NOT NULL, g DATE>, h NUMERIC, i REAL, j TIMESTAMP"
        )
        pairs = Schema.map(Schema.string(), Schema.int16(optional=True), optional=True)
        expected = Schema.struct(
            {
                "a b": Schema.int8(),
                "c": Schema.decimal(2, precision=12, optional=True),
                "d": Schema.array(pairs, optional=True),
                "e": Schema.struct(
                    {"f": Schema.bytes(), "g": Schema.date(optional=True)}, optional=True
                ),
                "h": Schema.decimal(0, precision=10, optional=True),
                "i": Schema.float32(optional=True),
                "j": Schema.timestamp(optional=True),
            }
        )
        assert parse_ddl(text, field="schema") == expected

    @pytest.mark.parametrize(
        "text",
        ["a", "a INT,", "a INT b INT", "a INT, a INT", "a ARRAY<INT", "a DECIMAL(x)", "1 !"],
    )
    def test_what_cannot_be_read_is_refused_with_the_key(self, text: str) -> None:
        with pytest.raises(ConfigError) as raised:
            parse_ddl(text, field="schema")
        assert raised.value.field == "schema"
