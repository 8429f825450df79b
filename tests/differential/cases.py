"""Random configurations of each of Kafka Connect's transforms, with records to run them on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from tests.differential import shapes
from tests.differential.shapes import Shape
from tests.differential.texts import DATE_FORMATS, PATTERNS, ROUTES, literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.differential.shapes import Json

KAFKA = "org.apache.kafka.connect.transforms."
RECORDS = 50
"""How many records go through one configuration, unless said otherwise."""
PREDICATED = 0.2
"""The share of the cases of a transform of keys or values that have a predicate."""
TOPICS = ("orders", "orders-20160117", "a.b.c", "x", "db1.shop.orders", "ünïcode", "UPPER_Case")
PREDICATES = ("TopicNameMatches", "HasHeaderKey", "RecordIsTombstone")
HEADERS = ("h", "k1", "k2", "trace id")


@dataclass(frozen=True)
class Case:
    """One configuration and its records.

    Args:
        step: ``{"class", "config", "predicate", "negate"}``.
        records: The records.
        sink: Whether they are a sink's: they have an offset.
    """

    step: Json
    records: Sequence[Json]
    sink: bool = False


@dataclass(frozen=True)
class Made:
    """What a maker of configurations decides.

    Args:
        config: The transform's keys.
        shape: How the part looks that it works on.
        predicate: ``{"class", "config"}``, if there is one.
        negate: Whether the step is for the others.
        sink: Whether the records have an offset.
        parts: Whether the transform exists for the key and for the value.
        transform: The transform's name, where the case is named otherwise.
    """

    config: Mapping[str, object]
    shape: Shape
    predicate: Json | None = None
    negate: bool = False
    sink: bool = False
    parts: bool = True
    transform: str | None = None


def cases(
    transform: str, count: int, *, records: int = RECORDS, seed: int = 1
) -> Iterator[Case]:
    """Yield cases of one transform; the same ones for the same seed."""
    for number in range(count):
        random = Random(f"{transform} {seed} {number}")
        yield _case(random, transform, records)


def _case(random: Random, transform: str, count: int) -> Case:
    made = MAKERS[transform](random)
    if made.parts and random.random() < PREDICATED:
        made = replace(made, predicate=_predicate(random), negate=random.random() < 0.5)
    part = random.choice(("Key", "Value", "Value")) if made.parts else ""
    of = "key" if part == "Key" else "value"
    other = _any_shape(random) if random.random() < 0.5 else None
    step: Json = {
        "class": f"{KAFKA}{made.transform or transform}{'$' if part else ''}{part}",
        "config": {name: _text(value) for name, value in made.config.items()},
    }
    if made.predicate is not None:
        step |= {"predicate": made.predicate, "negate": made.negate}
    records = [_record(random, of, made, other) for _ in range(count)]
    return Case(step, records, made.sink)


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _record(random: Random, of: str, made: Made, other: Shape | None) -> Json:
    record: Json = {
        "topic": random.choice(TOPICS),
        "timestamp": shapes.millis(random) if random.random() < 0.9 else None,
        "headers": [
            {"key": random.choice(HEADERS), "value": shapes.text(random)}
            for _ in range(random.choice((0, 0, 1, 2, 3)))
        ],
    }
    if made.sink:
        record |= {"partition": random.randint(0, 9), "offset": random.randint(0, 10**12)}
    elif random.random() < 0.5:
        record["partition"] = random.randint(0, 9)
    for name, shape in ((of, made.shape), ("key" if of == "value" else "value", other)):
        if shape is not None:
            record[name] = shape.make(random)
            if shape.schema is not None:
                record[f"{name}_schema"] = shape.schema
    return record


def _any_shape(random: Random) -> Shape:
    makers = (shapes.scalar, shapes.plain_scalar, shapes.struct, shapes.plain_struct)
    return random.choice(makers)(random)


def _fielded(random: Random) -> Shape:
    """Return mostly shapes that have fields."""
    chance = random.random()
    if chance < 0.5:
        return shapes.struct(random)
    if chance < 0.9:
        return shapes.plain_struct(random)
    return shapes.scalar(random) if chance < 0.95 else shapes.plain_scalar(random)


def _some(random: Random, names: Sequence[str], *, least: int = 1) -> list[str]:
    """Return some of the fields, now and then with one that does not exist."""
    known = list(names) or ["a"]
    found = random.sample(known, random.randint(min(least, len(known)), min(3, len(known))))
    return [*found, "zz"] if random.random() < 0.15 else found


def _one(random: Random, names: Sequence[str]) -> str:
    return random.choice([*names, *names, *names, "zz"])


def _replacing(random: Random) -> dict[str, object]:
    if random.random() < 0.5:
        return {}
    return {"replace.null.with.default": random.random() < 0.5}


_CASTS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")


def _cast(random: Random) -> Made:
    config = _replacing(random)
    if random.random() < 0.3:
        shape = shapes.scalar(random) if random.random() < 0.5 else shapes.plain_scalar(random)
        return Made({"spec": random.choice(_CASTS), **config}, shape)
    shape = _fielded(random)
    spec = [f"{name}:{random.choice(_CASTS)}" for name in _some(random, shape.names)]
    return Made({"spec": spec, **config}, shape)


def _replace_field(random: Random) -> Made:
    shape = _fielded(random)
    config = _replacing(random)
    if random.random() < 0.5:
        config["exclude"] = _some(random, shape.names)
    if random.random() < 0.5:
        config["include"] = _some(random, shape.names)
    if random.random() < 0.5:
        new = ("n1", "n2", "n3", *shape.names)
        config["renames"] = [f"{n}:{random.choice(new)}" for n in _some(random, shape.names)]
    return Made(config, shape)


def _extract_field(random: Random) -> Made:
    shape = _fielded(random)
    config = _replacing(random)
    if random.random() < 0.5:
        return Made({"field": _one(random, shape.names), **config}, shape)
    paths = [*shape.nested(), *shape.paths, ("zz",), (shape.paths or (("a",),))[0] + ("zz",)]
    path = random.choice(paths)
    steps = [f"`{step}`" if "." in step else step for step in path]
    return Made({"field": ".".join(steps), "field.syntax.version": "V2", **config}, shape)


def _flatten(random: Random) -> Made:
    delimiter = random.choice((None, ".", "_", "", "->"))
    config = {} if delimiter is None else {"delimiter": delimiter}
    return Made(config, _fielded(random))


def _hoist_field(random: Random) -> Made:
    return Made({"field": random.choice(("m", "a", "x.y"))}, _any_shape(random))


def _mask_field(random: Random) -> Made:
    shape = _fielded(random)
    config: dict[str, object] = {"fields": _some(random, shape.names), **_replacing(random)}
    replacement = random.choice((None, None, "***", "77", "1.5", "-0", "1e3", "300", "true"))
    if replacement is not None:
        config["replacement"] = replacement
    return Made(config, shape)


def _value_to_key(random: Random) -> Made:
    shape = _fielded(random)
    config = {"fields": _some(random, shape.names), **_replacing(random)}
    return Made(config, shape, parts=False)


def _insert_field(random: Random) -> Made:
    shape = _fielded(random)
    sink = random.random() < 0.5
    places = ["topic.field", "partition.field", "timestamp.field", "static.field"]
    places += ["offset.field"] if sink or random.random() < 0.05 else []
    config: dict[str, object] = {}
    for place in random.sample(places, random.randint(1, len(places))):
        name = random.choice(("t", "p", "q", "s", "o", *shape.names[:1]))
        config[place] = name + random.choice(("", "!", "?"))
    if "static.field" in config and random.random() < 0.95:
        config["static.value"] = random.choice(("x", "", "1", "ünïcode"))
    return Made(config, shape, sink=sink, **_limited(random))


def _limited(random: Random) -> dict[str, Any]:
    """Return a predicate, now and then."""
    if random.random() < 0.7:
        return {}
    return {"predicate": _predicate(random), "negate": random.random() < 0.5}


def _predicate(random: Random, name: str | None = None) -> Json:
    patterns = PATTERNS if name is None else (*PATTERNS, "(", "", "a.b.c", "X|x")
    name = name or random.choice(PREDICATES)
    config = {
        "TopicNameMatches": {"pattern": random.choice(patterns)},
        "HasHeaderKey": {"name": random.choice(HEADERS)},
        "RecordIsTombstone": {},
    }[name]
    return {"class": f"{KAFKA}predicates.{name}", "config": config}


def _only_predicate(random: Random, name: str) -> Made:
    """Drop the records that a predicate finds, so that those that stay tell what it found."""
    shape = shapes.scalar(random) if random.random() < 0.7 else _any_shape(random)
    return Made(
        {},
        shape,
        predicate=_predicate(random, name),
        negate=random.random() < 0.5,
        parts=False,
        transform="Filter",
    )


def _filter(random: Random) -> Made:
    predicate = _predicate(random) if random.random() < 0.95 else None
    shape = shapes.scalar(random) if random.random() < 0.5 else _any_shape(random)
    return Made({}, shape, predicate=predicate, negate=random.random() < 0.4, parts=False)


def _insert_header(random: Random) -> Made:
    config = {"header": random.choice(HEADERS), "value.literal": literal(random)}
    return Made(config, _any_shape(random), parts=False, **_limited(random))


def _drop_headers(random: Random) -> Made:
    names = random.sample((*HEADERS, "zz"), random.randint(1, 3))
    return Made({"headers": names}, _any_shape(random), parts=False, **_limited(random))


def _header_from(random: Random) -> Made:
    shape = _fielded(random)
    fields = _some(random, shape.names)
    headers = [random.choice((*HEADERS, "new")) for _ in fields]
    if random.random() < 0.05:
        headers = headers[1:]
    operation = random.choice(("move", "copy", "copy"))
    config = {"fields": fields, "headers": headers, "operation": operation}
    return Made({**config, **_replacing(random)}, shape)


def _regex_router(random: Random) -> Made:
    regex, replacement = random.choice(ROUTES)
    config = {"regex": regex, "replacement": replacement}
    return Made(config, _any_shape(random), parts=False, **_limited(random))


def _timestamp_router(random: Random) -> Made:
    config = {}
    if random.random() < 0.7:
        config["topic.format"] = random.choice(
            ("${topic}-${timestamp}", "${timestamp}", "x", "${topic}/${topic}", "$1${topic}\\")
        )
    if random.random() < 0.7:
        config["timestamp.format"] = random.choice(DATE_FORMATS)
    return Made(config, _any_shape(random), parts=False, **_limited(random))


_TIMES = ("timestamp", "date", "time", "int64", "string", "int32")


def _moment(random: Random) -> Shape:
    """Return a value with a schema that the converter of timestamps may take."""
    kinds = {name: shapes.SCALARS[name] for name in _TIMES}
    kinds["int64"] = shapes.Kind({"type": "int64"}, shapes.millis)
    kinds["string"] = shapes.Kind({"type": "string"}, _time_text)
    return shapes.scalar(random, kinds)


def _time_text(random: Random) -> str:
    return random.choice(
        (
            *("2017-01-02", "20170102", "2017-01-02T03:04:05.678Z", "2017/01/02 03:04:05"),
            *(
                "garbage",
                "",
                "2017-02-30",
                "2017-1-2",
                "12:30 PM",
                " 2017-01-02",
                "2017-01-02x",
            ),
            *("99", "Mon, 2 Jan 2017 03:04:05 +0000", "12", "January"),
        )
    )


def _plain_moment(random: Random) -> Shape:
    make = random.choice((shapes.millis, _time_text, shapes.floating, lambda _: None))
    return Shape(None, make)


def _timestamp_converter(random: Random) -> Made:
    target = random.choice(("string", "unix", "Date", "Time", "Timestamp"))
    config: dict[str, object] = {"target.type": target, **_replacing(random)}
    if target == "string" or random.random() < 0.6:
        config["format"] = random.choice(DATE_FORMATS)
    if random.random() < 0.5:
        precisions = ("seconds", "milliseconds", "microseconds", "nanoseconds", "days")
        config["unix.precision"] = random.choice(precisions)
    whole = _moment(random) if random.random() < 0.5 else _plain_moment(random)
    if random.random() < 0.4:
        return Made(config, whole)
    config["field"] = "t" if random.random() < 0.9 else "zz"
    fields = [{**(whole.schema or {}), "field": "t"}, {"type": "int8", "field": "x"}]
    schema = None if whole.schema is None else {"type": "struct", "fields": fields}
    shape = Shape(schema, lambda random: {"t": whole.make(random), "x": 1}, (("t",), ("x",)))
    return Made(config, shape)


def _set_schema_metadata(random: Random) -> Made:
    config: dict[str, object] = _replacing(random)
    if random.random() < 0.7:
        config["schema.name"] = random.choice(("foo", "com.example.Bar", ""))
    if random.random() < 0.7:
        config["schema.version"] = random.choice((1, 7, -1, "x"))
    shape = _fielded(random) if random.random() < 0.8 else _any_shape(random)
    return Made(config, shape)


MAKERS: Mapping[str, Callable[[Random], Made]] = {
    "Cast": _cast,
    "ReplaceField": _replace_field,
    "ExtractField": _extract_field,
    "Flatten": _flatten,
    "HoistField": _hoist_field,
    "MaskField": _mask_field,
    "ValueToKey": _value_to_key,
    "InsertField": _insert_field,
    "InsertHeader": _insert_header,
    "DropHeaders": _drop_headers,
    "HeaderFrom": _header_from,
    "RegexRouter": _regex_router,
    "TimestampRouter": _timestamp_router,
    "TimestampConverter": _timestamp_converter,
    "SetSchemaMetadata": _set_schema_metadata,
    "Filter": _filter,
    **{name: partial(_only_predicate, name=name) for name in PREDICATES},
}
"""The transforms and predicates, each with what makes its cases."""
