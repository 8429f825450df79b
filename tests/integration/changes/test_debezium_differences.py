"""The changes of a history are those that Debezium gives, but for differences by design."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.debezium.comparing import differences
from tests.debezium.engine import connection_properties, debezium_events
from tests.debezium.events import normalised
from tests.debezium.replay import topic_of
from tests.integration.changes.histories import END, history_of, run_statements
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import Position, ReadLimit
from headrace.sdk.schema import primary_key
from headrace.sdk.sources import ArrowParts
from headrace_plugins.connectors.postgres.source import PostgresSource

if TYPE_CHECKING:
    from headrace.settings import Settings
    from headrace_plugins.connectors.postgres.source import PostgresTask

pytestmark = [pytest.mark.long, pytest.mark.service]
SECONDS = 120
HISTORIES = int(os.environ.get("HEADRACE_HISTORIES", "6"))


class Followed:
    """Headrace's source, without the runtime."""

    def __init__(self, url: str, folder: Path) -> None:
        keys = {
            "connection.url": url,
            "snapshot.mode": "no_data",
            "slot.name": "ours",
            "table.poll.interval.ms": "0",
        }
        self.task: PostgresTask = PostgresSource.task(PostgresSource.config_def().parse(keys))  # type: ignore[assignment]
        context: Any = SimpleNamespace(connector="ours", scratch=folder, stopping=lambda: False)
        self.task.start(context)
        self.position = Position()
        self.task.latest(self.position, ReadLimit(rows=1_000_000))  # makes the slot

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield what is new, up to the end of the history."""
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        by = time.monotonic() + SECONDS
        while time.monotonic() < by:
            end = self.task.latest(self.position, ReadLimit(rows=1_000_000))
            if end == self.position:
                continue
            streams = self.task.streams(spark, self.position, end)
            for stream in sorted(streams, key=lambda each: each.stream == END):
                if stream.stream == END:
                    return
                yield from _records(stream.stream, stream.rows)
            self.task.acknowledge(end)
            self.position = end
        pytest.fail("the history does not end")


def _records(stream: str, rows: Any) -> Iterator[dict[str, Any]]:
    assert isinstance(rows, ArrowParts)
    row = rows.schema.field("after")
    assert row is not None
    names = primary_key(row.schema)
    for part in rows.parts:
        for batch, rejected in rows.read(part):
            assert not rejected
            for each in batch.to_pylist():
                whole = each["after"] or each["before"]
                yield {
                    "topic": topic_of("headrace", stream),
                    "key": {name: whole[name] for name in names} if names and whole else None,
                    "before": each["before"],
                    "after": each["after"],
                    "op": each["op"],
                    "txId": each["source"]["txId"],
                }


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_streamed_changes_are_those_of_debezium(
    seed: int,
    postgresql: PostgresqlServer,
    tmp_path: Path,
    session_settings: Settings,
) -> None:
    history = history_of(seed, transactions=60)
    with postgresql.database() as url:
        run_statements(url, history.setup)
        (tmp_path / "theirs").mkdir()
        properties = connection_properties(url, tmp_path / "theirs", snapshot_mode="no_data")
        with (
            debezium_events(properties, settings=session_settings) as events,
            ExitStack() as until,
        ):
            events.wait_for_streaming(url)  # until any slot is in use
            followed = Followed(url, tmp_path / "ours")
            until.callback(followed.task.stop)
            for statements in history.transactions:
                run_statements(url, statements)
            theirs = [
                normalised(event)
                for event in events.until(lambda e: str(e["topic"]).endswith(f".{END}"))
            ]
            ours = list(followed.changes())
    full = {topic_of("headrace", table) for table in history.full}
    found = differences(ours, theirs, full=full, source=["txId"])
    assert not found, "\n".join(map(str, found[:20]))
    assert {each["op"] for each in ours} >= {"c", "u", "d"}
