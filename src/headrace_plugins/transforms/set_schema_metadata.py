"""Names a schema and its version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform, UnfitRecordError
from headrace.sdk.config import Importance, Settings, setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr, Schema


def _check_any(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if props.get("schema.name") is None and props.get("schema.version") is None:
        yield ConfigError(
            problem="Neither schema name nor version configured",
            field="schema.name",
            fix="Set schema.name, schema.version or both.",
        )


class SetSchemaMetadataSettings(Settings):
    """The settings of ``SetSchemaMetadata``."""

    schema_name: str | None = setting(
        "Schema name to set.", default=None, importance=Importance.HIGH
    )
    schema_version: int | None = setting(
        "Schema version to set.", default=None, importance=Importance.HIGH
    )
    replace_null_with_default: bool = setting(
        "Whether fields that are null and have a default get their default.",
        default=True,
        importance=Importance.MEDIUM,
    )

    rules = (_check_any,)


class SetSchemaMetadata(Transform):
    """Sets the name, the version or both of the schema of a key or value with fields."""

    aliases = ("org.apache.kafka.connect.transforms.SetSchemaMetadata",)

    settings: SetSchemaMetadataSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
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
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        assert part.schema is not None
        return self.with_part(shape, replace(part, schema=self._named(part.schema)))

    def _named(self, schema: Schema) -> Schema:
        name = self.settings.schema_name
        version = self.settings.schema_version
        return schema.replaced(
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
            # It is a struct of the old name, which would not fit any more.
            default=None,
        )
