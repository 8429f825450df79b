"""TimestampConverter and SimpleDateFormat on real Spark, with Java's results."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from tests.integration.transforms.tried import Try, values

from headrace.sdk import ConfigError, ConfigErrors, Schema, Struct
from headrace_plugins.kafka_compat.date_format import DatePattern, read_sql, write_sql
from headrace_plugins.transforms.timestamps import TimestampConverter

pytestmark = pytest.mark.spark

MILLIS = 1483228801456
THEN = datetime(2017, 1, 1, 0, 0, 1, 456000, UTC)
OLD = datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STAMP, LONG = Schema.timestamp(), Schema.int64(optional=True)
TEXT = Schema.string(optional=True)
BOUND = 2**63 - 1


def to(target: str, value: Any, schema: Schema, **more: Any) -> Try:
    own = {"schemaless", "of_key"}
    record = {key: more.pop(key) for key in own & set(more)}
    config = {"target.type": target}
    config |= {key.replace("_", "."): text for key, text in more.items()}
    return Try(TimestampConverter, config, value, schema, **record)


CASES: list[tuple[Try, Any]] = [
    # What Kafka Connect itself gives.
    (to("Date", THEN, STAMP), "2017-01-01"),
    (to("Time", THEN, STAMP), 1_456_000),
    (to("unix", THEN, STAMP, unix_precision="seconds"), 1483228801),
    (to("unix", THEN, STAMP, unix_precision="nanoseconds"), 1483228801456000000),
    (to("unix", THEN, STAMP, unix_precision="microseconds"), 1483228801456000),
    (to("unix", THEN, STAMP), MILLIS),
    (to("string", THEN, STAMP, format="yyyy-MM-dd'T'HH:mm:ss.SSSXXX"), f"{THEN:%FT%T}.456Z"),
    (to("Timestamp", THEN, STAMP), "2017-01-01T00:00:01.456Z"),
    (to("Timestamp", MILLIS, LONG), "2017-01-01T00:00:01.456Z"),
    (
        to("Timestamp", MILLIS // 1000, LONG, unix_precision="seconds"),
        "2017-01-01T00:00:01.000Z",
    ),
    (to("Date", None, LONG), None),
    (to("string", date(2017, 1, 2), Schema.date(), format="yyMMdd"), "170102"),
    (to("unix", date(1969, 12, 31), Schema.date()), -86400000),
    (to("string", time(1, 2, 3), Schema.time(), format="HH:mm:ss"), "01:02:03"),
    (to("unix", time(0, 0, 1), Schema.time()), 1000),
    # Java cuts off towards zero, but a day begins before it.
    (to("unix", OLD, STAMP, unix_precision="seconds"), 0),
    (to("Date", OLD, STAMP), "1969-12-31"),
    (to("Time", OLD, STAMP), 86_399_999_000),
    (to("unix", -1, LONG, unix_precision="microseconds"), 0),
    (to("Time", -1, LONG), 86_399_999_000),
    # And stops at the ends of 64 bits.
    (to("unix", datetime(9999, 1, 1, tzinfo=UTC), STAMP, unix_precision="nanoseconds"), BOUND),
    (to("unix", -BOUND - 1, LONG, unix_precision="seconds"), (-BOUND - 1) // 1000 + 1),
    # Microseconds, which Kafka Connect does not have, are kept where they can be.
    (
        to("unix", EPOCH + timedelta(microseconds=1), STAMP, unix_precision="microseconds"),
        1,
    ),
    # What is refused.
    (to("Timestamp", BOUND, LONG), f"The timestamp {BOUND} is out of range"),
    (
        to("unix", "x", TEXT, format="yyyy"),
        "Could not parse timestamp: value (x) does not match pattern (yyyy)",
    ),
    (
        to("unix", 1, Schema.int32()),
        "Schema Schema{INT32} does not correspond to a known timestamp type format",
    ),
    (
        to("unix", 1, Schema.int32(), schemaless=True),
        "TimestampConverter does not support class java.lang.Integer objects as timestamps",
    ),
]


def test_moments_are_converted_as_in_kafka_connect(spark) -> None:
    found = values(spark, *(case for case, _ in CASES))
    assert found == [expected for _, expected in CASES]


def test_fields_are_converted_at_any_depth_and_null_ones_get_their_default(spark) -> None:
    inner = Schema.struct({"ts": TEXT})
    row = Schema.struct(
        {"d": Schema.string(optional=True, default="2017-01-02"), "e": LONG, "in": inner},
        optional=True,
    )
    some = Struct.of(row, {"d": None, "e": None, "in": {"ts": "2020-02-30"}})
    day = {"format": "yyyy-MM-dd", "target.type": "unix"}

    def field(name: str, value: Any = some, *, schemaless: bool = False, **more: str) -> Try:
        config = day | {"field": name} | {k.replace("_", "."): v for k, v in more.items()}
        return Try(TimestampConverter, config, value, row, schemaless=schemaless)

    found = values(
        spark,
        field("d"),
        field("d", replace_null_with_default="false"),
        field("in.ts", field_syntax_version="V2"),
        field("zz"),
        field("zz", schemaless=True),
        field("d", None),
        field("in"),
    )
    before = {"d": None, "e": None, "in": {"ts": "2020-02-30"}}
    filled = before | {"d": "2017-01-02"}
    assert found == [
        before | {"d": 1483315200000},
        before,
        filled | {"in": {"ts": 1583020800000}},
        filled,
        before | {"zz": None},
        None,
        "Schema Schema{STRUCT} does not correspond to a known timestamp type format",
    ]


# Pattern, text, milliseconds; None where Java cannot parse it. All were taken from Java.
READ = [
    ("yyyy-MM-dd", "2017-01-02", 1483315200000),
    ("yyyy-MM-dd", " 2017-\t1- 2 and more", 1483315200000),
    ("yyyy-MM-dd", "2017-13-45", 1518566400000),
    ("yyyy-MM-dd", "2017-02--1", 1485734400000),
    ("yyyy-MM-dd", "2017/01/02", None),
    ("yyyy-MM-dd", "", None),
    # Java counts on here; Spark's timestamps end before.
    ("yyyy-MM-dd", "2017-999999999-01", None),
    ("yyyy-MM-dd", "999999-01-01", None),
    ("yyyyMMdd", "20170102", 1483315200000),
    ("yyyyMMdd", "201701023", 1485129600000),
    ("yyyyMMdd", "201701", None),
    ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2017-01-01T00:00:01.456Z", 1483228801456),
    ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2017-01-01T00:00:01.45Z", 1483228801045),
    ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2017-01-01T00:00:01.4567Z", 1483228805567),
    ("yyyy-MM-dd'T'HH:mm:ssXXX", "2017-01-01T00:00:01+01:30", 1483223401000),
    ("yyyy-MM-dd'T'HH:mm:ssX", "2017-01-01T00:00:01Z", 1483228801000),
    ("yyyy-MM-dd HH:mm:ss Z", "2017-01-01 00:00:01 -0800", 1483257601000),
    ("yyyy-MM-dd HH:mm:ss Z", "2017-01-01 00:00:01 +8000", None),
    ("EEE, d MMM yyyy HH:mm:ss z", "sun, 1 JANUARY 2017 00:00:01 PST", 1483257601000),
    ("EEE, d MMM yyyy HH:mm:ss z", "Sun, 1 Jan 2017 00:00:01 GMT+1:00", 1483225201000),
    ("MM/dd/yyyy hh:mm a", "01/01/2017 12:30 AM", 1483230600000),
    ("MM/dd/yyyy hh:mm a", "01/01/2017 11:30 pm", 1483313400000),
    ("kk:mm", "24:01", 60000),
    ("yyyy-D", "2016-366", 1483142400000),
    ("ddMMMyyyy", "249Feb2000", 970790400000),
    ("dd/MM/yy", "01/02/70", 2678400000),
    ("dd/MM/yy", "01/02/2017", 1485907200000),
]

# Pattern, milliseconds, text. All were taken from Java.
WRITTEN = [
    ("yyyyMMddHHmmss", MILLIS, "20170101000001"),
    ("yy/M/d H:m:s.S", 5, "70/1/1 0:0:0.5"),
    ("EEE, d MMM yyyy HH:mm:ss z", MILLIS, "Sun, 1 Jan 2017 00:00:01 UTC"),
    ("EEEE dd MMMM yyyy hh:mm a", MILLIS, "Sunday 01 January 2017 12:00 AM"),
    ("D DD DDD DDDD", MILLIS, "1 01 001 0001"),
    ("w W F u Y YY YYYY ww", 1767225599999, "1 5 5 3 2026 26 2026 01"),
    ("k K h kk KK hh", MILLIS, "24 0 12 24 00 12"),
    ("SSSSSS S SS SSS", -1, "000999 999 999 999"),
    ("G y yyy yyyyy L LLLL", MILLIS, "AD 2017 2017 02017 1 January"),
    ("Z zzzz X 'it''s' '' d", MILLIS, "+0000 Coordinated Universal Time Z it's ' 1"),
    ("ddd", MILLIS, "001"),
    ("''", MILLIS, "'"),
]


def test_patterns_read_and_write_as_javas_do(spark) -> None:
    queries = [
        (f"unix_millis({read_sql(DatePattern.of(pattern), 'c')})", f"CAST('{text}' AS STRING)")
        for pattern, text, _ in READ
    ]
    queries += [
        (write_sql(DatePattern.of(pattern), "c"), f"timestamp_millis({millis})")
        for pattern, millis, _ in WRITTEN
    ]
    sql = " UNION ALL ".join(
        f"SELECT {number}, CAST({made} AS STRING) FROM (SELECT {of} AS c)"  # noqa: S608
        for number, (made, of) in enumerate(queries)
    )
    found = [row[1] for row in sorted(spark.sql(sql).collect())]
    expected = [*(read for *_, read in READ), *(written for *_, written in WRITTEN)]
    assert found == [None if one is None else str(one) for one in expected]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"target.type": "string"}, "requires format option"),
        ({"target.type": "string", "format": "nope-bad-Q"}, "Illegal pattern character 'n'"),
        ({"target.type": "string", "format": "yyyy 'x"}, "Unterminated quote"),
        ({"target.type": "unix", "format": "YYYY-ww"}, "can be formatted but not parsed"),
        ({"target.type": "unix", "format": "EEE"}, "only be parsed together with a day"),
        ({"target.type": "moon"}, "String must be one of"),
        ({"target.type": "unix", "unix.precision": "days"}, "String must be one of"),
        ({}, 'Missing required configuration "target.type"'),
    ],
)
def test_wrong_keys_are_refused(config: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigErrors, match=problem):
        TimestampConverter.config_def().parse(config)


def test_texts_need_a_pattern_that_can_be_read(spark) -> None:
    tries = [to("unix", value, TEXT) for value in ("2017", None)]
    [told, nothing] = values(spark, *tries)
    assert told == "A string cannot be parsed as a timestamp, as format is not set"
    assert nothing is None
    with pytest.raises(ConfigError, match="can be formatted but not parsed"):
        to("string", "2017", TEXT, format="ww").after()
