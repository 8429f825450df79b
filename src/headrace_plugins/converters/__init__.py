"""The built-in converters that do not use a schema registry.

In it: bytes to columns and back, as SQL or on Arrow. Never: a schema registry, or a topic.
"""

from headrace_plugins.converters.json_converter import JsonConverter
from headrace_plugins.converters.scalars import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    SimpleHeaderConverter,
    StringConverter,
)

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
