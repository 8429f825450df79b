"""What every header converter keeps, and that the default one reads what Kafka's reads."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract.converting import converter, decode, values_of
from tests.unit.plugins.kafka_compat.test_value_parsing import PARSED

from headrace.dataplane.conversion import encoded
from headrace.dataplane.records import record_frame
from headrace.sdk import ConfigError, Schema
from headrace.sdk.converter import RecordPart
from headrace_plugins.kafka_compat.value_parsing import parse_string

pytestmark = pytest.mark.spark

Header = tuple[str, str | None, str | None]
PLAIN = {"schemas.enable": "false"}
TYPE = "value int, headers array<struct<key:string,value:string,type:string>>"


def headers_of(name: str, props: dict[str, str] | None = None) -> Any:
    return converter(name, props, part=RecordPart.HEADER)


def framed(spark, *records: Sequence[Header] | None):
    return spark.createDataFrame(list(enumerate(records)), TYPE)


def tuples(frame) -> list[list[Header] | None]:
    rows = frame.orderBy("value").select("headers").collect()
    return [None if row[0] is None else [tuple(h) for h in row[0]] for row in rows]


@pytest.mark.parametrize(
    ("name", "props", "types"),
    [
        ("SimpleHeaderConverter", {}, ["int16", "string", "array", "float32"]),
        ("StringConverter", {}, ["string"] * 4),
        ("JsonConverter", PLAIN, ["int64", "string", "array", "float64"]),
    ],
)
def test_headers_keep_their_order_their_texts_and_what_types_their_texts_tell(
    spark, tmp_path: Path, name: str, props: dict[str, str], types: list[str]
) -> None:
    given = [
        ("n", "300", "int16"),
        ("s", "a b", "string"),
        ("n", "[1,2]", "array"),
        ("f", "2.5", "float32"),
    ]
    records = record_frame(framed(spark, given, [], None), "t")
    written = encoded(records, [headers_of(name, props)])
    raw = written.frame.selectExpr(*written.columns())
    assert all(kind is None for _, _, kind in tuples(raw)[0] or ())
    read = decode(spark, headers_of(name, props), raw, tmp_path)
    expected = [(key, text, kind) for (key, text, _), kind in zip(given, types, strict=True)]
    assert tuples(read) == [expected, [], None]
    assert values_of(read, "error") == [None] * 3


ALPHABET = '[]{},:"\\ 0123456789.-+eETZnulrfas\tx\n٣é\u2003'
FIRSTS = ["", "null", "true", "false", "2024-01-05", "[", "{", "1.5", "-12", "14:34:54.346Z"]


def texts() -> list[str]:
    """Texts around the edges of everything that means something, the same in each run."""
    chosen = random.Random(4)  # noqa: S311 - nothing is secret here
    made = [
        chosen.choice(FIRSTS) + "".join(chosen.choices(ALPHABET, k=chosen.randrange(8)))
        for _ in range(6000)
    ]
    bounds = [1 << bits for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
    whole = [str(sign * (bound + by)) for bound in bounds for sign in (1, -1) for by in (-1, 0)]
    fractions = [f"{chosen.randrange(2000)}.{chosen.randrange(2000)}" for _ in range(1000)]
    return [*(text for text, _, _ in PARSED), *whole, *fractions, *made]


def test_the_default_converter_reads_a_text_as_kafka_connect_does(
    spark, tmp_path: Path
) -> None:
    given = texts()
    frame = framed(spark, [("k", text, None) for text in given])
    read = tuples(decode(spark, headers_of("SimpleHeaderConverter"), frame, tmp_path))[0]
    parsed = {text: parse_string(text) for text in given}
    wrong = {
        text: (found, kind)
        for text, (_, found, kind) in zip(given, read or (), strict=True)
        if (found, kind) != (parsed[text].text, parsed[text].kind)
    }
    assert not wrong


def test_a_header_that_has_a_type_keeps_it_and_a_null_stays_null(spark, tmp_path: Path) -> None:
    given = [("a", "1", "string"), ("b", None, None), ("c", "[1]", "string"), ("d", "7", None)]
    deep = [("deep", "[" * 5000, None)]
    frame = framed(spark, given, deep)
    read = tuples(decode(spark, headers_of("SimpleHeaderConverter"), frame, tmp_path))
    assert read[0] == [*given[:3], ("d", "7", "int8")]
    # Kafka Connect hands on as bytes what its parser breaks at.
    assert [(key, kind) for key, _, kind in read[1] or ()] == [("deep", "bytes")]


def test_a_converter_of_headers_converts_nothing_else() -> None:
    default = headers_of("SimpleHeaderConverter").converter
    with pytest.raises(ConfigError):
        default.encode("c", "m", Schema.string())
    with pytest.raises(ConfigError):
        default.decoder()
