"""Databases in the memory of Spark's JVM, which tests reach by JDBC as connectors do."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.jdbc_drivers import DERBY, H2

from headrace.sdk.jdbc import load_driver, set_driver_loader
from headrace.settings import Settings
from headrace.spark import Drivers
from headrace_plugins.databases.jdbc_connection import JdbcConnection

_numbers = count()


@contextmanager
def drivers_load(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """Let connectors load drivers into a session, as a runtime does."""
    before = set_driver_loader(Drivers(settings, lambda: spark).load)
    try:
        yield
    finally:
        set_driver_loader(before)


@dataclass(frozen=True)
class JdbcDatabase:
    """A database: H2, or Derby, which is older and lacks much."""

    url: str
    is_h2: bool

    @classmethod
    def h2(cls) -> "JdbcDatabase":
        return cls(f"jdbc:h2:mem:made_{next(_numbers)};DB_CLOSE_DELAY=-1", True)

    @classmethod
    def h2_file(cls, folder: Path) -> "JdbcDatabase":
        return cls(f"jdbc:h2:{folder}/made;DB_CLOSE_DELAY=10", True)

    @classmethod
    def derby(cls) -> "JdbcDatabase":
        return cls(f"jdbc:derby:memory:made_{next(_numbers)};create=true", False)

    @property
    def config(self) -> dict[str, str]:
        """The keys of a connector that lead to it."""
        if self.is_h2:
            driver = {
                "driver.coordinates": H2.coordinates[0],
                "driver.sha256": H2.sha256[0],
            }
        else:
            driver = {"driver.path": str(DERBY.path)}
        return {"connection.url": self.url, **driver}

    def run(self, *statements: str) -> None:
        with self._opened() as connection:
            for each in statements:
                connection.cursor().execute(each)
            connection.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._opened() as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            return cursor.fetchall()

    def named_rows(self, query: str) -> list[dict[str, Any]]:
        with self._opened() as connection:
            fields = json.loads(connection.spark_types(self.url, query))["fields"]
        names = [field["name"] for field in fields]
        return [dict(zip(names, row, strict=True)) for row in self.rows(query)]

    def tables(self) -> set[str]:
        with self._opened() as connection:
            found = connection.catalog("getTables", ["", ""], ("TABLE_NAME",), None)
            return {str(name) for (name,) in found}

    def _opened(self) -> closing[JdbcConnection]:
        loaded = load_driver(H2 if self.is_h2 else DERBY, self.url)
        return closing(JdbcConnection.open(loaded.spark, self.url, {}, loaded.class_name))
