"""Maintains topics: checkpoints, compaction, retention and cleanup."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import structlog
from deltalake.exceptions import DeltaError

from headrace.model import Reading, TopicReaders, TopicRetention
from headrace.repeated_errors import RepeatedErrors
from headrace.sdk import HeadraceError
from headrace.sdk.deltalog import create_checkpoint, load_table
from headrace.sdk.location import Location
from headrace.topics.compaction import Compaction, Trash, clear_leftovers
from headrace.topics.topic import JOURNAL, Topic, Topics, live_files, newest_figures

log = structlog.get_logger(__name__)


_JUMP = timedelta(minutes=5)
"""The largest clock jump, by a correction or a pause of the machine, that is not suspicious."""
_AWAY = timedelta(days=1)
"""How long an installation may have been idle without making the clock suspicious."""
_PROOF = timedelta(hours=1)
_NOTED_EVERY = timedelta(minutes=10)


@dataclass
class TrustedClock:
    """Returns the current time, or None while the clock is suspicious. Not thread-safe.

    Deleting by age trusts the clock, but a clock may be wrong: set ahead by hand, by a time
    server, or on a machine that starts with a flat battery. So the clock is compared with the
    monotonic clock, and after a start with the last trusted time. A clock that has jumped is
    trusted again after it has run evenly for an hour, which leaves time to correct it.

    Args:
        file: Stores the last trusted time for the next process.
        monotonic: Returns the seconds of a monotonic clock.
    """

    clock: Callable[[], datetime]
    file: Location
    monotonic: Callable[[], float] = time.monotonic
    _last: tuple[datetime, float] | None = field(default=None, init=False)
    _doubted: tuple[datetime, float] | None = field(default=None, init=False)
    _noted: datetime | None = field(default=None, init=False)

    def now(self, newest: Callable[[], datetime | None]) -> datetime | None:
        """Return the current time; None while the clock is suspicious.

        Args:
            newest: Returns the time of the last known event. Called at the first call only, if
                no process has stored a trusted time.
        """
        wall, ran = self.clock(), self.monotonic()
        if self._last is None:
            self._begin(wall, ran, newest)
        else:
            passed = timedelta(seconds=ran - self._last[1])
            if abs(wall - self._last[0] - passed) > _JUMP:
                self._doubted = wall, ran
        self._last = wall, ran
        if self._doubted is not None:
            if ran - self._doubted[1] < _PROOF.total_seconds():
                self._note(wall, doubted=self._doubted[0])
                return None
            self._doubted = None
        self._note(wall)
        return wall

    def _begin(self, wall: datetime, ran: float, newest: Callable[[], datetime | None]) -> None:
        """Compare the clock with the time that an earlier process stored."""
        noted = self._read()
        believed = noted.get("believed") or newest()
        if believed is None or wall - believed <= _AWAY:
            return
        doubted = noted.get("doubted")
        if doubted is not None and wall - doubted >= _PROOF:
            return  # two processes have seen the new time, an hour or more apart
        self._doubted = wall, ran

    def _note(self, wall: datetime, *, doubted: datetime | None = None) -> None:
        if self._noted is not None and timedelta() <= wall - self._noted < _NOTED_EVERY:
            return
        self._noted = wall
        noted = self._read()
        if doubted is None:
            noted = {"believed": wall}
        elif "doubted" not in noted:
            noted["doubted"] = doubted
        times = {name: at.isoformat() for name, at in noted.items()}
        with suppress(OSError):  # e.g. a full disk: the next process is more suspicious
            self.file.put(json.dumps(times))

    def _read(self) -> dict[str, datetime]:
        with suppress(FileNotFoundError, ValueError, AttributeError):
            times = json.loads(self.file.read_text())
            return {name: datetime.fromisoformat(text) for name, text in times.items()}
        return {}


_LOOK_SECONDS = 10.0
"""How often the topics are checked; a check with nothing to do costs microseconds."""

_LEFTOVERS_EVERY = timedelta(hours=1)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class UpkeepPolicy:
    """The configuration of upkeep.

    Args:
        checkpoint_versions: The number of versions between checkpoints. Each version after the
            last checkpoint costs every append 0.1 to 0.2 ms.
        compact_after: The minimum age of files for compaction into a segment.
        compact_files: The minimum number of small files that become one file.
        target_bytes: The target size of segments.
        retention: The retention of topics that do not have their own.
        grace: Compacted or removed files are deleted after this time, once no batch that was
            planned before reads them.
        leftovers_after: The age at which files of crashed attempts are deleted.
        log_versions: How many commits stay in the table's own log, where other programs can use
            time travel. Listing a thousand commits costs every append 0.7 ms.
        every: The interval for busy topics; idle topics use ``compact_after``.
    """

    checkpoint_versions: int = 50
    compact_after: timedelta = timedelta(minutes=10)
    compact_files: int = 20
    target_bytes: int = 128 * 2**20
    retention: TopicRetention = field(default_factory=TopicRetention)
    grace: timedelta = timedelta(hours=1)
    leftovers_after: timedelta = timedelta(days=1)
    log_versions: int = 5_000
    every: timedelta = timedelta(minutes=1)


_PASSING = (HeadraceError, DeltaError, pa.ArrowException, OSError)
"""Errors of the storage: logged without a traceback, and retried."""


@dataclass
class _Seen:
    """The state of upkeep for one topic."""

    topic: str
    newest: int = -1
    checkpoint: int = -1
    tended: int = -1
    tended_at: datetime = _LONG_AGO
    cleared_at: datetime = _LONG_AGO
    held: tuple[str, ...] = ()
    errors: RepeatedErrors = field(init=False)

    def __post_init__(self) -> None:
        self.errors = RepeatedErrors(
            "upkeep failed", "upkeep works again", _PASSING, {"topic": self.topic}
        )


@dataclass
class Upkeep:
    """Maintains all topics of a folder. Not thread-safe.

    Appends of any process continue meanwhile and never wait for upkeep. Two workers may
    maintain the same topics: Delta rejects the second of two overlapping upkeep commits.

    Args:
        readers: Returns the readers of a topic. Files that they are reading are kept, and by
            default also rows that they have not read yet.
        monotonic: Returns the seconds of a monotonic clock, to detect clock jumps.
    """

    topics: Topics
    clock: Callable[[], datetime]
    policy: UpkeepPolicy = UpkeepPolicy()
    readers: TopicReaders = lambda _: ()
    monotonic: Callable[[], float] = time.monotonic
    _seen: dict[str, _Seen] = field(default_factory=dict, init=False)
    _trusted: TrustedClock = field(init=False)
    _was_trusted: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._trusted = TrustedClock(self.clock, self.topics.upkeep_clock, self.monotonic)

    def run_once(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Do the work that is due. Called every few seconds; an idle topic costs one stat.

        An error of one topic is logged and retried; other topics do not wait. Once
        ``is_stopping``, the other topics are left.
        """
        topics = [*self.topics.list(), *self.topics.journals()]
        if not topics:
            return
        trusted = self._trusted.now(lambda: _newest_append(topics)) is not None
        if trusted is not self._was_trusted:
            self._was_trusted = trusted
            if not trusted:
                log.warning("the clock has jumped: nothing is removed from topics for an hour")
        for topic in topics:
            if is_stopping():
                return
            seen = self._seen.setdefault(str(topic.location), _Seen(topic.name))
            try:
                if self._tend(topic, seen, trusted=trusted):
                    seen.errors.ended()
            except Exception as error:  # noqa: BLE001 - the next turn may go well
                seen.errors.failed(error)

    def _tend(self, topic: Topic, seen: _Seen, *, trusted: bool) -> bool:
        """Do the work that is due for a topic; return whether there was any.

        Deletes nothing while the clock is not trusted.
        """
        policy, now = self.policy, self.clock()
        seen.newest = topic.log.newest(seen.newest)
        due = seen.newest - seen.checkpoint >= policy.checkpoint_versions
        if due:
            self._checkpoint(topic, seen, policy)
        pause = policy.every if seen.newest != seen.tended else policy.compact_after
        # Do not wait for a clock that was set back.
        if not timedelta() <= now - seen.tended_at < pause:
            # Set the time first, so that a failed run is not retried immediately.
            seen.tended_at, seen.tended = now, seen.newest
            readings = self.readers(topic.name)
            retention = topic.retention(policy.retention) if trusted else None
            work = Compaction(topic, policy, now, retention, readings)
            done = work.run()
            self._log_held(topic, seen, work.held_by())
            if trusted:
                self._clean(topic, seen, now, readings)
            if not done:
                seen.tended_at = _LONG_AGO
            due = True
        return due

    def _log_held(self, topic: Topic, seen: _Seen, held_by: Sequence[str]) -> None:
        """Log that rows are kept for readers, once per set of readers."""
        if (held := tuple(sorted(held_by))) == seen.held:
            return
        seen.held = held
        if held:
            log.warning(
                "topic keeps rows past its retention because they are not read yet",
                topic=topic.name,
                readers=", ".join(held),
            )

    def _checkpoint(self, topic: Topic, seen: _Seen, policy: UpkeepPolicy) -> None:
        seen.checkpoint = topic.log.checkpoint()
        if seen.newest - seen.checkpoint >= policy.checkpoint_versions:
            table = load_table(topic.location)
            create_checkpoint(table)
            seen.checkpoint = int(table.version())

    def _clean(
        self, topic: Topic, seen: _Seen, now: datetime, readings: Sequence[Reading]
    ) -> None:
        """Delete files and old commits, never commits newer than retention or a checkpoint."""
        policy, trash = self.policy, Trash(topic.location)
        retention = topic.retention(policy.retention)
        reading = min((each.version for each in readings if each.running), default=None)
        leftovers = now - seen.cleared_at >= _LEFTOVERS_EVERY
        if leftovers or trash.is_due(now - policy.grace):
            live = {file.path for file in live_files(load_table(topic.location))}
            trash.empty(live, now - policy.grace, reading)
            if leftovers:
                before = now - policy.leftovers_after
                clear_leftovers(
                    topic.location, live, lambda: trash.noted() | self._decided(topic), before
                )
                seen.cleared_at = now
        keep = [v for v in topic.log.checkpoints() if v <= seen.newest - policy.log_versions]
        if keep:
            topic.log.store_away(keep[-1])
        if retention.age is not None:
            # Readers read all commits except those with removed rows. A journal has no
            # readers, and its writer reads only the newest commits.
            topic.history.keep()
            until = seen.newest if topic.name == JOURNAL else topic.lost()
            topic.log.forget(until, now - retention.age)

    def _decided(self, topic: Topic) -> set[str]:
        """Return the files that captures have decided to add to a topic.

        If a host dies after the decision, the next owner adds the files.
        """
        found: set[str] = set()
        for journal in self.topics.journals():
            additions = newest_figures(journal).get("additions", ())
            for each in additions:
                if each["topic"] == topic.name:
                    found |= {str(file["path"]) for file in each["files"]}
        return found


def _newest_append(topics: Sequence[Topic]) -> datetime | None:
    """Return the time of the newest append to any of the topics."""
    times = []
    for topic in topics:
        with suppress(OSError, HeadraceError):  # the topic's upkeep logs the error
            times.append(topic.log.commit(topic.log.newest()).time)
    return max(times, default=None)


@contextmanager
def maintained(
    topics: Topics, clock: Callable[[], datetime], readers: TopicReaders
) -> Iterator[None]:
    """Run upkeep of the topics in a background thread while the context is open."""
    ended = threading.Event()
    upkeep = Upkeep(topics, clock, readers=readers)

    errors = RepeatedErrors("upkeep of topics fails", "upkeep of topics works again", _PASSING)

    def keep() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with errors.logged():
                upkeep.run_once(ended.is_set)

    thread = threading.Thread(target=keep, name="headrace-upkeep")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
