"""JSON lines are read as they are, or rejected with what is wrong with them."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.plugins.file.test_text_parts import read, without_spark  # noqa: F401 - a fixture

from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.file.formats import Dialect
from headrace_plugins.connectors.file.json_lines import JsonLines


def lines_of(kind: str, *lines: bytes | str, **keys: Any) -> tuple[list[Any], list[str]]:
    """Return the values of the one column of lines, and why others are rejected."""
    block = b"".join((e.encode() if isinstance(e, str) else e) + b"\n" for e in lines)
    schema = parse_ddl(f"a {kind}", field="schema")
    parsed = JsonLines(schema, Dialect(**keys)).read(block)
    return parsed.rows.column(0).to_pylist(), [bad.reason for bad in parsed.rejected]


def value_of(kind: str, value: str, **keys: Any) -> Any:
    """Return what a value becomes, or the reason why it is rejected."""
    values, reasons = lines_of(kind, f'{{"a":{value}}}', **keys)
    assert len(values) + len(reasons) == 1
    return f"! {reasons[0]}" if reasons else values[0]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("BIGINT", "9223372036854775808", "! `a` BIGINT: invalid value 9223372036854775808"),
        ("BIGINT", "1.0", "! `a` BIGINT: invalid value 1.0"),
        ("BIGINT", "1e2", "! `a` BIGINT: invalid value 1e2"),
        ("BIGINT", '"1"', '! `a` BIGINT: invalid value "1"'),
        ("BIGINT", '"\\ud800"', '! `a` BIGINT: invalid value "\\ud800"'),
        ("BIGINT", "null", None),
        ("BIGINT", "{}", "! `a` BIGINT: invalid value {}"),
        ("BIGINT", "9" * 5000, f"! `a` BIGINT: invalid value {'9' * 80}…"),
        ("TINYINT", "-128", -128),
        ("TINYINT", "128", "! `a` TINYINT: invalid value 128"),
        ("DOUBLE", "1", 1.0),
        ("DOUBLE", "1e400", "! `a` DOUBLE: invalid value 1e400"),
        ("DOUBLE", '"Infinity"', float("inf")),
        ("DOUBLE", "-Infinity", -float("inf")),
        ("DOUBLE", "Inf", "! Invalid JSON: Expecting value, at character 6"),
        ("DOUBLE", "-NaN", "! Invalid JSON: Expecting value, at character 6"),
        ("ARRAY<DOUBLE>", "[-Inf]", "! Invalid JSON: Expecting value, at character 7"),
        ("DOUBLE", '"1.5"', '! `a` DOUBLE: invalid value "1.5"'),
        ("FLOAT", "0.5", 0.5),
        ("FLOAT", "3.4e39", "! `a` FLOAT: invalid value 3.4e39"),
        ("DECIMAL(4,2)", "12.5", Decimal("12.50")),
        ("DECIMAL(4,2)", '"12.50"', Decimal("12.50")),
        ("DECIMAL(4,2)", "12.505", "! `a` DECIMAL(4, 2): invalid value 12.505"),
        ("DECIMAL(4,2)", "123", "! `a` DECIMAL(4, 2): invalid value 123"),
        ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
        ("DECIMAL(38,0)", "1e999999999", "! `a` DECIMAL(38, 0): invalid value 1e999999999"),
        ("DECIMAL(4,2)", '"1_2"', '! `a` DECIMAL(4, 2): invalid value "1_2"'),
        ("BOOLEAN", "true", True),
        ("BOOLEAN", "1", "! `a` BOOLEAN: invalid value 1"),
        ("STRING", '"x"', "x"),
        ("STRING", "1.50", "1.50"),
        ("STRING", "true", "true"),
        ("STRING", '{"b" : [1.0, "\u00fc", null]}', '{"b":[1.0,"\u00fc",null]}'),
        ("STRING", '"\\ud800"', "! `a` STRING: unpaired surrogate"),
        ("STRING", '"a\tb"', "! Invalid JSON: Invalid control character at, at character 8"),
        ("BINARY", '"aGk="', b"hi"),
        ("BINARY", '"a"', '! `a` BINARY: invalid Base64 "a"'),
        ("ARRAY<BIGINT>", "[1, null]", [1, None]),
        ("ARRAY<BIGINT>", '[1, "x"]', '! `a` ARRAY<BIGINT>: invalid value "x"'),
        ("MAP<STRING, BIGINT>", '{"k": 1}', [("k", 1)]),
        ("MAP<BIGINT, STRING>", '{"1": "x"}', [(1, "x")]),
        ("MAP<BIGINT, STRING>", '{"k": "x"}', "! `a` MAP<BIGINT, STRING>: invalid value k"),
        ("STRUCT<b: BIGINT>", '{"b": 1, "c": 2}', {"b": 1}),
        ("STRUCT<b: BIGINT>", "{}", {"b": None}),
        ("STRUCT<b: FLOAT>", '{"b": 1e39}', "! `a` STRUCT<`b`: FLOAT>: invalid value 1e39"),
        ("STRUCT<b: BIGINT>", '{"b": 1, "b": 2}', None),
    ],
)
def test_the_value_of_a_type(kind: str, value: str, expected: Any) -> None:
    found = value_of(kind, value)
    if expected is None and value != "null":
        assert "two fields have this name" in found
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("DATE", '"2024-02-29"', "2024-02-29"),
        ("DATE", '"2023-02-29"', '! `a` DATE: invalid value "2023-02-29"'),
        ("TIMESTAMP", '"2024-01-31T10:00:00Z"', "2024-01-31 10:00:00+00:00"),
        ("TIMESTAMP", '"2024-01-31 10:00:00.123456"', "2024-01-31 10:00:00.123456+00:00"),
        ("TIMESTAMP", '"2024-01-31T10:00:00+02:00"', "2024-01-31 08:00:00+00:00"),
        ("TIMESTAMP", "1700000000", "! `a` TIMESTAMP: invalid value 1700000000"),
        (
            "TIMESTAMP",
            '"2024-01-31T10:00:00.123456789Z"',
            '! `a` TIMESTAMP: invalid value "2024-01-31T10:00:00.123456789Z"',
        ),
    ],
)
def test_times_are_iso_8601(kind: str, value: str, expected: str) -> None:
    assert str(value_of(kind, value)) == expected
    # Nested, Arrow does not read all that it reads at the top.
    nested, reasons = lines_of(f"STRUCT<b: {kind}>", f'{{"a":{{"b":{value}}}}}')
    assert bool(reasons) == expected.startswith("!")
    assert reasons or str(nested[0]["b"]) == expected


def test_times_may_have_a_pattern_and_a_zone() -> None:
    keys = {
        "timestamp_format": "dd/MM/yyyy HH:mm",
        "date_format": "dd.MM.yyyy",
        "time_zone": "Europe/Berlin",
    }
    assert str(value_of("TIMESTAMP", '"31/01/2024 10:00"', **keys)).startswith("2024-01-31 09")
    assert str(value_of("DATE", '"31.01.2024"', **keys)) == "2024-01-31"
    assert value_of("DATE", '"2024-01-31"', **keys).startswith("! `a` DATE")
    (row,), _ = lines_of("ARRAY<TIMESTAMP>", '{"a":["31/01/2024 10:00"]}', **keys)
    assert str(row[0]).startswith("2024-01-31 09")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1}{"a":2}', "Invalid JSON: Extra data, at character 8"),
        (b'{"a":1} null {"a":2}', "Invalid JSON: Extra data, at character 9"),
        (b'{"a":1},', "Invalid JSON: Extra data, at character 8"),
        (b"null", "Expected an object, got null"),
        (b'[{"a":1}]', 'Expected an object, got [{"a":1}]'),
        (b"5", "Expected an object, got 5"),
        (b'{"a":', "Invalid JSON: Expecting value, at character 6"),
        (b'{"a":01}', "Invalid JSON: Expecting ',' delimiter, at character 7"),
        (b"{'a':1}", "Invalid JSON: Expecting property name enclosed in double quotes"),
        (b'{"a":1,"b":"\xe9"}', "Invalid UTF-8: "),
        (b'{"a":1,"a":2}', "`a` BIGINT: two fields have this name"),
        (b'{"b":' + b"[" * 9999 + b"]" * 9999 + b'}{"a":1}', "The value is nested too deeply"),
    ],
)
def test_a_line_that_is_no_object_is_rejected_alone(line: bytes, reason: str) -> None:
    for lines in ([line], [b'{"a":7}', line, b'{"a":8}'], [line, b"", line, b'{"a":8}']):
        values, reasons = lines_of("BIGINT", *lines)
        assert values == [json.loads(each)["a"] for each in lines if each and each != line]
        assert len(reasons) == lines.count(line)
        assert all(each.startswith(reason) for each in reasons)


def test_an_object_over_two_lines_is_two_bad_records() -> None:
    values, reasons = lines_of("BIGINT", '{"a":', "1}", '{"a":2}{"a":3}', '{"a":4}')
    assert values == [4]
    assert len(reasons) == 3


def test_blank_lines_and_blanks_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_bytes(b'\xef\xbb\xbf\r\n {"a":1} \r\n\n\t\n{"a":"x"}\r\n{"a":2}')
    rows, rejected = read(file, parse_ddl("a BIGINT", field="schema"))
    assert rows == [(1,), (2,)]
    assert rejected == [('{"a":"x"}', f'`a` BIGINT: invalid value "x". {file}, line 5.')]


def test_many_bad_lines_among_many_are_each_rejected() -> None:
    lines = [f'{{"a":{n}}}' if n % 50 else f'{{"a":"{n}"}}' for n in range(20_000)]
    values, reasons = lines_of("BIGINT", *lines)
    assert values == [n for n in range(20_000) if n % 50]
    assert reasons == [f'`a` BIGINT: invalid value "{n}"' for n in range(0, 20_000, 50)]


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)
GOOD = st.dictionaries(st.sampled_from("abx"), TREES, max_size=3).map(
    lambda tree: json.dumps(tree, ensure_ascii=False).encode()
)
BAD = st.sampled_from(
    [b"null", b"", b" ", b"}{", b"{", b'{"a":', b"}", b'{}{"a":1}', b"[{}", b"{}]}", b"\xff"]
)


@pytest.mark.usefixtures("without_spark")
@given(lines=st.lists(GOOD | BAD, max_size=20), chunk=st.integers(1, 60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_are_the_same_together_in_pieces_and_one_by_one(
    tmp_path: Path, lines: list[bytes], chunk: int
) -> None:
    schema = parse_ddl("a DOUBLE, b STRUCT<c: STRING>, x ARRAY<BIGINT>", field="schema")
    file = tmp_path / "some.json"
    file.write_bytes(b"\n".join(lines))
    rows, rejected = read(file, schema)
    alone = [JsonLines(schema, Dialect()).read(line) for line in lines]
    alone_rows = [tuple(row.values()) for each in alone for row in each.rows.to_pylist()]
    assert repr(rows) == repr(alone_rows)
    assert [reason.rpartition(". ")[0] for _, reason in rejected] == [
        bad.reason for each in alone for bad in each.rejected
    ]
    assert repr(read(file, schema, chunk=chunk)) == repr((rows, rejected))


@pytest.mark.parametrize(
    ("ddl", "text", "fits"),
    [
        ("f FLOAT", "3.4028235e38", True),
        ("f FLOAT", "3.4028236e38", False),
        ("f DOUBLE", "1.7976931348623159e308", False),
        ("f DOUBLE", "9" * 400, False),
        ("f ARRAY<DOUBLE>", f"[{'9' * 400}]", False),
    ],
)
@pytest.mark.parametrize("beside", [0, 600])
def test_a_number_is_too_large_if_it_would_be_infinite(
    ddl: str, text: str, beside: int, *, fits: bool
) -> None:
    lines = [f'{{"f":{text}}}', *['{"f":"x"}'] * beside]
    parsed = JsonLines(parse_ddl(ddl, field="schema"), Dialect()).read(
        "\n".join(lines).encode()
    )
    assert parsed.rows.num_rows == int(fits)
    assert len(parsed.rejected) == beside + (not fits)


@pytest.mark.parametrize("named", ["Infinity War", "NaN"])
@pytest.mark.parametrize("text", ["1.8e308", "9" * 400, "1" + "0" * 250 + "e99"])
def test_a_number_is_too_large_beside_a_text_that_names_infinity(named: str, text: str) -> None:
    schema = parse_ddl("x DOUBLE, t STRING", field="schema")
    lines = f'{{"x":{text}}}\n{{"x":1.0,"t":"{named}"}}\n{{"x":Infinity}}\n'
    parsed = JsonLines(schema, Dialect()).read(lines.encode())
    assert [bad.line for bad in parsed.rejected] == [0]
    assert parsed.rows.column("x").to_pylist() == [1.0, float("inf")]
