"""Writes each batch as new files of a folder, exactly once, with commit marks."""

from __future__ import annotations

import errno
import json
import uuid
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.types import BinaryType
from typing_extensions import override

from headrace.sdk import ConfigError, Schema, SinkError, Type
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.folders import write_part, written_parts
from headrace.sdk.location import Location, sync
from headrace.sdk.schema import VARIANT
from headrace.sdk.sink import ArrowWrite, StagedWrite
from headrace.sdk.sqltext import quote as identifier
from headrace.sdk.sqltext import selected
from headrace.sdk.storage import naming
from headrace.sdk.struct_exprs import has_variant, texts_of_variants
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.output import (
    HOUSEKEEPING,
    TIMES,
    Committed,
    PathSink,
    check_avro_names,
    check_epoch,
    checked_below,
    discard_attempts,
    encoded,
    held_receipt,
    line_sql,
    nested_field,
    read_json,
    refusal_error,
    refusals,
    staging_folder,
    stopping,
    without_zones,
)
from headrace_plugins.connectors.file.replacement import FolderReplacement, WindowNames, remove
from headrace_plugins.window import JobRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Mark, Refusal, SinkBatch, TaskContext
    from headrace_plugins.connectors.file.output import SinkSettings


_READ_BYTES = 8 * 1024 * 1024
_OF_ARROW = {"none", "gzip", "snappy", "zstd"}
"""The codecs that Arrow writes as Spark does."""


CODECS = {
    Format.PARQUET: dict.fromkeys(("none", "snappy", "gzip", "zstd")) | {"lz4": "lz4_raw"},
    Format.AVRO: {"none": "uncompressed", "snappy": None, "deflate": None}
    | {"bzip2": None, "zstd": "zstandard"},
}
"""The codecs of each format, with Spark's name where it differs."""
TEXT_CODECS = ("none", "gzip", "bzip2", "zstd", "lz4", "snappy", "deflate")


class FolderSink(PathSink):
    """Adds files to a folder, or to one folder for each topic.

    Staged files are moved to their final names only after a mark that lists them is durable,
    and any attempt that finds the mark finishes the moves: a batch is in the folder completely
    or not at all, once (Guarantee 2). Marks and staged files are in ``_headrace``, which Spark
    and Headrace skip when they read the folder.

    Only values are written: the fields of a STRUCT become columns, any other value becomes the
    column ``value``. A record without a value (a tombstone) is refused, as a row of nulls has
    another meaning; format text writes it as ``null``.
    """

    takes_columns = True

    @override
    def __init__(self, settings: SinkSettings) -> None:
        super().__init__(settings)
        self._replacement: FolderReplacement | None = None

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        keys, key = self._settings.keys, self._settings.replacing_key
        if key is not None:
            run = JobRun.from_application(context.application.removesuffix(f"-{context.task}"))
            names = WindowNames.of(run, keys.window_to_replace(key))
            self._replacement = FolderReplacement(
                names=names, partitions=keys.replace_partitions
            )

    @override
    def finish(self, spark: SparkSession, topic: str) -> None:
        self._folder(topic).settle()

    def _folder(self, topic: str) -> _Folder:
        return _Folder(self._settings.target(topic), self._replacement)

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self._folder(topic).completed(mark)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        settings, mark, folder = self._settings, batch.mark, self._folder(batch.topic)
        root = folder.root
        staging = staging_folder(root / HOUSEKEEPING, mark)
        staging.delete_folder()
        frame, seen = self._rows(frame, batch)
        # Spark's JSON writer writes each row as an object; a Variant may be any value.
        whole = settings.format is Format.JSON and batch.schema.name == VARIANT
        format_ = Format.TEXT if whole else settings.format
        # A straight copy's abandoned attempt may have made the folder again.
        writer = frame.write.mode("overwrite").format(format_.value).options(**self._options())
        if settings.partition_by:
            writer = writer.partitionBy(*settings.partition_by)
        try:
            writer.save(staging.spark_path)
        except PySparkException as error:
            if (known := refusal_error(error, refusals(settings, batch.schema))) is not None:
                raise known from error
            raise
        found = [
            e.location for e in staging.walk() if not e.is_folder and e.name.startswith("part-")
        ]
        if self._is_zstd_text:
            found = _compressed(frame.sparkSession, found)
        files = tuple(sorted(map(_as_json, found) if whole else found, key=str))
        if seen is None:
            return _staged_parquet(folder, mark, files)
        rows = int(seen.get["rows"])
        return _StagedFiles(folder, mark, staging, files if rows else (), rows)

    @override
    def arrow_write(self, frame: DataFrame, batch: SinkBatch) -> ArrowWrite | None:
        settings, schema, mark = self._settings, batch.schema, batch.mark
        compression = settings.compression or "snappy"
        if (
            settings.format is not Format.PARQUET
            or settings.partition_by
            or compression not in _OF_ARROW
            or schema.type is not Type.STRUCT
            or schema.optional
            or has_variant(schema)
            or without_zones("value", schema) != "value"
        ):
            return None
        folder = self._folder(batch.topic)
        staging = staging_folder(folder.root / HOUSEKEEPING, mark)
        staging.delete_folder()

        def staged(names: Sequence[str]) -> StagedWrite:
            return _staged_parquet(folder, mark, written_parts(staging, names))

        write = partial(write_part, staging, compression)
        return ArrowWrite(write, staged, staging.delete_folder)

    @override
    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        return refusals(self._settings, batch.schema)

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        folder = self._folder(topic)
        if not folder.root.is_folder():
            return None
        staging = staging_folder(folder.root / HOUSEKEEPING, mark)
        return _StagedFiles(folder, mark, staging, (), 0)

    def _rows(self, frame: DataFrame, batch: SinkBatch) -> tuple[DataFrame, Observation | None]:
        """Return the columns to write, and a row count unless Parquet's footers have it."""
        settings, schema = self._settings, batch.schema
        self._require_fit(schema)
        if settings.format is Format.TEXT:
            frame = frame.selectExpr(line_sql(schema))
        else:
            frame = stopping(frame, refusals(settings, schema))
            if has_variant(schema) and settings.format in {Format.CSV, Format.AVRO}:
                # Spark cannot write VARIANT in these formats.
                frame = frame.selectExpr(f"{texts_of_variants('value', schema)} AS value")
            if settings.format is Format.JSON and schema.name == VARIANT:
                frame = frame.selectExpr(line_sql(schema))
            if batch.columns and not has_variant(schema):
                kinds = {f.name: f.schema for f in schema.fields}
                frame = selected(
                    frame,
                    [
                        f"{without_zones(sql, kinds[name])} AS {identifier(name)}"
                        for name, sql in batch.columns.items()
                    ],
                )
            else:
                value = without_zones("value", schema)
                frame = frame if value == "value" else frame.selectExpr(f"{value} AS value")
                frame = frame.select("value.*" if schema.type is Type.STRUCT else "value")
            if settings.format is Format.CSV:
                frame = _without_bytes(frame)
        if settings.format is Format.PARQUET:
            return frame, None
        seen = Observation()
        return frame.observe(seen, F.expr("count(1) AS rows")), seen

    def _require_fit(self, schema: Schema) -> None:
        settings = self._settings
        names = [f.name for f in schema.fields]
        missing = [name for name in settings.partition_by if name not in names]
        if missing or (settings.partition_by and set(names) == set(settings.partition_by)):
            raise ConfigError(
                problem=f"The records have no field {missing[0]}."
                if missing
                else "partition.by contains all fields of the records.",
                fix=f"Choose from: {', '.join(names) or 'none, as values have no fields'}.",
                field="partition.by",
            )
        if settings.format is Format.CSV and (nested := nested_field(schema)) is not None:
            raise ConfigError(
                problem=f"CSV does not support {nested}, which is a struct, an array or a map.",
                fix="Set format to json or parquet, or flatten it with a transform.",
                field="format",
            )

        if settings.format is Format.AVRO:
            check_avro_names(schema)

    def _options(self) -> dict[str, str]:
        settings = self._settings
        # The staging folder is temporary, so nothing needs a _SUCCESS file in it.
        options = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
        if settings.format is Format.CSV:
            options |= TIMES | settings.dialect.spark_csv()
        elif settings.format is Format.JSON:
            options |= TIMES | settings.dialect.spark_json()
        if settings.compression is not None and not self._is_zstd_text:
            name = CODECS.get(settings.format, {}).get(settings.compression)
            options["compression"] = name or settings.compression
        return options

    @property
    def _is_zstd_text(self) -> bool:
        """Return whether the files are text in zstd, which Spark cannot write."""
        is_text = self._settings.format not in {Format.PARQUET, Format.AVRO}
        return is_text and self._settings.compression == "zstd"


@dataclass(frozen=True)
class _StagedFiles:
    """The staged files of one attempt."""

    folder: _Folder
    mark: Mark
    staging: Location
    files: tuple[Location, ...]
    rows: int

    def commit(self, receipt: str) -> None:
        root = self.folder.root
        moves = []
        for number, path in enumerate(self.files):
            extension = path.name.partition(".")[2]
            name = self.folder.file_name(self.mark, number)
            subfolder = path.relative_to(self.staging).removesuffix(path.name)
            moves.append((path.relative_to(root), f"{subfolder}{name}.{extension}"))
        self.folder.commit(self.mark, receipt, tuple(moves))

    def abort(self) -> None:
        self.staging.delete_folder()


@dataclass(frozen=True)
class _Folder:
    """A target folder with its marks."""

    root: Location
    replacement: FolderReplacement | None = None
    """Selects the files that a run replaces."""

    def file_name(self, mark: Mark, number: int) -> str:
        """Return the final name of a batch's file, without its extension."""
        if self.replacement is not None:
            return self.replacement.file_name(mark, number)
        return f"part-{encoded(mark.application)}-{mark.batch:012d}-{number:05d}"

    def completed(self, mark: Mark) -> str | None:
        """Finish the moves of a batch that a crash interrupted; return its receipt."""
        with self._locked(mark):
            held = self._finished(mark)
            receipt = held_receipt(held, mark)
            if held is not None and receipt is not None:
                # A killed attempt may have moved files without flushing the folders.
                folders = {(self.root / final).parent for _, final in held.moves}
                sync(
                    [self._mark_file(mark), *(f for f in folders if f.is_folder())],
                    up_to=self.root.parent,
                )
        return receipt

    def commit(self, mark: Mark, receipt: str, moves: tuple[tuple[str, str], ...]) -> None:
        """Make a batch visible, unless this attempt has done so already."""
        with self._locked(mark):
            try:
                held = self._finished(mark)
                check_epoch(held, mark)
                again = mark.wrote(held_receipt(held, mark))
                removed = () if again else self._giving_way(moves)
            except StaleEpochError:
                staging_folder(self._house, mark).delete_folder()
                raise
            if not again:
                above = self.root.parent
                sync((self.root / staged for staged, _ in moves), up_to=above)
                batch = Committed(
                    mark.application, mark.batch, mark.epoch, receipt, moves, removed
                )
                # Guarantee 2: from here on the batch is in the target, whatever happens.
                self._put(batch, mark)
                self._finish(batch, mark)
                if self.replacement is not None:
                    self.replacement.clear(self.root)
            discard_attempts(self._house, mark)

    def settle(self) -> None:
        """Remove the files that the run replaces, if no batch of the run has done so."""
        if self.replacement is not None and self.root.is_folder():
            with self._replacing():
                self.replacement.settle(self.root)

    def _giving_way(self, moves: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        """Return the files that a batch removes; see ``FolderReplacement``."""
        if self.replacement is None:
            return ()
        folders = {(self.root / final).parent for _, final in moves}
        found = self.replacement.giving_way(self.root, folders)
        return tuple(sorted({file.relative_to(self.root) for file in found}))

    @property
    def _house(self) -> Location:
        return self.root / HOUSEKEEPING

    def _mark_file(self, mark: Mark) -> Location:
        return self._house / f"{encoded(mark.application)}.json"

    @contextmanager
    def _locked(self, mark: Mark) -> Iterator[None]:
        with (self._house / f"{encoded(mark.application)}.lock").lock(), self._replacing():
            yield

    def _replacing(self) -> AbstractContextManager[None]:
        """Return a lock against other runs that replace files in the folder.

        A run that replaces nothing does not wait for the lock.
        """
        if self.replacement is None:
            return nullcontext()
        return (self._house / "replacement.lock").lock()

    def _put(self, batch: Committed, mark: Mark) -> None:
        self._mark_file(mark).put(json.dumps(asdict(batch)), up_to=self.root.parent)

    def _finished(self, mark: Mark) -> Committed | None:
        """Finish the newest batch of a task and return it; None if there is none.

        Raises StaleEpochError if another run has taken over the window: the remaining moves
        of this run are void.
        """
        if self.replacement is not None:
            self.replacement.require_current(self.root)
        tree = read_json(self._mark_file(mark))
        if tree is None:
            return None
        held = Committed.from_json(tree)
        self._finish(held, mark)
        return held

    def _finish(self, batch: Committed, mark: Mark) -> None:
        """Remove the replaced files, and move the files that are still staged.

        Idempotent: a file that is no longer staged was moved before. No attempt that ends late
        stages the file again, as each attempt uses unique file names.
        """
        staging, state = self._house / "staging", self._mark_file(mark)
        moves = [
            (
                checked_below(staged.removeprefix(f"{HOUSEKEEPING}/staging/"), staging, state),
                checked_below(final, self.root, state),
            )
            for staged, final in batch.moves
        ]
        remove([checked_below(name, self.root, state) for name in batch.removed], self.root)
        folders = set()
        for old, new in moves:
            if old.exists():
                _place(old, new)
                folders.add(new.parent)
        sync(folders, up_to=self.root)
        if batch.removed:  # others may write files with the same names later
            self._put(replace(batch, removed=()), mark)


def _place(staged: Location, file: Location) -> None:
    """Move a file of a committed batch, which is finished once the folder can have it."""
    try:
        staged.move_to(file)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.ENOTDIR, errno.EEXIST}:
            raise
        raise SinkError(
            problem=f"{file.parent} is not a folder in the file system of {staged.parent}, so "
            "a file of a committed batch cannot be moved into it.",
            fix="Replace it with a folder, then restart the task: the batch is then finished.",
            field="path",
        ) from error


def _staged_parquet(folder: _Folder, mark: Mark, files: Sequence[Location]) -> _StagedFiles:
    counts = {}
    for file in files:
        with file.open_input() as source:
            counts[file] = int(pq.read_metadata(source).num_rows)
    staging = staging_folder(folder.root / HOUSEKEEPING, mark)
    good = tuple(file for file in files if counts[file])
    return _StagedFiles(folder, mark, staging, good, sum(counts.values()))


def _as_json(file: Location) -> Location:
    renamed = file.parent / file.name.replace(".txt", ".json", 1)
    file.move_to(renamed)
    return renamed


def _without_bytes(frame: DataFrame) -> DataFrame:
    """Return binary columns as Base64, as in JSON; nothing can read Spark's form for CSV."""
    fields = frame.schema.fields
    if not any(isinstance(field.dataType, BinaryType) for field in fields):
        return frame
    columns = (
        f"base64({identifier(f.name)}) AS {identifier(f.name)}"
        if isinstance(f.dataType, BinaryType)
        else identifier(f.name)
        for f in fields
    )
    return selected(frame, list(columns))


def _compressed(spark: SparkSession, files: Sequence[Location]) -> list[Location]:
    """Compress staged files in a Spark job; return the compressed files."""

    def compress(path: str) -> str:
        # A task attempt that Spark abandoned may end after the commit: it has its own file.
        stem, dot, extension = path.rpartition(".")
        packed = f"{stem}-{uuid.uuid4().hex}{dot}{extension}.zst"
        with (
            Location.of(path).open_input() as source,
            naming(packed),
            Location.of(packed).open_output() as file,
            pa.CompressedOutputStream(file, "zstd") as to,
        ):
            while data := source.read(_READ_BYTES):
                to.write(data)
        return packed

    if not files:
        return []
    paths = [str(file) for file in files]
    packed = spark.sparkContext.parallelize(paths, len(paths)).map(compress).collect()
    for file in files:
        file.delete()
    return [Location.of(path) for path in packed]
