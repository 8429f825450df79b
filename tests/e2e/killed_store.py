"""What a server that was killed has left in its store."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

WANTED = {"created", "configured", "target", "restart", "offsets", "deleted"}


@dataclass
class KilledStore:
    """Looks at a store at rest, and remembers the epochs and the batches that it saw."""

    file: Path
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    ids: dict[tuple[str, int], int] = field(default_factory=dict)

    def rows(self, query: str) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(self.file)) as db:
            db.row_factory = sqlite3.Row
            return db.execute(query).fetchall()

    def connectors(self) -> dict[str, tuple[dict[str, str], str]]:
        """Return the configuration and the target of each connector."""
        query = (
            "SELECT m.name, m.target, c.config FROM managed_connectors m "
            "LEFT JOIN connector_configs c ON c.connector = m.name AND c.version = m.version"
        )
        return {
            row["name"]: (json.loads(row["config"]), row["target"]) for row in self.rows(query)
        }

    def events(self) -> Counter[tuple[str, str]]:
        """Return how often what was wanted of each connector was changed, and how."""
        rows = self.rows("SELECT connector, kind FROM events WHERE task IS NULL")
        return Counter((r["connector"], r["kind"]) for r in rows if r["kind"] in WANTED)

    def moved(self) -> int:
        """Return a number that grows with each batch of any task."""
        return int(self.rows("SELECT coalesce(sum(last_batch), 0) FROM tasks")[0][0])

    def unfinished(self, connector: str) -> int:
        """Return how many batches of a connector are begun and not finished."""
        query = "SELECT connector FROM batches WHERE finished_us IS NULL"
        return sum(row["connector"] == connector for row in self.rows(query))

    def owners(self) -> set[str]:
        return {
            row["owner"] for row in self.rows("SELECT owner FROM tasks WHERE owner NOT NULL")
        }

    def check(self) -> None:
        """Fail if anything is there by half."""
        assert [row[0] for row in self.rows("PRAGMA integrity_check")] == ["ok"]
        self._check_connectors()
        self._check_epochs()
        self._check_batches()

    def _check_connectors(self) -> None:
        managed = {r["name"]: r for r in self.rows("SELECT * FROM managed_connectors")}
        versions: dict[str, list[int]] = {name: [] for name in managed}
        for row in self.rows("SELECT connector, version FROM connector_configs ORDER BY 2"):
            versions[row["connector"]].append(row["version"])
        for name, row in managed.items():
            assert versions[name] == list(range(1, row["version"] + 1)), name
        identities = {r["name"]: r["uid"] for r in self.rows("SELECT * FROM connectors")}
        assert identities == {name: row["uid"] for name, row in managed.items()}
        for table in ("tasks", "batches", "ledger", "schemas", "task_configs", "topics_in_use"):
            of = {row[0] for row in self.rows(f"SELECT DISTINCT connector FROM {table}")}  # noqa: S608
            assert of <= managed.keys(), table

    def _check_epochs(self) -> None:
        """Guarantee 3: an epoch is never given again, not even to a task made again."""
        found: dict[tuple[str, int], int] = {}
        for table in ("retired_epochs", "tasks"):
            for row in self.rows(f"SELECT connector, number, epoch FROM {table}"):  # noqa: S608
                task = row["connector"], row["number"]
                assert row["epoch"] >= found.get(task, 0), task
                found[task] = row["epoch"]
        for task, epoch in self.epochs.items():
            assert found.get(task, 0) >= epoch, task
        self.epochs = found

    def _check_batches(self) -> None:
        tasks = {
            (row["connector"], row["number"]): row for row in self.rows("SELECT * FROM tasks")
        }
        self._check_ids(tasks)
        batches: dict[tuple[str, int], list[Any]] = {}
        for row in self.rows("SELECT * FROM batches ORDER BY connector, number, id"):
            batches.setdefault((row["connector"], row["number"]), []).append(row)
        for task, some in batches.items():
            _check_line(some)
            last, row = some[-1], tasks[task]
            assert row["last_batch"] >= last["id"], task
            assert row["epoch"] >= last["epoch"], task
            if last["finished_us"] is None:
                assert last["start"] == row["position"], task

    def _check_ids(self, tasks: dict[tuple[str, int], Any]) -> None:
        """Guarantee 2: the id of a batch is never given again, whatever its offsets are."""
        uids = {row["name"]: row["uid"] for row in self.rows("SELECT * FROM connectors")}
        found = {(uids[name], n): row["last_batch"] for (name, n), row in tasks.items()}
        for task, last in found.items():
            assert last >= self.ids.get(task, 0), task
        self.ids |= found


def _check_line(batches: list[Any]) -> None:
    """One batch after the other, by one owner after the other: nobody ran beside another."""
    for earlier, later in pairwise(batches):
        where = later["connector"], later["id"]
        assert earlier["finished_us"] is not None, where
        assert earlier["finished_us"] <= later["begun_us"], where
        assert earlier["epoch"] <= later["epoch"], where
        follows = earlier["end"] == later["start"]
        assert follows or _is_beginning(later["start"]), (where, earlier["end"], later["start"])


def _is_beginning(position: str) -> bool:
    """Return whether a position is where a task stands whose offsets were reset."""
    return all(each["offset"].get("version") == -1 for each in json.loads(position))
