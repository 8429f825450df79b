"""Copies a nested field to the top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform, UnfitRecordError
from headrace.sdk.config import ConfigDef, ConfigType, Importance
from headrace.sdk.fieldpath import FieldPath, field_path, with_field_syntax
from headrace_plugins.transforms.rocketmq.structs import require_struct

if TYPE_CHECKING:
    from headrace.sdk import Shape

_OUTER, _INNER = "input.outer.field.name", "input.inner.field.name"
_OUTPUT = "output.field.name"


class ExtractNestedField(Transform):
    """Adds a field to the key or the value that holds what a field of a struct in it holds."""

    aliases = ("org.apache.rocketmq.connect.transforms.ExtractNestedField",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return with_field_syntax(
            ConfigDef()
            .define(
                _OUTER,
                ConfigType.STRING,
                importance=Importance.HIGH,
                doc="The field that holds the struct: address for address.state.",
            )
            .define(
                _INNER,
                ConfigType.STRING,
                importance=Importance.HIGH,
                doc="The field of that struct to extract: state for address.state.",
            )
            .define(
                _OUTPUT,
                ConfigType.STRING,
                None,
                importance=Importance.MEDIUM,
                doc="The name of the new field; the inner field's when it is not set.",
            )
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        part = require_struct(self.part(shape))
        if part.schema is None:
            return shape
        outer, inner = self.config.get_str(_OUTER), self.config.get_str(_INNER)
        steps = (*field_path(self.config, outer).steps, *field_path(self.config, inner).steps)
        path = FieldPath(steps, f"{outer}.{inner}")
        column = part.find(path)
        if column is None:
            raise UnfitRecordError(
                message=f"Field does not exist: {path.text}", where=f"NOT {part.is_null()}"
            )
        output = self.config.find_str(_OUTPUT)
        new = (
            FieldPath((path.name,), path.name)
            if not output
            else field_path(self.config, output)
        )
        return self.with_part(shape, part.inserted(new, *column))
