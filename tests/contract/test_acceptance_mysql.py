"""The sink of MySQL passes the acceptance kit on MariaDB, in its modes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.mariadb_server import MariadbServer, connect
from typing_extensions import override

from headrace.sdk.testing import BadConfig, Row, SinkAcceptance, SinkDriver
from headrace.sdk.testing.driver import ALL_KINDS
from headrace_plugins.connectors.mysql.sink import MysqlSink

_databases = count()


class MariadbDriver(SinkDriver):
    """Reads the table with PyMySQL; an outage is a user whose account is locked."""

    connector = MysqlSink

    def __init__(self, server: MariadbServer, **more: str) -> None:
        self._server, self._name, self._more = server, f"accepted_{next(_databases)}", more
        server.execute(f"CREATE DATABASE {self._name} CHARACTER SET utf8mb4")
        server.execute(f"CREATE USER {self._name}@'127.0.0.1'")
        server.execute(f"GRANT ALL ON {self._name}.* TO {self._name}@'127.0.0.1'")

    @override
    def config(self) -> Mapping[str, str]:
        own = {
            "table.name.format": "copied",
            "connection.url": self._server.url(self._name),
            "connection.user": self._name,
        }
        return {**own, **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"connection.url": "mysql://u:secret@h/d"}, "connection.url"),
            BadConfig({"connection.url": "mysql://host"}, "connection.url"),
            BadConfig({"insert.mode": "merge"}, "insert.mode"),
        ]

    @override
    def read_back(self) -> list[Row]:
        with connect(self._server.url(self._name)) as database:
            cursor = database.cursor()
            if not cursor.execute("SHOW TABLES LIKE 'copied'"):
                return []
            cursor.execute("SHOW COLUMNS FROM copied")
            types = {row[0]: row[1] for row in cursor.fetchall()}
            # A FLOAT is shown with six digits unless it is made a DOUBLE.
            reads = [f"`{n}`{' + 0e0' if t == 'float' else ''}" for n, t in types.items()]
            cursor.execute(f"SELECT {', '.join(reads)} FROM copied")  # noqa: S608 - a test's own
            return [
                {n: _as(t, value) for (n, t), value in zip(types.items(), row, strict=True)}
                for row in cursor.fetchall()
            ]

    @override
    def refused(self, number: int) -> Row:
        with connect(self._server.url(self._name)) as database:
            database.cursor().execute(
                "CREATE TABLE IF NOT EXISTS copied (id bigint PRIMARY KEY, text text NOT NULL)"
            )
        return {"id": number, "text": None}

    @override
    def break_target(self) -> None:
        self._server.execute(f"ALTER USER {self._name}@'127.0.0.1' ACCOUNT LOCK")

    @override
    def repair_target(self) -> None:
        self._server.execute(f"ALTER USER {self._name}@'127.0.0.1' ACCOUNT UNLOCK")


def _as(type_: str, value: Any) -> Any:
    """Return a value of a column as Headrace has it, where PyMySQL has it otherwise."""
    if type_ == "tinyint(1)" and value is not None:
        return bool(value)
    if isinstance(value, timedelta):
        return (datetime(2000, 1, 1, tzinfo=UTC) + value).time()
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


class _OnMariadb(SinkAcceptance):
    kinds = tuple(
        kind
        for kind in ALL_KINDS
        if kind not in {"array", "map", "struct", "nested", "not_a_number"}
    )
    why_not_all_kinds = "Values with parts are kept as JSON, and NaN is refused."

    @pytest.fixture(autouse=True)
    def _given_a_server(self, mariadb: MariadbServer) -> None:
        self.server = mariadb


@pytest.mark.long
class TestInsert(_OnMariadb):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return MariadbDriver(self.server)


class TestUpsert(_OnMariadb):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return MariadbDriver(self.server, **{"insert.mode": "upsert", "key.fields": "id"})
