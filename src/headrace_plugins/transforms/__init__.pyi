from .cast import Cast
from .deduplicate import Deduplicate
from .fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from .headers import DropHeaders, HeaderFrom, InsertHeader
from .lookup import Lookup
from .masks import Mask, MaskField
from .python import Python
from .routers import RegexRouter, Route, Shard
from .sql import Filter, Sql
from .timestamps import TimestampConverter, TimestampRouter
from .unwrap import Unwrap

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
