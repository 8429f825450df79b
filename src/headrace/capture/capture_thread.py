"""The thread of one capture: polls its source and appends the records, batch by batch."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from headrace.capture.process import Calls, CaptureSpec, Message, Pace, Voice, error_to_json
from headrace.capture.staging import Staged, Stager
from headrace.capture.targets import Targets
from headrace.plugins import Access
from headrace.sdk import (
    CapturedBatch,
    CaptureSource,
    ConfigError,
    HeadraceError,
    Mark,
    Position,
    Record,
    RetriableError,
    Schema,
    SourceConnector,
    SourceError,
)
from headrace.sdk.config import Config, Password
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import schema_from_json, schema_to_json
from headrace.sdk.storage import denied_error, storage_error

Polled = CapturedBatch | list[Record]
"""The result of one poll."""


@dataclass(slots=True)
class Gathering:
    """The polls since the last append, in order, and the source's position after them."""

    start: Position
    end: Position = field(init=False)
    polls: list[Polled] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self.end = self.start

    def add(self, polled: CapturedBatch | Sequence[Record]) -> None:
        if isinstance(polled, CapturedBatch):
            self.polls.append(polled)
            self.end = polled.position
            self.rows += polled.values.num_rows + len(polled.rejected)
            self.size_bytes += polled.values.nbytes
            return
        self.polls.append(list(polled))
        self.end = self.end.merged(_stand(polled))
        self.rows += len(polled)

    @property
    def records(self) -> list[Record]:
        return [r for polled in self.polls if isinstance(polled, list) for r in polled]

    @property
    def empty(self) -> bool:
        """Return whether there are no rows to append and no new position to store."""
        return not self.rows and self.end == self.start

    def full(self, pace: Pace) -> bool:
        """Return whether to append now, even if the last append was recent."""
        return self.rows >= pace.max_rows or self.size_bytes >= pace.max_bytes


def _stand(records: Sequence[Record]) -> Position:
    """Return the newest offset of each source partition.

    Partitions are compared by identity first, which is cheaper than serializing each to JSON.
    """
    newest: dict[int, Record] = {}
    for record in records:
        newest.pop(id(record.source_partition), None)
        newest[id(record.source_partition)] = record
    return Position(
        (r.source_partition, r.source_offset)
        for r in newest.values()
        if r.source_partition is not None and r.source_offset is not None
    )


_RECENT_SECONDS = 5.0
"""A capture that has appended within this time is busy."""


@dataclass
class Tempo:
    """Limits the rate of appends of all busy captures: the more captures, the rarer for each.

    An append costs 20 ms of CPU in host, worker and store, however few rows it has. So many
    captures linger for longer: the throughput is the same, in fewer and larger files.
    Thread-safe.

    Args:
        per_second: The maximum rate of appends of all captures together.
        longest: The maximum time between a capture's appends, in seconds.
        clock: A monotonic clock in seconds.
    """

    per_second: float = 25.0
    longest: float = 2.0
    clock: Callable[[], float] = time.monotonic
    linger: float = 0.0
    """The minimum time between a capture's appends, in seconds."""
    _appended: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def appended(self, capture: str) -> None:
        now = self.clock()
        with self._lock:
            self._appended[capture] = now
            since = now - _RECENT_SECONDS
            self._appended = {c: at for c, at in self._appended.items() if at > since}
            self.linger = min(len(self._appended) / self.per_second, self.longest)


T = TypeVar("T")

_FIRST_WAIT = 0.01
"""Seconds to wait after an empty poll; doubled up to the poll interval."""
_ONCE_POLLS = 2
"""The number of consecutive empty polls after which a capture that ends has ended."""

_WRITERS = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="writer")
"""A few threads write for all captures: Arrow and deltalake use some MB per thread."""

_TEMPO = Tempo()

log = logging.getLogger("headrace.host")


class _StopAskedError(HeadraceError):
    """A stop was requested while the capture waited for a retry."""


class CaptureThread(threading.Thread):
    """Runs one capture until it is stopped, fails, or its source ends.

    Args:
        position: The last committed position.
        epoch: The epoch of its lease.
    """

    def __init__(
        self,
        capture: str,
        spec: CaptureSpec,
        *,
        position: Position,
        epoch: int,
        calls: Calls,
        send: Callable[[Message], None],
        voice: Voice,
    ) -> None:
        super().__init__(name=f"capture-{capture}", daemon=True)
        self._name = capture
        self._spec = spec
        self._epoch = epoch
        self._calls = calls
        self._send = send
        self._voice = voice
        self._stop_asked = threading.Event()
        self._discard = False
        self._gathering = Gathering(position)
        self._appended_at = float("-inf")
        self._wait = _FIRST_WAIT
        self._schemas = RemoteSchemas(self._ask)
        self._targets = Targets(Location.of(spec.topics_dir), spec.topic, spec.application)
        self._stager = Stager(spec, self._targets, self._schemas)

    def ask_to_stop(self, *, discard: bool) -> None:
        """Stop the capture after its poll; ``discard`` drops rows that are not appended."""
        self._discard = discard
        self._stop_asked.set()

    @override
    def run(self) -> None:
        self._voice.speak_for(self._name)
        source: CaptureSource | None = None
        ended: Message = {"type": "stopped", "completed": False}
        try:
            source = self._opened(self._connector())
            ended["completed"] = self._live(source)
        except _StopAskedError:
            pass
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; only its task fails
            ended = {"type": "failed", "error": self._described(error)}
        if source is not None:
            self._close(source)
        self._send({**ended, "capture": self._name})

    def _described(self, error: Exception) -> Message:
        known = error
        if not isinstance(error, RetriableError) and (storage := storage_error(error)):
            known = storage
        elif not isinstance(error, HeadraceError) and (denied := denied_error(error)):
            known = SourceError(denied.problem, fix=denied.fix)
        elif not isinstance(error, HeadraceError):
            log.error("the plugin raised an error", exc_info=error)
        facts = error_to_json(known)
        return {k: self._voice.clean(v) if isinstance(v, str) else v for k, v in facts.items()}

    def _connector(self) -> type[SourceConnector]:
        module, _, name = self._spec.class_path.rpartition(".")
        found: type[SourceConnector] = getattr(importlib.import_module(module), name)
        return found

    def _opened(self, connector: type[SourceConnector]) -> CaptureSource:
        spec, position = self._spec, self._gathering.start
        config = connector.config_def().parse(spec.config)
        for value in config.values():
            if isinstance(value, Password):
                self._voice.hide(value.value)
        context = HostTaskContext(
            spec.connector,
            spec.task,
            spec.application,
            self._schemas,
            RemoteLedger(self._ask),
            spec.scratch,
            position,
            self._stop_asked,
            Access(None if spec.allowed_paths is None else [*map(Path, spec.allowed_paths)]),
        )
        return self._insist(lambda: self._start_source(connector, config, context))

    def _start_source(
        self, connector: type[SourceConnector], config: Config, context: HostTaskContext
    ) -> CaptureSource:
        source = connector.task(config)
        if not isinstance(source, CaptureSource):
            problem = f"{self._spec.class_path} is not a capture."
            raise ConfigError(problem, field="connector.class")
        shutil.rmtree(context.folder, ignore_errors=True)
        try:
            source.start(context)
        except BaseException:
            self._close(source)
            raise
        return source

    def _close(self, source: CaptureSource) -> None:
        try:
            source.stop()
        except Exception:
            log.warning("the plugin did not stop cleanly", exc_info=True)

    def _live(self, source: CaptureSource) -> bool:
        """Poll and append until the end; return whether the source has ended."""
        position = self._gathering.start
        if len(position):  # a crash may have prevented this after the last append
            self._insist(lambda: source.commit(position))
        empty_polls = 0
        while not self._stop_asked.is_set():
            if self._poll(source):
                empty_polls = 0
                if self._due():
                    self._append(source)
            elif (
                over := self._spec.once or source.ended(self._gathering.end)
            ) or not self._rests():
                self._append(source)
                empty_polls += 1
                if over and empty_polls >= _ONCE_POLLS:
                    return True
        if not self._discard:
            self._append(source)
        return False

    def _poll(self, source: CaptureSource) -> bool:
        """Poll once, and wait if it returns nothing; return whether it returned records."""
        began = time.monotonic()
        polled = self._insist(source.poll)
        if polled:
            self._gathering.add(polled)
            self._wait = _FIRST_WAIT
            return True
        if self._gathering.empty:
            # A poll that blocks has waited already.
            self._stop_asked.wait(self._wait - (time.monotonic() - began))
            self._wait = min(2 * self._wait, self._spec.pace.poll_interval_ms / 1000)
        return False

    def _due(self) -> bool:
        pace = self._spec.pace
        quiet = time.monotonic() - self._appended_at
        linger = max(pace.linger_ms / 1000, _TEMPO.linger)
        return quiet >= linger or self._gathering.full(pace)

    def _rests(self) -> bool:
        """Wait if the tempo does not allow an append yet; return whether it waited."""
        rest = self._appended_at + _TEMPO.linger - time.monotonic()
        if rest <= 0 or self._gathering.empty:
            return False
        self._stop_asked.wait(min(rest, self._wait))
        self._wait = min(2 * self._wait, self._spec.pace.poll_interval_ms / 1000)
        return True

    def _append(self, source: CaptureSource) -> None:
        """Make the gathered records durable, then commit at the source."""
        gathering = self._gathering
        if gathering.empty:
            return
        staged = _WRITERS.submit(self._stage, gathering).result()
        self._commit(staged, gathering.end)
        self._gathering = Gathering(gathering.end)
        self._appended_at = time.monotonic()
        _TEMPO.appended(self._name)
        for record in gathering.records:
            self._insist(lambda record=record: source.commit_record(record))  # type: ignore[misc]  # mypy cannot type a default in a lambda
        self._insist(lambda: source.commit(gathering.end))

    def _stage(self, gathering: Gathering) -> Staged:
        staged = self._stager.stage(gathering)
        self._targets.prepare(staged.additions)
        return staged

    def _commit(self, staged: Staged, end: Position) -> None:
        # Guarantee 2: the intent is stored, with a new batch id, before data is appended.
        try:
            begun = self._ask("begin", end=end.to_json(), counts=staged.counts.to_json())
        except HeadraceError:
            self._stager.discard(staged)
            raise
        if staged.additions:
            self._stager.keep(staged)
            mark = Mark(self._spec.application, begun["batch"], self._epoch, begun["range"])
            _WRITERS.submit(
                self._targets.commit, staged.additions, mark, staged.counts
            ).result()
        # Guarantee 1: the position only advances after the data is durable.
        topics = [addition.topic for addition in staged.additions]
        self._ask("finish", batch=begun["batch"], counts=staged.counts.to_json(), topics=topics)

    def _insist(self, work: Callable[[], T]) -> T:
        """Retry ``work`` after retriable errors, as long as the worker allows."""
        failures = 0
        since = time.monotonic()
        while True:
            try:
                return work()
            except RetriableError as error:
                failures += 1
                wait = self._ask(
                    "retry",
                    error=self._described(error),
                    failures=failures,
                    trying_seconds=time.monotonic() - since,
                )
            if self._stop_asked.wait(wait):
                raise _StopAskedError

    def _ask(self, what: str, **facts: Any) -> Any:
        return self._calls.ask(self._name, what, **facts)


Ask = Callable[..., Any]
"""Calls the worker: ``ask(what, **facts)``."""


@dataclass(frozen=True)
class RemoteSchemas:
    """A SchemaMemory that the worker stores. Only the host's own captures change it."""

    ask: Ask
    _known: dict[str, Schema | None] = field(default_factory=dict)

    def get(self, stream: str) -> Schema | None:
        if stream not in self._known:
            text = self.ask("schema", stream=stream)
            self._known[stream] = None if text is None else schema_from_json(text)
        return self._known[stream]

    def put(self, stream: str, schema: Schema) -> None:
        self.ask("put_schema", stream=stream, schema=schema_to_json(schema))
        self._known[stream] = schema


@dataclass(frozen=True)
class RemoteLedger:
    """A Ledger that the worker stores."""

    ask: Ask

    def append(self, items: Sequence[Mapping[str, str | int]], after: int | None = None) -> int:
        plain = [dict(item) for item in items]
        return int(self.ask("ledger_append", items=plain, after=after))

    def slice(self, start: int, end: int) -> list[dict[str, str | int]]:
        items: list[dict[str, str | int]] = self.ask("ledger_slice", start=start, end=end)
        return items

    def __len__(self) -> int:
        return int(self.ask("ledger_length"))


@dataclass(frozen=True)
class HostTaskContext:
    """A TaskContext in a host."""

    connector: str
    task: int
    application: str
    schemas: RemoteSchemas
    ledger: RemoteLedger
    folder: str
    started_at: Position
    stop_asked: threading.Event
    access: Access

    @property
    def scratch(self) -> Path:
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def position(self) -> Position:
        return self.started_at

    def check_file(self, path: str) -> None:
        self.access.check_file(path)

    def stopping(self) -> bool:
        return self.stop_asked.is_set()
