"""Chooses a topic by the value of a field."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from typing_extensions import override

from headrace.sdk import ConfigError, Transform, Type, UnfitRecordError, literal
from headrace.sdk.config import ConfigDef, ConfigType, Importance, NullOr, Range, ValidString
from headrace.sdk.fieldpath import FieldPath
from headrace.sdk.logical import DATE, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Schema, Shape

_NUMBERS = {Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64}
_NEEDED = {"hash": "shards", "range": "bounds", "date": "pattern"}


class Shard(Transform):
    """Sends each record to a shard's topic: by hash, range or date pattern of a field.

    The same value goes to the same shard, whatever the batch. The hash is xxHash64 of the
    value as text, so that it stays when a number's type is widened.
    """

    routes = True

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        text = ConfigType.STRING
        return (
            ConfigDef()
            .define(
                "field",
                text,
                importance=Importance.HIGH,
                doc="The field to look at; dots lead into structs, back-ticks quote names.",
            )
            .define(
                "strategy",
                text,
                "hash",
                validator=ValidString(*_NEEDED),
                importance=Importance.HIGH,
                doc="hash spreads values evenly over shards, 0 to shards - 1; range numbers "
                "what is between bounds, from 0; date names a shard by the field's time.",
            )
            .define(
                "shards",
                ConfigType.INT,
                None,
                validator=NullOr(Range(at_least=1)),
                doc="For hash: how many shards there are.",
            )
            .define(
                "bounds",
                ConfigType.LIST,
                "",
                doc="For range: the first value of each shard but the first, ascending.",
            )
            .define(
                "pattern",
                text,
                None,
                doc="For date: Spark's date pattern, such as yyyyMM.",
            )
            .define("time.zone", text, "UTC", doc="For date: the zone to take the date in.")
            .define(
                "topic.format",
                text,
                "${topic}_${shard}",
                doc="The new topic; ${topic} stands for the old one, ${shard} for the shard.",
            )
            .define(
                "null.shard",
                text,
                "null",
                doc="The shard of records whose field is null, or is no date for date.",
            )
            .rule(_check)
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.struct(shape, "sharding")
        name = self.config.get_str("field")
        found = part.find(FieldPath.parse(name, "V2"))
        if found is None:
            raise UnfitRecordError(message=f"Field does not exist: {name}")
        sql, schema = found
        shard = getattr(self, f"_{self.config.get_str('strategy')}")(sql, schema)
        values = {
            "${topic}": shape.topic,
            "${shard}": f"coalesce({shard}, {literal(self.config.get_str('null.shard'))})",
        }
        topic = f"concat({', '.join(_parts(self.config.get_str('topic.format'), values))})"
        return replace(shape, topic=topic)

    def _hash(self, sql: str, schema: Schema) -> str:
        shards = self.config.get_int("shards")
        shard = f"pmod(xxhash64(CAST({sql} AS STRING)), {shards}L)"
        return f"IF({sql} IS NULL, NULL, CAST({shard} AS STRING))"

    def _range(self, sql: str, schema: Schema) -> str:
        texts = self.config.get_list("bounds")
        numeric = schema.type in _NUMBERS and not schema.is_logical
        bounds = [_number(text) for text in texts] if numeric else [literal(t) for t in texts]
        cases = [f"WHEN {sql} < {bound} THEN '{n}'" for n, bound in enumerate(bounds)]
        return f"CASE WHEN {sql} IS NULL THEN NULL {' '.join(cases)} ELSE '{len(texts)}' END"

    def _date(self, sql: str, schema: Schema) -> str:
        pattern = literal(self.config.get_str("pattern"))
        if schema.name == DATE:
            return f"date_format({sql}, {pattern})"
        if schema.name != TIMESTAMP and schema.type is not Type.STRING:
            name = self.config.get_str("field")
            raise UnfitRecordError(message=f"Field is no date, time or text: {name}")
        time = sql if schema.name == TIMESTAMP else f"try_cast({sql} AS TIMESTAMP)"
        zone = literal(self.config.get_str("time.zone"))
        return f"date_format(from_utc_timestamp({time}, {zone}), {pattern})"


def _number(text: str) -> str:
    try:
        return f"{Decimal(text):f}"
    except InvalidOperation as error:
        raise ConfigError(
            problem=f"{text!r} is not a number, as the field is.",
            field="bounds",
            fix="Give numbers.",
        ) from error


def _parts(form: str, values: Mapping[str, str]) -> list[str]:
    """Return the SQL of a text's pieces, with expressions for what stands in it."""
    pieces = [form]
    for name in values:
        pieces = [
            piece
            for text in pieces
            for piece in (text.replace(name, f"\0{name}\0").split("\0") if text else [])
        ]
    return [values.get(piece, literal(piece)) for piece in pieces if piece]


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    strategy = str(props.get("strategy") or "hash")
    needed = _NEEDED.get(strategy)
    if needed and not props.get(needed):
        yield ConfigError(
            problem=f"The strategy {strategy} needs it.", field=needed, fix=f"Set {needed}."
        )
    if "${shard}" not in str(props.get("topic.format") or "${shard}"):
        yield ConfigError(
            problem="All shards would have one name.",
            field="topic.format",
            fix="Put ${shard} into it.",
        )
    try:
        ZoneInfo(str(props.get("time.zone") or "UTC"))
    except (ValueError, OSError, KeyError):
        fix = "Name one of the IANA's zones, such as Europe/Paris."
        yield ConfigError(problem="There is no such zone.", field="time.zone", fix=fix)
