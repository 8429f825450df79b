"""Makes the key from fields of the value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, UnfitRecordError, ValueExpr
from headrace.sdk.config import (
    Importance,
    NonEmptyList,
    setting,
)
from headrace.sdk.sqltext import FieldSyntax, sql_null
from headrace.sdk.struct_exprs import duplicate
from headrace_plugins.transforms.null_defaults import NullDefaults

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr
    from headrace.sdk.sqltext import FieldPath
    from headrace.sdk.struct_exprs import Column

_PURPOSE = "copying fields from value to key"


class ValueToKeySettings(NullDefaults, FieldSyntax):
    """The settings of ``ValueToKey``."""

    fields: tuple[str, ...] = setting(
        "The fields of the value that make the key, in this order.",
        validator=NonEmptyList(),
        importance=Importance.HIGH,
    )


class ValueToKey(Transform):
    """Makes the key a struct of some of the value's fields.

    A nested field keeps only its own name. A field that is not there is null in values
    without a schema; with a schema it rejects the record. So does a value that is null.
    """

    aliases = ("org.apache.kafka.connect.transforms.ValueToKey",)
    parts = False

    settings: ValueToKeySettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        shape, value = self.whole_struct(shape, _PURPOSE)
        if value is None:
            return shape
        try:
            columns = self._columns(value)
        except UnfitRecordError as error:
            return replace(self.refusing(shape, error), unfit=True)
        return replace(shape, key=ValueExpr.of_fields(columns, schemaless=value.schemaless))

    def _columns(self, value: ValueExpr) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        for path in self.settings.field_paths(self.settings.fields):
            if path.name in columns and not value.schemaless:
                raise duplicate(path.name)
            columns[path.name] = self._field(value, path)
        return columns

    def _field(self, value: ValueExpr, path: FieldPath) -> Column:
        found = value.find(path, defaults=self.settings.replace_null_with_default)
        if found is None and not value.schemaless:
            raise UnfitRecordError(message=f"Field does not exist: {path.text}")
        if found is None:
            return sql_null(Schema.string()), Schema.string(optional=True)
        return found
