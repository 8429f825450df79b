"""The sink for any database with a JDBC driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk.jdbc import DriverSettings
from headrace_plugins.databases.address import driver_named
from headrace_plugins.databases.sink import TableSink
from headrace_plugins.databases.sink_settings import TableSinkSettings
from headrace_plugins.databases.sink_task import TableSinkTask

if TYPE_CHECKING:
    from headrace.sdk.config import Config


class JdbcSinkSettings(TableSinkSettings, DriverSettings):
    """Settings of the JDBC sink."""

    rules = (*DriverSettings.rules, driver_named, *TableSinkSettings.rules)


class JdbcSinkTask(TableSinkTask):
    """Writes the records of one task by Spark's JDBC writer; see ``TableSinkTask``."""

    settings: JdbcSinkSettings


class JdbcSink(TableSink):
    """Writes records to tables of any database, exactly once, with its JDBC driver.

    PostgreSQL, MySQL, MariaDB and SQLite do not need a driver, and are written as by their own
    sinks. Column types are those of Spark's JDBC dialect for the database.
    """

    settings: JdbcSinkSettings

    @override
    @classmethod
    def task(cls, config: Config) -> TableSinkTask:
        return JdbcSinkTask(config)
