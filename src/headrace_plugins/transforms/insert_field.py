"""Adds fields made from the record's metadata or from a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    Schema,
    Transform,
    field_path,
    literal,
    sql_type,
    with_field_syntax,
)
from headrace.sdk.config import ConfigDef, ConfigType
from headrace_plugins.transforms.null_defaults import NULL_DEFAULTS, with_null_defaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Column, FieldPath, Part, Shape

_FIELDS = {
    "topic.field": "the topic",
    "partition.field": "the partition",
    "offset.field": "the record's offset; null where no one number says it, as in a topic "
    "that is a table",
    "timestamp.field": "the record's timestamp",
    "static.field": "the constant static.value",
}
_SUFFIX = "! after the name makes the field required, ? optional (the default)."


class InsertField(Transform):
    """Adds the topic, the partition, the offset, the timestamp or a constant as a field.

    A record whose part is null as a whole stays as it is.
    """

    aliases = ("org.apache.kafka.connect.transforms.InsertField",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        definition = ConfigDef()
        for name, content in _FIELDS.items():
            doc = f"Name of a field for {content}. {_SUFFIX}"
            definition = definition.define(name, ConfigType.STRING, None, doc=doc)
        definition = definition.define(
            "static.value", ConfigType.STRING, None, doc="The constant, as text."
        )
        return with_field_syntax(with_null_defaults(definition)).rule(_check_any)

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.struct(shape, "field insertion")
        if self.config.get_bool(NULL_DEFAULTS):
            part = part.defaulted()
        for key, column in self._columns(shape, part).items():
            name = self.config.find_str(key)
            if name is None:
                continue
            path = field_path(self.config, name[:-1] if name.endswith(("!", "?")) else name)
            schema = column[1].replaced(optional=not name.endswith("!"))
            part = _inserted(part, path, (column[0], schema))
        return self.with_part(shape, part)

    def _columns(self, shape: Shape, part: Part) -> dict[str, Column]:
        timestamp = (shape.timestamp, Schema.timestamp())
        if part.schemaless:
            timestamp = (f"unix_millis({shape.timestamp})", Schema.int64())
        offset = shape.offset or "CAST(NULL AS BIGINT)"
        static = literal(self.config.find_str("static.value") or "")
        return {
            "topic.field": (shape.topic, Schema.string()),
            "partition.field": (shape.partition, Schema.int32()),
            "offset.field": (offset, Schema.int64()),
            "timestamp.field": timestamp,
            "static.field": (static, Schema.string()),
        }


def _inserted(part: Part, path: FieldPath, column: Column) -> Part:
    sql, schema = column
    before = part.find(path) if part.schemaless else None
    if before is not None and sql_type(before[1]) == sql_type(schema):
        # Without a schema, what the record does not have replaces nothing.
        sql = f"coalesce({sql}, {before[0]})"
    return part.inserted(path, sql, schema)


def _check_any(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if all(props.get(key) is None for key in _FIELDS):
        fix = f"Set one of {', '.join(_FIELDS)}."
        yield ConfigError(
            problem="No field insertion configured", field="static.field", fix=fix
        )
    if props.get("static.field") is not None and props.get("static.value") is None:
        yield ConfigError(
            problem="Invalid value null for configuration static.value: No value specified for "
            f"static field: {props['static.field']}",
            field="static.value",
            fix="Set the constant's text.",
        )
