"""Limits the precision of decimals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    Range,
    Settings,
    setting,
)
from headrace.sdk.schema import DECIMAL, MAX_PRECISION, PRECISION, precision_of, scale_of
from headrace.sdk.sqltext import FieldPath, sql_type
from headrace_plugins.transforms.rocketmq.structs import require_struct

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr
    from headrace.sdk.struct_exprs import Change, Column

# What a decimal without a precision is taken for.
_UNLIMITED = 64


class SetMaximumPrecisionSettings(Settings):
    """The settings of ``SetMaximumPrecision``."""

    precision_max: int = setting(
        "The maximum precision allowed.",
        validator=Range(1, _UNLIMITED),
        importance=Importance.HIGH,
    )


class SetMaximumPrecision(Transform):
    """Gives decimals at the top that have more digits, or no limit, a limit.

    A record with a number that has more digits than the limit is rejected.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.SetMaximumPrecision",)

    settings: SetMaximumPrecisionSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = require_struct(self.part(shape))
        most = self.settings.precision_max
        long = {name: col for name, col in part.columns().items() if _digits(col[1]) > most}
        changes = {}
        for name, (sql, schema) in long.items():
            limited = self._limited(schema, min(most, MAX_PRECISION))
            cast = f"try_cast({sql} AS {sql_type(limited)})"
            message = f"concat('The number ', CAST({sql} AS STRING), ' has too many digits')"
            shape = self.rejecting(shape, f"{sql} IS NOT NULL AND {cast} IS NULL", message)
            changes[FieldPath((name,), name)] = _change(cast, limited)
        return self.with_part(shape, part.changed(changes) if changes else part)

    def _limited(self, schema: Schema, most: int) -> Schema:
        scale = scale_of(schema.parameters) or 0
        if scale > most:
            raise UnfitRecordError(
                message=f"A decimal with {scale} digits after the point does not fit a "
                f"precision of {most}"
            )
        parameters = {**schema.parameters, PRECISION: str(most)}
        return schema.replaced(parameters=parameters, default=None)


def _digits(schema: Schema) -> int:
    if not schema.is_logical or schema.name != DECIMAL:
        return 0
    return precision_of(schema.parameters) or _UNLIMITED


def _change(sql: str, schema: Schema) -> Change:
    def change(_sql: str, _schema: Schema) -> Column:
        return sql, schema

    return change
