"""Drops records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform
from headrace.sdk.config import Importance, Settings, setting
from headrace_plugins.transforms.user_sql import check_expression, enclosed

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class FilterSettings(Settings):
    """The settings of ``Filter``."""

    condition: str | None = setting(
        "A Spark SQL condition over the value's fields; records for which it is "
        "false or unknown are dropped. Without it, every record the predicate allows "
        "is dropped.",
        default=None,
        importance=Importance.HIGH,
    )

    rules = (lambda props: check_expression(props, "condition"),)


class Filter(Transform):
    """Drops records: all that its predicate lets through, or those that fail a condition.

    As in Kafka Connect, ``Filter`` with a predicate drops the records for which the
    predicate is true. With ``condition`` it keeps those for which the condition is true.
    """

    aliases = ("org.apache.kafka.connect.transforms.Filter",)
    parts = False
    uses_names = True

    settings: FilterSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        condition = self.settings.condition
        drop = "true" if condition is None else f"NOT coalesce({enclosed(condition)}, false)"
        return shape.dropping(drop, self.alias)
