"""The built-in converters that need no schema registry."""

from headrace_plugins.converters.json_converter import JsonConverter
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
    "BooleanConverter",
    "ByteArrayConverter",
    "DoubleConverter",
    "FloatConverter",
    "IntegerConverter",
    "JsonConverter",
    "LongConverter",
    "ShortConverter",
    "SimpleHeaderConverter",
    "StringConverter",
]
