"""Errors of types that change name the table and the sink, and the key that decides."""

from pathlib import Path

import pytest
from tests.integration.databases.source_reading import run
from tests.postgresql_server import PostgresqlServer

from headrace.cli.progress import Scoreboard
from headrace.runtime.app import Runtime

pytestmark = pytest.mark.spark

COPY = """
name: copy
source:
  connector: jdbc
  connection.url: {url}
  mode: incrementing
  incrementing.column.name: id
sinks:
  - connector: {sink}
"""


@pytest.mark.parametrize("policy", ["evolve", "reject", "ignore"])
@pytest.mark.parametrize("sink", ["postgres", "delta"])
def test_an_error_of_a_changed_type_names_the_table_the_sink_and_the_key_that_decides(
    sink: str, policy: str, runtime: Runtime, postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    with postgresql.database() as url, postgresql.database() as target:
        run(url, "CREATE TABLE goods (id serial PRIMARY KEY, v int)")
        run(url, "INSERT INTO goods (v) VALUES (1)")
        into = {
            "postgres": f"    connection.url: {target}\n",
            "delta": f"    path: {tmp_path}/${{topic}}\n",
        }
        text = COPY.format(url=url, sink=sink) + into[sink]
        text += f"    schema.evolution.retype: {policy}\n"
        (tmp_path / "copy.yaml").write_text(text)

        def errors() -> list[str]:
            definitions = runtime.definitions([tmp_path / "copy.yaml"])
            outcome = runtime.run(definitions, Scoreboard(lambda: 0.0), once=True)
            return [str(each) for each in outcome.errors.values()]

        assert errors() == []
        run(url, "ALTER TABLE goods ALTER COLUMN v TYPE text USING 'v' || v")
        run(url, "INSERT INTO goods (v) VALUES ('x')")
        [error] = errors()
        assert "of goods, for sinks[0]" in error
        assert "retype v: INT -> STRING" in error
        assert "schema.evolution.retype to" in error
