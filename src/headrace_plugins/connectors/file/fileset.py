"""Mode set: files that are read once, as a whole, and a task's ledger of found files."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from itertools import islice
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import structlog
from typing_extensions import override

from headrace.sdk import (
    ArrowParts,
    FrameSource,
    Lag,
    Position,
    ReadLimit,
    Schema,
    StateError,
    Type,
    check_range,
)
from headrace.sdk.errors import RangeChangedError, SourceError
from headrace.sdk.location import Location
from headrace.sdk.sqltext import quote
from headrace.sdk.struct_exprs import is_variant
from headrace_plugins.arrow_json import TEXT
from headrace_plugins.connectors.file.columnar import (
    group_records,
    no_records,
    parquet_parts,
)
from headrace_plugins.connectors.file.columns import Columns
from headrace_plugins.connectors.file.folder_columns import FolderColumns
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.inference import VARIANT
from headrace_plugins.connectors.file.listing import FoundFile, Group, NumberedFile
from headrace_plugins.connectors.file.text_parts import text_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Ledger, SchemaMemory, TaskContext
    from headrace_plugins.connectors.file.settings import SourceSettings
    from headrace_plugins.window import ColumnWindow


log = structlog.get_logger(__name__)


_OF, _WITHDRAWN = "of", "withdrawn"


class FileLedger:
    """The ledger entries of one configured path.

    A position counts the entries of all paths, so a former path that is configured again
    continues at its old position. If a file changed or vanished since it was found, a further
    entry withdraws it, and it may be found again. ``read`` maps each configured path to the
    number of entries read: a file that was read under another path is not read again.
    """

    def __init__(self, ledger: Ledger, path: str, read: Mapping[str, int]) -> None:
        self._ledger = ledger
        self._path = path
        self._read = read
        self._load()

    def __len__(self) -> int:
        """Return the number of entries, including those of other paths."""
        return len(self._entries)

    @property
    def known(self) -> frozenset[str] | set[str]:
        """Return the paths of the files that were found or read before."""
        return self._known

    def files(self, start: int, end: int | None = None) -> Iterator[NumberedFile]:
        """Yield the files among the entries in ``[start, end)``."""
        stop = len(self._entries) if end is None else min(end, len(self._entries))
        for number in range(start, stop):
            file = self._entries[number]
            if file is not None:
                yield NumberedFile(number, file)

    def add(self, found: Iterable[FoundFile]) -> bool:
        """Add files; return False if the ledger had other entries and was reloaded."""
        return self._append([{**file.to_item(), _OF: self._path} for file in found])

    def withdraw(self, files: Iterable[NumberedFile]) -> bool:
        """Withdraw files that are in no batch; return False as ``add`` does."""
        return self._append(
            [{"path": file.path, _WITHDRAWN: file.number, _OF: self._path} for file in files]
        )

    def _append(self, items: Sequence[Mapping[str, str | int]]) -> bool:
        if not items:
            return True
        try:
            self._ledger.append(items, after=len(self._entries))
        except StateError:
            # The reply to an earlier append was lost, but its entries were stored.
            self._load()
            return False
        for item in items:
            self._take(item)
        return True

    def _load(self) -> None:
        self._entries: list[FoundFile | None] = []
        self._known: set[str] = set()
        for item in self._ledger.slice(0, len(self._ledger)):
            self._take(item)

    def _take(self, item: Mapping[str, str | int]) -> None:
        of, path, number = item.get(_OF, self._path), str(item["path"]), len(self._entries)
        withdrawn = item.get(_WITHDRAWN)
        if withdrawn is not None:
            self._entries.append(None)
            if of == self._path:
                self._entries[int(withdrawn)] = None
                self._known.discard(path)
            return
        self._entries.append(FoundFile.from_item(item) if of == self._path else None)
        if of == self._path or number < self._read.get(str(of), 0):
            self._known.add(path)


_MOST_WAIT = timedelta(seconds=10)
"""The longest wait of a run that ends for files to settle; slower files are left for later."""
_CHANGES_EVERY_NS = 60_000_000_000
"""The interval of checks for changes of read files: a file may be appended to constantly."""
_CHANGES_OF = 10_000
"""How many read files are checked, the newest ones, so that a check stays cheap."""
_NAMED = 3


class FileSet(FrameSource):
    """Reads the files of a folder or a pattern, in the order in which they appeared.

    A found file is written into the ledger before it is read, so a range always consists of
    the same files. The position is the number of ledger entries read, for each configured
    path. A file that changes after it was read is not read again: a warning is logged, or
    ``latest`` raises SourceError if a window is followed. A file that changes or vanishes
    before it is read is withdrawn from the ledger when its batch is planned. ``clock_ns``
    returns the time in nanoseconds since 1970.
    """

    def __init__(
        self,
        settings: SourceSettings,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._warned: dict[str, FoundFile] = {}
        self._warned_at_ns: int | None = None
        self._told_of_names = False

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        read = {
            str(partition["path"]): int(offset["files"])
            for partition, offset in context.position().items()
            if self._partition(str(partition.get("path"))) == partition
        }
        self._ledger = FileLedger(context.ledger, self._settings.path, read)

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        # Without a limit the caller asks for the end of all existing files, not of a batch.
        unlimited = limit.rows is None and limit.size_bytes is None
        begin = self._place(start)
        until = None if limit.until is None else self._place(limit.until)
        self._withdraw_changed(begin, None if unlimited else self._settings.keys.max_files)
        self._discover(wait=unlimited)
        self._look_at_changed(begin)
        end = begin
        rows = size = 0
        files = self._ledger.files(begin, until)
        for number, each in enumerate(files):
            if not unlimited and number >= self._settings.keys.max_files:
                break
            size += each.file.size_bytes
            rows += self._rows(each.file) if limit.rows is not None else 0
            over = limit.size_bytes is not None and size > limit.size_bytes
            over = over or (limit.rows is not None and rows > limit.rows)
            if over and end > begin:
                break
            end = each.number + 1
        return start if end == begin else start.moved(self._partition(), {"files": end})

    @override
    def ended(self, position: Position) -> bool:
        if not self._settings.keys.ends or any(self._ledger.files(self._place(position))):
            return False
        new, unsettled = self._new()
        return not new and unsettled is None

    @override
    def size_bytes(self, start: Position, end: Position) -> int:
        files = self._ledger.files(self._place(start), self._place(end))
        return sum(each.file.size_bytes for each in files)

    @override
    def lag(self, start: Position, until: Position | None = None) -> Lag:
        stop = None if until is None else self._place(until)
        files = self._ledger.files(self._place(start), stop)
        return Lag(size_bytes=sum(each.file.size_bytes for each in files))

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        settings = self._settings
        files = self._range(start, end)
        declared = self._declared
        if declared is not None and is_variant(declared):
            return no_records(spark, declared)
        columns = self._columns()
        if not files:
            return no_records(spark, columns.known())
        schema, groups = columns.groups(spark, files)
        if not groups:
            return no_records(spark, schema)
        frames = [group_records(spark, group, schema, fmt=settings.format) for group in groups]
        frame = reduce(lambda one, other: one.unionByName(other), frames)
        if not settings.windowed or (window := settings.column_window(schema)) is None:
            return frame
        return frame.where(window.sql(f"value.{quote(window.column)}"))

    @override
    def arrow_parts(
        self, spark: SparkSession, start: Position, end: Position
    ) -> ArrowParts | None:
        found = self._by_arrow(spark, start, end)
        self.reader = f"Spark, as {found}" if isinstance(found, str) else "Arrow"
        if isinstance(found, str):
            return None
        settings = self._settings
        window = settings.column_window(found.schema) if settings.windowed else None
        return found if window is None else replace(found, read=_Windowed(found.read, window))

    def _by_arrow(
        self, spark: SparkSession, start: Position, end: Position
    ) -> ArrowParts | str:
        """Return the rows as Arrow, or why Spark reads them."""
        settings = self._settings
        if settings.format is Format.AVRO:
            return "format is avro"
        files = self._range(start, end)
        is_parquet = settings.format is Format.PARQUET
        if not files:
            return "there is nothing to read"
        one = self._declared
        if one is not None and one.type is not Type.STRUCT:
            groups = [Group(one, tuple(files))]
            return text_parts(spark, groups, one, settings.dialect, settings.format)
        schema, groups = self._columns().groups(spark, files)
        if not is_parquet:
            return text_parts(spark, groups, schema, settings.dialect, settings.format)
        if not any(group.by_arrow for group in groups):
            return "format is parquet, and Spark supports all types of the files"
        return parquet_parts(groups, schema, truncates=settings.dialect.truncates)

    @override
    def require_unchanged(self, start: Position, end: Position) -> None:
        self._range(start, end)

    @property
    def _declared(self) -> Schema | None:
        """The schema that is known without any file; None if it is inferred."""
        settings = self._settings
        return Schema.string() if settings.format is Format.TEXT else settings.schema

    def _columns(self) -> Columns:
        settings = self._settings
        return Columns(
            format=settings.format,
            dialect=settings.dialect,
            declared=self._declared,
            stream=settings.path,
            memory=self.context.schemas,
            sample_rows=settings.keys.infer_rows,
            folders=FolderColumns(
                settings.listing.root if settings.keys.partition_columns else None,
                settings.dialect,
            ),
            conflict=VARIANT if settings.keys.infer_conflicts == "variant" else TEXT,
        )

    def _discover(self, *, wait: bool) -> None:
        new, unsettled = self._new()
        if wait and unsettled is not None and unsettled <= _MOST_WAIT:
            # The end of all existing files includes a file that was just created.
            self._sleep(unsettled.total_seconds())
            new, _ = self._new()
        if not self._ledger.add(new):
            self._ledger.add(self._new()[0])

    def _new(self) -> tuple[list[FoundFile], timedelta | None]:
        """Return new files, and the wait for files to settle; None if all are settled."""
        settings, now = self._settings, self._clock_ns()
        settle_ns = settings.keys.settle_ms * 1_000_000
        found = settings.listing.new(self._ledger.known, share=settings.share)
        if settings.windowed:
            found = settings.keys.chosen(found, self._tell_of_name)
        new = [file for file in found if now - file.changed_ns(now) >= settle_ns]
        ages = [now - file.changed_ns(now) for file in found]
        waits = [settle_ns - age for age in ages if age < settle_ns]
        return new, timedelta(microseconds=max(waits) // 1000 + 1) if waits else None

    def _tell_of_name(self, path: str) -> None:
        if not self._told_of_names:
            self._told_of_names = True
            log.warning(
                "files without a time in their names are not read in a window", first=path
            )

    def _withdraw_changed(self, begin: int, count: int | None) -> None:
        """Withdraw those of the next files that changed or vanished since they were found.

        Only files behind those of a started batch: it keeps its files.
        """
        files = islice(self._ledger.files(begin), count)
        changed = [(each, each.file.now()) for each in files]
        changed = [(each, now) for each, now in changed if now != each.file]
        if not self._ledger.withdraw(each for each, _ in changed):
            return  # the next call finds them
        gone = [each.path for each, now in changed if now is None]
        if gone:
            log.warning(
                "files vanished before they were read; they are read if they come back",
                files=len(gone),
                first=gone[0],
            )
        if len(changed) > len(gone):
            log.info("files have changed since they were found", files=len(changed) - len(gone))

    def _look_at_changed(self, begin: int) -> None:
        """Log files that have changed since they were read, each change once.

        Raises SourceError if a window is followed: an offline run would read them again.
        """
        now = self._clock_ns()
        if self._warned_at_ns is not None and now - self._warned_at_ns < _CHANGES_EVERY_NS:
            return
        self._warned_at_ns = now
        looked_at = self._ledger.files(max(0, begin - _CHANGES_OF), begin)
        found = {each: each.file.now() for each in looked_at}
        # A file that is gone was moved away, which is fine.
        found = {each: file for each, file in found.items() if file not in (None, each.file)}
        if found and self._settings.keys.window_follow:
            self._warned_at_ns = None
            # Guarantee 1: each run of a window reads files again, with the rows added to them.
            raise SourceError(
                problem=f"{next(iter(found)).path} has changed since it was read, but in real "
                f"time a file is read only once. Changed files: {len(found)}.",
                fix="Move the file away, and write its new rows into a new file; to follow a "
                "file that lines are appended to, use a separate connector with mode: grow.",
            )
        changed = []
        for each, file in found.items():
            if file is not None and file != self._warned.get(each.path):
                self._warned[each.path] = file
                changed.append(each.path)
        if changed:
            log.warning(
                "files have changed since they were read, and are not read again: write new "
                "rows into new files, or follow growing files with mode: grow",
                files=len(changed),
                first=changed[:_NAMED],
            )

    def _range(self, start: Position, end: Position) -> list[NumberedFile]:
        """Return the files of a range. Raises RangeChangedError if a file has changed."""
        check_range(start, end, [self._partition()])
        begin, stop = self._place(start), self._place(end)
        if begin > stop or stop > len(self._ledger):
            raise StateError(
                problem=f"Cannot read files {begin} to {stop} of {self._settings.path}: the "
                f"ledger has only {len(self._ledger)} entries.",
                fix="Restore the store, or reset the connector's offsets.",
            )
        files = list(self._ledger.files(begin, stop))
        for file in files:
            _require_same(file.file)
        # An earlier division among tasks may have left files here that another task reads.
        share = self._settings.share
        return [file for file in files if share.has(file.path)]

    def _rows(self, file: FoundFile) -> int:
        """Return the file's number of rows; 0 if only reading it would tell."""
        if self._settings.format is not Format.PARQUET:
            return 0
        try:
            with Location.of(file.path).open_input() as source:
                return int(pq.read_metadata(source).num_rows)
        except (OSError, ValueError):
            # Reading the file will report the error.
            return 0

    def _partition(self, path: str | None = None) -> Mapping[str, str]:
        share = self._settings.share
        partition = {"path": path or self._settings.path}
        return partition if share.of == 1 else {**partition, "share": str(share)}

    def _place(self, position: Position) -> int:
        offset = position.offset(self._partition())
        return 0 if offset is None else int(offset["files"])


def rows_now(settings: SourceSettings, spark: SparkSession) -> DataFrame | ArrowParts:
    """Return the rows of all existing files, whether or not they were read before."""
    task = FileSet(settings)
    task.start(_Alone())
    start = Position()
    end = task.latest(start, ReadLimit())
    arrow = task.arrow_parts(spark, start, end)
    if arrow is not None:
        return arrow
    frame = task.read(spark, start, end)
    good = frame.where("error IS NULL") if "error" in frame.columns else frame
    return good.selectExpr("value.*")


@dataclass
class _Alone:
    """The context of a task outside the runtime: ledger and schemas are in memory."""

    connector: str = ""
    task: int = 0
    application: str = ""
    scratch: Path = field(default_factory=lambda: Path(gettempdir()))
    _items: list[Mapping[str, str | int]] = field(default_factory=list)
    _schemas: dict[str, Schema] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        return self

    @property
    def schemas(self) -> SchemaMemory:
        return self

    def append(self, items: Sequence[Mapping[str, str | int]], after: int | None = None) -> int:
        self._items += items
        return len(self._items)

    def slice(self, start: int, end: int) -> list[dict[str, str | int]]:
        return [dict(item) for item in self._items[start:end]]

    def __len__(self) -> int:
        return len(self._items)

    def get(self, stream: str) -> Schema | None:
        return self._schemas.get(stream)

    def put(self, stream: str, schema: Schema) -> None:
        self._schemas[stream] = schema

    def position(self) -> Position:
        return Position()

    def check_file(self, path: str) -> None:
        """Allow every file: the user runs the comparison as a command of their own."""

    def stopping(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _Windowed:
    """Reads the rows of a part that are in a window, and the rejected rows. Is pickled."""

    read: Callable[[Any], Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]]
    window: ColumnWindow

    def __call__(self, part: Any) -> Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]:
        for rows, rejected in self.read(part):
            yield self.window.rows(rows), rejected


def _require_same(file: FoundFile) -> None:
    now = file.now()
    if now == file:
        return
    if now is None:
        problem = f"{file.path} vanished after it was found and before it was read."
        raise RangeChangedError(
            problem=problem, fix="Restore it with its old modification time (cp -p)."
        )
    change = f"it has {now.size_bytes} bytes, previously {file.size_bytes}"
    if now.size_bytes == file.size_bytes:
        change = "it was replaced or written to, with the same size"
    problem = f"{file.path} has changed since it was found: {change}."
    raise RangeChangedError(
        problem=problem,
        fix="Restore the old file, and give the new file another name. To prevent this, write "
        "files under a name that begins with _ or . and rename them when they are complete, "
        "or increase settle.ms.",
    )
