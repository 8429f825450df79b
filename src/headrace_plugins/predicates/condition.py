"""A predicate by SQL condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Predicate
from headrace.sdk.config import (
    Importance,
    NonEmptyString,
    Settings,
    setting,
)
from headrace_plugins.transforms.user_sql import check_expression, enclosed

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class ConditionSettings(Settings):
    """The settings of ``Condition``."""

    condition: str = setting(
        "A Spark SQL condition. Fields of the value go by their names, the rest of "
        "the record is record.topic, record.key, record.timestamp and record.headers. "
        "Unknown (null) counts as false.",
        validator=NonEmptyString(),
        importance=Importance.HIGH,
    )

    rules = (lambda props: check_expression(props, "condition"),)


class Condition(Predicate):
    """Is true for the records for which an SQL condition over the value's fields is true."""

    uses_names = True

    settings: ConditionSettings

    @override
    def condition(self, shape: RecordExpr) -> str:
        return f"coalesce({enclosed(self.config.get_str('condition'))}, false)"
