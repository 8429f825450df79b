"""Names a schema and its version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform, UnfitRecordError
from headrace.sdk.config import ConfigDef, ConfigType, Importance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Schema, Shape


class SetSchemaMetadata(Transform):
    """Sets the name, the version or both of the schema of a key or value with fields."""

    aliases = ("org.apache.kafka.connect.transforms.SetSchemaMetadata",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "schema.name",
                ConfigType.STRING,
                None,
                importance=Importance.HIGH,
                doc="Schema name to set.",
            )
            .define(
                "schema.version",
                ConfigType.INT,
                None,
                importance=Importance.HIGH,
                doc="Schema version to set.",
            )
            .define(
                "replace.null.with.default",
                ConfigType.BOOLEAN,
                default=True,
                importance=Importance.MEDIUM,
                doc="Whether fields that are null and have a default get their default.",
            )
            .rule(_check_any)
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.part(shape)
        if part.schema is None:
            return shape
        if part.schemaless:
            raise UnfitRecordError(
                message="Schema required for [updating schema metadata]",
                where=f"NOT {part.is_null()}",
            )
        if not part.is_struct:
            # As in Kafka Connect, which asks any schema for its fields.
            raise UnfitRecordError(message="Cannot list fields on non-struct type")
        if self.config.get_bool("replace.null.with.default"):
            part = part.defaulted()
        assert part.schema is not None
        return self.with_part(shape, replace(part, schema=self._named(part.schema)))

    def _named(self, schema: Schema) -> Schema:
        name = self.config.find_str("schema.name")
        version = self.config.find_int("schema.version")
        return schema.replaced(
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
            # It is a struct of the old name, which would not fit any more.
            default=None,
        )


def _check_any(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if props.get("schema.name") is None and props.get("schema.version") is None:
        yield ConfigError(
            problem="Neither schema name nor version configured",
            field="schema.name",
            fix="Set schema.name, schema.version or both.",
        )
