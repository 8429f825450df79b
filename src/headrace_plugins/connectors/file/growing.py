"""Mode grow: captures the lines that are appended to files."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from headrace.sdk import CapturedBatch, CaptureSource, Position, Schema
from headrace_plugins.connectors.file.columns import as_headed
from headrace_plugins.connectors.file.csv_lines import CsvLines
from headrace_plugins.connectors.file.formats import BOM, Format
from headrace_plugins.connectors.file.inference import (
    grown,
    header_names,
    infer_csv,
    infer_json,
    to_schema,
    undecodable,
)
from headrace_plugins.connectors.file.json_lines import JsonLines
from headrace_plugins.connectors.file.logfile import Descriptors
from headrace_plugins.connectors.file.record_ends import LineEnds
from headrace_plugins.connectors.file.rotation import (
    TIMES_AS_LONG,
    Generation,
    Siblings,
    base_path,
    is_packed,
)
from headrace_plugins.connectors.file.tail import Tail
from headrace_plugins.connectors.file.text_blocks import (
    BadRecord,
    Parsed,
    TextLines,
    decoded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.sdk import TaskContext
    from headrace_plugins.connectors.file.listing import Listing, Share
    from headrace_plugins.connectors.file.record_ends import RecordEnds
    from headrace_plugins.connectors.file.settings import SourceSettings
    from headrace_plugins.connectors.file.tail import Block


_LISTING_SECONDS = 1.0


class Followed:
    """Reads what is appended to the logs of a listing, round-robin.

    A pattern such as ``app.log*`` also matches the names of rotated files: these belong to the
    log whose name they had before. If that log itself is not followed, as with ``app.log.*``
    or with a file for each day, each of the files is followed independently.

    Args:
        listing: The files to follow.
        share: The share of the logs to follow.
        offsets: The stored offset of each log, by path; see ``Tail``.
        rotate_wait: How many seconds a rotated file must be unchanged to be finished.
        clock: Returns monotonic seconds.
        ends: Where records end.
    """

    def __init__(
        self,
        listing: Listing,
        share: Share,
        offsets: Mapping[str, Mapping[str, Any]],
        *,
        rotate_wait: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        ends: RecordEnds | None = None,
    ) -> None:
        self._ends = ends
        self._listing = listing
        self._share = share
        self._stored = {path: each for path, each in offsets.items() if listing.covers(path)}
        # Of another configured path, which may be configured again.
        self._others = {
            path: each for path, each in offsets.items() if path not in self._stored
        }
        self._wait = rotate_wait
        self._clock = clock
        self._descriptors = Descriptors()
        self._siblings = Siblings()
        self._tails: dict[str, Tail] = {}
        self._offsets: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        self._found: set[str] = set()
        self._turn = 0
        self._list_at: float | None = None

    @property
    def offsets(self) -> dict[str, Mapping[str, Any]]:
        """Return the offset of each log, by path."""
        followed = (item for each in self._offsets.values() for item in each.items())
        return {**self._others, **dict(followed)}

    def read(self, size_bytes: int, max_lines: int | None) -> tuple[str, Block] | None:
        """Return the next lines of some log, with its path; None if there are none."""
        if self._list_at is None or self._clock() >= self._list_at:
            self._list()
        paths = list(self._tails)
        for number in range(len(paths)):
            path = paths[(self._turn + number) % len(paths)]
            block = self._tails[path].read(size_bytes, max_lines)
            if block is not None:
                # The next read starts with the next log, so that no log starves.
                self._turn = (self._turn + number + 1) % len(paths)
                self._offsets[path] = self._tails[path].offsets
                return path, block
        return None

    def close(self) -> None:
        """Close all files."""
        self._descriptors.close_all()
        for tail in self._tails.values():
            tail.close()

    def _list(self) -> None:
        begun = time.monotonic()
        self._listing.warn_if_missing()
        if self._listing.is_single:
            path = self._listing.path
            if path not in self._tails and self._share.has(path):
                self._follow(path, [path], has_current=True)
        else:
            self._list_all()
        took = time.monotonic() - begun
        self._list_at = self._clock() + max(_LISTING_SECONDS, took * TIMES_AS_LONG)

    def _list_all(self) -> None:
        self._found = set(self._listing.paths())
        logs: dict[str, list[str]] = {}
        # A rotation compresses old files, which were read under their former names.
        for path in [*self._stored, *(each for each in self._found if not is_packed(each))]:
            if self._share.has(base := base_path(path)):
                logs.setdefault(base, []).append(path)
        for path, names in sorted(logs.items()):
            has_current = path in names
            if path not in self._tails:
                self._follow(path, names, has_current=has_current)
            elif has_current:
                self._tails[path].begin_current()
        self._stored = {}
        for path in self._tails.keys() - logs.keys():
            # The files of such a log may have vanished long ago.
            self._offsets[path] = self._tails[path].offsets
            if self._tails[path].is_gone:
                self._tails.pop(path).close()
                del self._offsets[path]

    def _follow(self, path: str, names: list[str], *, has_current: bool) -> None:
        tail = self._tails[path] = Tail(
            path,
            {each: self._stored[each] for each in sorted(names) if each in self._stored},
            rotate_wait=self._wait,
            clock=self._clock,
            descriptors=self._descriptors,
            siblings=self._siblings,
            begins_with=lambda each: each in self._found,
            has_current=has_current,
            ends=self._ends,
        )
        self._offsets[path] = tail.offsets


def taken_over(positions: Mapping[int, Position], share: Share) -> Position:
    """Return the offsets of a share's files in which another task is ahead of its own task.

    ``positions`` contains the positions of all tasks, by task number.
    """
    numbers = sorted(positions)
    newest = _newest([positions[number] for number in numbers], share)
    return Position(
        ({"filename": path}, offset)
        for path, (place, offset) in newest.items()
        if numbers[place] != share.number
    )


def _newest(
    positions: Sequence[Position], share: Share
) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return the newest offset of each file of a share, with the index of its position."""
    newest: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for place, position in enumerate(positions):
        for partition, offset in position.items():
            path = partition.get("filename")
            if not isinstance(path, str) or not share.has(base_path(path)):
                continue
            if path not in newest or _age(path, offset) > _age(path, newest[path][1]):
                newest[path] = place, offset
    return newest


def _age(path: str, offset: Mapping[str, Any]) -> tuple[int, bool, int]:
    """Return a key that increases from each offset of a file to the next."""
    reads = int(offset.get("reads", 0))
    if reads:
        return reads, True, 0
    # A user set it: prefer the file that now has the name, then the larger position.
    found = Generation.at(path)
    here = found is not None and found.inode == offset.get("inode")
    return 0, here, int(offset.get("position", 0))


class GrowingFiles(CaptureSource):
    """Follows one file, or all files of its share that a folder or pattern matches.

    Each poll returns what was appended to one of the files. Format text yields a STRING for
    each line, as Kafka Connect's source does; CSV and JSON yield rows.

    Args:
        settings: The source's configuration.
        stood: The offsets of files taken over from other tasks, as a position's JSON.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        settings: SourceSettings,
        *,
        stood: str = "[]",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._stood = Position.from_json(stood)
        self._clock = clock
        self._followed: Followed | None = None
        self._schema: Schema | None = settings.schema

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        settings = self._settings
        newest = _newest([self._stood, context.position()], settings.share)
        offsets = {path: offset for path, (_, offset) in newest.items()}
        self._followed = Followed(
            settings.listing,
            settings.share,
            offsets,
            rotate_wait=settings.keys.rotate_wait_ms / 1000,
            clock=self._clock,
            ends=self._ends,
        )
        if self._schema is None:
            self._schema = context.schemas.get(settings.path)

    @override
    def stop(self) -> None:
        if self._followed is not None:
            self._followed.close()

    @override
    def poll(self) -> CapturedBatch | None:
        settings, followed = self._settings, self._followed
        assert followed is not None
        most = settings.read_bytes, settings.keys.batch_size
        while (found := followed.read(*most)) is not None:
            path, block = found
            parsed = self._parsed(block, path)
            if parsed.rows.num_rows or parsed.rejected:
                return CapturedBatch(
                    values=parsed.rows,
                    position=Position(
                        ({"filename": path}, offset)
                        for path, offset in followed.offsets.items()
                    ),
                    topic=settings.keys.topic,
                    scalar=settings.format is Format.TEXT,
                    rejected=[(bad.raw, bad.reason) for bad in parsed.rejected],
                )
            # Only a header or empty lines, which are read again after a restart.
        return None

    def _parsed(self, block: Block, path: str) -> Parsed:
        settings = self._settings
        is_text = settings.format is Format.TEXT
        if settings.dialect.is_utf8:
            lines = block.lines.removeprefix(BOM) if block.begins else block.lines
            block = replace(block, lines=lines, header=block.header.removeprefix(BOM))
        lines, bad = decoded(block.lines, settings.dialect, self._ends, empty=not is_text)
        match settings.format:
            case Format.TEXT:
                parsed = TextLines().read(lines)
            case Format.JSON:
                parsed = self._json(lines)
            case _:
                parsed = self._csv(lines, block, path)
        return Parsed(parsed.rows, [*bad, *parsed.rejected])

    @property
    def _ends(self) -> RecordEnds:
        is_csv = self._settings.format is Format.CSV
        return self._settings.dialect.ends if is_csv else LineEnds()

    def _json(self, lines: bytes) -> Parsed:
        dialect = self._settings.dialect
        if self._settings.schema is None and lines.strip():
            self._learn(to_schema(infer_json(lines, dialect)))
        return JsonLines(self._known(), dialect).read(lines)

    def _csv(self, lines: bytes, block: Block, path: str) -> Parsed:
        dialect, ends = self._settings.dialect, self._ends
        header = decoded(block.header, dialect, ends)[0] if dialect.header else b""
        try:
            header.decode()
        except UnicodeDecodeError as error:
            raise undecodable(path, dialect, error) from error
        if dialect.header and block.begins:
            lines = lines[ends.first_end(lines) :]
        whole = ends.whole(lines)
        lines, rest = lines[:whole], lines[whole:]
        parsed = self._records(lines, header, path)
        if not rest:
            return parsed
        bad = BadRecord(lines.count(b"\n"), rest.rstrip(b"\r\n"), "A quote is not closed")
        return Parsed(parsed.rows, [*parsed.rejected, bad])

    def _records(self, lines: bytes, header: bytes, path: str) -> Parsed:
        dialect = self._settings.dialect
        if not lines.strip():
            return Parsed(pa.RecordBatch.from_pydict({}))
        names = header_names(header, dialect) if header else None
        if self._schema is None:
            self._learn(to_schema(infer_csv(header + lines, dialect)))
        parsed = self._csv_lines(names, path).read(lines)
        if self._settings.schema is None:
            strangers = [n for n in names or () if self._known().field(n) is None]
            if strangers or parsed.rejected:
                before = self._known()
                self._learn(to_schema(infer_csv(header + lines, dialect)))
                if self._known() != before:
                    return self._csv_lines(names, path).read(lines)
        return parsed

    def _csv_lines(self, names: list[str] | None, path: str) -> CsvLines:
        schema = headed = self._known()
        if names is not None:
            declared = self._settings.schema is not None
            headed = as_headed(names, schema, renames=declared, path=path)
        in_file = [field.name for field in headed.fields]
        return CsvLines(schema, in_file, self._settings.dialect)

    def _learn(self, found: Schema) -> None:
        if not found.fields:
            return
        schema = found if self._schema is None else grown(self._schema, found)
        if schema != self._schema:
            self.context.schemas.put(self._settings.path, schema)
            self._schema = schema

    def _known(self) -> Schema:
        return self._schema or Schema.struct({})
