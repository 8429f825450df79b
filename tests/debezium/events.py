"""Events of Debezium as plain Python values, to compare others with."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from tests.debezium.engine import PLACEHOLDER, Event

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a time zone
_DAY_US = 86_400_000_000
_EXACT = Context(prec=200_000)  # more digits than a numeric can have
# Debezium has what the driver has: PGStatement.DATE_POSITIVE_INFINITY, 9223372036825200000, and
# its counterpart.
_INFINITE_US = 9_000_000_000_000_000_000


class Unchanged(Enum):
    """A value that an update left alone, and that the log has not got (TOAST)."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class Json:
    """A value of JSON, which a text would be taken for otherwise."""

    value: Any


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of a column are: a name as in `_KINDS`, and of a list its items."""

    name: str
    item: Kind | None = None


_KINDS = {
    "io.debezium.time.Date": ("date", 1),
    "io.debezium.time.IsoDate": ("date", 0),
    "org.apache.kafka.connect.data.Date": ("date", 1),
    "io.debezium.time.Time": ("time", 1_000),
    "io.debezium.time.MicroTime": ("time", 1),
    "io.debezium.time.IsoTime": ("time", 0),
    "org.apache.kafka.connect.data.Time": ("time", 1_000),
    "io.debezium.time.Timestamp": ("timestamp", 1_000),
    "io.debezium.time.MicroTimestamp": ("timestamp", 1),
    "io.debezium.time.IsoTimestamp": ("timestamp", 0),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", 1_000),
    "io.debezium.time.ZonedTimestamp": ("timestamptz", 0),
    "io.debezium.time.Interval": ("interval", 0),
    "org.apache.kafka.connect.data.Decimal": ("decimal", 0),
    "io.debezium.data.VariableScaleDecimal": ("decimal", 0),
    "io.debezium.data.Uuid": ("uuid", 0),
    "io.debezium.data.Json": ("json", 0),
}
"""The kind of a schema by its name, and how many microseconds (of a date: days) its unit has.
Whatever has another name is told by its type: ZonedTime, Enum, Xml and Ltree are texts."""

_TYPES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "int",
    "float": "float32",
    "float32": "float32",
    "double": "float64",
    "float64": "float64",
    "boolean": "bool",
    "string": "text",
    "bytes": "bytes",
}


def normalised(event: Event) -> dict[str, Any]:
    """Return an event, whose value has its schema, with plain values.

    It has ``topic``, ``op``, ``key``, ``before`` and ``after`` (each a dict of values as
    `canonical` has them, or None), ``txId``, ``lsn``, ``ts_ms`` and ``snapshot`` of its source,
    and ``kinds``, which has the kind of each column. The values that have not changed are
    `UNCHANGED`.
    """
    schema, payload = event["value"]["schema"], event["value"]["payload"]
    fields = {field["field"]: field for field in schema["fields"]}
    row, source = fields["after"], payload["source"]
    key = event["key"]
    return {
        "topic": event["topic"],
        "op": payload["op"],
        "key": None if key is None else _row(key["schema"], key["payload"]),
        "before": _row(fields["before"], payload["before"]),
        "after": _row(row, payload["after"]),
        "txId": source["txId"],
        "lsn": source["lsn"],
        "ts_ms": source["ts_ms"],
        "snapshot": source["snapshot"],
        "kinds": {field["field"]: _kind(field) for field in row["fields"]},
    }


def _row(schema: Mapping[str, Any], row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        field["field"]: canonical(_kind(field), _decoded(field, row[field["field"]]))
        for field in schema["fields"]
    }


def _kind(schema: Mapping[str, Any]) -> Kind:
    if (known := _KINDS.get(schema.get("name", ""))) is not None:
        return Kind(known[0])
    if schema["type"] == "array":
        return Kind("list", _kind(schema["items"]))
    return Kind(_TYPES.get(schema["type"], schema["type"]))


def _decoded(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value without what is particular to Debezium and to JSON."""
    if value is None or value == PLACEHOLDER:
        return value
    if schema["type"] == "array":
        return [_decoded(schema["items"], item) for item in value]
    name = schema.get("name", "")
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(value, int(schema["parameters"]["scale"]))
    if name == "io.debezium.data.VariableScaleDecimal":
        return _decimal(value["value"], value["scale"])
    if schema["type"] == "bytes":
        return base64.b64decode(value)
    kind, unit = _KINDS.get(name, ("", 0))
    return value * unit if unit and kind != "date" else value


def _decimal(unscaled: str, scale: int) -> Decimal | str:
    if unscaled == base64.b64encode(PLACEHOLDER.encode()).decode():
        return PLACEHOLDER
    number = int.from_bytes(base64.b64decode(unscaled), "big", signed=True)
    return _EXACT.scaleb(Decimal(number), -scale)


def array_items(text: str) -> list[str | None]:
    """Return the items of an array of one dimension, as PostgreSQL writes it."""
    # https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)', text)
    return [
        None if plain == "NULL" else plain or re.sub(r"\\(.)", r"\1", quoted)
        for quoted, plain in found
    ]


def canonical(kind: Kind, value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """Return the one form of a value of a kind.

    It takes what any reader may have: objects of Python, texts as PostgreSQL and ISO 8601 have
    them, numbers of days (date) or microseconds since 1970 or midnight. What no Python object
    can be, such as the year 10000, becomes a number or a text. Naive times are UTC.
    """
    if value is None or _is_placeholder(value):
        return value if value is None else UNCHANGED
    match kind.name:
        case "list":
            item = kind.item or Kind("text")
            items = array_items(value) if isinstance(value, str) else value
            return [canonical(item, each) for each in items]
        case "bool" if isinstance(value, str):
            return value.startswith("t")
        case "int":
            return int(value)
        case "decimal":
            number = value if isinstance(value, Decimal) else Decimal(str(value))
            return str(number) if not number.is_finite() else number.normalize(_EXACT)
        case "float32" | "float64":
            return _float(float(value), short=kind.name == "float32")
        case "bytes":
            return bytes(value)
        case "uuid":
            return UUID(str(value))
        case "json":
            return _json(value)
        case "date" | "time" | "timestamp" | "timestamptz" | "interval":
            return _TIMES[kind.name](value)
        case _:
            return value


def _json(value: Any) -> Json:
    if isinstance(value, Json):
        return value
    return Json(json.loads(value, parse_float=Decimal) if isinstance(value, str) else value)


def _is_placeholder(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 1 and _is_placeholder(value[0])
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value) == PLACEHOLDER.encode()
    return value is UNCHANGED or (isinstance(value, str) and value == PLACEHOLDER)


def _float(value: float, *, short: bool) -> float | str:
    if math.isnan(value):
        return "NaN"  # which equals itself
    if not short or math.isinf(value):
        return value
    [found] = struct.unpack("f", struct.pack("f", value))
    return float(found)


def _date(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, str):
        return _parsed(date.fromisoformat, value.removesuffix("Z"))
    if not isinstance(value, int):
        return value
    return _or_number(lambda: date(1970, 1, 1) + timedelta(days=value), value)


def _time(value: Any) -> Any:
    if isinstance(value, timedelta):
        value = value // timedelta(microseconds=1)
    if isinstance(value, str):
        return _DAY_US if value.startswith("24:00") else _parsed(_naive_time, value)
    if not isinstance(value, int):
        return value
    if value >= _DAY_US:
        return value
    return (_EPOCH + timedelta(microseconds=value)).time()


def _naive_time(text: str) -> time:
    return time.fromisoformat(text.removesuffix("Z"))


def _timestamp(value: Any) -> Any:
    """Return a naive one, whatever it has for a time zone."""
    found = _timestamptz(value)
    return found.replace(tzinfo=None) if isinstance(found, datetime) else found


def _timestamptz(value: Any) -> Any:
    if isinstance(value, str):
        value = _parsed(datetime.fromisoformat, value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if not isinstance(value, int):
        return value
    if abs(value) > _INFINITE_US:
        return "infinity" if value > 0 else "-infinity"
    return _or_number(
        lambda: (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=UTC), value
    )


def _parsed(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return text


def _or_number(make: Any, number: int) -> Any:
    try:
        return make()
    except OverflowError:
        return number


_ISO_PART = re.compile(r"(-?\d+(?:\.\d+)?)([YMWDHS])")
_PG_PART = re.compile(r"([+-]?\d+) (year|mon|day)s?|([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?)")


def _interval(value: Any) -> tuple[int, int, int]:
    """Return its months, days and microseconds, which PostgreSQL keeps apart."""
    if isinstance(value, timedelta):
        return (
            0,
            value.days,
            (value - timedelta(days=value.days)) // timedelta(microseconds=1),
        )
    if not isinstance(value, str):
        months, days, micros = value.values() if isinstance(value, Mapping) else value
        return (int(months), int(days), int(micros))
    return _iso_interval(value) if value.startswith("P") else _postgresql_interval(value)


def _iso_interval(text: str) -> tuple[int, int, int]:
    months, days, micros = 0, 0, Decimal(0)
    day_part, _, time_part = text.removeprefix("P").partition("T")
    for number, unit in _ISO_PART.findall(day_part):
        if unit in "YM":
            months += int(number) * (12 if unit == "Y" else 1)
        else:
            days += int(number) * (7 if unit == "W" else 1)
    for number, unit in _ISO_PART.findall(time_part):
        micros += Decimal(number) * {"H": 3_600, "M": 60, "S": 1}[unit] * 1_000_000
    # Debezium counts seconds as a double, which it cuts: 13.921176 is 13.921175999 there.
    return (months, days, round(micros))


def _postgresql_interval(text: str) -> tuple[int, int, int]:
    months, days, micros = 0, 0, 0
    for number, unit, sign, hours, minutes, seconds in _PG_PART.findall(text):
        if unit:
            months += int(number) * {"year": 12, "mon": 1, "day": 0}[unit]
            days += int(number) * (unit == "day")
        else:
            whole = Decimal(seconds) + 60 * int(minutes) + 3_600 * int(hours)
            micros = int(whole * 1_000_000) * (-1 if sign == "-" else 1)
    return (months, days, micros)


_TIMES = {
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "interval": _interval,
}


def canonical_row(
    kinds: Mapping[str, Kind], row: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return a row of any reader in the form that `normalised` gives."""
    if row is None:
        return None
    return {
        name: canonical(kinds[name], value) if name in kinds else value
        for name, value in row.items()
    }
