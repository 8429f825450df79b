"""What columns a set of files has, and how each file is to be read for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.sdk import ConfigError, Schema, SourceError
from headrace.sdk.arrow import from_arrow
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.connectors.file.avro import writer_schema
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.groups import Group, spark_path
from headrace_plugins.connectors.file.header import as_headed, read_header
from headrace_plugins.connectors.file.inference import (
    TEXT,
    grown,
    infer_csv,
    infer_json,
    merge_types,
    to_schema,
)
from headrace_plugins.connectors.file.sample import SAMPLE_BYTES, read_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from headrace.sdk import SchemaMemory
    from headrace_plugins.connectors.file.dialect import Dialect
    from headrace_plugins.connectors.file.groups import NumberedFile
    from headrace_plugins.connectors.file.listing import FoundFile

__all__ = ["Columns"]

_SAMPLED_FILES = 5
_LEAST_SAMPLE_BYTES = 16 * 1024
_Key = TypeVar("_Key", bound="Hashable")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Finds the schema of the rows, and remembers it.

    Args:
        format: Of all files.
        dialect: Of text files.
        declared: The user's schema; None to infer it.
        stream: Under which name the inferred schema is stored.
        memory: Where it is stored.
        sample_rows: How many lines the first inference looks at.
        conflict: What a field of JSON becomes whose values share no shape.
    """

    format: Format
    dialect: Dialect
    declared: Schema | None
    stream: str
    memory: SchemaMemory
    sample_rows: int
    conflict: pa.DataType = TEXT

    def groups(
        self, spark: SparkSession, files: Sequence[NumberedFile]
    ) -> tuple[Schema, list[Group]]:
        """Return the schema of the rows, and the files by how each is to be read.

        No job runs; files are looked at from their beginning, or their footer.

        Raises:
            SourceError: A file cannot be read, or has other columns than were declared.
        """
        match self.format:
            case Format.CSV:
                return self._csv(files)
            case Format.JSON:
                schema = self._json(files)
                return schema, [Group(schema, tuple(files))]
            case Format.PARQUET:
                parts = _by(lambda file: _parquet_schema(file.path), files)
                return self._typed([Group(_parquet(arrow), some) for arrow, some in parts])
            case _:
                parts = _by(lambda file: writer_schema(file.path), files)
                return self._typed(
                    [Group(_avro(spark, some[0].path), some) for _, some in parts]
                )

    def known(self) -> Schema:
        """Return what is known without looking at files."""
        return self.declared or self.memory.get(self.stream) or Schema.struct({})

    def _settle(self, new: Callable[[], Schema], *, first: Callable[[], Schema]) -> Schema:
        """Return what is declared or stored, and grow and store it."""
        if self.declared is not None:
            return self.declared
        known = self.memory.get(self.stream)
        schema = first() if known is None else grown(known, new())
        if not schema.fields:
            raise SourceError(
                problem=f"No column can be found in the files of {self.stream}.",
                fix="Declare a schema.",
            )
        if schema != known:
            self.memory.put(self.stream, schema)
        return schema

    def _typed(self, groups: list[Group]) -> tuple[Schema, list[Group]]:
        """Settle on a schema for files that hold theirs."""

        def merged() -> Schema:
            schema = groups[0].schema
            for group in groups[1:]:
                schema = grown(schema, group.schema)
            return schema

        return self._settle(merged, first=merged), groups

    def _json(self, files: Sequence[NumberedFile]) -> Schema:
        def new() -> Schema:
            size = max(_LEAST_SAMPLE_BYTES, SAMPLE_BYTES // len(files))
            return self._inferred([file.file for file in files], size)

        return self._settle(new, first=lambda: self._sampled(files))

    def _csv(self, files: Sequence[NumberedFile]) -> tuple[Schema, list[Group]]:
        if not self.dialect.header:
            schema = self._settle(lambda: Schema.struct({}), first=lambda: self._sampled(files))
            return schema, [Group(schema, tuple(files))]
        parts = _by(lambda file: tuple(read_header(file.path, self.dialect)), files)
        parts = [(header, some) for header, some in parts if header]

        def new() -> Schema:
            known = self.memory.get(self.stream) or Schema.struct({})
            added = [s[0] for header, s in parts if any(known.field(n) is None for n in header)]
            schema = self._sampled(added)
            return Schema.struct(
                {f.name: f.schema for f in schema.fields if known.field(f.name) is None}
            )

        schema = self._settle(new, first=lambda: self._sampled(files))
        renames = self.declared is not None
        return schema, [
            Group(as_headed(header, schema, renames=renames, path=some[0].path), some)
            for header, some in parts
        ]

    def _sampled(self, files: Sequence[NumberedFile]) -> Schema:
        """Infer from some of the files, from the first to the last."""
        step = max(1, -(-len(files) // _SAMPLED_FILES))
        return self._inferred([file.file for file in files[::step]], SAMPLE_BYTES)

    def _inferred(self, files: Sequence[FoundFile], size_bytes: int) -> Schema:
        types = pa.struct([])
        conflict = TEXT if self.format is Format.CSV else self.conflict
        infer = (
            infer_csv if self.format is Format.CSV else partial(infer_json, conflict=conflict)
        )
        for file in files:
            # A document is understood as a whole or not at all.
            size = file.size_bytes + 1 if self.dialect.multiline else size_bytes
            rows = file.size_bytes + 1 if self.dialect.multiline else self.sample_rows + 1
            sample = read_sample(file.path, self.dialect, rows=rows, size_bytes=size)
            try:
                found = infer(sample, self.dialect)
                types = merge_types(types, found, conflict)
            except (pa.ArrowInvalid, ValueError) as error:
                raise SourceError(
                    problem=f"The columns of {file.path} cannot be inferred: {error}",
                    fix=f"Declare a schema, mend the file, or set encoding if it is not "
                    f"{self.dialect.encoding}.",
                ) from error
            if not _is_named(found):
                raise SourceError(
                    problem=f"{file.path} has a field without a name.",
                    fix="Name the field, or set format to text to move its lines as they are.",
                )
        return to_schema(types)


def _is_named(kind: pa.DataType) -> bool:
    """Return whether all fields of structs have names, at any depth."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    if pa.types.is_struct(kind) and not all(field.name for field in fields):
        return False
    return all(_is_named(field.type) for field in fields)


def _by(
    key: Callable[[FoundFile], _Key], files: Iterable[NumberedFile]
) -> list[tuple[_Key, tuple[NumberedFile, ...]]]:
    groups: dict[_Key, list[NumberedFile]] = {}
    for file in files:
        groups.setdefault(key(file.file), []).append(file)
    return [(value, tuple(some)) for value, some in groups.items()]


def _parquet_schema(path: str) -> pa.Schema:
    try:
        with Location.of(path).open_input() as file:
            return pq.read_schema(file).remove_metadata()
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(
            problem=f"{path} is no Parquet file: {error}", fix="Mend or remove the file."
        ) from error


def _parquet(arrow: pa.Schema) -> Schema:
    for field in arrow:
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            raise ConfigError(
                problem=f"The column {field.name} counts nanoseconds, which Spark cannot read.",
                fix="Write it in microseconds (pandas: coerce_timestamps='us').",
                field=field.name,
            )
    return _nullable(from_arrow(arrow))


def _avro(spark: SparkSession, path: str) -> Schema:
    frame = spark.read.format("avro").load(spark_path(path))
    return _nullable(from_spark_json(json.loads(frame.schema.json())))


def _nullable(schema: Schema) -> Schema:
    """Spark reads every column of a file as one that may be null."""
    return schema.with_fields({f.name: f.schema.replaced(optional=True) for f in schema.fields})
