"""Adds fields made from the record's metadata or from a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform, literal
from headrace.sdk.config import ConfigDef, ConfigType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Shape

_KEYS = ("topic.field", "partition.field", "timestamp.field", "static.field")


class InsertField(Transform):
    """Adds the topic, the partition, the timestamp or a constant as a field.

    A name may end with ``!`` for a required field or ``?`` for an optional one (the
    default). A record whose part is null as a whole stays as it is.
    """

    aliases = ("org.apache.kafka.connect.transforms.InsertField",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        docs = {
            "topic.field": "Name of a field for the topic.",
            "partition.field": "Name of a field for the partition.",
            "timestamp.field": "Name of a field for the record's timestamp.",
            "static.field": "Name of a field for the constant static.value.",
            "static.value": "The constant, as text.",
        }
        definition = ConfigDef()
        for name, doc in docs.items():
            definition = definition.define(name, ConfigType.STRING, None, doc=doc)
        return definition.rule(_check_any)

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.struct(shape, "field insertion")
        static = self.config.find_str("static.value") or ""
        values = {
            "topic.field": (shape.topic, Schema.string),
            "partition.field": (shape.partition, Schema.int32),
            "timestamp.field": (shape.timestamp, Schema.timestamp),
            "static.field": (literal(static), Schema.string),
        }
        columns = part.columns()
        for key, (sql, schema) in values.items():
            name = self.config.find_str(key)
            if name:
                columns[name.rstrip("!?")] = (sql, schema(optional=not name.endswith("!")))
        return self.with_part(shape, part.with_fields(columns))


def _check_any(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if not any(props.get(key) for key in _KEYS):
        fix = f"Set one of {', '.join(_KEYS)}."
        yield ConfigError(
            problem="No field insertion configured.", field="static.field", fix=fix
        )
    if props.get("static.field") and props.get("static.value") is None:
        yield ConfigError(
            problem="No static value specified for static field.",
            field="static.value",
            fix="Set the constant's text.",
        )
