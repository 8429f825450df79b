"""The SQLite sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError
from headrace_plugins.databases.database import database_of
from headrace_plugins.databases.sink import TableSink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk.config import Config


class SqliteSink(TableSink):
    """Writes records to tables of a SQLite file, exactly once, on workers of its machine."""

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        settings = cls._settings(config)
        if "${" in settings.table_name_format:
            return
        try:
            database_of(settings).named(settings.table_name_format)
        except ConfigError as error:
            yield error
