"""Random values and texts for converters."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from tests.differential import shapes, texts
from tests.differential.shapes import Kind, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.differential.shapes import Json

STORAGE = "org.apache.kafka.connect.storage."
CONVERTERS = "org.apache.kafka.connect.converters."
JSON = "org.apache.kafka.connect.json.JsonConverter"
VALUES = 50
"""How many values go through one configuration."""


@dataclass(frozen=True)
class Conversion:
    """One configuration of a converter and what goes through it.

    Args:
        name: Kafka's class.
        config: Its keys.
        records: ``{"value", "value_schema"}`` to write, all of one schema; or nothing.
        raws: Bytes to read.
        alone: Whether each is read by itself, as schemas are inferred from all of them.
        part: What of a record it converts: ``key``, ``value`` or ``header``.
    """

    name: str
    config: Mapping[str, str]
    records: Sequence[Json] = ()
    raws: Sequence[bytes | None] = ()
    alone: bool = False
    part: str = "value"

    @property
    def is_text(self) -> bool:
        """Whether it writes the text of a header, in which a moment has a form of its own."""
        return self.name.endswith("SimpleHeaderConverter")

    @property
    def step(self) -> Json:
        """What differences show of it."""
        return {"class": self.name, "config": dict(self.config), "part": self.part}


def conversions(kind: str, count: int, *, values: int = VALUES) -> Iterator[Conversion]:
    """Yield conversions of a kind; the same ones each time."""
    for number in range(count):
        random = Random(f"{kind} {number}")
        case = KINDS[kind](random, values)
        is_key = case.part == "value" and random.random() < 0.3
        yield replace(case, part="key") if is_key else case


def _json_config(random: Random, *, schemas: bool) -> dict[str, str]:
    config = {"schemas.enable": str(schemas).lower()}
    if random.random() < 0.7:
        config["decimal.format"] = random.choice(("BASE64", "NUMERIC", "numeric"))
    if random.random() < 0.7:
        config["replace.null.with.default"] = random.choice(("true", "false"))
    return config


KINDS_OF_VALUES: Mapping[str, Kind] = {
    **shapes.SCALARS,
    "float": Kind({"type": "float"}, shapes.any_float32),
    "decimal 0": shapes.decimal(0),
    "decimal 5": shapes.decimal(5),
    "decimal 18": shapes.decimal(18),
}


def _any_schema(random: Random) -> Shape:
    chance = random.random()
    if chance < 0.4:
        return shapes.struct(random, kinds=KINDS_OF_VALUES)
    if chance < 0.6:
        return shapes.scalar(random, KINDS_OF_VALUES)
    return shapes.nested(random, kinds=KINDS_OF_VALUES)


def _written(random: Random, shape: Shape, count: int) -> list[Json]:
    return [{"value": shape.make(random), "value_schema": shape.schema} for _ in range(count)]


def _json_written(random: Random, count: int, *, schemas: bool) -> Conversion:
    config = _json_config(random, schemas=schemas)
    return Conversion(JSON, config, _written(random, _any_schema(random), count))


def _json_enveloped(random: Random, count: int) -> Conversion:
    """Give envelopes, as Kafka Connect writes them and otherwise, some of them wrong."""
    kinds = [_any_schema(random) for _ in range(random.choice((1, 1, 2, 3)))]
    config = _json_config(random, schemas=True)
    return Conversion(JSON, config, raws=[_enveloped(random, kinds) for _ in range(count)])


def _enveloped(random: Random, kinds: Sequence[Shape]) -> bytes | None:
    shape = random.choice(kinds)
    chance = random.random()
    if chance < 0.02:
        return random.choice((None, b"", b"null", b"{}", b"[1]", b"{", b"7 8", b"\xff", b'"x"'))
    payload = shape.make(random)
    if chance < 0.12:
        payload = _spoiled(random, payload)
    envelope: Json = {"schema": shape.schema, "payload": payload}
    if chance > 0.95:
        envelope = random.choice(
            (
                {"payload": payload, "schema": shape.schema},
                {"schema": shape.schema},
                {"payload": payload},
                {"schema": None, "payload": shapes.PLAIN["int"](random)},
                {"schema": shape.schema, "payload": payload, "more": 1},
                {"schema": {"type": "nonsense"}, "payload": payload},
                {"schema": {"optional": True}, "payload": payload},
                {"schema": {"type": "array"}, "payload": []},
                {"schema": {"type": "struct"}, "payload": {}},
            )
        )
    separators = random.choice(((",", ":"), (",", ":"), (", ", ": ")))
    text = json.dumps(envelope, separators=separators, ensure_ascii=random.random() < 0.5)
    return text.encode()


def _spoiled(random: Random, payload: Any) -> Any:
    """Give a payload of another type, or with something missing."""
    if isinstance(payload, dict) and payload and random.random() < 0.7:
        name = random.choice(sorted(payload))
        rest = {key: item for key, item in payload.items() if key != name}
        return (
            rest if random.random() < 0.4 else {**rest, name: _spoiled(random, payload[name])}
        )
    return random.choice(
        (None, "x", 1, 1.5, True, [], {}, 10**12, "AQ==", -1, 300, "12", [1], {"a": 1}, 1e3)
    )


def _plain_text(random: Random, tree: Any) -> bytes:
    separators = random.choice(((",", ":"), (", ", ": ")))
    return json.dumps(tree, separators=separators, ensure_ascii=random.random() < 0.5).encode()


def _json_plain(random: Random, count: int) -> Conversion:
    """Give texts of one shape, as a topic has them: the schema is inferred from all."""
    shape = (
        shapes.plain_struct(random) if random.random() < 0.7 else shapes.plain_scalar(random)
    )
    raws = [_plain_text(random, shape.make(random)) for _ in range(count)]
    return Conversion(JSON, {"schemas.enable": "false"}, raws=raws)


def _json_any(random: Random, count: int) -> Conversion:
    """Give texts that share nothing, and such as are no JSON, each by itself."""
    config = {"schemas.enable": "false"}
    return Conversion(JSON, config, raws=[_any_text(random) for _ in range(count)], alone=True)


_ODD_TEXTS = (
    *(b"null", b"", b" ", b"{", b"[1,", b"7 8", b"nul", b"NaN", b"'a'", b"\xff", b'"\xff"'),
    *(b'{"a":1,}', b"{a:1}", b"01", b"+1", b".5", b"1.", b"1e400", b"-0", b"-0.0", b"[]"),
    *(b"{}", b'{"a":{}}', b"[null]", b"[{}]", b'{"a":1,"a":2}', b'"\\ud83d"', b"\xef\xbb\xbf1"),
    *(b"99999999999999999999", b"1.7976931348623159e308", b'{"":1}', b"[1,[2]]", b"// x\n1"),
    *(b"9223372036854775807", b"9223372036854775808", b"1E5", b"1e-400", b'"\\u00e9\\n"'),
)


def _any_text(random: Random) -> bytes | None:
    if random.random() < 0.1:
        return random.choice((None, *_ODD_TEXTS))
    shape = (
        shapes.plain_struct(random) if random.random() < 0.6 else shapes.plain_scalar(random)
    )
    return _plain_text(random, shape.make(random))


def _json_of_a_schema(random: Random, count: int) -> Conversion:
    """Give payloads alone, whose schema the configuration has."""
    shape = _any_schema(random)
    config = _json_config(random, schemas=random.random() < 0.5)
    config["schema.content"] = json.dumps(shape.schema)
    if config["schemas.enable"] == "false":  # where Kafka forgets the schema and its defaults
        config["replace.null.with.default"] = "false"
    raws = [_payload(random, shape) for _ in range(count)]
    return Conversion(JSON, config, raws=raws)


def _payload(random: Random, shape: Shape) -> bytes | None:
    chance = random.random()
    if chance < 0.05:
        return random.choice((None, *_ODD_TEXTS))
    payload = shape.make(random)
    return _plain_text(random, payload if chance < 0.85 else _spoiled(random, payload))


def _header_read(random: Random, count: int, name: str) -> Conversion:
    raws = [None, *(texts.value(random).encode() for _ in range(count - 1))]
    return Conversion(name, {}, raws=raws, part="header")


def _header_written(random: Random, count: int, name: str) -> Conversion:
    kinds = {kind: KINDS_OF_VALUES[kind] for kind in (*_TEXTUAL, "decimal")}
    simple = name.endswith("SimpleHeaderConverter")
    shape = _any_schema(random) if simple else shapes.scalar(random, kinds)
    return Conversion(name, {}, _written(random, shape, count), part="header")


def _json_header_read(random: Random, count: int) -> Conversion:
    raws = [raw for _ in range(count) if _is_utf8(raw := _any_text(random))]
    return Conversion(JSON, {"schemas.enable": "false"}, raws=raws, part="header")


def _is_utf8(raw: bytes | None) -> bool:
    return raw is None or raw == raw.decode(errors="ignore").encode()


def _json_header_written(random: Random, count: int) -> Conversion:
    """Give what JSON and the text of a header have the same words for."""
    kinds = {name: shapes.SCALARS[name] for name in _WORDED}
    make = shapes.scalar if random.random() < 0.5 else shapes.compound
    config = _json_config(random, schemas=False)
    return Conversion(JSON, config, _written(random, make(random, kinds), count), part="header")


_WORDED = ("int8", "int16", "int32", "int64", "double", "boolean", "string")
_SIMPLE = {
    "BooleanConverter": ("boolean",),
    "ShortConverter": ("int16",),
    "IntegerConverter": ("int32",),
    "LongConverter": ("int64",),
    "FloatConverter": ("float",),
    "DoubleConverter": ("double",),
    "ByteArrayConverter": ("bytes",),
}


def _simple_written(random: Random, count: int, name: str) -> Conversion:
    kinds = {kind: shapes.SCALARS[kind] for kind in _SIMPLE[name]}
    shape = shapes.scalar(random, kinds)
    return Conversion(CONVERTERS + name, {}, _written(random, shape, count))


def _simple_read(random: Random, count: int, name: str) -> Conversion:
    length = {"Boolean": 1, "Short": 2, "Integer": 4, "Float": 4}.get(name[:-9], 8)
    raws = [
        None
        if random.random() < 0.05
        else random.randbytes(length if random.random() < 0.9 else random.randint(0, 9))
        for _ in range(count)
    ]
    if name == "BooleanConverter":
        raws = [raw and bytes([raw[0] % 2 if raw[0] < 250 else raw[0]]) for raw in raws]
    return Conversion(CONVERTERS + name, {}, raws=raws)


_TEXTUAL = ("int8", "int16", "int32", "int64", "float", "double", "boolean", "string")
_ENCODINGS = ("UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", "US-ASCII", "ISO-8859-1")


def _string_config(random: Random) -> dict[str, str]:
    return {} if random.random() < 0.5 else {"converter.encoding": random.choice(_ENCODINGS)}


def _string_written(random: Random, count: int) -> Conversion:
    kinds = {kind: shapes.SCALARS[kind] for kind in (*_TEXTUAL, "decimal")}
    shape = shapes.scalar(random, kinds)
    config = _string_config(random)
    return Conversion(f"{STORAGE}StringConverter", config, _written(random, shape, count))


def _string_read(random: Random, count: int) -> Conversion:
    config = _string_config(random)
    encoding = config.get("converter.encoding", "UTF-8")
    raws = [
        shapes.text(random).encode(encoding, "replace")
        if random.random() < 0.7
        else random.randbytes(random.randint(0, 6))
        for _ in range(count)
    ]
    return Conversion(f"{STORAGE}StringConverter", config, raws=[*raws[1:], None])


def _made() -> dict[str, Any]:
    def of(make: Any, name: str) -> Any:
        return lambda random, count: make(random, count, name)

    found = {
        "JsonConverter writes envelopes": lambda r, n: _json_written(r, n, schemas=True),
        "JsonConverter writes payloads": lambda r, n: _json_written(r, n, schemas=False),
        "JsonConverter reads envelopes": _json_enveloped,
        "JsonConverter reads texts of one shape": _json_plain,
        "JsonConverter reads any text": _json_any,
        "StringConverter writes": _string_written,
        "JsonConverter reads payloads of a given schema": _json_of_a_schema,
        "JsonConverter reads headers": _json_header_read,
        "JsonConverter writes headers": _json_header_written,
        "StringConverter reads": _string_read,
    }
    for name in ("StringConverter", "SimpleHeaderConverter"):
        found[f"{name} reads headers"] = of(_header_read, STORAGE + name)
        found[f"{name} writes headers"] = of(_header_written, STORAGE + name)
    for name in _SIMPLE:
        found[f"{name} writes"] = of(_simple_written, name)
        found[f"{name} reads"] = of(_simple_read, name)
    return found


KINDS: Mapping[str, Any] = _made()
"""What converters do, each with what makes its cases."""
