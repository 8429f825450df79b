"""Files that lines are added to, as a capture."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from headrace.sdk import CapturedBatch, CaptureSource, Position, Schema
from headrace_plugins.connectors.file.followed import Followed
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.header import as_headed, header_names
from headrace_plugins.connectors.file.inference import grown, infer_csv, infer_json, to_schema
from headrace_plugins.connectors.file.lines import CsvLines, JsonLines, Parsed, text_lines
from headrace_plugins.connectors.file.rotation import Generation, base_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.sdk import TaskContext
    from headrace_plugins.connectors.file.listing import Share
    from headrace_plugins.connectors.file.settings import SourceSettings
    from headrace_plugins.connectors.file.tail import Block

__all__ = ["GrowingFiles", "taken_over"]


def taken_over(positions: Mapping[int, Position], share: Share) -> Position:
    """Return where other tasks stand in files of a share, if further than its own task.

    Args:
        positions: Where each task stands or stood, by its number.
        share: The files of a task.
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
    """Return the newest offset of each file of a share, with the place of its position."""
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
    """Return what grows from each offset of a file to the next."""
    reads = int(offset.get("reads", 0))
    if reads:
        return reads, True, 0
    # Of an earlier version: that of the file which has the name now, and is read further.
    found = Generation.at(path)
    here = found is not None and found.inode == offset.get("inode")
    return 0, here, int(offset.get("position", 0))


class GrowingFiles(CaptureSource):
    """Follows one file, or all files of its share that a folder or pattern names.

    Each poll gives what was added to one of them. Text gives a STRING for each line, as Kafka
    Connect's does; CSV and JSON give rows.

    Args:
        settings: What to follow.
        stood: Where other tasks stood in files that are this one's now, as a position's JSON.
        clock: Gives seconds that only grow.
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
            rotate_wait=settings.rotate_wait.total_seconds(),
            clock=self._clock,
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
        while (found := followed.read(settings.read_bytes, settings.max_lines)) is not None:
            path, block = found
            parsed = self._parsed(block, path)
            if parsed.rows.num_rows or parsed.rejected:
                return CapturedBatch(
                    values=parsed.rows,
                    position=self._position(followed),
                    topic=settings.topic,
                    scalar=settings.format is Format.TEXT,
                    rejected=parsed.rejected,
                )
            # Only a header or empty lines: they are read again after a restart.
        return None

    def _position(self, followed: Followed) -> Position:
        """Return the offsets of the files of this task."""
        return Position(
            ({"filename": path}, offset) for path, offset in followed.offsets.items()
        )

    def _parsed(self, block: Block, path: str) -> Parsed:
        if self._settings.format is Format.TEXT:
            return text_lines(block.lines, self._settings.dialect)
        if self._settings.format is Format.JSON:
            return self._json(block)
        return self._csv(block, path)

    def _json(self, block: Block) -> Parsed:
        dialect = self._settings.dialect
        if self._may_learn(block):
            self._learn(to_schema(infer_json(block.lines, dialect)))
        return JsonLines(self._known(), dialect).read(block.lines)

    def _csv(self, block: Block, path: str) -> Parsed:
        dialect = self._settings.dialect
        lines = block.lines
        header = block.header if dialect.header else b""
        if dialect.header and block.begins:
            lines = lines[lines.index(b"\n") + 1 :]
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
        schema = self._known()
        if names is not None:
            declared = self._settings.schema is not None
            headed = as_headed(names, schema, renames=declared, path=path)
            names = [field.name for field in headed.fields]
        else:
            names = [field.name for field in schema.fields]
        return CsvLines(schema, names, self._settings.dialect)

    def _may_learn(self, block: Block) -> bool:
        return self._settings.schema is None and bool(block.lines.strip())

    def _learn(self, found: Schema) -> None:
        schema = found if self._schema is None else grown(self._schema, found)
        if schema != self._schema:
            self.context.schemas.put(self._settings.path, schema)
            self._schema = schema

    def _known(self) -> Schema:
        return self._schema or Schema.struct({})
