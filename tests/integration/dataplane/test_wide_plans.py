"""What Spark has to plan for a batch grows as its columns do, and no faster."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.contract.converting import converter, frame_of
from tests.integration.dataplane.flow_doubles import (
    Kept,
    batch,
    dead_letters,
    flow,
    place,
    read_topic,
    row_of,
    transform,
    values,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader, Step
from headrace.dataplane.conversion import encoded
from headrace.dataplane.records import record_frame
from headrace.sdk import FrameSource, Position, ReadLimit, Schema
from headrace.sdk.sqltext import quote, rows, selected
from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.fields import InsertField, ReplaceField

pytestmark = pytest.mark.spark

NARROW, WIDE = 110, 440
"""Four times as many. The limit gives room for what a plan has whatever its columns are."""
MOST_GROWTH = 4.4


def nodes(plan: Any) -> int:
    """Count the leaves of all expressions of a plan, as often as rules come upon them."""
    found, number = 0, 0
    while (node := plan.apply(number)) is not None:
        expressions = node.expressions()
        found += sum(
            expressions.apply(n).collectLeaves().size() for n in range(expressions.size())
        )
        number += 1
    return found


def sizes(frame: Any) -> dict[str, int]:
    """Return how large a frame's plan is: as analysed, halfway, and optimised.

    Halfway is where projections are merged and nothing is simplified: the rules that run then
    see a struct once for each field that is taken from it.
    """
    executed = frame._jdf.queryExecution()
    optimizer = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.optimizer
    merge = getattr(getattr(optimizer, "CollapseProject$"), "MODULE$")
    analyzed = executed.analyzed()
    return {
        "analyzed": nodes(analyzed),
        "merged": nodes(merge.apply(analyzed)),
        "optimized": nodes(executed.optimizedPlan()),
    }


def grows_with_columns(make: Callable[[int], Any]) -> None:
    few, many = (sizes(make(width)) for width in (NARROW, WIDE))
    for name, count in few.items():
        assert many[name] <= MOST_GROWTH * count, (name, few, many)


class Wide(FrameSource):
    """Rows of so many columns, every third a text, where that of each tenth row is none."""

    def __init__(self, width: int) -> None:
        super().__init__(NO_KEYS)
        self.width = width

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(row_of(start) + (limit.rows or 10))

    def read(self, spark, start, end):
        frame = spark.range(row_of(start), row_of(end), 1, 2)
        return rows(selected(frame, [self._column(n) for n in range(self.width)]))

    def _column(self, number: int) -> str:
        value = f"id * {self.width} + {number}"
        if number % 3 == 1:
            bad = f"id % 10 = {number % 10}"
            value = f"IF({bad}, concat('x', {value}), CAST({value} AS STRING))"
        return f"{value} AS c{number}"


@dataclass
class Columns(Kept):
    """Takes the fields of wide values from columns, as the built-in sinks do."""

    takes_columns = True
    frames: list[Any] = field(default_factory=list)

    def write(self, frame, batch):
        names = [field.name for field in batch.schema.fields]
        taken = selected(frame, [f"{batch.field_sql(n)} AS {quote(n)}" for n in names])
        self.frames.append(taken)
        return super().write(rows(taken), batch)


def steps(casts: int) -> list[Step]:
    spec = ",".join(f"c{n}:int64" for n in range(1, 3 * casts, 3))
    return [
        Step(transform(Cast, "cast", spec=spec)),
        Step(transform(InsertField, "origin", static_field="origin", static_value="here")),
        Step(transform(ReplaceField, "rename", renames="c0:first", exclude="c2")),
    ]


@pytest.mark.parametrize("share", [0, 3], ids=["one cast", "all texts cast"])
def test_the_plan_of_a_chain_grows_with_the_columns(spark, tmp_path: Path, share: int) -> None:
    def make(width: int) -> Any:
        sink = Columns()
        casts = width // share if share else 1
        dead = dead_letters(tmp_path, f"dead-{width}")
        moved = flow(
            spark,
            [sink],
            *steps(casts),
            source=FrameReader(Wide(width)),
            dead_letters=dead,
        ).run(batch(1, 0, 20))
        assert moved.read == 20
        return sink.frames[0]

    grows_with_columns(make)


@pytest.mark.parametrize(
    ("name", "config"),
    [("JsonConverter", {}), ("AvroConverter", {"schema.mode": "local"})],
)
def test_the_plan_of_a_converter_grows_with_the_fields(spark, name: str, config: Any) -> None:
    def make(width: int) -> Any:
        names = [f"f{n}" for n in range(width)]
        schema = Schema.struct({n: Schema.int16() for n in names})
        records = record_frame(frame_of(spark, schema, [dict.fromkeys(names, 1)]), "t")
        step = Step(transform(InsertField, "origin", static_field="origin", static_value="x"))
        changed = record_frame(records.frame, "t")
        changed = type(changed)(changed.frame, step.apply(changed.shape)).settled()
        written = encoded(changed, [converter(name, config)])
        return written.frame.selectExpr(*written.columns())

    grows_with_columns(make)


def test_the_text_of_an_error_grows_with_the_fields_that_may_be_bad() -> None:
    def text(width: int) -> int:
        names = [f"c{n}" for n in range(width)]
        schema = Schema.struct(dict.fromkeys(names, Schema.string()))
        shape = record_shape(schema)
        spec = ",".join(f"{name}:int64" for name in names)
        return len(Step(transform(Cast, "cast", spec=spec)).apply(shape).error or "")

    assert text(400) <= MOST_GROWTH * text(100)


def record_shape(schema: Schema):
    from headrace.sdk import RecordExpr, ValueExpr

    return RecordExpr(ValueExpr(None), ValueExpr.of("value", schema), "'t'")


@pytest.mark.parametrize("kind", [Columns, Kept], ids=["columns", "struct"])
def test_a_thousand_columns_arrive_whole_and_the_bad_ones_are_dead_lettered(
    spark, tmp_path: Path, kind: type[Kept]
) -> None:
    width, sink = 1000, kind()
    counts = flow(
        spark,
        [sink],
        *steps(casts=4),
        source=FrameReader(Wide(width)),
        dead_letters=dead_letters(tmp_path, "dead"),
    ).run(batch(1, 0, 40))
    # Those of the columns c1, c4, c7 and c10 are cast: rows 1, 4, 7 and 0 of each ten.
    assert (counts.read, counts.written, counts.rejected) == (40, 24, 16)
    good = [n for n in range(40) if n % 10 not in {0, 1, 4, 7}]
    by_row = {value["first"] // width: value for value in values(sink)}
    assert sorted(by_row) == good
    for row, value in by_row.items():
        assert len(value) == width
        assert "c2" not in value
        assert value["origin"] == "here"
        for column in range(3, width):
            plain = row * width + column
            if column % 3 != 1 or column in {4, 7, 10}:
                expected: Any = plain
            else:
                expected = f"x{plain}" if row % 10 == column % 10 else str(plain)
            assert value[f"c{column}"] == expected
    letters = read_topic(spark, tmp_path, "dead")
    assert len(letters) == 16
    assert {letter["cause"]["stage"] for letter in letters} == {"TRANSFORMATION"}
    assert all(letter["value"].startswith('{"c0":') for letter in letters)
