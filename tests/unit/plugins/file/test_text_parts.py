"""A large CSV file is read in pieces as it would be read in one."""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.sdk import Schema, SourceError
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.file import text_parts
from headrace_plugins.connectors.file.formats import Dialect, Format
from headrace_plugins.connectors.file.listing import FoundFile, Group, NumberedFile
from headrace_plugins.connectors.file.record_ends import ChunkEnds, CsvQuoting
from headrace_plugins.connectors.file.text_parts import Chunk

TEXTS = Schema.struct({name: Schema.string(optional=True) for name in ("a", "b")})
Read = tuple[list[tuple[object, ...]], list[tuple[str, str]]]


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(
        _spark: object, chunks: Sequence[Chunk], ends: CsvQuoting
    ) -> list[tuple[Chunk, ChunkEnds]]:
        return [(each, text_parts._look(each, ends)) for each in chunks]

    monkeypatch.setattr(text_parts, "_looked_at", look)


def read(
    path: Path, schema: Schema = TEXTS, dialect: Dialect | None = None, chunk: int = 1 << 20
) -> Read:
    """Return the rows and what was rejected of a file that is cut into chunks of a size."""
    found = FoundFile(str(path), path.stat().st_size, 0)
    group = Group(schema, (NumberedFile(0, found),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_parts, "_CHUNK_BYTES", chunk)
        patch.setattr(text_parts, "_PART_BYTES", 2 * chunk)
        parts = text_parts.text_parts(
            None,  # type: ignore[arg-type]
            [group],
            schema,
            dialect or Dialect(),
            Format.JSON if ".json" in path.name else Format.CSV,
        )
        rows: list[tuple[object, ...]] = []
        rejected: list[tuple[str, str]] = []
        for part in parts.parts:
            for batch, bad in parts.read(part):
                rows += [tuple(row.values()) for row in batch.to_pylist()]
                rejected += bad
    return rows, rejected


values = st.text(alphabet='a1 ,"\n', max_size=8)


@given(rows=st.lists(st.tuples(values, values), max_size=30), chunk=st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_arrives_once_and_as_it_is(
    tmp_path: Path, rows: list[tuple[str, str]], chunk: int
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("a", "b"), *rows])
    file = tmp_path / "some.csv"
    file.write_text(text.getvalue(), newline="")
    assert read(file, chunk=chunk) == (rows, [])


with_escapes = st.text(alphabet='a1 ,"\n\\', max_size=8)


@given(
    rows=st.lists(st.tuples(with_escapes, with_escapes), max_size=30), chunk=st.integers(1, 40)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_quotes_may_be_escaped(tmp_path: Path, rows: list[tuple[str, str]], chunk: int) -> None:
    def written(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = "".join(f"{written(a)},{written(b)}\n" for a, b in rows)
    file = tmp_path / "some.csv"
    file.write_text(f"a,b\n{text}", newline="")
    assert read(file, dialect=Dialect(escape="\\"), chunk=chunk) == (rows, [])


def test_an_escape_is_text_before_other_signs_and_outside_of_quotes(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text('a,b\n"C:\\new","x\\\\y"\nC:\\\\d,x\\"y\n"say ""a"" \\"b\\"",z\n')
    rows = [("C:\\new", "x\\y"), ("C:\\\\d", 'x\\"y'), ('say "a" "b"', "z")]
    assert read(file, dialect=Dialect(escape="\\")) == (rows, [])


def test_a_bad_record_with_escapes_is_kept_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text('a,b\n"x\\"\ny",1\n"x\\"y",1,2\n"open\\"')
    rows, rejected = read(file, dialect=Dialect(escape="\\"))
    assert rows == [('x"\ny', "1")]
    assert [raw for raw, _ in rejected] == ['"x\\"y",1,2', '"open\\"']
    assert [reason.partition(".")[0] for _, reason in rejected] == [
        "3 values instead of 2",
        "A quote is not closed",
    ]


@pytest.mark.parametrize("escape", [None, "\\"])
@given(text=st.text(alphabet='a,"\n\\', max_size=120), chunk=st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_does_not_depend_on_where_a_file_is_cut(
    tmp_path: Path, text: str, chunk: int, escape: str | None
) -> None:
    file = tmp_path / "some.csv"
    file.write_text(f"a,b\n{text}")
    dialect = Dialect(escape=escape)
    assert read(file, dialect=dialect, chunk=chunk) == read(file, dialect=dialect)


@given(
    lines=st.lists(st.sampled_from(['{"a":"x"}', '{"a":"yyyyyyyy"}', "bad", "", " "])),
    end=st.sampled_from(["", "\n"]),
    chunk=st.integers(1, 40),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_are_cut_anywhere_and_known_by_their_numbers(
    tmp_path: Path, lines: list[str], end: str, chunk: int
) -> None:
    file = tmp_path / "a.json"
    file.write_text("\n".join(lines) + end)
    rows, rejected = read(file, chunk=chunk)
    good = [json.loads(line)["a"] for line in lines if line.startswith("{")]
    assert [row[0] for row in rows] == good
    numbers = [f"line {number}." for number, line in enumerate(lines, 1) if line == "bad"]
    assert [reason.rpartition(", ")[2] for _, reason in rejected] == numbers


@pytest.mark.parametrize("chunk", [3, 1 << 20])
@pytest.mark.parametrize(
    "text",
    ["a,b\r1,2\r3,4\n", "a,b\r1,2\n3,4\r", "a,b\r1,2\r\n3,4\r", 'a,b\r1,"2"\r"3",4\r\n'],
)
def test_lines_may_end_in_several_ways_in_one_file(
    tmp_path: Path, text: str, chunk: int
) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text, newline="")
    assert read(file, chunk=chunk) == ([("1", "2"), ("3", "4")], [])


def test_a_line_break_in_quotes_stays_where_lines_end_with_carriage_returns(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.csv"
    file.write_text('a,b\r1,"x\ny"\r3,4\r', newline="")
    assert read(file) == ([("1", "x\ny"), ("3", "4")], [])


def test_an_open_quote_before_many_line_ends_is_found_at_once() -> None:
    quoting = CsvQuoting(ord(","), ord('"'))
    block = b'1,"' + b"\n" * 8_000_000
    assert quoting.whole(block) == 0
    assert quoting.whole(b"0,1\n" + block) == 4


def test_bad_records_are_rejected_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_bytes(b'id,name\n1,"a\nb"\nx,c\n2,d,e\n3,\xff\n6,"a"b\n4,"open\n5,f\n')
    schema = Schema.struct(
        {"id": Schema.int64(optional=True), "name": Schema.string(optional=True)}
    )
    rows, rejected = read(file, schema)
    assert rows == [(1, "a\nb")]
    assert rejected == [
        ("x,c", f"`id` BIGINT: invalid value 'x'. {file}, line 4."),
        ("2,d,e", f"3 values instead of 2. {file}, line 5."),
        ("3,\\xff", f"Invalid UTF-8: invalid start byte. {file}, line 6."),
        ('6,"a"b', f"Text follows a closing quote. {file}, line 7."),
        ('4,"open\n5,f', f"A quote is not closed. {file}, line 8."),
    ]


def test_nothing_in_quotes_is_an_empty_text_and_null_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text('id,name\n"",""\n1,\n"2",x\n')
    schema = parse_ddl("id BIGINT, name STRING", field="schema")
    assert read(file, schema) == ([(None, ""), (1, None), (2, "x")], [])


def test_each_column_of_times_may_name_zones_or_not(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text("a,b\n2024-01-31T10:00:00Z,2024-01-31\n2024-01-31T10:00:00,2024-01-31\n")
    schema = parse_ddl("a TIMESTAMP, b TIMESTAMP", field="schema")
    rows, rejected = read(file, schema)
    assert [tuple(map(str, row)) for row in rows] == [
        ("2024-01-31 10:00:00+00:00", "2024-01-31 00:00:00+00:00")
    ] * 2
    assert rejected == []


def test_a_decimal_with_too_many_digits_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text("a\n12.5\n123\n1.234\n")
    rows, rejected = read(file, parse_ddl("a DECIMAL(4, 2)", field="schema"))
    assert rows == [(Decimal("12.50"),)]
    assert [raw for raw, _ in rejected] == ["123", "1.234"]
    assert rejected[0][1].startswith("`a` DECIMAL(4, 2): invalid value '123'.")


def test_a_row_of_blanks_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text("a\n \n\nx\n")
    schema = parse_ddl("a STRING", field="schema")
    assert read(file, schema) == ([(" ",), ("x",)], [])


@pytest.mark.parametrize("encoding", ["latin-1", "gb18030", "cp1252"])
def test_other_encodings_are_decoded_in_every_piece(tmp_path: Path, encoding: str) -> None:
    rows = [
        (str(number), "\xfc" if encoding != "gb18030" else "\u8ba2") for number in range(99)
    ]
    file = tmp_path / "some.csv"
    file.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding=encoding)
    assert read(file, dialect=Dialect(encoding=encoding), chunk=16) == (rows, [])


def test_a_record_that_cannot_be_decoded_is_rejected_alone(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_bytes(b"a,b\n1,x\n2,\xff\xff\n3,y\n")
    rows, rejected = read(file, dialect=Dialect(encoding="gb18030"))
    assert rows == [("1", "x"), ("3", "y")]
    ((raw, reason),) = rejected
    assert raw == "2,\\xff\\xff"
    assert reason.startswith("Invalid gb18030")
    assert reason.endswith(f"{file}, line 3.")


def test_a_compressed_file_is_read_whole(tmp_path: Path) -> None:
    rows = [(str(number), "x\ny") for number in range(99)]
    file = tmp_path / "some.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n" + b"".join(b'%d,"x\ny"\n' % n for n in range(99))))
    assert read(file, chunk=10) == (rows, [])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(SourceError, match="cannot be read"):
        read(file)


@pytest.mark.parametrize("text", ["", "a,b", "a,b\n", "\ufeffa,b\r\n", "a,b\r"])
def test_a_file_without_rows_has_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "some.csv"
    file.write_text(text, newline="")
    assert read(file) == ([], [])


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_parts, "_LONGEST_RECORD_BYTES", 100)
    file = tmp_path / "some.csv"
    file.write_text('a,b\n1,2\n3,"' + "x\n" * 200)
    with pytest.raises(SourceError, match=r"The record in line 3 of .* is longer than"):
        read(file, chunk=20)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_three_ways(tmp_path: Path, end: str) -> None:
    file = tmp_path / "some.csv"
    file.write_text(f"\ufeffa,b{end}1,x{end}2,y", newline="")
    assert read(file, chunk=8) == ([("1", "x"), ("2", "y")], [])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("DOUBLE", ["1e300", "Infinity", "-inf"], ["1e400", "-1e999"]),
        ("FLOAT", ["1e38"], ["1e39"]),
        ("BIGINT", ["31", "-0"], ["0x1F", "0XFF"]),
    ],
)
def test_numbers_that_would_be_others_are_bad_records(
    tmp_path: Path, kind: str, good: list[str], bad: list[str]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["v,x", *(f"{text},0x" for text in [*good, *bad])]) + "\n")
    rows, rejected = read(file, parse_ddl(f"v {kind}, x STRING", field="schema"))
    assert len(rows) == len(good)
    assert [reason.partition(". ")[0] for _, reason in rejected] == [
        f"`v` {kind}: invalid value '{text}'" for text in bad
    ]


def test_bytes_are_base64_as_the_sink_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("v,w\nAQI=,x\n,y\nA?,z\n")
    rows, rejected = read(file, parse_ddl("v BINARY, w STRING", field="schema"))
    assert rows == [(b"\x01\x02", "x"), (None, "y")]
    assert rejected == [("A?,z", f"`v` BINARY: invalid Base64. {file}, line 4.")]


SIGNS, OTHERS = ',"~', "§þ‡"
EXCHANGED = str.maketrans(SIGNS + OTHERS, OTHERS + SIGNS)


def exchanged(text: str) -> str:
    return text.translate(EXCHANGED)


@given(
    text=st.text(alphabet=f"a1\n\x1f\x1e\udcff{SIGNS}{OTHERS}", max_size=60),
    null=st.sampled_from(["", "a", "§", "\x1f", ","]),
)
@example(text='1,"a~"b"\n"§,\x1f",þ\n', null="")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_signs_that_are_not_ascii_have_the_meaning_of_those_that_are(
    tmp_path: Path, text: str, null: str
) -> None:
    schema = parse_ddl("a BIGINT, b STRING", field="schema")
    found: list[Read] = []
    for name, some, dialect in (
        ("ascii", text, Dialect(escape="~", null_value=null)),
        (
            "other",
            exchanged(text),
            Dialect(delimiter="§", quote="þ", escape="‡", null_value=exchanged(null)),
        ),
    ):
        path = tmp_path / f"{name}.csv"
        path.write_bytes(f"a\n{some}".encode(errors="surrogateescape"))
        found.append(read(path, schema, dialect))
    (rows, bad), (other_rows, other_bad) = found
    assert other_rows == [(a, None if b is None else exchanged(b)) for a, b in rows]  # type: ignore[arg-type]
    assert [raw for raw, _ in other_bad] == [exchanged(raw) for raw, _ in bad]
    assert [one.split(": ")[0] for _, one in other_bad] == [
        one.split(": ")[0].replace("ascii.csv", "other.csv") for _, one in bad
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "cp1252", "gb18030"])
def test_signs_that_are_not_ascii_are_found_in_every_encoding(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("a§b\n1§'x§\ny'\n§\x1f\n".encode(encoding))
    dialect = Dialect(delimiter="§", quote="'", encoding=encoding)
    assert read(path, TEXTS, dialect) == ([("1", "x§\ny"), (None, "\x1f")], [])


def test_a_record_that_cannot_be_decoded_is_rejected_alone_with_other_signs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\xa7b\n1\xa72\n\x81\xa73\n4\xa75\n")
    rows, [(raw, reason)] = read(path, TEXTS, Dialect(delimiter="§", encoding="cp1252"))
    assert rows == [("1", "2"), ("4", "5")]
    assert raw == "\\x81§3"
    assert reason == f"Invalid cp1252. {path}, line 3."


@pytest.mark.parametrize(
    ("encoding", "sign", "bad"),
    [
        ("utf-16-be", ",", b"\xd8\x00"),  # half of a character
        ("utf-16-le", "§", b"\x00\xd8"),
        ("iso8859-8", "§", b"\xc2\xa1"),  # would be a character in UTF-8
        ("euc_kr", "|", b"\x80\xff"),
    ],
)
def test_only_the_record_with_invalid_bytes_is_rejected(
    tmp_path: Path, encoding: str, sign: str, bad: bytes
) -> None:
    path = tmp_path / "a.csv"
    line = f"a{sign}b\n".encode(encoding)
    good = f"1{sign}ß\n" if encoding.startswith("utf") else f"1{sign}2\n"
    cut = f"{sign}b\n".encode(encoding)
    path.write_bytes(line + good.encode(encoding) * 20 + bad + cut + good.encode(encoding) * 20)
    rows, [(raw, reason)] = read(path, TEXTS, Dialect(delimiter=sign, encoding=encoding))
    assert rows == [("1", good[2])] * 40
    assert raw == "".join(f"\\x{byte:02x}" for byte in bad) + f"{sign}b"
    assert reason == f"Invalid {encoding}. {path}, line 22."


def test_a_number_beyond_every_exponent_is_no_variant(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,1e-99999999999999999999\n2,1e5\n")
    rows, [(_, reason)] = read(path, parse_ddl("a BIGINT, b VARIANT", field="schema"))
    assert rows == [(2, "100000.0e0")]
    assert "a VARIANT cannot hold the number 1e-9999" in reason


def test_a_null_value_in_quotes_is_null_in_a_variant(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"NA"\n2,NA\n"NA",7\n')
    schema = parse_ddl("a STRING, b VARIANT", field="schema")
    rows, bad = read(path, schema, Dialect(null_value="NA"))
    assert (rows, bad) == ([("1", None), ("2", None), ("NA", "7")], [])


def test_how_deep_a_variant_may_be_does_not_depend_on_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = [f"{depth},{'[' * depth}{']' * depth}" for depth in (199, 200, 201, 400, 5000)]
    path.write_text("\n".join(["a,b", *lines]))
    schema = parse_ddl("a BIGINT, b VARIANT", field="schema")

    def called(frames: int) -> Read:
        return called(frames - 1) if frames else read(path, schema)

    found = [called(frames) for frames in (0, 100)]
    assert found[0] == found[1]
    assert [row[0] for row in found[0][0]] == [199, 200]
    assert all("nested more than 200 levels deep" in reason for _, reason in found[0][1])


def test_a_bad_value_is_named_with_the_signs_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a§b\n'1§2'§x\n3§y§z\n'4§\n", encoding="utf-8")
    schema = parse_ddl("a DECIMAL(9,2), b STRING", field="schema")
    rows, bad = read(path, schema, Dialect(delimiter="§", quote="'"))
    assert rows == []
    assert bad == [
        ("'1§2'§x", f"`a` DECIMAL(9, 2): invalid value '1§2'. {path}, line 2."),
        ("3§y§z", f"3 values instead of 2. {path}, line 3."),
        ("'4§", f"A quote is not closed. {path}, line 4."),
    ]


def test_a_variant_is_read_from_its_json_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ["id,v", '1,"{""a"": [1, ""x""]}"', "2,7", "3,", '4,"null"', "5,tru", "6,1 2"]
    path.write_text("\n".join(lines))
    schema = parse_ddl("id BIGINT, v VARIANT", field="schema")
    rows, bad = read(path, schema)
    assert rows == [(1, '{"a":[1,"x"]}'), (2, "7"), (3, None), (4, "null")]
    column = "`v` VARIANT: Invalid JSON: "
    assert [reason.partition(", at")[0] for _, reason in bad] == [
        f"{column}Expecting value",
        f"{column}Extra data",
    ]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("before", ["", '"1","2"\n', '"x","2"\n'])
def test_an_empty_last_value_is_null_with_and_without_a_line_end(
    tmp_path: Path, before: str, end: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'a,b\n{before}"3",{end}', newline="")
    for kind in ("STRING", "BIGINT", "TIMESTAMP"):
        rows, _ = read(path, parse_ddl(f"a BIGINT, b {kind}", field="schema"))
        assert rows[-1] == (3, None)
