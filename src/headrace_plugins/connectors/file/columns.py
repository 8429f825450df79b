"""The columns of files: declared, from headers or schemas, or inferred from samples."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.sdk import ConfigError, Schema, SourceError
from headrace.sdk.arrow import from_arrow
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import from_spark_json
from headrace.sdk.sqltext import sql_type
from headrace_plugins.arrow_json import (
    TEXT,
    merged_type,
)
from headrace_plugins.avro_container import container_metadata
from headrace_plugins.connectors.file.columnar import (
    columns_of,
    may_use_arrow,
    needs_arrow,
)
from headrace_plugins.connectors.file.csv_lines import CsvLines
from headrace_plugins.connectors.file.folder_columns import FolderColumns, column_of
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.inference import (
    SAMPLE_BYTES,
    first_width,
    grown,
    header_names,
    infer_csv,
    infer_json,
    is_blank,
    read_document,
    read_header,
    read_sample,
    to_schema,
    undecodable,
)
from headrace_plugins.connectors.file.json_lines import first_items
from headrace_plugins.connectors.file.listing import Group, NumberedFile, spark_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from headrace.sdk import SchemaMemory
    from headrace_plugins.connectors.file.formats import Dialect
    from headrace_plugins.connectors.file.listing import FoundFile


def as_headed(header: Sequence[str], schema: Schema, *, renames: bool, path: str) -> Schema:
    """Return a file's columns in the file's order, matched with the schema's by name.

    A column that is not in the schema is a string. If ``renames`` is set, as for a declared
    schema, the schema may rename all columns by their order. Raises SourceError if neither
    names nor order identify the columns.
    """
    known = [field.name for field in schema.fields]
    if renames and len(header) == len(known) and len(set(header)) < len(header):
        return schema
    strangers = [name for name in header if schema.field(name) is None]
    if renames and strangers and not {*known} <= {*header}:
        pairs = zip(header, known, strict=False)
        moved = any(
            name != other and (name in known or other in header) for name, other in pairs
        )
        if moved or len(header) != len(known):
            raise SourceError(
                problem=f"The header of {path} is {', '.join(header)}; the declared columns "
                f"are {', '.join(known)}.",
                fix="Use the header's names in schema, declare all columns in the order of the "
                "files, or set the delimiter of the files.",
            )
        return schema
    found = {name: schema.field(name) for name in header}
    return Schema.struct(
        {
            name: field.schema if field else Schema.string(optional=True)
            for name, field in found.items()
        }
    )


_HEAD_BYTES = 1024 * 1024
_BY_FULL_NAME = re.compile(r'"(?:enum|fixed)"')
"""Avro types that are matched by full name, including the namespace."""


def writer_schema(path: str) -> str:
    """Return the schema of an Avro file as JSON. Raises SourceError for another file."""
    with Location.of(path).open_input() as file:
        head = file.read(_HEAD_BYTES)
    try:
        return container_metadata(head)["avro.schema"].decode()
    except (ValueError, KeyError) as error:
        problem = f"{path} is not an Avro file."
        raise SourceError(problem=problem, fix="Repair or delete the file.") from error


def _avro_group(spark: SparkSession, writer: str, files: tuple[NumberedFile, ...]) -> Group:
    """Return the group of an Avro schema; Spark reads neither times of day nor type null."""
    path = files[0].path
    tree = json.loads(writer)
    if not isinstance(tree, dict) or tree.get("type") != "record":
        problem = f"The schema of {path} is not an Avro record."
        raise SourceError(problem, fix="Write Avro records, or delete the file.")
    names = [field["name"] for field in tree["fields"]]
    for name, other in pairwise(sorted(names, key=str.lower)):
        if name.lower() == other.lower():
            problem = f"The fields {name} and {other} of {path} differ in case only."
            raise SourceError(problem, fix="Rename a field: Spark cannot read such Avro files.")
    times = {f["name"]: _logical(f["type"]) for f in tree["fields"]}
    nulls = {f["name"] for f in tree["fields"] if f["type"] in ("null", ["null"])}
    tree["fields"] = [f for f in _readable(tree["fields"]) if f["name"] not in nulls]
    if "$" in str(tree.get("namespace")) and not _BY_FULL_NAME.search(writer):
        # Older Avro used $ in the namespaces of nested classes; its parser now rejects it.
        tree["namespace"] = tree["namespace"].replace("$", "_")
    text = json.dumps(tree)
    try:
        frame = spark.read.format("avro").option("avroSchema", text).load(spark_path(path))
    except (Py4JJavaError, PySparkException) as error:
        java = getattr(error, "java_exception", None)
        # The text after a brace is the schema itself.
        text = str(error if java is None else java.getMessage()).partition("{")[0]
        reason = " ".join(text.split()).rstrip(":")
        problem = f"Spark cannot read the Avro schema of {path}: {reason}."
        raise SourceError(problem, fix="Write the file with another schema.") from error
    found = _nullable(from_spark_json(json.loads(frame.schema.json())))
    kinds = {field.name: field.schema for field in found.fields}
    kinds |= dict.fromkeys(nulls, Schema.string(optional=True))
    kinds |= {
        name: Schema.time(optional=True)
        for name, logical in times.items()
        if logical.startswith("time-")
    }
    millis = frozenset(name for name, logical in times.items() if logical == "time-millis")
    schema = Schema.struct({name: kinds[name] for name in names})
    return Group(schema, files, avro=text, absent=frozenset(nulls), millis=millis)


def _logical(kind: Any) -> str:
    """Return the logical type of a field, which may be a union with null."""
    if isinstance(kind, list):
        return next((found for each in kind if (found := _logical(each))), "")
    return str(kind.get("logicalType", "")) if isinstance(kind, dict) else ""


def _readable(tree: Any) -> Any:
    """Return an Avro schema without logical times of day, which Spark cannot read."""
    if isinstance(tree, list):
        return [_readable(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    made = {key: _readable(value) for key, value in tree.items()}
    logical = str(tree.get("logicalType", ""))
    if logical.startswith("time-"):
        del made["logicalType"]
    return made


_SAMPLED_FILES = 5
_NTZ = "TIMESTAMP_NTZ"
_NUMBERED = re.compile("_c[0-9]+")
"""The names of columns without a header."""
_LEAST_SAMPLE_BYTES = 16 * 1024
_Key = TypeVar("_Key", bound="Hashable")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Determines the schema of the rows, and stores it."""

    format: Format
    dialect: Dialect
    declared: Schema | None
    """None to infer it."""
    stream: str
    """The name under which the inferred schema is stored."""
    memory: SchemaMemory
    sample_rows: int
    folders: FolderColumns
    conflict: pa.DataType = TEXT
    """The type of a JSON field whose values have incompatible types."""

    def groups(
        self, spark: SparkSession, files: Sequence[NumberedFile]
    ) -> tuple[Schema, list[Group]]:
        """Return the schema of the rows, and the files grouped by the schema to read with.

        Runs no job; reads only the beginning or the footer of files. Raises SourceError for a
        file that cannot be read, or has other columns than declared.
        """
        schema, groups = self._groups(spark, files)

        def with_folders(group: Group) -> Group:
            own = [field.name for field in group.schema.fields]
            return replace(group, folders=self.folders.values(group.files, schema, own))

        groups = [with_folders(group) for group in groups]
        if any(group.folders for group in groups) and all(
            g.by_arrow or (g.may_use_arrow and _is_same(g.schema, schema)) for g in groups
        ):
            # Spark would look up the file of each row.
            groups = [replace(group, by_arrow=True) for group in groups]
        return schema, groups

    def _groups(
        self, spark: SparkSession, files: Sequence[NumberedFile]
    ) -> tuple[Schema, list[Group]]:
        if self.format in {Format.CSV, Format.JSON} and not self._has_headers:
            files = [file for file in files if not is_blank(file.file, self.dialect)]
        if not files:
            return self.known(), []
        match self.format:
            case Format.CSV:
                return self._csv(files)
            case Format.JSON:
                size = max(_LEAST_SAMPLE_BYTES, SAMPLE_BYTES // len(files))

                def new() -> Schema:
                    return self._inferred([file.file for file in files], size)

                # A retry finds the columns of all files, so the first attempt must too.
                schema = self._settle(
                    files, new, first=lambda: grown(self._sampled(files), new())
                )
                return schema, [
                    Group(_without(schema, names), some)
                    for names, some in _by(partial(self._elsewhere, schema), files)
                ]
            case Format.PARQUET:
                parts = _by(lambda file: _parquet_schema(file.path), files)
                return self._typed(
                    [
                        Group(
                            _nullable(from_arrow(arrow)),
                            some,
                            by_arrow=by_arrow,
                            may_use_arrow=may,
                        )
                        for (arrow, by_arrow, may), some in parts
                    ]
                )
            case _:
                writers = _by(lambda file: writer_schema(file.path), files)
                return self._typed([_avro_group(spark, *each) for each in writers])

    @property
    def _has_headers(self) -> bool:
        return self.format is Format.CSV and self.dialect.header

    def known(self) -> Schema:
        """Return the declared or stored schema, without reading files."""
        return self.declared or self.memory.get(self.stream) or Schema.struct({})

    def _settle(
        self,
        files: Sequence[NumberedFile],
        new: Callable[[], Schema],
        *,
        first: Callable[[], Schema],
        headers: Iterable[str] = (),
    ) -> Schema:
        """Return the declared schema, or the stored one, extended with ``new`` and stored.

        Columns of the files' folders are added unless they are in ``new`` or ``headers``.
        """
        if self.declared is not None:
            return self.declared
        known = self.memory.get(self.stream)
        found = first() if known is None else new()
        schema = found if known is None else grown(known, found)
        if not schema.fields:
            raise self._no_columns(files[0].file)
        own = {*headers, *(f.name for f in found.fields)}
        # A known column keeps its type, as one of a CSV file does: folders of later files must
        # not change what files have themselves.
        added = self.folders.schema(files, schema, own)
        schema = grown(schema, _without(added, {f.name for f in schema.fields}))
        if schema != known:
            self.memory.put(self.stream, schema)
        return schema

    def _no_columns(self, file: FoundFile) -> SourceError:
        """Return the error for files of which no record is valid."""
        problem = f"No columns found in the files of {self.stream}."
        fix = "Declare a schema."
        if self.format is Format.JSON and not self.dialect.multiline:
            fix = "Set multiline to true if each file is one document, or declare a schema."
        if self.format is Format.CSV:
            sample = self.dialect.stand_ins.block(self._sample(file.path, SAMPLE_BYTES))
            problem = f"The columns of {file.path} cannot be inferred: no record is valid"
            problem = f"{problem}.{_first_fault(sample, self.dialect)}"
            fix = "Repair the file, set its encoding or delimiter, or declare a schema."
        return SourceError(problem, fix=fix)

    def _typed(self, groups: list[Group]) -> tuple[Schema, list[Group]]:
        """Merge the schemas of files that contain their schema."""
        if (declared := self.declared) is not None:
            for group in groups:
                _check_case(declared, group)

        def merged() -> Schema:
            schema = groups[0].schema
            for group in groups[1:]:
                schema = grown(schema, group.schema)
            return schema

        files = [file for group in groups for file in group.files]
        return self._settle(files, merged, first=merged), groups

    def _csv(self, files: Sequence[NumberedFile]) -> tuple[Schema, list[Group]]:
        if not self._has_headers:
            schema = self._settle(
                files, lambda: Schema.struct({}), first=lambda: self._sampled(files)
            )
            return schema, [
                Group(within, some)
                for within, some in _by(partial(self._headless, schema), files)
            ]
        headers = _by(lambda file: _header(file.path, self.dialect), files)
        parts = [(header, some) for header, some in headers if header]
        if not parts:
            return self.known(), []
        files = [file for _, some in parts for file in some]

        def new(known: Schema) -> Schema:
            added = [
                some[0].file
                for header, some in parts
                if any(known.field(name) is None for name in header)
            ]
            size = max(_LEAST_SAMPLE_BYTES, SAMPLE_BYTES // (len(added) or 1))
            return _without(self._inferred(added, size), {f.name for f in known.fields})

        def first() -> Schema:
            sampled = self._sampled(files)
            return grown(sampled, new(sampled))  # also the columns of files that are no sample

        names = [name for header, _ in parts for name in header]
        known = self.memory.get(self.stream) or Schema.struct({})
        schema = self._settle(files, lambda: new(known), first=first, headers=names)
        renames = self.declared is not None

        def headed(header: Sequence[str], some: tuple[NumberedFile, ...]) -> Group:
            within = _without(schema, self.folders.columns(some, schema) - {*header})
            own = {field.name for field in within.fields}
            if own and own.isdisjoint(header) and len(header) == len(schema.fields):
                within = schema  # the header is renamed, and has all columns
            found = as_headed(header, within, renames=renames, path=some[0].path)
            return Group(found, some)

        return schema, [headed(*each) for each in parts]

    def _headless(self, schema: Schema, file: FoundFile) -> Schema:
        """Return those of the columns that a CSV file without a header has itself."""
        if self.declared is None:
            numbered = [f.name for f in schema.fields if _NUMBERED.fullmatch(f.name)]
            if numbered:
                return _without(schema, {f.name for f in schema.fields} - {*numbered})
        within = _without(schema, self.folders.columns([NumberedFile(0, file)], schema))
        if len(within.fields) == len(schema.fields):
            return schema
        is_whole = first_width(file.path, self.dialect) == len(schema.fields)
        return schema if is_whole or not within.fields else within

    def _elsewhere(self, schema: Schema, file: FoundFile) -> frozenset[str]:
        """Return the columns that only the names of a JSON file's folders have."""
        names = self.folders.columns([NumberedFile(0, file)], schema)
        if names:
            sample = self._sample(file.path, _LEAST_SAMPLE_BYTES)
            if not self.dialect.multiline and b"\n" not in sample:  # a longer line
                sample = self._sample(file.path, SAMPLE_BYTES)
            found = infer_json(sample, self.dialect, self.conflict)
            names -= {found.field(number).name for number in range(found.num_fields)}
        return frozenset(names)

    def _sampled(self, files: Sequence[NumberedFile]) -> Schema:
        """Infer the schema from some files, evenly distributed over all."""
        step = max(1, -(-len(files) // _SAMPLED_FILES))
        return self._inferred([file.file for file in files[::step]], SAMPLE_BYTES)

    def _sample(self, path: str, size_bytes: int) -> bytes:
        if not self.dialect.multiline or self.format is not Format.JSON:
            rows = self.sample_rows + 1
            return read_sample(path, self.dialect, rows=rows, size_bytes=size_bytes)
        sample = read_document(path, self.dialect, size_bytes)
        # A document that is a single large object can only be parsed as a whole.
        return sample if first_items(sample) else read_document(path, self.dialect)

    def _inferred(self, files: Sequence[FoundFile], size_bytes: int) -> Schema:
        types = pa.struct([])
        conflict = TEXT if self.format is Format.CSV else self.conflict
        is_csv = self.format is Format.CSV
        infer = infer_csv if is_csv else partial(infer_json, conflict=conflict)
        for file in files:
            sample = self._sample(file.path, size_bytes)
            if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise undecodable(file.path, self.dialect, ValueError("the file is in UTF-16"))
            is_array = self.format is Format.JSON and sample.lstrip().startswith(b"[")
            if is_array and not self.dialect.multiline:
                raise ConfigError(
                    problem=f"{file.path} begins with an array, expected an object.",
                    fix="Set multiline to true if each file is one document.",
                    field="multiline",
                )
            if is_csv:
                sample = self.dialect.stand_ins.block(sample)
            try:
                found = infer(sample, self.dialect)
                types = merged_type(types, found, conflict)
            except (pa.ArrowInvalid, ValueError) as error:
                raise undecodable(file.path, self.dialect, error) from error
            if not _is_named(found):
                raise SourceError(
                    problem=f"{file.path} has a field without a name.",
                    fix="Name the field, or set format to text to copy the lines unchanged.",
                )
        return to_schema(types, conflict)


def _first_fault(sample: bytes, dialect: Dialect) -> str:
    """Return a sentence about the first invalid record of CSV."""
    ends = dialect.ends
    end = ends.first_end(sample)
    names = header_names(sample[:end].decode(errors="replace").encode(), dialect)
    begin = end if dialect.header else 0
    texts = Schema.struct(dict.fromkeys(names, Schema.string(optional=True)))
    for bad in CsvLines(texts, names, dialect).read(sample[begin:]).rejected:
        return f" Line {1 + ends.lines(sample[:begin]) + bad.line}: {bad.reason}."
    return ""


def _is_named(kind: pa.DataType) -> bool:
    """Return whether all fields of structs have names, at any depth."""
    fields = [kind.field(number) for number in range(kind.num_fields)]  # lists have one too
    if pa.types.is_struct(kind) and not all(field.name for field in fields):
        return False
    return all(_is_named(field.type) for field in fields)


def _is_same(found: Schema, schema: Schema) -> bool:
    """Return whether the columns have the types of the schema, and none is required."""
    same = ((field.schema, schema.field(field.name)) for field in found.fields)
    return all(field.schema.optional for field in schema.fields) and all(
        other is None or sql_type(own, local=_NTZ) == sql_type(other.schema, local=_NTZ)
        for own, other in same
    )


def _check_case(schema: Schema, group: Group) -> None:
    """Raise SourceError for a declared column that files have in another case: it is null."""
    for field in schema.fields:
        other = column_of(group.schema, field.name)
        if other not in (None, field.name) and schema.field(str(other)) is None:
            raise SourceError(
                problem=f"{group.files[0].path} has the column {other}; the schema declares "
                f"{field.name}.",
                fix=f"Declare {other}, or both if the files differ: names are case-sensitive.",
                field="schema",
            )


def _without(schema: Schema, names: Collection[str]) -> Schema:
    return Schema.struct({f.name: f.schema for f in schema.fields if f.name not in names})


def _by(
    key: Callable[[FoundFile], _Key], files: Iterable[NumberedFile]
) -> list[tuple[_Key, tuple[NumberedFile, ...]]]:
    groups: dict[_Key, list[NumberedFile]] = {}
    for file in files:
        groups.setdefault(key(file.file), []).append(file)
    return [(value, tuple(some)) for value, some in groups.items()]


def _header(path: str, dialect: Dialect) -> tuple[str, ...]:
    """Return the names of a file's columns; empty if the file has no rows."""
    names, has_rows = read_header(path, dialect)
    return tuple(names) if has_rows else ()


def _parquet_schema(path: str) -> tuple[pa.Schema, bool, bool]:
    """Return the columns of a file, and whether Arrow must and may read them."""
    try:
        with Location.of(path).open_input() as file, pq.ParquetFile(file) as source:
            return columns_of(source), needs_arrow(source, path), may_use_arrow(source)
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(
            problem=f"{path} is not a Parquet file: {error}", fix="Repair or delete the file."
        ) from error


def _nullable(schema: Schema) -> Schema:
    """Return the schema with nullable columns, as Spark reads all columns of files."""
    return schema.with_fields({f.name: f.schema.replaced(optional=True) for f in schema.fields})
