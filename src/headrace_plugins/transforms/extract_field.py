"""Puts a field in the place of the whole key or value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, UnfitRecordError, ValueExpr
from headrace.sdk.config import setting
from headrace.sdk.sqltext import FieldSyntax, sql_null
from headrace_plugins.transforms.null_defaults import NullDefaults

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr
    from headrace.sdk.struct_exprs import Column

_PURPOSE = "field extraction"
_UNKNOWN = "java.lang.IllegalArgumentException"


class ExtractFieldSettings(FieldSyntax, NullDefaults):
    """The settings of ``ExtractField``."""

    field: str = setting("The field to put in the place of the whole.")


class ExtractField(Transform):
    """Puts a field in the place of the whole key or value.

    A field that is not there is null in values without a schema; with a schema it rejects the
    record, also one that is null. Other nulls stay null.
    """

    aliases = ("org.apache.kafka.connect.transforms.ExtractField",)

    settings: ExtractFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.part(shape)
        if part.schema is None:
            return shape
        if not part.schemaless and not part.is_struct:
            return self._unstructured(shape, part)
        part = self.struct(shape, _PURPOSE)
        shape, found = self._find(shape, part)
        if found is None:
            found = (sql_null(Schema.string()), Schema.string(optional=True))
        sql, schema = found
        if part.missing is not None:
            sql = f"IF({part.missing}, NULL, {sql})"
        return self.with_part(shape, ValueExpr.of(sql, schema, schemaless=part.schemaless))

    def _unstructured(self, shape: RecordExpr, part: ValueExpr) -> RecordExpr:
        """Reject all records; of a null, Kafka Connect asks the schema and not the value."""
        nothing = part.is_null()
        null = UnfitRecordError(
            message="Cannot look up fields on non-struct type", where=nothing
        )
        other = self.unstructured(part, _PURPOSE, where=f"NOT {nothing}")
        return replace(self.refusing(self.refusing(shape, null), other), unfit=True)

    def _find(self, shape: RecordExpr, part: ValueExpr) -> tuple[RecordExpr, Column | None]:
        path = self.settings.field_path(self.settings.field)
        try:
            found = part.find(path, defaults=self.settings.replace_null_with_default)
        except UnfitRecordError as error:
            if not part.schemaless:
                # It is the schema that lacks the field, so that a null has it no more.
                raise UnfitRecordError(
                    message=error.message, exception=error.exception
                ) from error
            # A value in the way of the path that is null is no fault.
            return self.refusing(shape, error), None
        if found is None and not part.schemaless:
            raise UnfitRecordError(message=f"Unknown field: {path.text}", exception=_UNKNOWN)
        return shape, found
