"""Adds fields made from the record's metadata or from a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform
from headrace.sdk.config import setting
from headrace.sdk.sqltext import FieldSyntax, literal, sql_type
from headrace_plugins.transforms.null_defaults import NullDefaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.sqltext import FieldPath
    from headrace.sdk.struct_exprs import Column

_FIELDS = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field")
_SUFFIX = "! after the name makes the field required, ? optional (the default)."


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


class InsertFieldSettings(NullDefaults, FieldSyntax):
    """The fields to add, each by the name that it gets."""

    topic_field: str | None = setting(f"Name of a field for the topic. {_SUFFIX}", default=None)
    partition_field: str | None = setting(
        f"Name of a field for the partition. {_SUFFIX}", default=None
    )
    offset_field: str | None = setting(
        "Name of a field for the record's offset; null where no one number says it, as in a "
        f"topic that is a table. {_SUFFIX}",
        default=None,
    )
    timestamp_field: str | None = setting(
        f"Name of a field for the record's timestamp. {_SUFFIX}", default=None
    )
    static_field: str | None = setting(
        f"Name of a field for the constant static.value. {_SUFFIX}", default=None
    )
    static_value: str | None = setting("The constant, as text.", default=None)

    rules = (_check_any,)


class InsertField(Transform):
    """Adds the topic, the partition, the offset, the timestamp or a constant as a field.

    A record whose part is null as a whole stays as it is.
    """

    aliases = ("org.apache.kafka.connect.transforms.InsertField",)

    settings: InsertFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, "field insertion")
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        for name, column in self._columns(shape, part):
            if name is None:
                continue
            path = self.settings.field_path(name[:-1] if name.endswith(("!", "?")) else name)
            schema = column[1].replaced(optional=not name.endswith("!"))
            part = _inserted(part, path, (column[0], schema))
        return self.with_part(shape, part)

    def _columns(
        self, shape: RecordExpr, part: ValueExpr
    ) -> Iterable[tuple[str | None, Column]]:
        settings = self.settings
        timestamp = (shape.timestamp, Schema.timestamp())
        if part.schemaless:
            timestamp = (f"unix_millis({shape.timestamp})", Schema.int64())
        offset = shape.offset or "CAST(NULL AS BIGINT)"
        static = literal(settings.static_value or "")
        return [
            (settings.topic_field, (shape.topic, Schema.string())),
            (settings.partition_field, (shape.partition, Schema.int32())),
            (settings.offset_field, (offset, Schema.int64())),
            (settings.timestamp_field, timestamp),
            (settings.static_field, (static, Schema.string())),
        ]


def _inserted(part: ValueExpr, path: FieldPath, column: Column) -> ValueExpr:
    sql, schema = column
    before = part.find(path) if part.schemaless else None
    if before is not None and sql_type(before[1]) == sql_type(schema):
        # Without a schema, what the record does not have replaces nothing.
        sql = f"coalesce({sql}, {before[0]})"
    return part.inserted(path, sql, schema)
