"""Puts the whole key or value into a field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, ValueExpr
from headrace.sdk.config import setting
from headrace.sdk.sqltext import FieldSyntax, sql_null

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class HoistFieldSettings(FieldSyntax):
    """The settings of ``HoistField``."""

    field: str = setting("The name of the field that holds the whole.")


class HoistField(Transform):
    """Puts the whole key or value into a field of a new struct; null, too.

    A path of several names makes a struct for each.
    """

    aliases = ("org.apache.kafka.connect.transforms.HoistField",)

    settings: HoistFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        whole = self.part(shape)
        # Nothing at all is null without a schema.
        schemaless = whole.schemaless or whole.schema is None
        path = self.settings.field_path(self.settings.field)
        if whole.schema is None:
            sql, schema = sql_null(Schema.string()), Schema.string(optional=True)
        else:
            sql, schema = whole.sql(), whole.schema
        inner, *around = reversed(path.steps)
        part = ValueExpr.of_fields({inner: (sql, schema)}, schemaless=schemaless)
        for name in around:
            assert part.schema is not None
            part = ValueExpr.of_fields({name: (part.sql(), part.schema)}, schemaless=schemaless)
        return self.with_part(shape, part)
