"""Invalid records of a block cost a parse each, and not the speed of the valid ones."""

import random
import re
from collections.abc import Callable
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sdk import Schema
from headrace.sdk.arrow import to_arrow
from headrace.sdk.schema import Field
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.file.csv_lines import CsvLines
from headrace_plugins.connectors.file.formats import Dialect
from headrace_plugins.connectors.file.json_lines import JsonLines
from headrace_plugins.connectors.file.text_blocks import FAULTS as PARSER_FAULTS
from headrace_plugins.connectors.file.text_blocks import Parsed

SCHEMA = parse_ddl(
    "a BIGINT, b STRING, c DOUBLE, d DATE, e TIMESTAMP, f BOOLEAN, g DECIMAL(6,2), h BINARY",
    field="schema",
)
GOOD = ["1", '"x\ny"', "1.5", "2024-01-31", "2024-01-31 10:00:00", "true", "12.50", "eA=="]
FAULTS: dict[str, Callable[[list[str]], list[str]]] = {
    "no integer": lambda row: ["x", *row[1:]],
    "text after a quote": lambda row: [row[0], '"b"b', *row[2:]],
    "too many fields": lambda row: [*row[:2], "1,5", *row[3:]],
    "no date": lambda row: [*row[:3], "2024-01-32", *row[4:]],
    "no timestamp": lambda row: [*row[:4], "noon", *row[5:]],
    "no boolean": lambda row: [*row[:5], "yes", *row[6:]],
    "too many digits": lambda row: [*row[:6], "1.234", *row[7:]],
    "no Base64": lambda row: [*row[:7], "?"],
    "too few fields": lambda row: row[:-1],
    "beyond 64 bits": lambda row: ["9223372036854775808", *row[1:]],
    "an infinite number": lambda row: [*row[:2], "1e400", *row[3:]],
    "the 29th of February": lambda row: [*row[:3], "2023-02-29", *row[4:]],
    "nanoseconds": lambda row: [*row[:4], "2024-01-31 10:00:00.123456789", *row[5:]],
    "hour 24": lambda row: [*row[:4], "2024-01-31T24:00:00Z", *row[5:]],
    "Base64 that is not padded": lambda row: [*row[:7], "eA"],
    "no UTF-8": lambda row: [row[0], "\udcff", *row[2:]],
}


def csv(records: list[list[str]]) -> bytes:
    return "".join(f"{','.join(row)}\n" for row in records).encode(errors="surrogateescape")


def read(block: bytes) -> Parsed:
    return CsvLines(SCHEMA, [each.name for each in SCHEMA.fields], Dialect()).read(block)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what Arrow has parsed."""
    sizes: list[int] = []

    def counted(original: Callable[..., Any], size: Callable[[Any], int]) -> Any:
        def parse(data: Any, *args: Any) -> Any:
            sizes.append(size(data))
            return original(data, *args)

        return parse

    of_csv = counted(pa_csv.read_csv, lambda data: len(data.getbuffer()))
    monkeypatch.setattr(pa_csv, "read_csv", of_csv)
    monkeypatch.setattr(pa_json, "read_json", counted(pa_json.read_json, lambda d: d.size()))
    return sizes


def test_what_is_read_with_invalid_records_is_what_each_record_gives_alone() -> None:
    chance = random.Random(3)  # noqa: S311 - no secret
    records = [
        chance.choice([*FAULTS.values()])(GOOD)
        if chance.random() < 0.1
        else [str(n), *GOOD[1:]]
        for n in range(5_000)
    ]
    found = read(csv(records))
    rows, rejected, line = [], [], 0
    for record in records:
        alone = read(csv([record]))
        rows += alone.rows.to_pylist()
        rejected += [(line, bad.raw, bad.reason) for bad in alone.rejected]
        line += csv([record]).count(b"\n")
    assert found.rows.to_pylist() == rows
    assert [(bad.line, bad.raw, bad.reason) for bad in found.rejected] == rejected
    assert len({bad.reason for bad in found.rejected}) == len(FAULTS) - 1  # two of Base64


@pytest.mark.parametrize("fault", FAULTS)
def test_csv_with_invalid_records_is_parsed_few_times(fault: str, calls: list[int]) -> None:
    records = [FAULTS[fault](GOOD) if n % 100 == 7 else GOOD for n in range(20_000)]
    block = csv(records)
    assert len(read(block).rejected) == 200
    assert len(calls) < 150
    assert sum(calls) < 8 * len(block)


def test_few_wide_records_with_an_invalid_one_are_parsed_three_times(calls: list[int]) -> None:
    names = [f"c{n}" for n in range(2_000)]
    schema = Schema.struct(dict.fromkeys(names, Schema.int64(optional=True)))
    rows = [
        ["none" if (row, n) == (7, 5) else "123456" for n in range(2_000)] for row in range(99)
    ]
    found = CsvLines(schema, names, Dialect()).read(csv(rows))
    assert [bad.line for bad in found.rejected] == [7]
    assert found.rows.num_rows == 98
    assert len(calls) == 3  # all records, their texts, and all but the invalid one


def test_json_lines_without_a_fault_near_them_are_not_read_one_by_one(
    calls: list[int],
) -> None:
    lines = [b'{"a":"x"}\n' if n == 5_000 else b'{"a":1}\n' for n in range(50_000)]
    parsed = JsonLines(parse_ddl("a BIGINT", field="schema"), Dialect()).read(b"".join(lines))
    assert parsed.rows.num_rows == 49_999
    assert len(calls) < 50


JSON_DDL = (
    "i INT, b BIGINT, f FLOAT, d DOUBLE, ok BOOLEAN, t TIMESTAMP, day DATE, n DECIMAL(5, 2), "
    "s STRUCT<i: INT, l: ARRAY<INT>>, x STRING"
)
GOOD_JSON = (
    '{"i":1,"b":2,"f":1.5,"d":2.5,"ok":true,"t":"2024-01-31T10:00:00Z","day":"2024-02-29",'
    '"n":"1.25","s":{"i":1,"l":[1,null]},"x":"a"}'
)
JSON_FAULTS = {
    "range": ('"i":1,"b"', '"i":2147483648,"b"'),
    "long": ('"b":2', '"b":9223372036854775808'),
    "point": ('"i":1,"b"', '"i":1.0,"b"'),
    "float": ('"f":1.5', '"f":1e39'),
    "double": ('"d":2.5', '"d":1e400'),
    "only Arrow's": ('"d":2.5', '"d":-NaN'),
    "boolean": ("true", "1"),
    "time": ("2024-01-31T10:00:00Z", "n/a"),
    "no day": ("2024-02-29", "0000-00-00"),
    "no such day": ("2024-02-29", "2023-02-29"),
    "nested": ('"l":[1', '"l":["x"'),
    "nested range": ('{"i":1,"l"', '{"i":1e3,"l"'),
    "no struct": ('{"i":1,"l":[1,null]}', "[]"),
    "syntax": ('"i":1,"b"', '"i":x1,"b"'),
    "twice": ('"b":2', '"b":2,"b":3'),
    "two objects": ('"x":"a"}', '"x":"a"}{}'),
    "no object": (GOOD_JSON, "7"),
    "surrogate": ('"x":"a"', '"x":"\\ud800"'),
}


def json_lines(*faults: str, every: int) -> list[bytes]:
    bad = [GOOD_JSON.replace(*JSON_FAULTS[fault]) for fault in faults]
    assert GOOD_JSON not in bad
    chosen = random.Random(4)  # noqa: S311 - no secret
    return [
        (chosen.choice(bad) if n % every == 7 else GOOD_JSON).encode() + b"\n"
        for n in range(20_000)
    ]


def test_json_lines_among_invalid_ones_are_what_each_gives_alone() -> None:
    lines = json_lines(*JSON_FAULTS, every=11)
    reader = JsonLines(parse_ddl(JSON_DDL, field="schema"), Dialect())
    alone = {line: reader.read(line) for line in set(lines)}
    found = reader.read(b"".join(lines))
    assert found.rows.to_pylist() == [
        row for line in lines for row in alone[line].rows.to_pylist()
    ]
    assert [(bad.line, bad.raw, bad.reason) for bad in found.rejected] == [
        (number, bad.raw, bad.reason)
        for number, line in enumerate(lines)
        for bad in alone[line].rejected
    ]
    assert len({bad.raw for bad in found.rejected}) == len(JSON_FAULTS)


@pytest.mark.parametrize(
    "fault", sorted(JSON_FAULTS.keys() - {"no such day", "twice", "surrogate"})
)
def test_json_lines_with_invalid_values_are_parsed_twice(fault: str, calls: list[int]) -> None:
    lines = json_lines(fault, every=100)
    reader = JsonLines(parse_ddl(JSON_DDL, field="schema"), Dialect())
    assert len(reader.read(b"".join(lines)).rejected) == 200
    assert sum(calls) < 3.5 * sum(map(len, lines))


NUMBERS = st.from_regex(
    r"[ ]?[-+]?[0-9]{0,4}([.][0-9]{0,3})?([eE][-+]?[0-9])?[ ]?", fullmatch=True
)
WORDS = """
    inf -Infinity NaN 0x1F TRUE False 2024-02-29 2023-02-29 2024-01-31T10:00 20240131 10:00 NA
    2024-01-31T10 2024-01-31T10:00:00.123456Z 2024-01-31T10:00:00+01:00 eA== eA 1_000 '1' 1,5
    1e400 -1e400 1e-400 nan(1) infinit 9223372036854775807 9223372036854775808 2024
    -9223372036854775808 2024-02-30 1900-02-29 2000-02-29 2024-01-31T24 2024-01-31T10:00:60
    2024-01-31T10:00+24:00 2024-01-31T10Z 2024-01-31Z 2024-01-31T10:00:00.1234567 tRuE
    "" "NA" "1"
"""


@given(
    column=st.sampled_from(SCHEMA.fields),
    text=NUMBERS | st.sampled_from(WORDS.split()) | st.just(""),
    inferred=st.booleans(),
)
@settings(max_examples=400)
def test_a_value_is_valid_alone_if_it_is_valid_beside_an_invalid_record(
    column: Field,
    text: str,
    inferred: bool,
) -> None:
    schema = Schema.struct({column.name: column.schema})
    lines = CsvLines(schema, [column.name], Dialect(null_value="NA", is_inferred=inferred))
    record, target = f"{text}\n".encode(), to_arrow(schema)
    try:
        expected = lines._parse(record, target).rows.to_pylist()
    except PARSER_FAULTS:
        expected = []
    assert str(lines.read(record + b"a,b\n").rows.to_pylist()) == str(expected)  # NaN


def test_a_null_value_in_quotes_is_null_whatever_was_read_before() -> None:
    schema = parse_ddl("a BIGINT, b STRING, c DECIMAL(6,2)", field="schema")
    lines = CsvLines(schema, ["a", "b", "c"], Dialect(null_value="NA"))
    block = b'"NA","NA",""\n"",x,"NA"\n1,"",1.5\n'
    expected = [(None, "NA", None), (None, "x", None), (1, "", 1.5)]
    for some in (block, b'"","",""\n', block, b"x,y,z\n" + block):
        rows = lines.read(some).rows.to_pylist()
        if block in some:
            assert [tuple(row.values()) for row in rows] == expected


def test_a_null_value_that_is_a_number_is_null_in_quotes_too() -> None:
    lines = CsvLines(parse_ddl("a BIGINT", field="schema"), ["a"], Dialect(null_value="-1"))
    for some in (b'"-1"\n2\n', b'x\n"-1"\n2\n', b'""\n"-1"\n2\n'):
        assert lines.read(some).rows.to_pylist()[-2:] == [{"a": None}, {"a": 2}]


@given(
    texts=st.lists(
        st.from_regex(r'(-?0{0,2}[0-9]{1,3}(\.5)?|"-?0{0,2}[0-9]{1,2}"|)', fullmatch=True),
        min_size=1,
        max_size=9,
    ),
    sign=st.sampled_from(",;\t|"),
)
def test_leading_zeros_are_no_number_if_the_type_was_inferred(
    texts: list[str], sign: str
) -> None:
    """The other columns are padded too, but texts, and their values do not matter."""
    schema = parse_ddl("a BIGINT, s STRING, b DOUBLE, c DECIMAL(9,1)", field="schema")
    rows = [[text.replace(".5", ""), "007", text, text] for text in texts]
    block = "".join(f"{sign.join(row)}\n" for row in rows).encode()
    found = CsvLines(schema, list("asbc"), Dialect(delimiter=sign, is_inferred=True)).read(
        block
    )
    padded = [n for n, text in enumerate(texts) if re.match('"?-?0[0-9]', text)]
    assert [bad.line for bad in found.rejected] == padded
    declared = CsvLines(schema, list("asbc"), Dialect(delimiter=sign)).read(block)
    assert declared.rows.num_rows == len(texts)
    good = [row for n, row in enumerate(declared.rows.to_pylist()) if n not in padded]
    assert found.rows.to_pylist() == good


def test_times_with_and_without_a_zone_are_parsed_at_once(calls: list[int]) -> None:
    schema = parse_ddl("a TIMESTAMP", field="schema")
    lines = CsvLines(schema, ["a"], Dialect(time_zone="Europe/Paris"))
    records = [f"2024-01-31 10:00:00{'Z' if n % 2 else ''}\n" for n in range(10_000)]
    rows = lines.read("".join(records).encode()).rows
    assert [row["a"].hour for row in rows.slice(0, 2).to_pylist()] == [9, 10]
    assert (rows.num_rows, len(calls)) == (10_000, 3)


def test_bytes_that_are_not_utf_8_are_invalid_in_columns_that_are_not_read() -> None:
    lines = CsvLines(parse_ddl("a BIGINT", field="schema"), ["a", "b"], Dialect())
    for block in (b"1,\xe9\n2,x\n", b"1,\xe9\n2,x\nz,x\n"):
        parsed = lines.read(block)
        assert parsed.rows.to_pylist() == [{"a": 2}]
        assert "UTF-8" in parsed.rejected[0].reason


def test_a_text_in_another_encoding_is_rejected_line_by_line() -> None:
    block = b"".join(b"%d," % n + b"\xe9" * 50 + b"\n" for n in range(40_000))
    lines = CsvLines(parse_ddl("a BIGINT, b STRING", field="schema"), ["a", "b"], Dialect())
    found = [*lines.parts(block)]
    assert len(found) > 1  # not all letters of a block are in memory at once
    rejected = [bad for part in found for bad in part.rejected]
    assert [bad.line for bad in rejected] == [*range(40_000)]


@pytest.mark.parametrize("before", [b"", b"y,0\n", b"y,bad\n"])
def test_a_byte_order_mark_within_a_file_is_text_whatever_is_before_it(before: bytes) -> None:
    lines = CsvLines(parse_ddl("a STRING, b BIGINT", field="schema"), ["a", "b"], Dialect())
    rows = lines.read(before + b"\xef\xbb\xbfx,1\n").rows.to_pylist()
    assert rows[-1] == {"a": "\ufeffx", "b": 1}


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_a_bad_record_has_its_line_whatever_ends_the_lines(end: str) -> None:
    lines = CsvLines(parse_ddl("a BIGINT, b STRING", field="schema"), ["a", "b"], Dialect())
    block = end.join(["1,", "x,", "", f'2,"b{end}"', "y,", "3,", ""])
    assert [bad.line for bad in lines.read(block.encode()).rejected] == [1, 5]


@pytest.mark.parametrize(
    "schema", [Schema.variant(), Schema.struct({"a": Schema.variant()}), SCHEMA]
)
def test_an_empty_block_has_no_rows(schema: Schema) -> None:
    parsed = JsonLines(schema, Dialect()).read(b"")
    assert (parsed.rows.num_rows, parsed.rejected) == (0, [])


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE", "DATE", "DECIMAL(9,2)", "BOOLEAN"])
def test_a_reason_does_not_repeat_a_long_value(kind: str) -> None:
    lines = CsvLines(parse_ddl(f"a {kind}", field="schema"), ["a"], Dialect())
    [bad] = lines.read(b"\x01" * 1_000_000 + b"\n").rejected
    assert len(bad.raw) == 1_000_000
    assert len(bad.reason) < 600
