"""The SQLite sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.database import database_of
from headrace_plugins.databases.sink import TableSink
from headrace_plugins.table_mapping import TableRules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk.config import Config


class SqliteSink(TableSink):
    """Writes records to tables of a SQLite file, exactly once, on workers of its machine."""

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        settings = cls._settings(config)
        rules = TableRules.of(settings)
        texts = {f"{rule.place}.to": rule.template.text for rule in rules.rules}
        for field, text in (texts or {"table.name.format": rules.default.text}).items():
            if "${" in TableName.parse(text).schema:
                continue
            try:
                database_of(settings).named(text)
            except ConfigError as error:
                yield ConfigError(problem=error.problem, fix=error.fix, field=field)
