"""The settings that all sources of databases have."""

from __future__ import annotations

from enum import Enum

from headrace.sdk.config import Importance, Range, setting
from headrace_plugins.databases.address import ConnectionSettings


class InvalidValues(Enum):
    """What becomes of a value that its schema has nothing for."""

    REJECT = "reject"
    NULL = "null"


class TableSourceSettings(ConnectionSettings, group="Tables"):
    """Which tables are read, and how."""

    table_include_list: tuple[str, ...] = setting(
        "The tables that are read, as table or schema.table; * stands for any signs and ? for "
        'one, and a part with a dot in it is in quotes, as in "a.b". All tables that the user '
        "may read if empty.",
        default=(),
        importance=Importance.HIGH,
    )
    table_exclude_list: tuple[str, ...] = setting(
        "The tables that are not read, of those that would be; written like "
        "table.include.list.",
        default=(),
        importance=Importance.HIGH,
    )
    topic_prefix: str = setting(
        "What stands before the name of a table in the name of its topic, as it is written: "
        "`crm.` makes `crm.customers`, and `crm` makes `crmcustomers`. Between them is the "
        "table's schema only where it is not the default one, as in `crm.sales.orders`; "
        "Debezium has a dot and the schema, or MySQL's database, in each name.",
        default="",
    )
    invalid_values: InvalidValues = setting(
        "What becomes of a value that its type in Headrace has nothing for, such as an "
        "infinite date or the day 0000-00-00: reject makes the row a bad record, null makes it "
        "null where the column may be null.",
        default=InvalidValues.REJECT,
        group="Reading",
    )
    split_rows: int = setting(
        "About how many rows are read by one query of those that read a table side by side.",
        default=500_000,
        validator=Range(at_least=1000),
        group="Reading",
    )

    @property
    def nulls(self) -> bool:
        """Whether a value that its schema has nothing for becomes null where it may."""
        return self.invalid_values is InvalidValues.NULL

    @property
    def included(self) -> tuple[str, ...]:
        """The tables that are read."""
        return self.table_include_list

    @property
    def excluded(self) -> tuple[str, ...]:
        """The tables that are not."""
        return self.table_exclude_list
