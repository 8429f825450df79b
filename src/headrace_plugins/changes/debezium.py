"""Keys of Debezium's connectors without which something else would arrive.

Keys that nobody defines are passed over by a server, as in Kafka Connect. One that leaves out
columns, hides values or makes other types of them must not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.sdk import ConfigError

_COLUMNS = "Leave columns out by the transform ReplaceField"
_TABLES = "Name the tables in table.include.list or table.exclude.list, as in sales.*"
_TYPES = "Leave it out: values keep the types of their columns. The transform Cast makes others"
_INSTEAD: Mapping[str, str] = {
    "column.include.list": _COLUMNS,
    "column.exclude.list": _COLUMNS,
    "schema.include.list": _TABLES,
    "schema.exclude.list": _TABLES,
    "database.include.list": _TABLES,
    "database.exclude.list": _TABLES,
    "snapshot.include.collection.list": "Hold tables back by snapshot.paused.list",
    "snapshot.select.statement.overrides": "Leave rows out by the transform Filter",
    "skipped.operations": "Leave changes out by the transform Filter",
    "message.key.columns": "Set key.fields or table.mapping of the sink",
    "binary.handling.mode": _TYPES,
    "bigint.unsigned.handling.mode": _TYPES,
    "decimal.handling.mode": _TYPES,
    "hstore.handling.mode": _TYPES,
    "interval.handling.mode": _TYPES,
    "time.precision.mode": _TYPES,
    "topic.naming.strategy": "Rename topics by the transform RegexRouter",
}
"""What to do, by the key that would change what arrives."""
_PREFIXES: Mapping[str, str] = {
    "column.mask.": "Hide values by the transform MaskField",
    "column.truncate.": "Shorten values by the transform Sql",
    "column.propagate.": "Leave it out",
}
"""The same by what keys begin with."""


def changing_keys(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Yield an error for each key that would change what arrives: a rule of settings."""
    for key in sorted(props):
        beginnings = (fix for prefix, fix in _PREFIXES.items() if key.startswith(prefix))
        fix = _INSTEAD.get(key) or next(beginnings, None)
        if fix is not None:
            yield ConfigError(
                problem=f"{key} is a key of Debezium that Headrace has not, and without it "
                "something else would arrive.",
                fix=f"{fix}.",
                field=key,
            )
