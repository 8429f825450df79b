"""The Java classes that Kafka Connect's values have, for messages that name them."""

from collections.abc import Mapping

from headrace.sdk.logical import DECIMAL
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema

__all__ = ["java_class"]

_CLASSES: Mapping[Type, str] = {
    Type.INT8: "java.lang.Byte",
    Type.INT16: "java.lang.Short",
    Type.INT32: "java.lang.Integer",
    Type.INT64: "java.lang.Long",
    Type.FLOAT32: "java.lang.Float",
    Type.FLOAT64: "java.lang.Double",
    Type.BOOLEAN: "java.lang.Boolean",
    Type.STRING: "java.lang.String",
    Type.BYTES: "[B",
    Type.ARRAY: "java.util.ArrayList",
    Type.MAP: "java.util.HashMap",
    Type.STRUCT: "org.apache.kafka.connect.data.Struct",
}


def java_class(schema: Schema, *, schemaless: bool = False) -> str:
    """Give the name of the class that a value of this schema has in Kafka Connect.

    Args:
        schema: The schema.
        schemaless: Whether the value travels without it: then it is what Kafka Connect's
            JSON converter makes: a map instead of a struct.
    """
    if schema.is_logical:
        return "java.math.BigDecimal" if schema.name == DECIMAL else "java.util.Date"
    if schemaless and schema.type is Type.STRUCT:
        return _CLASSES[Type.MAP]
    return _CLASSES[schema.type]
