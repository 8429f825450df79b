"""Adds fields from a small table or from an HTTP service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import CodeTransform, ConfigError
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Meaning,
    NullOr,
    Password,
    Range,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.sparktypes import parse_ddl
from headrace_plugins.transforms.lookup_service import ServiceLookup
from headrace_plugins.transforms.lookup_table import TableLookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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


class LookupSettings(Settings):
    """The settings of ``Lookup``."""

    fields: str = setting(
        "The fields to add, by their names in the table or the answer, with types, as "
        "in 'name string, rate double'. What does not fit its type becomes null.",
        importance=Importance.HIGH,
    )
    prefix: str = setting(
        "What the names of the added fields begin with. A field of the value that has "
        "such a name is replaced.",
        default="",
    )
    missing: str = setting(
        "What becomes of records for which nothing is found: their fields are null, or "
        "they are dropped, or rejected.",
        default="null",
        validator=ValidString("null", "drop", "reject"),
        importance=Importance.MEDIUM,
    )
    refresh_ms: int = setting(
        "How old a table or an answer may become before it is asked for again.",
        default=300_000,
        type=ConfigType.LONG,
        validator=Range(at_least=0),
        importance=Importance.MEDIUM,
    )
    table: str | None = setting(
        "The path of a table: a Delta table, or files that Spark reads.",
        default=None,
        importance=Importance.HIGH,
        meaning=Meaning.PATH,
    )
    format: str = setting(
        "The table's format. CSV needs a header.",
        default="delta",
        validator=ValidString("delta", "parquet", "csv", "json", "orc"),
    )
    on: tuple[str, ...] = setting(
        "For a table: the value's fields to look up, each with the table's column "
        "after a colon if its name is another. Dots lead into structs. Compared as texts.",
        default=(),
        importance=Importance.HIGH,
    )
    max_rows: int = setting(
        "For a table: a larger one is refused, as it is held in memory.",
        default=1_000_000,
        validator=Range(at_least=1),
    )
    url: str | None = setting(
        "The URL of a service that answers GET with a JSON object, in which {field} "
        "stands for a field of the value; dots lead into structs. 404 means that nothing "
        "is found.",
        default=None,
        importance=Importance.HIGH,
    )
    authorization: Password | None = setting(
        "For a service: the header Authorization, such as 'Bearer ${env:TOKEN}'.", default=None
    )
    timeout_ms: int = setting(
        "For a service: how long an answer may take.",
        default=5_000,
        validator=Range(at_least=1),
    )
    retries: int = setting(
        "For a service: how often a request is sent again at once, when there is no "
        "answer, or one of 429 or 5xx, before the batch is put off.",
        default=2,
        validator=Range(at_least=0),
    )
    rate_limit: float | None = setting(
        "For a service: requests a second of the whole task, however many Python workers ask.",
        default=None,
        validator=NullOr(Range(at_least=0.001)),
        importance=Importance.MEDIUM,
    )
    parallel: int = setting(
        "For a service: how many requests of a worker are under way at once.",
        default=8,
        validator=Range(at_least=1),
    )
    cache_size: int = setting(
        "For a service: how many answers a worker remembers.",
        default=100_000,
        validator=Range(at_least=1),
    )

    rules = (_check,)


class Lookup(CodeTransform):
    """Adds fields that a small table or an HTTP service holds for each record.

    A table is read whole, joined in memory, and read anew when it has grown old. A service
    is asked once for each different URL, from Spark's Python workers, which remember the
    answers; what it refuses rejects the records that asked, and while it is down the batch
    waits and runs again.
    """

    settings: LookupSettings

    @override
    def runner(self) -> CodeTransform:
        kind = ServiceLookup if self.settings.url is not None else TableLookup
        return kind(self.alias, self.config)
