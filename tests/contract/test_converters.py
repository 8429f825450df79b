"""What every converter keeps: what it encodes comes back, and nothing it reads raises."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.converting import (
    converter,
    decode,
    encode,
    encoded_records,
    raw_frame,
    schema_of,
    values_of,
)

from headrace.dataplane.conversion import encoded
from headrace.dataplane.records import record_frame
from headrace.sdk import ConfigError, Schema
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.confluent.remote_schemas import head_of
from headrace_registry.embedded import EmbeddedRegistry, service_in

pytestmark = pytest.mark.spark

ROW = Schema.struct(
    {
        "small": Schema.int8(),
        "short": Schema.int16(optional=True),
        "int": Schema.int32(),
        "long": Schema.int64(optional=True),
        "float": Schema.float32(),
        "double": Schema.float64(optional=True),
        "flag": Schema.boolean(),
        "text": Schema.string(optional=True),
        "raw": Schema.bytes(optional=True),
        "price": Schema.decimal(2, precision=10, optional=True),
        "wide": Schema.decimal(4, precision=38),
        "day": Schema.date(),
        "clock": Schema.time(optional=True),
        "at": Schema.timestamp(optional=True),
        "tags": Schema.array(Schema.string(optional=True), optional=True),
        "deep": Schema.struct(
            {"days": Schema.array(Schema.date()), "x": Schema.int32(optional=True)},
            optional=True,
        ),
        "names": Schema.map(Schema.string(), Schema.int64(optional=True)),
    }
)
FULL = {
    "small": -128,
    "short": 32767,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 1.5,
    "double": 1e-300,
    "flag": True,
    "text": 'é"\\\n\u0001😀',
    "raw": b"\x00\xff",
    "price": Decimal("-12345678.90"),
    "wide": Decimal("-1234567890123456789012345678901234.5678"),
    "day": -1,
    "clock": 86_399_999_000,
    "at": 1_700_000_000_123_000,
    "tags": ["a", None, ""],
    "deep": {"days": [0, 19_000], "x": None},
    "names": [("k", 1), ("", None)],
}
EMPTY: dict[str, Any] = {
    **FULL,
    **dict.fromkeys(["short", "long", "double", "text", "raw", "price", "clock", "at", "tags"]),
    "deep": None,
    "names": [],
    "wide": Decimal("0.0000"),
    "at": -1_000,
}


@dataclass(frozen=True)
class Case:
    """A converter, what it is to carry, and bytes that it cannot read.

    ``decoded`` is the schema that comes back, where it is not the one that went in.
    """

    name: str
    schema: Schema
    natives: list[Any]
    bad: list[bytes]
    props: dict[str, str] = field(default_factory=dict)
    decoded: Schema | None = None
    returned: list[Any] | None = None

    def __str__(self) -> str:
        kind = (self.schema.name or self.schema.type.value).rpartition(".")[2]
        return "-".join([self.name, kind, *self.props.values()])


NOT_JSON = [b"", b"{", b"\xff", b'{"schema": nope}', b"NaN", b'{"a": 1} {"a": 2}']
UNFRAMED = [b"", b"{}", b"\x00\x00\x00\x00", head_of(999) + b"\x02", b"\x01" * 9]
NO_SUCH_JSON = [*UNFRAMED, head_of(1), *(head_of(1) + raw for raw in NOT_JSON)]
UNION = "io.confluent.connect.json.OneOf"
CHOICES = Schema.struct(
    {
        **{field.name: field.schema for field in ROW.fields},
        "codes": Schema.map(Schema.int32(), Schema.date(optional=True)),
        "either": Schema.struct(
            {
                f"{UNION}.field.0": Schema.int32(optional=True),
                f"{UNION}.field.1": Schema.struct({"a": Schema.date()}, optional=True),
            },
            name=UNION,
            optional=True,
        ),
    }
)
CHOSEN = {
    "codes": [(5, 19_000), (-1, None)],
    "either": {f"{UNION}.field.0": None, f"{UNION}.field.1": {"a": 1}},
}
BAD_AVRO = [*UNFRAMED, head_of(1)]
MORE = Schema.struct(
    {
        **{field.name: field.schema for field in ROW.fields},
        "count": Schema.int32(default=7, doc="how many"),
        "since": Schema.date(default=date(2024, 2, 29), optional=True),
        "share": Schema.decimal(2, precision=6, default=Decimal("-1.25")),
        "loose": Schema.decimal(3, optional=True),
        "codes": Schema.map(Schema.int32(), Schema.date(optional=True)),
        "one": Schema.struct(
            {
                "int": Schema.int32(optional=True),
                "string": Schema.string(optional=True),
            },
            name="io.confluent.connect.avro.Union",
            optional=True,
        ),
        "kin": Schema.struct({"a": Schema.int64()}, name="a.b.Kin", version=3),
        "again": Schema.struct({"a": Schema.int64()}, name="a.b.Kin", version=3, optional=True),
    },
    name="shop.Order",
    doc="An order",
)
_REST = {
    "count": 1,
    "since": None,
    "share": Decimal("1.00"),
    "loose": Decimal("-0.001"),
    "codes": [(5, 19_000), (-1, None)],
    "one": {"int": None, "string": "x"},
    "kin": {"a": 1},
    "again": None,
    "names": [("k", 1)],  # Avro's maps have no order
}
_TAG = "io.confluent.connect.protobuf.Tag"


def _numbered(fields: dict[str, Schema]) -> dict[str, Schema]:
    """Fields that tell their numbers, as those that were read from Protobuf do."""
    return {
        name: schema.replaced(parameters={**schema.parameters, _TAG: str(number)})
        for number, (name, schema) in enumerate(fields.items(), start=1)
    }


_DEEP = Schema.struct(
    _numbered(
        {
            "days": Schema.array(Schema.date(optional=True), optional=True),
            "x": Schema.int32(optional=True),
        }
    ),
    name="Deep",
    optional=True,
)
_NAMES = _numbered({"key": Schema.string(), "value": Schema.int64()})
_NULLABLE = {"wide", "day", "clock", "at", "price"}
MESSAGE = Schema.struct(
    _numbered(
        {
            field.name: field.schema.replaced(optional=True)
            if field.name in _NULLABLE
            else field.schema
            for field in ROW.fields
        }
        | {
            "tags": Schema.array(Schema.string(optional=True), optional=True),
            "deep": _DEEP,
            "names": Schema.map(_NAMES["key"], _NAMES["value"], name="names", optional=True),
        }
    ),
    name="Order",
)
# What Confluent's converter reads of a wrapped number is never a small one.
_WRAPPING = MESSAGE.replaced(name="Wrapping").with_fields(
    {field.name: field.schema for field in MESSAGE.fields}
    | {"short": Schema.int32(optional=True, parameters={_TAG: "2"})}
)
_SENT = {"names": [("k", 1)], "tags": ["a", ""]}  # Protobuf has no null in a list or a map
_NO_PROTO = [
    *UNFRAMED,
    head_of(1),
    head_of(1) + b"\x02",
    head_of(1) + b"\x02\x80\x01",
    head_of(1) + b"\x02\x00\xff",
    head_of(1) + b"\x02\x0e\x0b",
]
_SCALAR = Schema.struct({"a": Schema.int64(optional=True), "b": Schema.string(optional=True)})
ANY = Schema.struct(
    {"v": Schema.variant(optional=True), "vs": Schema.array(Schema.variant(optional=True))},
    name="any.Any",
)
ANYTHING = {"v": '{"b":[1,"x"]}', "vs": ["1", '"1"', None]}
_GUESSED = Schema.struct(
    {"b": Schema.array(Schema.string(optional=True), optional=True)}, optional=True
)
CASES = [
    Case("BooleanConverter", Schema.boolean(), [True, False], [b"", b"\x02", b"\x00\x01"]),
    Case("ShortConverter", Schema.int16(), [0, -1, 32767, -32768], [b"", b"abc"]),
    Case("IntegerConverter", Schema.int32(), [0, -1, 2**31 - 1, -(2**31)], [b"", b"abc"]),
    Case("LongConverter", Schema.int64(), [0, -1, 2**63 - 1, -(2**63)], [b"", b"abc"]),
    Case("FloatConverter", Schema.float32(), [1.5, -0.0, float("inf")], [b"", b"abc"]),
    Case("DoubleConverter", Schema.float64(), [0.1, -0.0, 5e-324], [b"", b"abc"]),
    Case("StringConverter", Schema.string(), ["", "é😀", "a\nb"], []),
    Case("StringConverter", Schema.string(), ["é", "x"], [], {"converter.encoding": "UTF-16"}),
    Case("ByteArrayConverter", Schema.bytes(), [b"", b"\x00\xff"], []),
    Case("JsonConverter", ROW, [FULL, EMPTY], NOT_JSON),
    Case("JsonConverter", ROW, [FULL, EMPTY], NOT_JSON, {"decimal.format": "NUMERIC"}),
    Case("JsonConverter", Schema.int32(), [1, -5], [*NOT_JSON, b"5"]),
    Case("JsonConverter", ANY, [ANYTHING], []),
    Case("JsonConverter", Schema.variant(), ["[1]", '"x"', "5", '{"a":null}'], NOT_JSON),
    Case("JsonSchemaConverter", ANY, [ANYTHING], []),
    Case("AvroConverter", ANY, [ANYTHING], []),
    Case(
        "JsonConverter",
        ANY.with_fields({"v": Schema.variant(optional=True)}),
        [{"v": '{"b":[1,"x"]}'}],
        [],
        {"schemas.enable": "false"},
        Schema.struct({"v": _GUESSED}),
        [{"v": {"b": ["1", "x"]}}, None],
    ),
    Case("JsonSchemaConverter", ROW, [FULL, EMPTY], NO_SUCH_JSON),
    Case("JsonSchemaConverter", ROW, [FULL, EMPTY], [], {"decimal.format": "NUMERIC"}),
    Case(
        "JsonSchemaConverter",
        CHOICES,
        [FULL | CHOSEN, EMPTY | CHOSEN | {"either": None}],
        [head_of(1) + b'{"either": true}'],
        {"object.additional.properties": "false"},
    ),
    Case("JsonSchemaConverter", Schema.string(), ["", "é😀"], [*UNFRAMED, head_of(1) + b"5"]),
    Case(
        "AvroConverter",
        MORE,
        [{**FULL, **_REST}, {**EMPTY, **_REST, "one": None, "again": {"a": -5}}],
        BAD_AVRO,
    ),
    Case(
        "AvroConverter",
        MORE,
        [{**FULL, **_REST}],
        [b"", b"Obj\x01", b"Obj\x01" + b"\x00" * 40, b"{" * 50],
        {"schema.mode": "local"},
    ),
    Case("AvroConverter", Schema.string(), ["", "é😀"], BAD_AVRO),
    Case("AvroConverter", Schema.bytes(), [b"", b"\x00\xff"], BAD_AVRO[:4]),
    Case("AvroConverter", Schema.int8(), [-128, 127], BAD_AVRO),
    Case("AvroConverter", Schema.decimal(2, precision=9), [Decimal("1.25")], BAD_AVRO),
    Case("AvroConverter", Schema.array(Schema.time()), [[], [1_000]], BAD_AVRO),
    Case(
        "ProtobufConverter",
        MESSAGE,
        [FULL | _SENT, EMPTY | {"tags": []}],
        [*_NO_PROTO, head_of(1) + b"\x00\x0a\x01x"],
        {"optional.for.nullables": "true"},
    ),
    Case(
        "ProtobufConverter",
        _WRAPPING,
        [FULL | _SENT, EMPTY | {"tags": []}],
        [],
        {"wrapper.for.nullables": "true"},
    ),
    Case("ProtobufConverter", Schema.string(), ["", "é😀"], _NO_PROTO),
    Case("ProtobufConverter", Schema.bytes(), [b"", b"\x00\xff"], _NO_PROTO),
    Case(
        "JsonConverter",
        _SCALAR,
        [{"a": 1, "b": "2024-01-01"}, {"a": None, "b": "x"}],
        [b"{", b"\xff", b"NaN", b'{"a": 1} {"a": 2}'],
        {"schemas.enable": "false"},
    ),
]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[EmbeddedRegistry]:
    with closing(EmbeddedRegistry(service_in(tmp_path / "registry.db"))) as made:
        yield made


def plain(schema: Schema, natives: list[Any]) -> list[Any]:
    values: list[Any] = pa.array(natives, to_arrow_type(schema)).to_pylist()
    return values


def test_what_is_encoded_comes_back_and_what_cannot_be_read_is_a_fault(
    spark, tmp_path, case: Case, registry: EmbeddedRegistry
) -> None:
    natives = [*case.natives, None]
    first = converter(case.name, case.props, registry=registry)
    frame = encode(spark, first, case.schema, natives)
    raws = values_of(frame)
    assert all(isinstance(raw, bytes) for raw in raws[:-1])
    assert raws[-1] is None, "null is a tombstone, and stays one"

    again = converter(case.name, case.props, registry=registry)
    decoded = decode(spark, again, raw_frame(spark, [*raws, *case.bad]), tmp_path)
    values, errors = values_of(decoded), values_of(decoded, "error")
    assert schema_of(decoded) == (case.decoded or case.schema).replaced(optional=True)
    good = len(natives)
    assert values[:good] == plain(case.decoded or case.schema, case.returned or natives)
    assert errors[:good] == [None] * good
    assert values[good:] == [None] * len(case.bad)
    for error, raw in zip(errors[good:], case.bad, strict=True):
        assert error["stage"] == "VALUE_CONVERTER"
        assert error["plugin"] == case.name
        assert error["exception"] == DATA_EXCEPTION
        assert error["message"]
        assert error["raw"] == raw.decode(errors="replace")


def test_a_stream_of_nothing_but_nulls_is_decoded(
    spark, tmp_path, case: Case, registry: EmbeddedRegistry
) -> None:
    frame = raw_frame(spark, [None, None])
    each = converter(case.name, case.props, registry=registry)
    decoded = decode(spark, each, frame, tmp_path)
    assert values_of(decoded) == [None, None]
    assert values_of(decoded, "error") == [None, None]


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("LongConverter", Schema.string()),
        ("BooleanConverter", Schema.int32()),
        ("ByteArrayConverter", Schema.string()),
        ("StringConverter", ROW),
        ("IntegerConverter", Schema.date()),
    ],
)
def test_a_schema_that_a_converter_cannot_carry_is_refused_before_any_record(
    name: str, schema: Schema
) -> None:
    with pytest.raises(ConfigError) as refused:
        converter(name).converter.encode("c", "m", schema)
    assert refused.value.field == "value.converter"
    assert refused.value.fix


_YEAR_9999 = 253_402_300_799_999_999
_TIMES = Schema.struct(
    {
        "at": Schema.timestamp(optional=True),
        "clock": Schema.time(optional=True),
        "all": Schema.array(Schema.timestamp(optional=True), optional=True),
        "by": Schema.map(Schema.string(), Schema.time(optional=True), optional=True),
        "in": Schema.struct({"at": Schema.timestamp()}, name="In", optional=True),
    },
    name="Times",
)
_EXACT_TIMES: list[dict[str, Any]] = [
    {"at": -1_000, "clock": 86_399_999_000, "all": [0], "by": [("a", 1_000)], "in": {"at": 0}},
    {"at": None, "clock": None, "all": [None], "by": [("a", None)], "in": None},
]
_FINE_TIMES: list[dict[str, Any]] = [
    {"at": _YEAR_9999},
    {"at": -1},
    {"clock": 1},
    {"clock": -1_000},
    {"clock": 86_400_001_000},
    {"all": [0, 999]},
    {"by": [("a", 1)]},
    {"in": {"at": 1}},
]


@pytest.mark.parametrize("name", ["JsonConverter", "JsonSchemaConverter", "AvroConverter"])
def test_times_that_milliseconds_do_not_hold_are_faults_and_not_rounded(
    spark, name: str, registry: EmbeddedRegistry
) -> None:
    none = dict.fromkeys(field.name for field in _TIMES.fields)
    natives = _EXACT_TIMES + [none | fine for fine in _FINE_TIMES]
    coded = encoded_records(spark, converter(name, registry=registry), _TIMES, natives)
    errors = [
        row.error for row in coded.frame.selectExpr(f"{coded.shape.error} AS error").collect()
    ]
    assert errors[: len(_EXACT_TIMES)] == [None] * len(_EXACT_TIMES)
    for fine, error in zip(_FINE_TIMES, errors[len(_EXACT_TIMES) :], strict=True):
        assert error is not None, fine
        assert next(iter(fine)) in error.message
        assert "milliseconds" in error.message


_MOST = "9" * 38
_EXTREMES = Schema.struct(
    {
        "zero": Schema.float64(optional=True),
        "single": Schema.float32(optional=True),
        "whole": Schema.decimal(0, precision=38, optional=True),
        "part": Schema.decimal(38, precision=38, optional=True),
        "at": Schema.timestamp(optional=True),
        "day": Schema.date(optional=True),
    },
    name="Extremes",
)


@pytest.mark.parametrize(
    ("name", "props"),
    [
        ("JsonConverter", {}),
        ("JsonConverter", {"decimal.format": "NUMERIC"}),
        ("JsonSchemaConverter", {}),
        ("JsonSchemaConverter", {"decimal.format": "NUMERIC"}),
        ("AvroConverter", {}),
        ("ProtobufConverter", {"optional.for.nullables": "true"}),
    ],
)
def test_the_most_extreme_values_come_back_as_they_were(
    spark, tmp_path: Path, name: str, props: dict[str, str], registry: EmbeddedRegistry
) -> None:
    finer = 999 if name == "ProtobufConverter" else 0
    highest = {
        "zero": -0.0,
        "single": -0.0,
        "whole": Decimal(_MOST),
        "part": Decimal(f"-0.{_MOST}"),
        "at": _YEAR_9999 - 999 + finer,
        "day": 2_932_896,
    }
    lowest = {
        "zero": 5e-324,
        "single": 2.0**-149,
        "whole": Decimal(f"-{_MOST}"),
        "part": Decimal(f"0.{'0' * 37}1"),
        "at": -62_135_596_800_000_000 + finer,
        "day": -719_162,
    }
    around = [Decimal(sign * 2**64 + more) for sign in (-1, 1) for more in (-1, 0, 1)]
    natives = [highest, lowest, *({**lowest, "whole": number} for number in around)]
    frame = encode(spark, converter(name, props, registry=registry), _EXTREMES, natives)
    again = converter(name, props, registry=registry)
    decoded = decode(spark, again, raw_frame(spark, values_of(frame)), tmp_path)
    assert values_of(decoded, "error") == [None] * len(natives)
    assert [str(value) for value in values_of(decoded)] == [
        str(value) for value in plain(_EXTREMES, natives)
    ]


@pytest.mark.parametrize(
    "name", ["JsonConverter", "JsonSchemaConverter", "AvroConverter", "ProtobufConverter"]
)
def test_a_time_without_a_zone_is_written_as_utc(
    spark, tmp_path: Path, name: str, registry: EmbeddedRegistry
) -> None:
    local = "TIMESTAMP_NTZ '2020-01-02 03:04:05.123'"
    given = spark.sql(f"SELECT struct({local} AS at, array({local}) AS all) AS value")
    coded = encoded(record_frame(given, "t"), [converter(name, registry=registry)])
    raws = values_of(coded.frame.selectExpr(*coded.columns()))
    again = decode(spark, converter(name, registry=registry), raw_frame(spark, raws), tmp_path)
    at = datetime(2020, 1, 2, 3, 4, 5, 123_000, UTC)
    assert values_of(again) == [{"at": at, "all": [at]}]


def test_days_that_protobuf_does_not_hold_are_faults(spark, registry: EmbeddedRegistry) -> None:
    days = Schema.struct({"day": Schema.date(optional=True)}, name="Days")
    each = converter("ProtobufConverter", registry=registry)
    far = [{"day": 2_932_897}, {"day": -719_163}, {"day": 2**31 - 1}, {"day": -(2**31)}]
    coded = encoded_records(spark, each, days, far)
    errors = coded.frame.selectExpr(f"{coded.shape.error}.message AS text").collect()
    assert all("years 1 to 9999" in row.text for row in errors)
