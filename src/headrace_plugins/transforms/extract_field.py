"""Puts a field in the place of the whole key or value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import (
    Part,
    Schema,
    Transform,
    UnfitRecordError,
    field_path,
    sql_null,
    with_field_syntax,
)
from headrace.sdk.config import ConfigDef, ConfigType
from headrace_plugins.transforms.null_defaults import NULL_DEFAULTS, with_null_defaults

if TYPE_CHECKING:
    from headrace.sdk import Column, Shape

_UNKNOWN = "java.lang.IllegalArgumentException"


class ExtractField(Transform):
    """Puts a field in the place of the whole key or value.

    A field that is not there is null in values without a schema; with a schema it rejects the
    record. Null stays null.
    """

    aliases = ("org.apache.kafka.connect.transforms.ExtractField",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        definition = ConfigDef().define(
            "field", ConfigType.STRING, doc="The field to put in the place of the whole."
        )
        return with_null_defaults(with_field_syntax(definition))

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.part(shape)
        if part.schema is None:
            return shape
        part = self.struct(shape, "field extraction")
        shape, found = self._find(shape, part)
        if found is None:
            found = (sql_null(Schema.string()), Schema.string(optional=True))
        sql, schema = found
        if part.missing is not None:
            sql = f"IF({part.missing}, NULL, {sql})"
        return self.with_part(shape, Part.of(sql, schema, schemaless=part.schemaless))

    def _find(self, shape: Shape, part: Part) -> tuple[Shape, Column | None]:
        path = field_path(self.config, self.config.get_str("field"))
        try:
            found = part.find(path, defaults=self.config.get_bool(NULL_DEFAULTS))
        except UnfitRecordError as error:
            if not part.schemaless:
                raise
            # A value in the way of the path that is null is no fault.
            return self.refusing(shape, error), None
        if found is None and not part.schemaless:
            raise UnfitRecordError(
                message=f"Unknown field: {path.text}",
                exception=_UNKNOWN,
                where=f"NOT {part.is_null()}",
            )
        return shape, found
