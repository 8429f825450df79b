"""Values and their texts, by the rules of Kafka Connect's `Values`."""

from headrace.sdk.values.parsing import Parsed, convert, parse_string
from headrace.sdk.values.texts import to_string, type_name

__all__ = ["Parsed", "convert", "parse_string", "to_string", "type_name"]
