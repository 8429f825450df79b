"""Drops records by a pattern of their texts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform, Type, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    Regex,
    setting,
)
from headrace.sdk.sqltext import FieldSyntax, literal
from headrace_plugins.kafka.java_regex import JavaRegex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk import RecordExpr, ValueExpr


class PatternFilterSettings(FieldSyntax):
    """The settings of ``PatternFilter``."""

    pattern: str = setting(
        "The regular expression of Java that drops a record.",
        validator=Regex(),
        importance=Importance.HIGH,
    )
    fields: tuple[str, ...] = setting(
        "The fields to look at.", default=(), importance=Importance.HIGH
    )


class PatternFilter(Transform):
    """Drops records in which one of some text fields matches a pattern as a whole.

    Fields that are missing or no texts do not match, nor do values without fields.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.PatternFilter",)

    settings: PatternFilterSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        regex = literal(JavaRegex.of(self.settings.pattern).whole)
        part = self.part(shape)
        texts = self._texts(replace(part, schemaless=True))
        matches = [f"coalesce({sql} RLIKE {regex}, false)" for sql in texts]
        if not matches:
            return shape
        found = " OR ".join(matches)
        return shape.dropping(f"NOT {part.is_null()} AND ({found})", self.alias)

    def _texts(self, part: ValueExpr) -> Iterable[str]:
        if not (part.is_struct or part.is_map):
            return
        for path in self.settings.field_paths(self.settings.fields):
            with suppress(UnfitRecordError):  # something on the way has no fields
                column = part.find(path)
                if column and column[1].type is Type.STRING and not column[1].is_logical:
                    yield column[0]
