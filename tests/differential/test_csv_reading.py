"""Thousands of CSV files, good and bad, are read as Python's own csv module reads them.

Only what that one takes for good and Headrace rejects is looked at here by hand: rows of
another length than the header, values that are not of their column's type, a quote that is
not closed, and bytes that are not of the encoding.
"""

import csv
import io
import math
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NoReturn

import pytest
from tests.differential.packing import written_file
from tests.unit.plugins.file.test_record_ends import read_slowly
from tests.unit.plugins.file.test_text_parts import read, without_spark  # noqa: F401 - a fixture

from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.file.formats import Dialect

FILES = 3_000
SEEDS = 10
KINDS = ("BIGINT", "DOUBLE", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "SMALLINT")
SIGNS = {",": 0.7, ";": 0.15, "\t": 0.15}
ODD = [
    *["", "x", "1.5", "-0", "007", "9223372036854775807", "9223372036854775808", "-32769"],
    *["1e5", "-1e-300", "1e400", "true", "FALSE", "yes", "2024-02-29", "2023-02-29"],
    *["2024-01-01T00:00:00Z", "2024-01-01 10:11:12.123456+02:00", "0001-01-01", "'", '5" x'],
    *["\u00fc\u8ba2\U0001f600", "a\u2028b", "NULL", "nan", "1,5", "a;b", "12:30"],
]


def value_of(text: str, kind: str) -> object:
    """Return what a text stands for. Raises ValueError if it is not of the kind."""
    if kind == "STRING":
        return text
    if text == "":
        return None
    if kind in {"BIGINT", "SMALLINT"}:
        bits = 63 if kind == "BIGINT" else 15
        text = text.strip(" \t")
        if not re.fullmatch(r"-?\d+", text) or not -(2**bits) <= int(text) < 2**bits:
            raise ValueError(text)
        return int(text)
    if kind == "DOUBLE":
        found = float(text.strip(" \t")) if text.strip(" \t") == text.strip() else _no(text)
        # What is too large for a DOUBLE is no infinity.
        return _no(text) if found in {math.inf, -math.inf} and "inf" not in text else found
    if kind == "BOOLEAN":
        return (
            {"true": True, "false": False}.get(text.lower()) if _is_boolean(text) else _no(text)
        )
    if kind == "DATE":
        return date.fromisoformat(text) if len(text) == 10 else _no(text)
    if len(text) < 10:
        return _no(text)
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _is_boolean(text: str) -> bool:
    return text.lower() in {"true", "false"}


def _no(text: str) -> NoReturn:
    raise ValueError(text)


def written(chance: random.Random, kinds: list[str], sign: str) -> str:
    """Return a file's text, in which some things are wrong."""
    good: dict[str, Callable[[], object]] = {
        "BIGINT": lambda: chance.randint(-(2**63), 2**63 - 1),
        "SMALLINT": lambda: chance.randint(-(2**15), 2**15 - 1),
        "DOUBLE": lambda: chance.choice([chance.random(), chance.uniform(-1e300, 1e300)]),
        "BOOLEAN": lambda: chance.choice(["true", "false"]),
        "DATE": lambda: date.fromordinal(chance.randint(1, 3_000_000)),
        "TIMESTAMP": lambda: (
            f"20{chance.randint(10, 99)}-05-06T07:08:09.{chance.randint(0, 999999):06}Z"
        ),
        "STRING": lambda: "".join(chance.choices('ab ,;"\n\t\u00e9', k=chance.randint(0, 9))),
    }
    end = chance.choice(["\n", "\n", "\r\n"])
    out = io.StringIO()
    quoting = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.writer(out, delimiter=sign, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    writer.writerow([f"c{n}" for n in range(len(kinds))])
    for _ in range(chance.randint(0, 40)):
        row = [good[kind]() if chance.random() < 0.95 else chance.choice(ODD) for kind in kinds]
        if chance.random() < 0.03:
            row = row[:-1] if chance.random() < 0.5 else [*row, "more"]
        writer.writerow(row)
        if chance.random() < 0.03:
            out.write(chance.choice([end, f"{sign.join(['x'] * len(kinds))}{end}", f'"{end}']))
    text = out.getvalue()
    if chance.random() < 0.2:
        text = text[: chance.randint(0, len(text))]
    return text


def expected(text: str, kinds: list[str], sign: str) -> tuple[list[tuple[object, ...]], int]:
    """Return the rows by Python's csv module, and how many records are rejected."""
    records, _ = read_slowly(text.encode(), sign.encode())
    rows, rejected = [], 0
    for record in records[1:]:
        source = io.StringIO(record.decode(), newline="")
        try:
            # It is strict: a quote is closed, and nothing stands behind it.
            for row in filter(None, csv.reader(source, delimiter=sign, strict=True)):
                pairs = zip(row, kinds, strict=True)
                rows.append(tuple(value_of(text, kind) for text, kind in pairs))
        except (csv.Error, ValueError, OverflowError):
            rejected += 1
    return rows, rejected


def comparable(row: tuple[object, ...]) -> tuple[object, ...]:
    # Python's module does not tell an empty text in quotes from nothing.
    return tuple(
        "NaN" if isinstance(v, float) and math.isnan(v) else None if v == "" else v for v in row
    )


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, SEEDS))]
)
def test_files_are_read_as_by_python(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for number in range(FILES // SEEDS):
        kinds = chance.choices(KINDS, k=chance.randint(2, 6))
        (sign,) = chance.choices(list(SIGNS), weights=list(SIGNS.values()))
        text = written(chance, kinds, sign)
        wanted, bad = expected(text, kinds, sign)
        encoding = "gb18030" if chance.random() < 0.1 and sign != "|" else "utf-8"
        data = text.encode(encoding)
        file = written_file(tmp_path, f"{number}.csv", data, chance)
        schema = parse_ddl(", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds)), field="s")
        dialect = Dialect(delimiter=sign, encoding=encoding)
        rows, rejected = read(file, schema, dialect, chunk=chance.choice([16, 100, 1 << 20]))
        where = f"seed {seed}, file {number}, {kinds}:\n{text}"
        ours, theirs = (list(map(comparable, each)) for each in (rows, wanted))
        assert [r for r in ours if r not in theirs] == [], where
        assert [r for r in theirs if r not in ours] == [], f"{where}\n{rejected}"
        assert ours == theirs, where
        assert len(rejected) == bad, f"{where}\n{rejected}"
