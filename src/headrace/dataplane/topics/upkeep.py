"""Upkeep keeps topics fast and small: checkpoints, compaction, retention, cleaning."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.dataplane.topics.catalog import JOURNAL
from headrace.dataplane.topics.compaction import Compaction
from headrace.dataplane.topics.topic import live_files
from headrace.dataplane.topics.trash import Trash, clear_leftovers
from headrace.sdk import HeadraceError

if TYPE_CHECKING:
    from headrace.dataplane.topics.catalog import Topics
    from headrace.dataplane.topics.topic import Topic

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 10.0
"""How often the topics are looked at; a look that finds nothing to do costs microseconds."""

_LEFTOVERS_EVERY = timedelta(hours=1)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class UpkeepPolicy:
    """How a topic is kept.

    Args:
        checkpoint_versions: A checkpoint is made after so many versions. Each version after
            the last one costs every append 0.1 to 0.2 ms.
        compact_after: Files become part of a segment when they are older.
        compact_files: So many small files, or more, become one.
        target_bytes: The size that segments grow to.
        retention: Rows are removed when they are older; None keeps them for ever.
        retention_bytes: The oldest rows are removed when the topic is larger.
        grace: Files that were compacted or removed are deleted after it, when no batch that
            was planned before reads them any more.
        leftovers_after: What crashed attempts left is deleted when it is older.
        log_versions: So many commits stay in the table's own log, where other programs can
            travel back in time. Listing them costs every append 0.7 ms for a thousand.
        every: A busy topic is looked at so often, an idle one every ``compact_after``.
    """

    checkpoint_versions: int = 50
    compact_after: timedelta = timedelta(minutes=10)
    compact_files: int = 20
    target_bytes: int = 128 * 2**20
    retention: timedelta | None = timedelta(days=7)
    retention_bytes: int | None = None
    grace: timedelta = timedelta(hours=1)
    leftovers_after: timedelta = timedelta(days=1)
    log_versions: int = 5_000
    every: timedelta = timedelta(minutes=1)


@dataclass
class _Seen:
    """What upkeep knows of one topic."""

    newest: int = -1
    checkpoint: int = -1
    tended: int = -1
    tended_at: datetime = _LONG_AGO
    cleared_at: datetime = _LONG_AGO


@dataclass
class Upkeep:
    """Tends all topics of a folder. Used by one thread at a time.

    Appends go on meanwhile, in any process, and never wait for it. Two workers may tend
    the same topics: of two commits of upkeep that overlap, Delta refuses the second.

    Args:
        topics: The topics.
        clock: Gives the present, aware.
        policy: How topics are kept.
        overrides: Policies of single topics, by name.
    """

    topics: Topics
    clock: Callable[[], datetime]
    policy: UpkeepPolicy = UpkeepPolicy()
    overrides: Mapping[str, UpkeepPolicy] = field(default_factory=dict)
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def run_once(self) -> None:
        """Do what is due. Called every few seconds; a topic with nothing due costs a stat.

        A topic whose upkeep fails is logged and tried again; the others do not wait.
        """
        for topic in [*self.topics.list(), *self.topics.journals()]:
            try:
                self._tend(topic)
            except (HeadraceError, DeltaError, pa.ArrowException, OSError) as error:
                log.warning("upkeep failed", topic=topic.name, error=str(error))

    def _tend(self, topic: Topic) -> None:
        seen = self._seen.setdefault(str(topic.path), _Seen())
        policy = self.overrides.get(topic.name, self.policy)
        now = self.clock()
        seen.newest = topic.log.newest(seen.newest)
        if seen.newest - seen.checkpoint >= policy.checkpoint_versions:
            self._checkpoint(topic, seen, policy)
        pause = policy.every if seen.newest != seen.tended else policy.compact_after
        if now - seen.tended_at >= pause:
            # The time is set first: what fails is not tried again at once.
            seen.tended_at, seen.tended = now, seen.newest
            done = Compaction(topic, policy, now).run()
            self._clean(topic, policy, seen, now)
            if not done:
                seen.tended_at = _LONG_AGO

    def _checkpoint(self, topic: Topic, seen: _Seen, policy: UpkeepPolicy) -> None:
        seen.checkpoint = topic.log.checkpoint()
        if seen.newest - seen.checkpoint >= policy.checkpoint_versions:
            table = DeltaTable(topic.path)
            table.create_checkpoint()
            seen.checkpoint = int(table.version())

    def _clean(self, topic: Topic, policy: UpkeepPolicy, seen: _Seen, now: datetime) -> None:
        """Delete files, and old commits: never newer ones than retention or a checkpoint."""
        trash = Trash(topic.path)
        leftovers = now - seen.cleared_at >= _LEFTOVERS_EVERY
        if leftovers or trash.is_due(now - policy.grace):
            live = {file.path for file in live_files(DeltaTable(topic.path))}
            trash.empty(live, now - policy.grace)
            if leftovers:
                clear_leftovers(topic.path, live, trash.noted, now - policy.leftovers_after)
                seen.cleared_at = now
        keep = [v for v in topic.log.checkpoints() if v <= seen.newest - policy.log_versions]
        if keep:
            topic.log.store_away(keep[-1])
        if policy.retention is not None:
            # Readers walk through all commits, but those whose rows are lost. A journal
            # has no readers, and its writer looks at the newest ones only.
            topic.history.keep()
            until = seen.newest if topic.name == JOURNAL else topic.lost()
            topic.log.forget(until, now - policy.retention)


@contextmanager
def kept(topics: Topics, clock: Callable[[], datetime]) -> Iterator[None]:
    """Compact and prune the topics now and then, beside whatever moves, while this lasts."""
    ended = threading.Event()
    upkeep = Upkeep(topics, clock)

    def keep() -> None:
        while not ended.wait(_LOOK_SECONDS):
            try:
                upkeep.run_once()
            except Exception:
                log.warning("topics could not be kept", exc_info=True)

    thread = threading.Thread(target=keep, name="headrace-upkeep")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
