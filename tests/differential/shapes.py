"""Random shapes of records and records of them, from a seed."""

from __future__ import annotations

import base64
import string
from dataclasses import dataclass
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

Json = dict[str, Any]

LOGICAL = "org.apache.kafka.connect.data."
TEXTS = (
    *("", "a", "Hello", "ünïcode 試", "12", "-7", "+5", " 42 ", "007", "3.99", "1e3", "-0.0"),
    *("true", "TRUE", " false", "yes", "NaN", "Infinity", "0x10", "9223372036854775808", "300"),
    *("2020-02-29", "2020-01-02T03:04:05.678Z", "12:30:00", "1,000", "null", "[1,2]", "5d"),
    *("1e400", "4.9e-325", "0x1p3", "1_000", "१२", "\t8\n", "quote'\"\\", "1.", ".5", "a b"),
)
# No -0.0: the JSON converter, which gives the records to Kafka, reads it as 0.0.
FLOATS = (
    0.0,
    1.5,
    -2.5,
    3.99,
    0.1,
    1e10,
    -1e10,
    1e20,
    1e300,
    123456789.125,
    1e-7,
    2.0**53,
)
_MORE_FLOATS = (
    255.5,
    65536.0,
    2147483648.0,
    -9223372036854775808.0,
    1e7,
    9999999.0,
    1e-3,
    0.001,
)
FIELDS = ("a", "b", "c", "d.e", "f g", "h")


def whole(bits: int) -> Callable[[Random], int]:
    """Give whole numbers of that many bits, their bounds more often than others."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def pick(random: Random) -> int:
        edges = [0, 1, -1, low, high, 127, -128, 44, 300, 70000, 2**31, 2**40]
        edge = random.choice(edges)
        return edge if low <= edge <= high else random.randint(low, high)

    return pick


def floating(random: Random) -> float:
    """Give a floating point number."""
    kind = random.random()
    if kind < 0.6:
        return random.choice((*FLOATS, *_MORE_FLOATS))
    return random.uniform(-1e6, 1e6) if kind < 0.9 else random.uniform(-1, 1) * 10.0**15


def floating32(random: Random) -> float:
    """Give a number that a float of 32 bits holds exactly."""
    return random.choice((0.0, 1.5, -2.25, 100.0, 16777216.0, 0.5, 1e10, -3.0, 65536.0))


def any_float32(random: Random) -> float:
    """Give a number that a float of 32 bits holds, as it is written."""
    if random.random() < 0.5:
        return floating32(random)
    number = random.choice((floating(random), random.uniform(-10, 10)))
    number = number if abs(number) < 1e38 else 3.4028235e38
    packed: float = unpack("f", pack("f", number))[0]
    return float(f"{packed:.9g}")


def text(random: Random) -> str:
    """Give a text, more often one that looks like something else."""
    if random.random() < 0.8:
        return random.choice(TEXTS)
    return "".join(random.choice(string.printable) for _ in range(random.randint(1, 6)))


def octets(random: Random) -> str:
    """Give bytes, as JSON has them."""
    return base64.b64encode(random.randbytes(random.randint(0, 4))).decode()


def decimal(scale: int) -> Kind:
    """Return Decimals of a scale."""
    return Kind(_logical("bytes", "Decimal", parameters={"scale": str(scale)}), _decimal)


def _decimal(random: Random) -> str:
    unscaled = random.choice((0, 1, -1, 125, -99999, 10**17, random.randint(-(10**9), 10**9)))
    width = (unscaled.bit_length() + 8) // 8
    return base64.b64encode(unscaled.to_bytes(width, "big", signed=True)).decode()


def _date(random: Random) -> int:
    return random.choice((0, 1, -1, 18321, 17167, 10957, -719162, random.randint(-9000, 40000)))


def _millis_of_day(random: Random) -> int:
    return random.choice((0, 1, 1456, 86399999, random.randint(0, 86399999)))


def millis(random: Random) -> int:
    """Give a moment."""
    edges = (0, -1, 1483228801456, 951782399999, 253402300799999, -62135596800000)
    return random.choice((*edges, random.randint(0, 2_000_000_000_000)))


@dataclass(frozen=True)
class Kind:
    """A type of value: its schema in JSON, None where it needs none, and how to make one."""

    schema: Json
    make: Callable[[Random], Any]


def _logical(base: str, name: str, **more: object) -> Json:
    return {"type": base, "name": f"{LOGICAL}{name}", "version": 1, **more}


SCALARS: Mapping[str, Kind] = {
    **{f"int{bits}": Kind({"type": f"int{bits}"}, whole(bits)) for bits in (8, 16, 32, 64)},
    "float": Kind({"type": "float"}, floating32),
    "double": Kind({"type": "double"}, floating),
    "boolean": Kind({"type": "boolean"}, lambda random: random.random() < 0.5),
    "string": Kind({"type": "string"}, text),
    "bytes": Kind({"type": "bytes"}, octets),
    "decimal": Kind(_logical("bytes", "Decimal", parameters={"scale": "2"}), _decimal),
    "date": Kind(_logical("int32", "Date"), _date),
    "time": Kind(_logical("int32", "Time"), _millis_of_day),
    "timestamp": Kind(_logical("int64", "Timestamp"), millis),
}
PLAIN: Mapping[str, Callable[[Random], Any]] = {
    "int": whole(64),
    "small": lambda random: random.choice((0, 1, -1, 7, 44, 127, 300)),
    "float": floating,
    "bool": lambda random: random.random() < 0.5,
    "string": text,
    "ints": lambda random: [random.randint(-5, 5) for _ in range(random.randint(1, 3))],
    "texts": lambda random: [text(random) for _ in range(random.randint(1, 3))],
}


@dataclass(frozen=True)
class Shape:
    """How the keys or values of a case look.

    Args:
        schema: In Kafka Connect's JSON form; None for values without one.
        make: Makes a payload.
        paths: The names of its fields, at any depth, as lists of steps.
    """

    schema: Json | None
    make: Callable[[Random], Any]
    paths: tuple[tuple[str, ...], ...] = ()

    @property
    def names(self) -> list[str]:
        """Return the names of the fields at the top."""
        return [path[0] for path in self.paths if len(path) == 1]

    def nested(self) -> list[tuple[str, ...]]:
        """Return the paths below the top."""
        return [path for path in self.paths if len(path) > 1]


def scalar(random: Random, kinds: Mapping[str, Kind] = SCALARS) -> Shape:
    """Return the shape of a value with a schema and no fields."""
    kind = kinds[random.choice(sorted(kinds))]
    optional = random.random() < 0.5
    schema = {**kind.schema, "optional": optional}
    if random.random() < 0.2:
        schema["default"] = kind.make(random)
    return Shape(schema, _maybe_null(kind.make, 0.2 if optional else 0))


def plain_scalar(random: Random) -> Shape:
    """Return the shape of a schemaless value without fields."""
    kind = PLAIN[random.choice(sorted(PLAIN))]
    return Shape(None, kind)


def struct(random: Random, *, depth: int = 2, kinds: Mapping[str, Kind] = SCALARS) -> Shape:
    """Return the shape of structs with a schema."""
    optional = random.random() < 0.4
    shape = _struct(random, depth, kinds)
    assert shape.schema is not None
    schema = {**shape.schema, "optional": optional}
    if random.random() < 0.4:
        schema |= {"name": "com.example.Row", "version": random.randint(1, 9)}
    if random.random() < 0.2:
        schema |= {"doc": "a row", "parameters": {"k": "v"}}
    return Shape(schema, _maybe_null(shape.make, 0.1 if optional else 0), shape.paths)


def _struct(random: Random, depth: int, kinds: Mapping[str, Kind]) -> Shape:
    members: dict[str, Shape] = {}
    for name in random.sample(FIELDS, random.randint(1, 5)):
        members[name] = _member(random, depth - 1, kinds)
    fields = [{**(member.schema or {}), "field": name} for name, member in members.items()]

    def make(random: Random) -> Json:
        return {name: member.make(random) for name, member in members.items()}

    return Shape({"type": "struct", "fields": fields}, make, _paths(members))


def _paths(members: Mapping[str, Shape]) -> tuple[tuple[str, ...], ...]:
    below = [(name, *path) for name, member in members.items() for path in member.paths]
    return (*((name,) for name in members), *below)


def _member(random: Random, depth: int, kinds: Mapping[str, Kind]) -> Shape:
    chance = random.random()
    if chance < 0.15 and depth > 0:
        inner = _struct(random, depth, kinds)
        optional = random.random() < 0.5
        schema = {**(inner.schema or {}), "optional": optional}
        return Shape(schema, _maybe_null(inner.make, 0.25 if optional else 0), inner.paths)
    if chance < 0.25:
        return compound(random, kinds)
    found = scalar(random, kinds)
    if random.random() < 0.1:
        found = Shape({**(found.schema or {}), "doc": "told"}, found.make)
    return found


def compound(random: Random, kinds: Mapping[str, Kind] = SCALARS) -> Shape:
    """Return the shape of arrays or maps with a schema."""
    item = kinds[random.choice(sorted(kinds))]
    optional = random.random() < 0.5
    if random.random() < 0.5:
        schema = {"type": "array", "items": item.schema, "optional": optional}

        def items(random: Random) -> list[Any]:
            return [item.make(random) for _ in range(random.randint(0, 3))]

        return Shape(schema, _maybe_null(items, 0.2 if optional else 0))
    keys = {"type": "string"}
    schema = {"type": "map", "keys": keys, "values": item.schema, "optional": optional}

    def entries(random: Random) -> Json:
        return {name: item.make(random) for name in random.sample("xyz", random.randint(0, 3))}

    return Shape(schema, _maybe_null(entries, 0.2 if optional else 0))


def nested(random: Random, *, depth: int = 2, kinds: Mapping[str, Kind] = SCALARS) -> Shape:
    """Return the shape of arrays and maps of anything, maps with keys of any plain type too."""
    chance = random.random()
    if depth and chance < 0.25:
        item = nested(random, depth=depth - 1, kinds=kinds)
    elif chance < 0.5:
        item = struct(random, depth=1, kinds=kinds)
    else:
        item = scalar(random, kinds)
    optional = random.random() < 0.5
    share = 0.2 if optional else 0
    if random.random() < 0.5:
        schema = {"type": "array", "items": item.schema, "optional": optional}
        return Shape(schema, _maybe_null(_some(item.make), share))
    key = kinds[random.choice(("string", "string", "int32", "int64", "boolean"))]
    schema = {
        "type": "map",
        "keys": key.schema,
        "values": item.schema,
        "optional": optional,
    }

    def entries(random: Random) -> Any:
        pairs = {key.make(random): item.make(random) for _ in range(random.randint(0, 3))}
        return pairs if key.schema["type"] == "string" else [list(one) for one in pairs.items()]

    return Shape(schema, _maybe_null(entries, share))


def _some(make: Callable[[Random], Any]) -> Callable[[Random], Any]:
    return lambda random: [make(random) for _ in range(random.randint(0, 3))]


def plain_struct(random: Random, *, depth: int = 2) -> Shape:
    """Return the shape of schemaless objects; their nulls are always at the same fields."""
    members: dict[str, Shape] = {}
    for name in random.sample(FIELDS, random.randint(1, 5)):
        chance = random.random()
        if chance < 0.15 and depth > 1:
            members[name] = plain_struct(random, depth=depth - 1)
        elif chance < 0.22:
            members[name] = Shape(None, lambda _: None)
        else:
            members[name] = plain_scalar(random)

    def make(random: Random) -> Json:
        return {name: member.make(random) for name, member in members.items()}

    return Shape(None, make, _paths(members))


def _maybe_null(make: Callable[[Random], Any], share: float) -> Callable[[Random], Any]:
    return lambda random: None if random.random() < share else make(random)
