"""Drops records by a pattern of their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform, Type, literal
from headrace.sdk.config import ConfigDef, ConfigType, Importance, Regex
from headrace.sdk.javaregex import JavaRegex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk import Part, Shape


class PatternFilter(Transform):
    """Drops records in which one of some text fields matches a pattern as a whole.

    Fields that are missing or no texts do not match, nor do values without fields.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.PatternFilter",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "pattern",
                ConfigType.STRING,
                validator=Regex(),
                importance=Importance.HIGH,
                doc="The regular expression of Java that drops a record.",
            )
            .define(
                "fields",
                ConfigType.LIST,
                "",
                importance=Importance.HIGH,
                doc="The fields to look at.",
            )
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        regex = literal(JavaRegex.of(self.config.get_str("pattern")).whole)
        part = self.part(shape)
        matches = [f"coalesce({sql} RLIKE {regex}, false)" for sql in self._texts(part)]
        if not matches:
            return shape
        found = " OR ".join(matches)
        return shape.dropping(f"NOT {part.is_null()} AND ({found})", self.alias)

    def _texts(self, part: Part) -> Iterable[str]:
        names = self.config.get_list("fields")
        schema = part.schema
        if schema is None:
            return []
        if part.is_struct:
            columns = part.columns().items()
            return [
                sql for name, (sql, s) in columns if name in names and s.type is Type.STRING
            ]
        keys, values = schema.key_schema, schema.value_schema
        if not (keys and values and keys.type is values.type is Type.STRING):
            return []
        return [f"try_element_at({part.whole}, {literal(name)})" for name in names]
