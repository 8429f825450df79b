"""Rewrites a topic's small files and removes its old rows, one commit each."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from headrace.dataplane.topics.layout import Entry, layout, worth_merging
from headrace.dataplane.topics.segments import Segment, stored_schema, write_segment
from headrace.dataplane.topics.topic import RETENTION, live_files, schema_of
from headrace.dataplane.topics.trash import Trash
from headrace.sdk import to_arrow
from headrace.sdk.delta import QUIET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.dataplane.topics.segments import TopicFile
    from headrace.dataplane.topics.topic import Topic
    from headrace.dataplane.topics.upkeep import UpkeepPolicy

_UPKEEP = "headrace.upkeep"
"""The application of all commits that remove files. Delta refuses one that has not seen the
one before, so that two workers never rewrite, or remove, the same rows."""

_MOST_STEPS = 8
"""How many commits are made before other topics have their turn."""


@dataclass(frozen=True)
class Compaction:
    """One look at the files of one topic."""

    topic: Topic
    policy: UpkeepPolicy
    now: datetime

    def run(self) -> bool:
        """Remove what is too old, then rewrite; return whether nothing is left to do."""
        return any(not self._step() for _ in range(_MOST_STEPS))

    def _step(self) -> bool:
        """Plan and make one commit; return whether there may be another to make."""
        # The commit is made with the table that it was planned on: Delta then refuses it if
        # another worker has rewritten or removed anything since.
        table = DeltaTable(self.topic.path)
        first, newest = max(self.topic.lost() + 1, 0), int(table.version())
        entries = layout(self.topic.log, live_files(table), first, newest)
        policy = self.policy
        if old := self._too_old(entries):
            self._remove(table, old)
            return True
        settled = [e for e in entries if self.now - e.time >= policy.compact_after]
        files = worth_merging(
            settled, fan_in=policy.compact_files, target_bytes=policy.target_bytes
        )
        if files:
            self._rewrite(table, files)
        return bool(files)

    def _too_old(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries to remove, all from the beginning.

        The newest one stays however large it is, but not however old.
        """
        policy = self.policy
        size = sum(entry.size_bytes for entry in entries)
        old = 0
        for entry in entries:
            is_last = entry is entries[-1]
            most = policy.retention_bytes
            is_over = most is not None and size > most and not is_last
            is_old = policy.retention is not None and self.now - entry.time >= policy.retention
            if not is_over and not is_old:
                break
            size -= entry.size_bytes
            old += 1
        return entries[:old]

    def _remove(self, table: DeltaTable, entries: Sequence[Entry]) -> None:
        files = [file for entry in entries for file in entry.files]
        first, last = files[0].first, files[-1].version
        told = {
            "headrace.retention": {
                "from": first,
                "to": last,
                "rows": sum(entry.rows for entry in entries),
                "size": sum(entry.size_bytes for entry in entries),
            }
        }
        # Readers take from this number what was lost, also when the commit is forgotten.
        self._commit(table, files, None, told, {RETENTION: last})

    def _rewrite(self, table: DeltaTable, files: Sequence[TopicFile]) -> None:
        schema = to_arrow(stored_schema(schema_of(table)))
        segment = write_segment(self.topic.path, files, schema)
        told = {
            "headrace.segment": {
                "from": segment.first,
                "to": segment.last,
                "path": segment.file.path,
                "rows": segment.file.rows,
                "size": segment.file.size_bytes,
            }
        }
        if not self._commit(table, files, segment, told, {}):
            (self.topic.path / segment.file.path).unlink()

    def _commit(
        self,
        table: DeltaTable,
        files: Sequence[TopicFile],
        segment: Segment | None,
        told: Mapping[str, object],
        marks: Mapping[str, int],
    ) -> bool:
        """Take files out of the table, and put a segment in; False when another was first."""
        millis = int(self.now.timestamp() * 1000)
        # Only what no segment holds is a change of data, to whoever follows the table.
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(f.file.path, segment is None, millis, f.file.size_bytes) for f in files
        ]
        if segment is not None:
            stats = json.dumps({"numRecords": segment.file.rows})
            file = segment.file
            actions.append(AddAction(file.path, file.size_bytes, {}, millis, False, stats))  # noqa: FBT003 - deltalake's own order
        number = (table.transaction_version(_UPKEEP) or 0) + 1
        marked = [Transaction(name, version) for name, version in marks.items()]
        Trash(self.topic.path).note((f.file.path for f in files), self.now)
        with suppress(CommitFailedError):
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                [],
                commit_properties=CommitProperties(
                    custom_metadata=dict(told),
                    app_transactions=[*marked, Transaction(_UPKEEP, number)],
                ),
                post_commithook_properties=QUIET,
            )
            return True
        return False
