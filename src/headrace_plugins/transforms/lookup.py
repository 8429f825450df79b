"""Adds fields from a small table or from an HTTP service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import CodeTransform, ConfigError, parse_ddl
from headrace.sdk.config import (
    ConfigDef,
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Range,
    ValidString,
)
from headrace_plugins.transforms.lookup_service import ServiceLookup
from headrace_plugins.transforms.lookup_table import TableLookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Lookup(CodeTransform):
    """Adds fields that a small table or an HTTP service holds for each record.

    A table is read whole, joined in memory, and read anew when it has grown old. A service
    is asked once for each different URL, from Spark's Python workers, which remember the
    answers; what it refuses rejects the records that asked, and while it is down the batch
    waits and runs again.
    """

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return _service_keys(_table_keys(_common_keys())).rule(_check)

    @override
    def runner(self) -> CodeTransform:
        kind = ServiceLookup if self.config.find_str("url") is not None else TableLookup
        return kind(self.alias, self.config)


def _common_keys() -> ConfigDef:
    return (
        ConfigDef()
        .define(
            "fields",
            ConfigType.STRING,
            importance=Importance.HIGH,
            doc="The fields to add, by their names in the table or the answer, with types, as "
            "in 'name string, rate double'. What does not fit its type becomes null.",
        )
        .define(
            "prefix",
            ConfigType.STRING,
            "",
            doc="What the names of the added fields begin with. A field of the value that has "
            "such a name is replaced.",
        )
        .define(
            "missing",
            ConfigType.STRING,
            "null",
            validator=ValidString("null", "drop", "reject"),
            importance=Importance.MEDIUM,
            doc="What becomes of records for which nothing is found: their fields are null, or "
            "they are dropped, or rejected.",
        )
        .define(
            "refresh.ms",
            ConfigType.LONG,
            300_000,
            validator=Range(at_least=0),
            importance=Importance.MEDIUM,
            doc="How old a table or an answer may become before it is asked for again.",
        )
    )


def _table_keys(keys: ConfigDef) -> ConfigDef:
    return (
        keys.define(
            "table",
            ConfigType.STRING,
            None,
            importance=Importance.HIGH,
            doc="The path of a table: a Delta table, or files that Spark reads.",
            meaning=Meaning.PATH,
        )
        .define(
            "format",
            ConfigType.STRING,
            "delta",
            validator=ValidString("delta", "parquet", "csv", "json", "orc"),
            doc="The table's format. CSV needs a header.",
        )
        .define(
            "on",
            ConfigType.LIST,
            "",
            importance=Importance.HIGH,
            doc="For a table: the value's fields to look up, each with the table's column "
            "after a colon if its name is another. Dots lead into structs. Compared as texts.",
        )
        .define(
            "max.rows",
            ConfigType.INT,
            1_000_000,
            validator=Range(at_least=1),
            doc="For a table: a larger one is refused, as it is held in memory.",
        )
    )


def _service_keys(keys: ConfigDef) -> ConfigDef:
    return (
        keys.define(
            "url",
            ConfigType.STRING,
            None,
            importance=Importance.HIGH,
            doc="The URL of a service that answers GET with a JSON object, in which {field} "
            "stands for a field of the value; dots lead into structs. 404 means that nothing "
            "is found.",
        )
        .define(
            "authorization",
            ConfigType.PASSWORD,
            None,
            doc="For a service: the header Authorization, such as 'Bearer ${env:TOKEN}'.",
        )
        .define(
            "timeout.ms",
            ConfigType.INT,
            5_000,
            validator=Range(at_least=1),
            doc="For a service: how long an answer may take.",
        )
        .define(
            "retries",
            ConfigType.INT,
            2,
            validator=Range(at_least=0),
            doc="For a service: how often a request is sent again at once, when there is no "
            "answer, or one of 429 or 5xx, before the batch is put off.",
        )
        .define(
            "rate.limit",
            ConfigType.DOUBLE,
            None,
            validator=NullOr(Range(at_least=0.001)),
            importance=Importance.MEDIUM,
            doc="For a service: requests a second of the whole task, however many Python "
            "workers ask.",
        )
        .define(
            "parallel",
            ConfigType.INT,
            8,
            validator=Range(at_least=1),
            doc="For a service: how many requests of a worker are under way at once.",
        )
        .define(
            "cache.size",
            ConfigType.INT,
            100_000,
            validator=Range(at_least=1),
            doc="For a service: how many answers a worker remembers.",
        )
    )


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    table, url = props.get("table"), props.get("url")
    if (table is None) == (url is None):
        yield ConfigError(
            problem="Either table or url must be set.", field="table", fix="Set one of them."
        )
    if table is not None and not props.get("on"):
        yield ConfigError(
            problem="A table needs it.", field="on", fix="Name the fields to look up."
        )
    if url is not None and not re.match(r"https?://.*\{.+\}", str(url)):
        yield ConfigError(
            problem=f"{url!r} is no URL of HTTP with a field of the value in it.",
            field="url",
            fix="Write it as https://example.com/items/{id}.",
        )
    if props.get("fields") is not None:
        try:
            parse_ddl(str(props["fields"]), field="fields")
        except ConfigError as error:
            yield error
