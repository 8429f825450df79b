"""Removes the key or the value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Part, Transform
from headrace.sdk.config import ConfigDef, ConfigType, Importance
from headrace.sdk.sqltext import sql_null

if TYPE_CHECKING:
    from headrace.sdk import Shape


class SetNull(Transform):
    """Makes the key or the value of each record null.

    A null value is a tombstone. RocketMQ Connect's own leaves the value as it is, and loses
    the record's topic and headers.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.SetNull",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        definition = ConfigDef()
        for name in ("field.pattern", "field.pattern.flags", "field.replacement"):
            definition = definition.define(
                name,
                ConfigType.STRING,
                None,
                importance=Importance.LOW,
                doc="Taken, as RocketMQ Connect asks for it, and not used.",
            )
        return definition

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.part(shape)
        if self.of_key or part.schema is None:
            return self.with_part(shape, Part(None))
        schema = part.schema.replaced(optional=True)
        if part.is_struct:
            return self.with_part(shape, replace(part, schema=schema, missing="true"))
        null = replace(part, schema=schema, whole=sql_null(schema), missing=None)
        return self.with_part(shape, null)
