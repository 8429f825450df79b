"""The sink of any database that has a JDBC driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk.jdbc import DriverSettings
from headrace_plugins.databases.drivers import driver_named
from headrace_plugins.databases.sink import TableSink
from headrace_plugins.databases.sink_settings import TableSinkSettings
from headrace_plugins.databases.sink_task import TableSinkTask

if TYPE_CHECKING:
    from headrace.sdk.config import Config


class JdbcSinkSettings(TableSinkSettings, DriverSettings):
    """What the sink writes to, how, and by which driver."""

    rules = (*DriverSettings.rules, driver_named, *TableSinkSettings.rules)


class JdbcSinkTask(TableSinkTask):
    """Writes the records of one task by Spark's JDBC writer; see ``TableSinkTask``."""

    settings: JdbcSinkSettings


class JdbcSink(TableSink):
    """Writes records to tables of any database, exactly once, by its JDBC driver.

    PostgreSQL, MySQL, MariaDB and SQLite need no driver, and are written to as their own sinks
    do it. The types of columns are those that Spark has for the database.
    """

    settings: JdbcSinkSettings

    @override
    @classmethod
    def task(cls, config: Config) -> TableSinkTask:
        return JdbcSinkTask(config)
