"""Removes the key or the value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform, ValueExpr
from headrace.sdk.config import Importance, Settings, setting
from headrace.sdk.sqltext import sql_null

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


_UNUSED = "Taken, as RocketMQ Connect asks for it, and not used."


class SetNullSettings(Settings):
    """What RocketMQ Connect's transform of the name takes."""

    field_pattern: str | None = setting(_UNUSED, default=None, importance=Importance.LOW)
    field_pattern_flags: str | None = setting(_UNUSED, default=None, importance=Importance.LOW)
    field_replacement: str | None = setting(_UNUSED, default=None, importance=Importance.LOW)


class SetNull(Transform):
    """Makes the key or the value of each record null.

    A null value is a tombstone. RocketMQ Connect's own leaves the value as it is, and loses
    the record's topic and headers.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.SetNull",)

    settings: SetNullSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.part(shape)
        if self.of_key or part.schema is None:
            return self.with_part(shape, ValueExpr(None))
        schema = part.schema.replaced(optional=True)
        if part.is_struct:
            return self.with_part(shape, replace(part, schema=schema, missing="true"))
        null = replace(part, schema=schema, whole=sql_null(schema), missing=None)
        return self.with_part(shape, null)
