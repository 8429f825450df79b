"""The built-in transforms: Kafka Connect's, RocketMQ Connect's and our own.

In it: records to records, as SQL expressions or on Arrow. Never: I/O, but for what Lookup reads
and the state that Deduplicate keeps.
"""

from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.deduplicate import Deduplicate
from headrace_plugins.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from headrace_plugins.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from headrace_plugins.transforms.lookup import Lookup
from headrace_plugins.transforms.masks import Mask, MaskField
from headrace_plugins.transforms.python import Python
from headrace_plugins.transforms.routers import RegexRouter, Route, Shard
from headrace_plugins.transforms.sql import Filter, Sql
from headrace_plugins.transforms.timestamps import TimestampConverter, TimestampRouter
from headrace_plugins.transforms.unwrap import Unwrap

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
