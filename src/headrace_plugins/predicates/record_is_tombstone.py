"""A predicate by the absence of a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Predicate

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class RecordIsTombstone(Predicate):
    """Is true for tombstones, records whose value is null as a whole."""

    aliases = ("org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",)

    @override
    def condition(self, shape: RecordExpr) -> str:
        value = shape.value
        if value.schema is None:
            return "true"
        if value.is_struct:
            return value.missing or "false"
        return f"({value.whole} IS NULL)"
