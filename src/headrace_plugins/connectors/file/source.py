"""The file source."""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import (
    BoundaryKind,
    ConfigError,
    ConfigErrors,
    DeliveryGuarantee,
    HeadraceError,
    Schema,
    SourceConnector,
    Type,
)
from headrace.sdk.config import missing
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.location import Location
from headrace.sdk.struct_exprs import has_variant
from headrace.sdk.tables import TableRows
from headrace_plugins.connectors.file.fileset import FileSet, rows_now
from headrace_plugins.connectors.file.formats import (
    Format,
    TimePattern,
    format_of,
    is_compressed,
)
from headrace_plugins.connectors.file.growing import GrowingFiles, taken_over
from headrace_plugins.connectors.file.listing import Share
from headrace_plugins.connectors.file.settings import (
    KAFKA_SOURCES,
    OTHER_SOURCES,
    PATH_KEYS,
    SHARE_KEY,
    FileSourceSettings,
    SourceSettings,
    TextSettings,
    configured_path,
    follows,
)
from headrace_plugins.window import (
    WINDOW_KEYS,
    filled_in,
    followed,
    require_column,
    zone_named,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.sdk import Boundaries, Position
    from headrace.sdk.config import Config
    from headrace_plugins.connectors.file.formats import Dialect


_NO_FILES = {"idna", "punycode", "undefined"}
"""Python codecs that are not encodings of files."""
_LISTED = 1000
POSITION_KEY = "task.position"
"""The key in a task's configuration for offsets of growing files taken over from others."""


class FileSource(SourceConnector):
    """Reads files: whole files as they appear, or files that lines are appended to.

    In mode ``set`` the position is ``{"path": path} -> {"files": n}``: the number of files of
    the task's ledger that are read. With several tasks, each reads a share of the files, its
    partition also contains ``share``, and the number of tasks cannot change later.

    In mode ``grow`` the position is Kafka Connect's
    ``{"filename": path} -> {"position": bytes}``, with further fields that distinguish the
    file from others of the same name.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE
    aliases = OTHER_SOURCES
    row_keys = (
        *TextSettings.config_def().keys,
        *("format", "schema", "infer.rows", "infer.conflicts", "multiline"),
        "partition.columns",
        *("timestamp.nanos", *WINDOW_KEYS, "window.by", "window.name.format"),
    )
    boundary_kinds = frozenset({BoundaryKind.TIME, BoundaryKind.VALUE})

    settings: FileSourceSettings

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        name = config.originals.get("connector.class", "")
        if name in KAFKA_SOURCES and not config.find_str("topic"):
            yield missing("topic")
        try:
            settings = SourceSettings.from_config(config)
        except ConfigErrors as errors:
            yield from errors.errors
        except ConfigError as error:
            yield _at(error, config)
        else:
            yield from (_at(wrong, config) for wrong in _wrong(settings))

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        wrong = list(super().examine(config))
        yield from wrong
        if wrong:
            return
        settings = SourceSettings.from_config(config)
        found = list(islice(settings.listing.paths(), _LISTED))
        more = "at least " if len(found) == _LISTED else ""
        verdict = Verdict.OK if found or settings.grows else Verdict.WARNING
        fix = "Put files there, or fix the path."
        if settings.listing.has_only_folders:
            fix = "Set recursive to true to read its subfolders."
        yield Finding(
            f"files at {settings.path}",
            verdict,
            f"{more}{len(found)} of format {settings.format.value}",
            "" if verdict is Verdict.OK else fix,
        )
        for path in found[:1]:
            place = Location.of(path)
            if place.is_local and not os.access(place.local, os.R_OK):
                fix = "Grant the worker's user read permission on the files."
                yield Finding(f"right to read {path}", Verdict.FAILED, "none", fix)

    @override
    @classmethod
    def table_rows(cls, config: Config) -> Sequence[TableRows] | None:
        settings = SourceSettings.from_config(config)
        is_row = settings.schema is None or settings.schema.type is Type.STRUCT
        if settings.grows or settings.format is Format.TEXT or not is_row:
            return None
        read = partial(rows_now, settings)
        return [TableRows(settings.path, settings.path, settings.schema, (), read)]

    @override
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Divide the files by a hash of their paths, in mode grow of their logs' paths.

        Raises ConfigError if, in mode set, the files are already divided over more tasks,
        each with its own ledger.
        """
        settings = SourceSettings.from_config(self.config)
        tasks = 1 if settings.listing.is_single else max_tasks
        if not settings.grows:
            tasks = _divided(settings.path, self.context.position(), tasks)
        shares = [Share(number, tasks) for number in range(tasks)]
        configs = [{**self.config.originals, SHARE_KEY: str(share)} for share in shares]
        if settings.grows:
            positions = self.context.positions()
            for share, config in zip(shares, configs, strict=True):
                taken = taken_over(positions, share)
                if len(taken):
                    config[POSITION_KEY] = taken.to_json()
        return configs

    @override
    @classmethod
    def origin(cls, config: Config) -> str:
        return str(Location.of(configured_path(config)))  # positions are of the whole path

    @override
    @classmethod
    def reads(cls, config: Config, target: str) -> bool:
        with suppress(HeadraceError):  # the target is not a file or folder
            listing = SourceSettings.from_config(config).listing
            place = Location.of(target).resolved()
            if not listing.is_glob:
                listing = replace(listing, location=listing.location.resolved())
            places = [place] if listing.is_glob or format_of(place.name) else []
            places += [] if listing.is_glob else [place / "part"]
            return any(listing.covers(str(each)) for each in places)
        return False

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[FileSet | GrowingFiles]:
        return GrowingFiles if follows(config) else FileSet

    @override
    @classmethod
    def task(cls, config: Config) -> FileSet | GrowingFiles:
        settings = SourceSettings.from_config(config)
        if settings.grows:
            return GrowingFiles(settings, stood=config.originals.get(POSITION_KEY, "[]"))
        return FileSet(settings)

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        if follows(config):
            raise _grows()
        settings = FileSourceSettings.from_config(config)
        if boundaries.kind is BoundaryKind.VALUE:
            require_column(boundaries.kind, settings.window_column)
        filled = filled_in(config, boundaries)
        if (schema := settings.declared_schema()) is not None and settings.way == "column":
            FileSourceSettings.parsed(filled).column_window(
                schema, settings.time_zone, configured_path(config)
            )
        return filled

    @override
    @classmethod
    def follow_from(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        return followed(cls.fill_in_boundaries(config, boundaries))

    @override
    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        for partition, offset in position.items():
            whole = "path" in partition
            if not whole and "filename" not in partition:
                raise ConfigError(
                    problem="Partition objects should contain the key 'filename'",
                    fix="In mode set they contain the key 'path'.",
                    field="offsets",
                )
            key = "files" if whole else "position"
            number = offset.get(key)
            if type(number) is not int or number < 0:
                raise ConfigError(
                    problem=f"{key} must be an integer of at least 0, got {number!r}.",
                    fix=f"Set {key} to the number of files or bytes to skip; 0 skips nothing.",
                    field="offsets",
                )


def _divided(path: str, stood: Position, max_tasks: int) -> int:
    """Return the number of tasks in mode set: that of the stored position, if any."""
    before = {
        Share.from_text(str(partition.get("share", "0/1"))).of
        for partition, _ in stood.items()
        if partition.get("path") == path
    }
    if not before:
        return max_tasks
    of = max(before)
    if of > max_tasks:
        raise ConfigError(
            problem=f"The files are already divided over {of} tasks, each with its own ledger.",
            fix=f"Set tasks.max to {of} or more, or reset the offsets to read all files again.",
            field="tasks.max",
        )
    return of


def _at(error: ConfigError, config: Config) -> ConfigError:
    """Return the error with the path key that the user set as its field."""
    if error.field != "path":
        return error
    configured_key = next(key for key in PATH_KEYS if config.find_str(key))
    return ConfigError(problem=error.problem, fix=error.fix, field=configured_key)


def _wrong(settings: SourceSettings) -> Iterable[ConfigError]:
    wrong = list(_wrong_encoding(settings.dialect.encoding))
    yield from wrong or _wrong_signs(settings.dialect)
    yield from _wrong_window(settings)
    if settings.format in {Format.CSV, Format.JSON}:
        yield from _wrong_patterns(settings.dialect)
        yield from _wrong_zone(settings.dialect.time_zone)
    listing = settings.listing
    place = listing.location
    needed = listing.root if listing.is_glob or settings.grows else place
    if not needed.exists():
        yield ConfigError(
            problem=f"{needed} does not exist.",
            fix="Create it, or fix the path.",
            field="path",
        )
    elif place.is_local and not os.access((place if place.exists() else needed).local, os.R_OK):
        yield ConfigError(
            problem=f"No permission to read {place}.",
            fix="Grant the worker's user read permission.",
            field="path",
        )
    if settings.grows:
        yield from _wrong_to_follow(settings)


def _grows() -> ConfigError:
    return ConfigError(
        problem="Mode grow does not support a window.",
        fix="Set mode to set.",
        field="mode",
    )


def _wrong_window(settings: SourceSettings) -> Iterable[ConfigError]:
    if settings.keys.window is None:
        return
    if settings.grows:
        yield _grows()
    try:
        if settings.keys.way == "name":
            zone_named(settings.keys.time_zone)
        elif settings.schema is not None or settings.format is Format.TEXT:
            settings.column_window(settings.schema or Schema.string())
    except ConfigError as error:
        yield error


def _wrong_encoding(name: str) -> Iterable[ConfigError]:
    try:
        # Some of Python's codecs do not encode text.
        known = codecs.lookup(name).name not in _NO_FILES and "a,b\n".encode(name)
    except (LookupError, ValueError):
        known = False
    if not known:
        yield ConfigError(
            problem=f"Unknown encoding {name!r}.",
            fix="Use an encoding such as UTF-8, ISO-8859-1 or GB18030.",
            field="encoding",
        )


def _wrong_signs(dialect: Dialect) -> Iterable[ConfigError]:
    for key in _signs_beyond_ascii(dialect):
        sign = getattr(dialect, key)
        try:
            sign.encode(dialect.encoding)
        except UnicodeError:
            yield ConfigError(
                problem=f"The encoding {dialect.encoding} does not have the {key} {sign!r}.",
                fix=f"Set encoding to that of the file, or another {key}.",
                field=key,
            )


def _signs_beyond_ascii(dialect: Dialect) -> list[str]:
    signs = {"delimiter": dialect.delimiter, "quote": dialect.quote, "escape": dialect.escape}
    return [key for key, sign in signs.items() if sign and not sign.isascii()]


def _wrong_zone(name: str) -> Iterable[ConfigError]:
    try:
        pc.assume_timezone(pa.nulls(1, pa.timestamp("us")), name)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        yield ConfigError(
            problem=f"Unknown time zone {name!r}.",
            fix="Use a time zone such as UTC or Europe/Berlin.",
            field="time.zone",
        )


def _wrong_patterns(dialect: Dialect) -> Iterable[ConfigError]:
    patterns = {
        "timestamp.format": dialect.timestamp_format,
        "date.format": dialect.date_format,
    }
    for key, pattern in patterns.items():
        if pattern is not None and TimePattern.of(pattern) is None:
            yield ConfigError(
                problem=f"The datetime pattern {pattern!r} is not supported.",
                fix="Use yyyy, MM, dd, HH (or hh and a), mm, ss, SSS and XXX, each once, and "
                "literal text in single quotes; or declare the column as STRING.",
                field=key,
            )


def _wrong_to_follow(settings: SourceSettings) -> Iterable[ConfigError]:
    if is_compressed(settings.path):
        yield ConfigError(
            problem="Mode grow does not support compressed files.",
            fix="Follow the file before it is compressed, or set mode to set.",
            field="path",
        )
    if settings.format in {Format.PARQUET, Format.AVRO}:
        yield ConfigError(
            problem=f"Mode grow does not support format {settings.format.value}.",
            fix="Set mode to set.",
            field="format",
        )
    signs = _signs_beyond_ascii(settings.dialect)
    for key in signs:
        yield ConfigError(
            problem=f"Mode grow supports only an ASCII character as {key}.",
            fix="Set another character, or mode to set.",
            field=key,
        )
    known = not list(_wrong_encoding(settings.dialect.encoding))
    if known and not signs and not settings.dialect.is_cuttable:
        yield ConfigError(
            problem=f"Mode grow does not support encoding {settings.dialect.encoding}.",
            fix="Write the file in UTF-8, or set mode to set.",
            field="encoding",
        )
    if settings.schema is not None and has_variant(settings.schema):
        yield ConfigError(
            problem="Mode grow does not support VARIANT.",
            fix="Declare the column as STRING, or set mode to set.",
            field="schema",
        )
    if settings.dialect.multiline:
        yield ConfigError(
            problem="Mode grow does not support multiline.",
            fix="Set multiline to false, or mode to set. Quoted CSV values may contain line "
            "breaks without multiline.",
            field="multiline",
        )
