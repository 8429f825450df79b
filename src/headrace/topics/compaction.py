"""Rewrites a topic's small files and removes its old rows, one commit each."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from headrace.sdk.arrow import to_arrow
from headrace.sdk.delta import add_action
from headrace.sdk.deltalog import CommitConflictError, commit, encoded_path
from headrace.sdk.location import sync
from headrace.topics.layout import Entry, layout, worth_merging
from headrace.topics.segments import Segment, stored_schema, write_segment
from headrace.topics.topic import RETENTION, live_files, schema_of
from headrace.topics.trash import Trash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.model import Reading, TopicRetention
    from headrace.sdk.delta import AddedFile
    from headrace.topics.segments import TopicFile
    from headrace.topics.topic import Topic
    from headrace.topics.upkeep import UpkeepPolicy

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
    retention: TopicRetention | None = None
    """How long rows are kept; None removes none for now."""
    readings: Sequence[Reading] = ()

    def held_by(self) -> Sequence[str]:
        """Return the readers for whom rows are kept that are past the topic's limits."""
        if not self.readings or self.retention is None or self.retention.unread:
            return ()
        entries = self._entries(DeltaTable(str(self.topic.location)))
        old = entries[: self._past_limits(entries)]
        last = old[-1].last if old else -1
        return [each.reader for each in self.readings if each.version < last]

    def run(self) -> bool:
        """Remove what is too old, then rewrite; return whether nothing is left to do."""
        return any(not self._step() for _ in range(_MOST_STEPS))

    def _step(self) -> bool:
        """Plan and make one commit; return whether there may be another to make."""
        # The commit is made with the table that it was planned on: Delta then refuses it if
        # another worker has rewritten or removed anything since.
        table = DeltaTable(str(self.topic.location))
        entries = self._entries(table)
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

    def _entries(self, table: DeltaTable) -> Sequence[Entry]:
        first, newest = max(self.topic.lost() + 1, 0), int(table.version())
        return layout(self.topic.log, live_files(table), first, newest)

    def _too_old(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries to remove, all from the beginning.

        What somebody has yet to read stays, unless the topic is configured to remove it.
        """
        old = entries[: self._past_limits(entries)]
        if self.retention is None or self.retention.unread:
            return old
        read = min((each.version for each in self.readings), default=None)
        return [entry for entry in old if read is None or entry.last <= read]

    def _past_limits(self, entries: Sequence[Entry]) -> int:
        """Return how many entries are past the topic's limits, all from the beginning.

        The newest one stays however large it is, but not however old.
        """
        limits = self.retention
        if limits is None:
            return 0
        size = sum(entry.size_bytes for entry in entries)
        for number, entry in enumerate(entries):
            is_last = entry is entries[-1]
            is_over = limits.size_bytes is not None and size > limits.size_bytes
            is_old = limits.age is not None and self.now - entry.time >= limits.age
            if not is_old and (not is_over or is_last):
                return number
            size -= entry.size_bytes
        return len(entries)

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
        segment = write_segment(self.topic.location, files, schema)
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
            (self.topic.location / segment.file.path).delete()

    def _commit(
        self,
        table: DeltaTable,
        files: Sequence[TopicFile],
        segment: Segment | None,
        told: Mapping[str, object],
        marks: Mapping[str, int],
    ) -> bool:
        """Take files out of the table, and put a segment in; False when another was first."""
        # Only what no segment holds is a change of data, to whoever follows the table.
        actions = [self._remove_action(f.file, change=segment is None) for f in files]
        if segment is not None:
            sync([self.topic.location / segment.file.path], up_to=self.topic.location)
            actions.append(add_action(segment.file, self.now, change=False))
        number = (table.transaction_version(_UPKEEP) or 0) + 1
        Trash(self.topic.location).note(files, self.now)
        with suppress(CommitConflictError):
            commit(
                self.topic.location,
                int(table.version()),
                actions,
                operation="OPTIMIZE" if segment else "DELETE",
                transactions={**marks, _UPKEEP: number},
                told=told,
                now=self.now,
            )
            return True
        return False

    def _remove_action(self, file: AddedFile, *, change: bool) -> dict[str, object]:
        remove = {
            "path": encoded_path(file.path),
            "deletionTimestamp": int(self.now.timestamp() * 1000),
            "dataChange": change,
            "size": file.size_bytes,
        }
        return {"remove": remove}
