"""Copies a nested field to the top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform, UnfitRecordError
from headrace.sdk.config import Importance, setting
from headrace.sdk.sqltext import FieldPath, FieldSyntax
from headrace_plugins.transforms.rocketmq.structs import require_struct

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr

_OUTER, _INNER = "input.outer.field.name", "input.inner.field.name"
_OUTPUT = "output.field.name"


class ExtractNestedFieldSettings(FieldSyntax):
    """The settings of ``ExtractNestedField``."""

    input_outer_field_name: str = setting(
        "The field that holds the struct: address for address.state.",
        importance=Importance.HIGH,
    )
    input_inner_field_name: str = setting(
        "The field of that struct to extract: state for address.state.",
        importance=Importance.HIGH,
    )
    output_field_name: str | None = setting(
        "The name of the new field; the inner field's when it is not set.",
        default=None,
        importance=Importance.MEDIUM,
    )


class ExtractNestedField(Transform):
    """Adds a field to the key or the value that holds what a field of a struct in it holds."""

    aliases = ("org.apache.rocketmq.connect.transforms.ExtractNestedField",)

    settings: ExtractNestedFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = require_struct(self.part(shape))
        if part.schema is None:
            return shape
        outer, inner = (
            self.settings.input_outer_field_name,
            self.settings.input_inner_field_name,
        )
        steps = (*self.settings.field_path(outer).steps, *self.settings.field_path(inner).steps)
        path = FieldPath(steps, f"{outer}.{inner}")
        column = part.find(path)
        if column is None:
            raise UnfitRecordError(
                message=f"Field does not exist: {path.text}", where=f"NOT {part.is_null()}"
            )
        output = self.settings.output_field_name
        new = (
            FieldPath((path.name,), path.name)
            if not output
            else self.settings.field_path(output)
        )
        return self.with_part(shape, part.inserted(new, *column))
