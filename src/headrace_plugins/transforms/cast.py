"""Changes the types of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform, Type, literal
from headrace.sdk.config import ConfigDef, ConfigType, Importance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Shape

_TYPES = {
    "int8": (Type.INT8, "TINYINT"),
    "int16": (Type.INT16, "SMALLINT"),
    "int32": (Type.INT32, "INT"),
    "int64": (Type.INT64, "BIGINT"),
    "float32": (Type.FLOAT32, "FLOAT"),
    "float64": (Type.FLOAT64, "DOUBLE"),
    "boolean": (Type.BOOLEAN, "BOOLEAN"),
    "string": (Type.STRING, "STRING"),
}


class Cast(Transform):
    """Changes fields, or the whole key or value, to another type.

    A value that does not fit rejects its record. Null stays null.
    """

    aliases = ("org.apache.kafka.connect.transforms.Cast",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "spec",
                ConfigType.LIST,
                importance=Importance.HIGH,
                doc="field:type pairs, or one type for the whole part. Types: "
                f"{', '.join(_TYPES)}.",
            )
            .rule(_check_spec)
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        spec = self.config.get_list("spec")
        if ":" not in spec[0]:
            return self._apply_whole(shape, spec[0])
        part = self.struct(shape, "cast types")
        columns = part.columns()
        for pair in spec:
            name, kind = pair.rsplit(":", 1)
            if name not in columns:
                continue  # as in Kafka Connect, a field that is not there is no error
            sql, schema = columns[name]
            columns[name] = _cast(sql, schema, kind)
            shape = self._failing(shape, name, sql, kind)
        return self.with_part(shape, part.with_fields(columns))

    def _apply_whole(self, shape: Shape, kind: str) -> Shape:
        part = self.part(shape)
        if part.schema is None:
            return shape
        if part.is_struct:
            fix = "Name the fields: spec: field:type."
            raise ConfigError(
                problem="A structure cannot be cast.", field=f"transforms.{self.alias}", fix=fix
            )
        sql, schema = _cast(part.whole, part.schema, kind)
        failing = self._failing(shape, "", part.whole, kind)
        return self.with_part(failing, type(part)(schema, whole=sql, missing=part.missing))

    def _failing(self, shape: Shape, name: str, sql: str, kind: str) -> Shape:
        if kind == "string":
            return shape
        where = f" in field {name}" if name else ""
        after = literal(f"){where} cannot be cast to {kind}.")
        return shape.failing(
            f"{sql} IS NOT NULL AND try_cast({sql} AS {_TYPES[kind][1]}) IS NULL",
            stage="TRANSFORMATION",
            plugin=f"{self.alias} (Cast)",
            exception="org.apache.kafka.connect.errors.DataException",
            message=f"concat('Value (', CAST({sql} AS STRING), {after})",
        )


def _cast(sql: str, schema: Schema, kind: str) -> tuple[str, Schema]:
    type_, name = _TYPES[kind]
    return f"try_cast({sql} AS {name})", Schema(type_, optional=schema.optional)


def _check_spec(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    pairs = [pair.strip() for pair in str(props.get("spec") or "").split(",") if pair.strip()]
    if props.get("spec") is not None and not pairs:
        fix = "Write it as field:type."
        yield ConfigError(
            problem="Must specify at least one field to cast.", field="spec", fix=fix
        )
    if len(pairs) > 1 and any(":" not in pair for pair in pairs):
        fix = "Give one type alone, or field:type pairs."
        yield ConfigError(
            problem="Cast either the whole or fields, not both.", field="spec", fix=fix
        )
    for pair in pairs:
        kind = pair.rsplit(":", 1)[-1]
        if kind not in _TYPES:
            fix = f"Use one of: {', '.join(_TYPES)}."
            yield ConfigError(
                problem=f"{kind!r} is not a type that Cast knows.", field="spec", fix=fix
            )
