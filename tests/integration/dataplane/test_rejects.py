"""What becomes of rejected records: letters, skips, logs, limits, crashes, exact values."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.dataplane.flow_doubles import (
    CAST,
    CHAIN,
    Kept,
    TargetDownError,
    batch,
    dead_letters,
    flow,
    read_topic,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader
from headrace.dataplane.json_sql import CORRUPT, json_sql, null_sql, parse_sql, value_sql
from headrace.dataplane.records import frame_schema, record_frame
from headrace.model import Counts, ErrorLog, TooManyRejectedError
from headrace.sdk import FrameSource, Schema

pytestmark = pytest.mark.spark

DONE = Counts(read=100, written=90, rejected=10, causes={CHAIN: 10})


def test_without_a_dead_letter_topic_records_are_skipped_counted_and_logged(spark) -> None:
    said: list[str] = []
    letters = dead_letters(Path(), None, log=ErrorLog(said.append))
    sink = Kept()
    assert flow(spark, [sink], CAST, dead_letters=letters).run(batch(1, 0, 200)).causes == {
        CHAIN: 20
    }
    assert len(sink.rows) == 180
    assert len(said) == 11
    assert said[0] == (
        "Error encountered in task copy-0. Executing stage 'TRANSFORMATION' with class "
        "'cast (Cast)'. org.apache.kafka.connect.errors.DataException"
    )
    assert said[10] == "10 more records of this batch were rejected"


def test_the_log_shows_messages_only_when_it_is_told_to(spark, tmp_path: Path) -> None:
    said: list[str] = []
    letters = dead_letters(tmp_path, log=ErrorLog(said.append, messages=True))
    flow(spark, [Kept()], CAST, dead_letters=letters).run(batch(1, 0, 10))
    assert len(said) == 1
    assert "consumed record is {topic='numbers', partition=0, offset=None," in said[0]
    assert "Value (x7) was out of range for requested data type" in said[0]


def test_a_letter_has_all_of_kafkas_context_and_the_record_as_it_came(
    spark, tmp_path: Path
) -> None:
    class Numbered(FrameSource):
        """Records with a key, headers, a time and a position."""

        def latest(self, start, limit):
            return start

        def read(self, spark, start, end):
            return spark.sql(
                "SELECT named_struct('k', 1) AS key, named_struct('text', 'x') AS value,"
                " array(named_struct('key', 'h', 'value', '1', 'type', 'int32')) AS headers,"
                " TIMESTAMP '2026-01-02 03:04:05.000006Z' AS timestamp,"
                " array(id + 7, 9L) AS position, 3 AS partition FROM range(1)"
            )

    letters = dead_letters(tmp_path)
    copy = flow(
        spark, [Kept()], CAST, source=FrameReader(Numbered(NO_KEYS)), dead_letters=letters
    )
    copy.run(batch(1, 0, 1))
    (row,) = read_topic(spark, tmp_path, "copy.dlq")
    assert (row["key"], row["value"]) == ('{"k":1}', '{"text":"x"}')
    assert row["timestamp"].timestamp() == 1767323045.000006
    first, *rest = row["headers"]
    assert first == {"key": "h", "value": "1", "type": "int32"}
    told = {header["key"].removeprefix("__connect.errors."): header["value"] for header in rest}
    message = "Value (x) was out of range for requested data type"
    exception = "org.apache.kafka.connect.errors.DataException"
    assert told == {
        "topic": "numbers",
        "partition": "3",
        "offset": "[7,9]",
        "connector.name": "copy",
        "task.id": "0",
        "stage": "TRANSFORMATION",
        "class.name": "cast (Cast)",
        "exception.class.name": exception,
        "exception.message": message,
        "exception.stacktrace": f"{exception}: {message}",
    }
    cause = row["cause"]
    assert (cause["batch"], cause["partition"], cause["raw"]) == (1, 3, None)


def test_context_headers_are_left_out_unless_asked_for(spark, tmp_path: Path) -> None:
    letters = dead_letters(tmp_path, context_headers=False)
    flow(spark, [Kept()], CAST, dead_letters=letters).run(batch(1, 0, 10))
    (row,) = read_topic(spark, tmp_path, "copy.dlq")
    assert row["headers"] == []
    assert row["cause"]["exception"].endswith("DataException")


def test_two_sinks_give_one_letter_for_each_rejected_record(spark, tmp_path: Path) -> None:
    first, second = Kept(), Kept(fail=True)
    copy = flow(spark, [first, second], CAST, dead_letters=dead_letters(tmp_path))
    with pytest.raises(TargetDownError):
        copy.run(batch(1, 0, 100))
    assert copy.run(batch(1, 0, 100, again=True)) == DONE
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 10
    assert (len(first.rows), len(second.rows)) == (90, 90)


def test_letters_that_a_crash_kept_from_their_topic_are_appended_by_the_next_try(
    spark, tmp_path: Path
) -> None:
    letters = dead_letters(tmp_path)

    def crash(*_: object, **__: object) -> None:
        raise TargetDownError

    class Crashing(type(letters)):  # type: ignore[misc]  # a class made by a function
        append = crash

    sink = Kept()
    crashing = Crashing(**vars(letters))
    with pytest.raises(TargetDownError):
        flow(spark, [sink], CAST, dead_letters=crashing).run(batch(1, 0, 100))
    assert len(sink.rows) == 90
    again = flow(spark, [sink], CAST, dead_letters=letters)
    # By another owner of the task, whose attempts are others.
    assert again.run(replace(batch(1, 0, 100, again=True), epoch=2)) == DONE
    assert again.run(replace(batch(1, 0, 100, again=True), epoch=3)) == DONE
    assert (len(sink.rows), len(read_topic(spark, tmp_path, "copy.dlq"))) == (90, 10)


def test_a_sink_without_marks_is_written_again_but_its_letters_are_not(
    spark, tmp_path: Path
) -> None:
    class Forgetful(Kept):
        def committed(self, mark, topic):
            return None

    copy = flow(spark, [Forgetful()], CAST, dead_letters=dead_letters(tmp_path))
    assert copy.run(batch(1, 0, 100)) == DONE
    assert copy.run(batch(1, 0, 100, again=True)) == DONE
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 10


def test_nothing_of_a_batch_that_goes_too_far_is_written(spark, tmp_path: Path) -> None:
    def judge(_: object, counts: Counts) -> None:
        assert counts.rejected == 10
        problem = "Too many."
        raise TooManyRejectedError(problem, fix="Allow more.")

    first, second = Kept(), Kept()
    copy = flow(spark, [first, second], CAST, dead_letters=dead_letters(tmp_path))
    with pytest.raises(TooManyRejectedError) as raised:
        replace(copy, check_limits=judge).run(batch(1, 0, 100))
    assert raised.value.problem.startswith(f"Too many. For example: {CHAIN}: Value (x")
    assert (first.rows, first.aborted) == ([], 1)
    assert (second.rows, second.aborted) == ([], 1)
    assert not list((tmp_path / "copy.dlq").rglob("*.parquet"))
    assert copy.run(batch(1, 0, 100, again=True)) == DONE
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 10


def test_a_sink_that_fails_leaves_the_others_as_they_were(spark) -> None:
    class Broken(Kept):
        def write(self, frame, batch):
            raise TargetDownError

    first = Kept()
    with pytest.raises(TargetDownError):
        flow(spark, [first, Broken()]).run(batch(1, 0, 10))
    assert (first.rows, first.aborted) == ([], 1)


def test_what_no_sink_gets_is_logged_once(spark) -> None:
    said: list[str] = []
    letters = dead_letters(Path(), None, log=ErrorLog(said.append))
    flow(spark, [Kept(), Kept()], CAST, dead_letters=letters).run(batch(1, 0, 30))
    assert len(said) == 3


VALUES = """named_struct(
 'i', 1Y, 'l', 9223372036854775807L, 'd', CAST('12345678901234567890.123456789' AS
 DECIMAL(38, 9)), 'f', double('NaN'), 'g', 0.1D, 'b', X'00FF', 's', 'a "quoted" \\ ü \n',
 't', TIMESTAMP '2026-01-02 03:04:05.123456Z', 'day', DATE '2026-02-03', 'n',
 CAST(NULL AS INT), 'zero', -0.0D, 'zerof', CAST('-0.0' AS FLOAT), 'tiny', 4.9E-324D, 'most',
 CAST(repeat('9', 38) AS DECIMAL(38, 0)), 'least', CAST('-0.' || repeat('9', 38) AS
 DECIMAL(38, 38)), 'm', map('x', 1, 'y', 2), 'o', map(1, map('a', X'01')),
 'a', array(named_struct('p', map(date'2026-01-01', 1)), NULL), 'e', named_struct('z', NULL))
"""


def test_a_value_of_any_type_comes_back_from_its_text(spark) -> None:
    frame = spark.sql(f"SELECT {VALUES} AS value")
    schema = frame_schema(frame).fields[0].schema
    text = frame.selectExpr("value", f"{json_sql('value', schema)} AS text")
    back = text.selectExpr("value", "text", f"{parse_sql('text', schema)} AS parsed")
    row = back.selectExpr(
        "value", f"{value_sql('parsed', schema)} AS back", f"parsed.{CORRUPT}", "text"
    ).collect()[0]
    assert row[2] is None, row[3]
    assert repr(row["back"]) == repr(row["value"])
    assert json.loads(row["text"])["n"] is None


TIMES = """named_struct('last', TIMESTAMP '9999-12-31 23:59:59.999999Z', 'first',
 TIMESTAMP '0001-01-01 00:00:00.000001Z', 'before', timestamp_micros(-99999999999999999),
 'after', timestamp_micros(253402300800000001), 'local', TIMESTAMP_NTZ
 '9999-12-31 23:59:59.999999', 'locals', array(TIMESTAMP_NTZ '1969-12-31 23:59:59.000001'),
 'day', DATE '0001-01-01', 'far', date_from_unix_date(2147483647))"""


def test_a_time_of_any_year_with_or_without_a_zone_comes_back_from_its_text(spark) -> None:
    """A time without a zone did not come back, and its letter could not be replayed."""
    records = record_frame(spark.sql(f"SELECT {TIMES} AS value"), "t")
    schema = records.shape.value.schema
    assert schema is not None
    text = records.frame.selectExpr("value", f"{json_sql('value', schema)} AS text")
    back = text.selectExpr("value", "text", f"{parse_sql('text', schema)} AS parsed")
    row = back.selectExpr(
        "CAST(value AS STRING) AS value",
        f"CAST({value_sql('parsed', schema)} AS STRING) AS back",
        f"parsed.{CORRUPT}",
        "text",
    ).collect()[0]
    assert row[2] is None, row.text
    assert row.back == row.value
    assert "1969-12-31 23:59:59.000001" in row.back


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2024-01-02T00:00:00Z", "2024-01-02 00:00:00"),
        ("2024-01-02T02:00:00.5+02:00", "2024-01-02 00:00:00.5"),
        ("2024-01-02 00:00:00", "2024-01-02 00:00:00"),
        ("2024-01-02T00:00:00.123Z", "2024-01-02 00:00:00.123"),
    ],
)
def test_people_may_write_times_in_any_form_of_iso_8601(spark, text: str, found: str) -> None:
    schema = Schema.struct({"at": Schema.timestamp()})
    texts = spark.range(1).selectExpr(f"""'{{"at":"{text}"}}' AS t""")
    rows = texts.selectExpr(f"{parse_sql('t', schema)} AS p")
    row = rows.selectExpr("CAST(p.v.at AS STRING) AS at", f"p.{CORRUPT}").collect()[0]
    assert tuple(row) == (found, None)


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ('{"i":1,"s":{"x":"a","l":[{"e":1}]},"m":[{"key":1,"value":"b"}]}', False),
        ('{"i":1,"s":null,"m":null}', False),
        ("null", False),
        ('{"i":null}', True),
        ("{}", True),
        ('{"i":1,"s":{"l":[]}}', True),
        ('{"i":1,"s":{"x":"a","l":[{"e":1},null]}}', True),
        ('{"i":1,"s":{"x":"a","l":[{"e":1},{}]}}', True),
        ('{"i":1,"m":[{"key":1}]}', True),
        ('{"i":1,"m":[{"key":null,"value":"b"}]}', True),
        ('{"i":1,"n":{"k":null}}', True),
        ('{"i":1,"n":{"k":[1,2]}}', False),
    ],
)
def test_a_text_lacks_a_required_value(spark, text: str, lacks: bool) -> None:
    inner = Schema.struct({"e": Schema.int32()})
    schema = Schema.struct(
        {
            "i": Schema.int32(),
            "s": Schema.struct(
                {"x": Schema.string(), "l": Schema.array(inner, optional=True)}, optional=True
            ),
            "m": Schema.map(Schema.int32(), Schema.string(), optional=True),
            "n": Schema.map(Schema.string(), Schema.array(Schema.int32()), optional=True),
        }
    )
    texts = spark.range(1).selectExpr(f"'{text}' AS t", f"{parse_sql('t', schema)} AS p")
    # Not folded into a constant, as it is not with the rows of a file.
    found = texts.selectExpr(f"coalesce({null_sql('p', schema)}, false)", f"p.{CORRUPT}")
    assert tuple(found.collect()[0]) == (lacks, None)


@pytest.mark.parametrize(
    "text",
    ['{"a":[1.5,null,{}]}', '"5"', "5", '"a \\\\"b"', "[true]", "12345678901234567890.5"],
)
def test_a_variant_comes_back_from_its_text(spark, text: str) -> None:
    schema = Schema.struct({"v": Schema.variant(optional=True)})
    texts = spark.range(1).selectExpr(f"""'{{"v":{text}}}' AS t""")
    back = texts.selectExpr("t", f"{parse_sql('t', schema)} AS p").selectExpr(
        "t", f"{json_sql('p.v', schema)} AS back", f"p.{CORRUPT}"
    )
    row = back.collect()[0]
    assert (row.back, row.corrupt) == (row.t, None)


def test_a_null_for_a_variant_is_null_and_no_null_of_json(spark) -> None:
    schema = Schema.struct(
        {
            "v": Schema.variant(optional=True),
            "a": Schema.array(Schema.variant(optional=True), optional=True),
            "m": Schema.map(Schema.string(), Schema.variant(optional=True), optional=True),
        }
    )
    text = '{"v":null,"a":[null,1],"m":{"x":null}}'
    parsed = spark.range(1).selectExpr(f"'{text}' AS t", f"{parse_sql('t', schema)} AS p")
    value = parsed.selectExpr(f"{value_sql('p', schema)} AS value")
    nulls = value.selectExpr("value.v IS NULL", "value.a[0] IS NULL", "value.m.x IS NULL")
    assert all(nulls.collect()[0])
    assert value.selectExpr("CAST(value.a[1] AS INT)").collect()[0][0] == 1
    required = Schema.struct({"v": Schema.variant()})
    lacks = parsed.selectExpr(f"{parse_sql('t', required)} AS p").selectExpr(
        null_sql("p", required)
    )
    assert lacks.collect()[0][0]


def test_a_text_that_does_not_fit_is_told_apart_from_null(spark) -> None:
    schema = frame_schema(spark.sql("SELECT named_struct('i', 1) AS value")).fields[0].schema
    texts = spark.sql("SELECT explode(array('{\"i\":2}', 'null', '{\"i\":\"x\"}', '{')) AS t")
    rows = texts.selectExpr(f"{parse_sql('t', schema)} AS p").selectExpr(
        "p.v.i", f"p.{CORRUPT}"
    )
    found = [(i, corrupt is not None) for i, corrupt in rows.collect()]
    assert found == [(2, False), (None, False), (None, True), (None, True)]
