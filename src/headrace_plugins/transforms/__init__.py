"""The built-in transforms."""

from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.deduplicate import Deduplicate
from headrace_plugins.transforms.drop_headers import DropHeaders
from headrace_plugins.transforms.extract_field import ExtractField
from headrace_plugins.transforms.filter import Filter
from headrace_plugins.transforms.flatten import Flatten
from headrace_plugins.transforms.header_from import HeaderFrom
from headrace_plugins.transforms.hoist_field import HoistField
from headrace_plugins.transforms.insert_field import InsertField
from headrace_plugins.transforms.insert_header import InsertHeader
from headrace_plugins.transforms.lookup import Lookup
from headrace_plugins.transforms.mask import Mask
from headrace_plugins.transforms.mask_field import MaskField
from headrace_plugins.transforms.python import Python
from headrace_plugins.transforms.regex_router import RegexRouter
from headrace_plugins.transforms.replace_field import ReplaceField
from headrace_plugins.transforms.route import Route
from headrace_plugins.transforms.set_schema_metadata import SetSchemaMetadata
from headrace_plugins.transforms.shard import Shard
from headrace_plugins.transforms.sql import Sql
from headrace_plugins.transforms.timestamp_converter import TimestampConverter
from headrace_plugins.transforms.timestamp_router import TimestampRouter
from headrace_plugins.transforms.unwrap import Unwrap
from headrace_plugins.transforms.value_to_key import ValueToKey

__all__ = [
    "Cast",
    "Deduplicate",
    "DropHeaders",
    "ExtractField",
    "Filter",
    "Flatten",
    "HeaderFrom",
    "HoistField",
    "InsertField",
    "InsertHeader",
    "Lookup",
    "Mask",
    "MaskField",
    "Python",
    "RegexRouter",
    "ReplaceField",
    "Route",
    "SetSchemaMetadata",
    "Shard",
    "Sql",
    "TimestampConverter",
    "TimestampRouter",
    "Unwrap",
    "ValueToKey",
]
