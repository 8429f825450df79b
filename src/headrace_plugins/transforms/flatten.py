"""Brings the fields of nested structs to the top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import Schema, Struct, Transform, Type, UnfitRecordError, ValueExpr
from headrace.sdk.config import Settings, setting
from headrace.sdk.sqltext import quote
from headrace.sdk.struct_exprs import defaulted, duplicate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.sdk import RecordExpr
    from headrace.sdk.struct_exprs import Column

_PURPOSE = "flattening"


class FlattenSettings(Settings):
    """The settings of ``Flatten``."""

    delimiter: str = setting("What stands between the names.", default=".")


class Flatten(Transform):
    """Brings the fields of nested structs to the top, under the names on the way to them.

    Arrays stay as they are. Maps are not flattened: with a schema they reject the record, as
    in Kafka Connect. A field is optional if anything around it is, and takes its default from
    that of the struct around it where it has none of its own.
    """

    aliases = ("org.apache.kafka.connect.transforms.Flatten",)

    settings: FlattenSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, _PURPOSE)
        if part.schema is None or part.is_map:
            return self._of_map(shape, part)
        where = f"NOT {part.is_null()}"
        columns: dict[str, Column] = {}
        for name, column in self._fields(part):
            if isinstance(column, UnfitRecordError):
                raise UnfitRecordError(message=column.message, where=where)
            if name in columns and not part.schemaless:
                error = duplicate(name)
                raise UnfitRecordError(
                    message=error.message, exception=error.exception, where=where
                )
            columns[name] = column
        return self.with_part(shape, part.with_fields(columns))

    def _of_map(self, shape: RecordExpr, part: ValueExpr) -> RecordExpr:
        values = part.schema.value_schema if part.schema else None
        if values is not None and values.type in (Type.MAP, Type.STRUCT):
            raise UnfitRecordError(
                message="Flatten transformation needs the names of all fields, but this map's "
                "differ from record to record.",
                where=f"NOT {part.is_null()}",
            )
        return shape

    def _fields(self, part: ValueExpr) -> Iterator[tuple[str, Column | UnfitRecordError]]:
        assert part.schema is not None
        optional = part.schema.optional and not part.schemaless
        for name, (sql, schema) in part.columns().items():
            default = _default(schema, name, part.schema.default)
            yield from self._below(name, (sql, schema), default, optional=optional)

    def _below(
        self, name: str, column: Column, default: Any, *, optional: bool
    ) -> Iterator[tuple[str, Column | UnfitRecordError]]:
        sql, schema = column
        optional = optional or schema.optional
        if schema.type is Type.STRUCT:
            for field in schema.fields:
                below = (f"{sql}.{quote(field.name)}", field.schema)
                own = _default(field.schema, field.name, default)
                yield from self._below(
                    f"{name}{self._delimiter}{field.name}",
                    _within(sql, schema, below),
                    own,
                    optional=optional,
                )
        elif schema.type is Type.MAP:
            yield (
                name,
                UnfitRecordError(
                    message=f"Flatten transformation does not support {schema.type} for record "
                    f"with schemas (for field {name})."
                ),
            )
        else:
            new = schema.replaced(optional=optional, default=default)
            yield name, (defaulted(column)[0], new)

    @property
    def _delimiter(self) -> str:
        return self.settings.delimiter


def _default(schema: Schema, name: str, around: object) -> object:
    """Give a field's default: its own, or what it is in the default of the struct around it."""
    if schema.default is not None:
        return schema.default
    return around[name] if isinstance(around, Struct) else None


def _within(sql: str, schema: Schema, column: Column) -> Column:
    """Give a field of a struct, null and not its default where the struct is null."""
    if not schema.optional or column[1].default is None or column[1].type is Type.STRUCT:
        return column
    filled, own = defaulted(column)
    return f"IF({sql} IS NULL, NULL, {filled})", own.replaced(default=None)
