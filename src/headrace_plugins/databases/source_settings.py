"""The settings of all database sources."""

from __future__ import annotations

from enum import Enum

from headrace.sdk.config import Importance, Range, setting
from headrace_plugins.databases.address import ConnectionSettings


class InvalidValues(Enum):
    """The handling of a value that its schema cannot represent."""

    REJECT = "reject"
    NULL = "null"


class TableSourceSettings(ConnectionSettings, group="Tables"):
    """The tables to read, and how to read them."""

    table_include_list: tuple[str, ...] = setting(
        "The tables to read, as table or schema.table. * matches any characters, ? matches "
        'one; quote a part with a dot, as in "a.b". All tables that the user may read if '
        "empty.",
        default=(),
        importance=Importance.HIGH,
    )
    table_exclude_list: tuple[str, ...] = setting(
        "The tables to exclude from those of table.include.list, in the same format.",
        default=(),
        importance=Importance.HIGH,
    )
    topic_prefix: str = setting(
        "Prefix of topic names, followed directly by the table name: `crm.` results in "
        "`crm.customers`, and `crm` in `crmcustomers`. The table's schema is included only if "
        "it is not the default schema, as in `crm.sales.orders`. Debezium's topic names always "
        "have a dot and the schema, or MySQL's database.",
        default="",
    )
    invalid_values: InvalidValues = setting(
        "Handling of a value that its type in Headrace cannot represent, such as an infinite "
        "date or the day 0000-00-00: reject makes the row a bad record, null replaces the "
        "value with null if the column is nullable.",
        default=InvalidValues.REJECT,
        group="Reading",
    )
    split_rows: int = setting(
        "Approximate number of rows per query when a table is read by parallel queries.",
        default=500_000,
        validator=Range(at_least=1000),
        group="Reading",
    )

    @property
    def nulls(self) -> bool:
        """Whether values that their schema cannot represent become null if nullable."""
        return self.invalid_values is InvalidValues.NULL

    @property
    def included(self) -> tuple[str, ...]:
        """The tables to read."""
        return self.table_include_list

    @property
    def excluded(self) -> tuple[str, ...]:
        """The tables to exclude."""
        return self.table_exclude_list
