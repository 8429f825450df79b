"""What RocketMQ Connect's transforms say of values without fields."""

from __future__ import annotations

from headrace.sdk import UnfitRecordError, ValueExpr
from headrace.sdk.schema import LOGICAL_BASES


def require_struct(part: ValueExpr) -> ValueExpr:
    """Return a part that has fields, or is null.

    Raises:
        UnfitRecordError: It is of another type.
    """
    schema = part.schema
    if schema is None or part.is_struct:
        return part
    name = str(schema.name) if schema.is_logical else ""
    kind = name.rpartition(".")[2] if name in LOGICAL_BASES else schema.type.value
    raise UnfitRecordError(
        message=f"{kind} is not a supported type.",
        exception="java.lang.UnsupportedOperationException",
        where=f"NOT {part.is_null()}",
    )
