"""Thousands of files of JSON lines, good and bad, are read as Python's own json module does.

What that one takes for good and Headrace rejects is looked at here by hand: lines that are no
objects, fields that are there twice, and values that are not of their column's type.
"""

import base64
import json
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.differential.packing import written_file
from tests.unit.plugins.file.test_text_parts import read, without_spark  # noqa: F401 - a fixture

from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.connectors.file.formats import Dialect

FILES = 3_000
SEEDS = 10
ODD = [
    *[
        "null",
        "true",
        '""',
        '"x"',
        "1",
        "-1",
        "1.0",
        "1.5",
        "1e5",
        "-0.0",
        "-0",
        "007",
        "1e400",
    ],
    *[
        "9223372036854775807",
        "9223372036854775808",
        "32768",
        "12.345",
        "123456789.00",
        '"12.5"',
    ],
    *["[]", "{}", "[1]", '[1, "x"]', '{"y": 1}', '{"y": [1.50, "\\u00e9"]}', "NaN", '"NaN"'],
    *['"2024-02-29"', '"2023-02-29"', '"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00+01:00"'],
    *[
        '"2024-01-01 10:11:12.123456"',
        '"0001-01-01T00:00:00Z"',
        '"a\tb"',
        '"\\ud800"',
        '"aGk="',
    ],
    *['"\U0001f600"', '"\\ud83d\\ude00"', "tru", '"open', "3.4e39", "-9223372036854775809"],
]
LINES = [
    "",
    " ",
    "null",
    "{}",
    "[]",
    "5",
    '"x"',
    "{",
    "}",
    '{"c0": 1} x',
    "\x00",
    "[{}",
    "{}]}",
]


class Number(str):
    """A number as written."""

    __slots__ = ()


def only(test: bool, value: Any) -> Any:
    """Return a value if the test holds."""
    if not test:
        raise ValueError(value)
    return value


def compact(tree: Any) -> str:
    if isinstance(tree, Number):
        return str(tree)
    if isinstance(tree, dict):
        return "{" + ",".join(f"{compact(k)}:{compact(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(compact, tree)) + "]"
    return json.dumps(tree, ensure_ascii=False)


def whole(bits: int) -> Callable[[Any], Any]:
    def value(tree: Any) -> int:
        only(isinstance(tree, Number) and re.fullmatch(r"-?\d+", tree) is not None, tree)
        return int(only(-(2**bits) <= int(tree) < 2**bits, tree))

    return value


def fraction(tree: Any) -> float:
    if isinstance(tree, str) and tree in {"NaN", "Infinity", "-Infinity"}:
        return float(tree)
    found = float(only(isinstance(tree, Number), tree))
    return float(only(abs(found) != float("inf"), found))


def exact(tree: Any) -> Decimal:
    text = only(isinstance(tree, str), tree)
    found = Decimal(only(re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text) is not None, text))
    only(abs(found) < 10**8 and found == round(found, 2), tree)
    return round(found, 2) + 0


def text(tree: Any) -> str:
    found = str(tree) if isinstance(tree, str) else compact(tree)
    found.encode()
    return found


def plain(tree: Any) -> str:
    return str(only(isinstance(tree, str) and not isinstance(tree, Number), tree))


def moment(tree: Any) -> datetime:
    found = datetime.fromisoformat(
        only(re.match(r".{10}([ T]|$)", plain(tree)) is not None, tree)
    )
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def items(tree: Any) -> Any:
    only(isinstance(tree, list), tree)
    return [None if item is None else whole(63)(item) for item in tree]


def parts(tree: Any) -> Any:
    only(isinstance(tree, dict), tree)
    return {"y": None if tree.get("y") is None else text(tree["y"])}


KINDS: dict[str, Callable[[Any], Any]] = {
    "BIGINT": whole(63),
    "SMALLINT": whole(15),
    "DOUBLE": fraction,
    "DECIMAL(10, 2)": exact,
    "STRING": text,
    "BOOLEAN": lambda tree: only(isinstance(tree, bool), tree),
    "DATE": lambda tree: date.fromisoformat(only(len(plain(tree)) == 10, tree)),
    "TIMESTAMP": moment,
    "ARRAY<BIGINT>": items,
    "STRUCT<y: STRING>": parts,
    "BINARY": lambda tree: base64.b64decode(plain(tree), validate=True),
}


def good(chance: random.Random, kind: str) -> str:
    """Return the JSON of a value of a kind."""
    day = date.fromordinal(chance.randint(1, 3_000_000))
    made: dict[str, Callable[[], Any]] = {
        "BIGINT": lambda: chance.randint(-(2**63), 2**63 - 1),
        "SMALLINT": lambda: chance.randint(-(2**15), 2**15 - 1),
        "DOUBLE": lambda: chance.choice([chance.random(), chance.uniform(-1e300, 1e300), 7]),
        "DECIMAL(10, 2)": lambda: chance.randint(-(10**9), 10**9) / 100,
        "STRING": lambda: "".join(
            chance.choices('ab ,{}[]:"\n\\\u00e9', k=chance.randint(0, 9))
        ),
        "BOOLEAN": lambda: chance.random() < 0.5,
        "DATE": day.isoformat,
        "TIMESTAMP": lambda: (
            f"20{chance.randint(10, 99)}-05-06T07:08:09.{day.toordinal() % 10**6:06}Z"
        ),
        "ARRAY<BIGINT>": lambda: chance.choices([1, 2**62, None], k=chance.randint(0, 3)),
        "STRUCT<y: STRING>": lambda: {"z": {"y": 1}, "y": chance.choice(["", "{}", None])},
        "BINARY": lambda: base64.b64encode(chance.randbytes(chance.randint(0, 5))).decode(),
    }
    return json.dumps(made[kind](), ensure_ascii=chance.random() < 0.5)


def written(chance: random.Random, kinds: list[str]) -> bytes:
    """Return a file's bytes, in which some things are wrong."""
    lines = []
    for _ in range(chance.randint(0, 40)):
        fields = [
            f'"c{n}":{good(chance, kind) if chance.random() < 0.95 else chance.choice(ODD)}'
            for n, kind in enumerate(kinds)
            if chance.random() < 0.9
        ]
        if chance.random() < 0.1:
            fields.append(f'"more":{chance.choice(ODD)}')
        chance.shuffle(fields)
        line = "{" + ", ".join(fields) + "}"
        if chance.random() < 0.03:
            at = chance.randint(0, len(line))
            line = line[:at] + chance.choice(["", "\n", ",", "}", '"', line]) + line[at + 1 :]
        lines.append(line)
        if chance.random() < 0.03:
            lines.append(chance.choice(LINES))
    end = chance.choice(["\n", "\n", "\r\n"])
    data = "".join(f"{line}{end}" for line in lines).encode()
    if chance.random() < 0.1 and data:
        at = chance.randrange(len(data))
        data = data[:at] + b"\xff" + data[at:]
    return data[: chance.randint(0, len(data))] if chance.random() < 0.2 else data


def expected(data: bytes, kinds: list[str]) -> tuple[list[tuple[object, ...]], int]:
    """Return the rows by Python's json module, and how many lines are rejected."""
    rows, rejected = [], 0

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs if name[:1] in {"c", "y"}]
        only(len(names) == len(set(names)), names)
        return dict(pairs)

    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            tree = json.loads(
                line.strip().decode(),
                parse_int=Number,
                parse_float=Number,
                parse_constant=Number,
                object_pairs_hook=unique,
            )
            only(isinstance(tree, dict), tree)
            values = [tree.get(f"c{n}") for n in range(len(kinds))]
            found = zip(kinds, values, strict=True)
            rows.append(tuple(None if v is None else KINDS[kind](v) for kind, v in found))
        except ValueError:
            rejected += 1
    return rows, rejected


def comparable(row: tuple[object, ...]) -> str:
    # Not by value, as NaN differs from itself and -0.0 does not differ from 0.0.
    return repr([str(value) if isinstance(value, datetime) else value for value in row])


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, SEEDS))]
)
def test_files_are_read_as_by_python(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for number in range(FILES // SEEDS):
        kinds = chance.choices(list(KINDS), k=chance.randint(1, 6))
        data = written(chance, kinds)
        wanted, bad = expected(data, kinds)
        file = written_file(tmp_path, f"{number}.json", data, chance)
        schema = parse_ddl(", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds)), field="s")
        rows, rejected = read(file, schema, Dialect(), chunk=chance.choice([16, 100, 1 << 20]))
        where = f"seed {seed}, file {number}, {kinds}:\n{data!r}\n{rejected}"
        ours, theirs = ([comparable(row) for row in each] for each in (rows, wanted))
        assert ours == theirs, where
        assert len(rejected) == bad, where
