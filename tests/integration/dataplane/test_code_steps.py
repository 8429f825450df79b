"""Steps of a chain that are code: of frames, of Arrow batches, and of one record."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.integration.dataplane.flow_doubles import (
    Kept,
    batch,
    condition,
    dead_letters,
    flow,
    read_topic,
    transform,
    values,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader, Step
from headrace.model import Counts
from headrace.sdk import (
    ArrowTransform,
    ConfigError,
    FrameSource,
    FrameTransform,
    Record,
    RecordTransform,
    RetriableError,
    Schema,
)
from headrace.sdk.config import ConfigDef
from headrace.sdk.sqltext import literal
from headrace_plugins.transforms.sql import Filter

pytestmark = pytest.mark.spark

OUT = Schema.struct({"id": Schema.int64(), "double": Schema.int64(optional=True)})


class Plain:
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()


class SevenError(Exception):
    """A multiple of seven came."""

    def __str__(self) -> str:
        return "seven"


class Doubling(Plain, ArrowTransform):
    """Doubles, drops what can be divided by 5, and fails on multiples of 7."""

    def output(self, value: Schema) -> Schema:
        return OUT

    def transform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        ids = rows.column("value").field("id")
        if 0 in [n % 7 for n in ids.to_pylist()]:
            raise SevenError
        value = pa.StructArray.from_arrays([ids, pc.multiply(ids, 2)], ["id", "double"])
        after = pa.RecordBatch.from_pydict({"value": value, "row": rows.column("row")})
        return after.filter(pa.array([n % 5 != 0 for n in ids.to_pylist()]))


def test_a_function_of_arrow_batches_changes_drops_and_rejects(spark, tmp_path: Path) -> None:
    sink = Kept()
    letters = dead_letters(tmp_path, "dlq")
    early = Step(transform(Filter, "early", condition="id < 60"))
    late = Step(transform(Filter, "late", condition="double < 100"))
    steps = [early, Step(transform(Doubling, "double")), late]
    counts = flow(spark, [sink], *steps, dead_letters=letters).run(batch(1, 0, 70))
    sevens = [n for n in range(60) if n % 7 == 0]
    left = [n for n in range(60) if n % 7 and n % 5]
    few = [n for n in left if n < 50]
    assert counts.rejected == len(sevens)
    assert counts.filters == {
        "early": 10,
        "double": 60 - len(sevens) - len(left),
        "late": len(left) - len(few),
    }
    assert sorted(v["id"] for v in values(sink)) == few
    assert all(v["double"] == 2 * v["id"] for v in values(sink))
    dead = read_topic(spark, tmp_path, "dlq")
    assert sorted(int(row["value"].split(":")[1].split(",")[0]) for row in dead) == sevens
    headers = {h["key"]: h["value"] for h in dead[0]["headers"]}
    assert headers["__connect.errors.exception.class.name"].endswith("SevenError")
    assert headers["__connect.errors.exception.message"] == "seven"
    assert headers["__connect.errors.class.name"] == "double (Doubling)"


class Wording(Plain, RecordTransform):
    """Changes the text, the topic and the headers of one record."""

    routes = True

    def transform(self, record: Record) -> Record | None:
        number = record.value["id"]
        if number % 10 == 1:
            return None
        if number % 10 == 2:
            return record.with_value({"id": "no number", "text": None})
        word = {"id": number, "text": f"{record.value['text']}!"}
        return record.with_value(word).with_topic(f"t{number % 2}").with_header("n", number)


def test_a_function_of_one_record_changes_drops_and_rejects(spark, tmp_path: Path) -> None:
    sink = Kept()
    letters = dead_letters(tmp_path, "dlq")
    spared = condition("id >= 10")
    step = Step(transform(Wording, "word"), spared)
    counts = flow(spark, [sink], step, dead_letters=letters).run(batch(1, 0, 30))
    told = replace(counts, causes={})
    assert told == Counts(read=30, written=26, filtered=2, rejected=2, filters={"word": 2})
    assert sum(counts.causes.values()) == 2
    rows = {row["value"]["id"]: row for row in sink.rows}
    assert rows[5]["value"]["text"] == "5"
    assert (rows[13]["value"]["text"], rows[13]["topic"]) == ("13!", "t1")
    assert rows[13]["headers"] == [{"key": "n", "value": "13", "type": "int64"}]
    assert rows[13]["timestamp"].year == 2026


class Marking(Plain, FrameTransform):
    """Rejects and drops by columns."""

    def frame(self, records, batch):
        bad = self.rejection("Bad", f"concat({literal(batch.stream)}, ' ', value.id)")
        return records.selectExpr(
            "* EXCEPT (dropped, error)",
            f"IF(applies AND value.id = 3, {literal(self.alias)}, dropped) AS dropped",
            f"IF(applies AND value.id = 4, {bad}, error) AS error",
        )


def test_a_function_of_a_frame_marks_what_it_drops_and_rejects(spark, tmp_path: Path) -> None:
    letters = dead_letters(tmp_path, "dlq")
    step = Step(transform(Marking, "mark"))
    counts = flow(spark, [Kept()], step, dead_letters=letters).run(batch(1, 0, 10))
    told = replace(counts, causes={})
    assert told == Counts(read=10, written=8, filtered=1, rejected=1, filters={"mark": 1})
    (dead,) = read_topic(spark, tmp_path, "dlq")
    headers = {h["key"]: h["value"] for h in dead["headers"]}
    assert headers["__connect.errors.exception.message"] == "numbers 4"


class Busy(Plain, RecordTransform):
    """Needs a service that is down."""

    def transform(self, record: Record) -> Record | None:
        raise RetriableError(problem="The service is down.")


def test_a_service_that_is_down_fails_the_batch_for_now(spark, tmp_path: Path) -> None:
    letters = dead_letters(tmp_path, "dlq")
    copy = flow(spark, [Kept()], Step(transform(Busy, "busy")), dead_letters=letters)
    with pytest.raises(RetriableError, match="The service is down"):
        copy.run(batch(1, 0, 10))


def test_a_new_shape_and_a_predicate_do_not_go_together(spark) -> None:
    step = Step(transform(Doubling, "double"), condition("id > 3"))
    with pytest.raises(ConfigError, match="that the predicate skips do not fit"):
        flow(spark, [Kept()], step).run(batch(1, 0, 10))


class Widening(Plain, RecordTransform):
    """Adds a field that may be null."""

    def output(self, value: Schema) -> Schema:
        fields = {field.name: field.schema for field in value.fields}
        return value.with_fields(fields | {"more": Schema.string(optional=True)})

    def transform(self, record: Record) -> Record:
        return record.with_value({"id": record.value["id"], "text": "t", "more": "m"})


def test_what_a_predicate_spares_has_null_in_the_fields_that_a_step_adds(spark) -> None:
    sink = Kept()
    step = Step(transform(Widening, "widen"), condition("id > 0"))
    assert flow(spark, [sink], step).run(batch(1, 0, 2)).written == 2
    assert sorted(values(sink), key=lambda value: value["id"]) == [
        {"id": 0, "text": "0", "more": None},
        {"id": 1, "text": "t", "more": "m"},
    ]


class Counting(Plain, RecordTransform):
    """Reads a map, also one inside an array."""

    def transform(self, record: Record) -> Record:
        tags, deep = record.value["tags"], record.value["deep"]
        assert record.value_schema is not None
        changed = {"tags": tags | {"n": len(tags)}, "deep": [*deep, {"z": 1}]}
        return replace(record, value=changed)


class Mapped(FrameSource):
    """Records with maps."""

    def latest(self, start, limit):
        return start

    def read(self, spark, start, end):
        return spark.sql(
            "SELECT named_struct('tags', map('a', 1L), 'deep', array(map('b', 2L))) AS value"
        )


def test_code_of_records_reads_and_writes_maps(spark) -> None:
    sink = Kept()
    step = Step(transform(Counting, "counting"))
    flow(spark, [sink], step, source=FrameReader(Mapped(NO_KEYS))).run(batch(1, 0, 1))
    assert values(sink) == [{"tags": {"a": 1, "n": 1}, "deep": [{"b": 2}, {"z": 1}]}]
