"""The built-in converters."""

from headrace_plugins.converters.avro_converter import AvroConverter
from headrace_plugins.converters.json_converter import JsonConverter
from headrace_plugins.converters.json_schema_converter import JsonSchemaConverter
from headrace_plugins.converters.protobuf_converter import ProtobufConverter
from headrace_plugins.converters.scalars import (
    BooleanConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
from headrace_plugins.converters.simple_headers import SimpleHeaderConverter
from headrace_plugins.converters.text import ByteArrayConverter, StringConverter

__all__ = [
    "AvroConverter",
    "BooleanConverter",
    "ByteArrayConverter",
    "DoubleConverter",
    "FloatConverter",
    "IntegerConverter",
    "JsonConverter",
    "JsonSchemaConverter",
    "LongConverter",
    "ProtobufConverter",
    "ShortConverter",
    "SimpleHeaderConverter",
    "StringConverter",
]
