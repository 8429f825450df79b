"""Text files in parts that executors read at the same time, each of whole records."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.sdk import ArrowParts, Schema, SourceError
from headrace.sdk.location import Location
from headrace.sdk.struct_exprs import is_variant
from headrace_plugins.connectors.file.compression import is_compressed, unpacked
from headrace_plugins.connectors.file.csv_lines import CsvLines
from headrace_plugins.connectors.file.documents import lines_of_document
from headrace_plugins.connectors.file.formats import BOM, Dialect, Format
from headrace_plugins.connectors.file.json_lines import JsonLines
from headrace_plugins.connectors.file.record_ends import (
    ChunkEnds,
    CsvQuoting,
    LineEnds,
    RecordEnds,
)
from headrace_plugins.connectors.file.records import PLUGIN
from headrace_plugins.connectors.file.text_blocks import BadRecord, TextLines, decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from headrace_plugins.connectors.file.listing import Group

_CHUNK_BYTES = 8 * 1024 * 1024
"""About how much is parsed at once."""
_PART_BYTES = 4 * _CHUNK_BYTES
_PART_FILES = 256
_QUOTES = 64 * 1024
"""How far a chunk is moved so that it begins beside no quote."""
_LONGEST_RECORD_BYTES = 64 * 1024 * 1024
_KEPT_BYTES = 1024 * 1024
"""How much of a bad record is kept."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some bytes of a file, wherever its records end."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records of a file.

    Args:
        names: The file's columns, in order.
        start, end: Which bytes; those of a compressed file are all.
        is_last: Whether it is the file's end.
        line: The number of its first line, from 1.
    """

    path: str
    names: tuple[str, ...]
    start: int
    end: int
    is_last: bool = True
    line: int = 1


def text_parts(
    spark: SparkSession,
    groups: Sequence[Group],
    schema: Schema,
    dialect: Dialect,
    format_: Format,
) -> ArrowParts:
    """Return the rows of files of CSV or of JSON lines, or the lines of texts.

    Large ones are cut at record ends, which a job looks for.
    """
    ends = dialect.ends if format_ is Format.CSV else LineEnds()
    files = sorted(
        (
            (file, tuple(f.name for f in group.schema.fields))
            for group in groups
            for file in group.files
        ),
        key=lambda each: each[0].number,
    )
    chunks = [
        Chunk(file.path, start, min(start + _CHUNK_BYTES, file.file.size_bytes))
        for file, _ in files
        if file.file.size_bytes > 2 * _CHUNK_BYTES
        and not (format_ is Format.JSON and dialect.multiline)
        and not is_compressed(file.path)
        and dialect.is_cuttable
        for start in range(0, file.file.size_bytes, _CHUNK_BYTES)
    ]
    found: dict[str, list[tuple[Chunk, ChunkEnds]]] = {}
    for chunk, its_ends in _looked_at(spark, chunks, ends):
        found.setdefault(chunk.path, []).append((chunk, its_ends))
    pieces = (
        piece
        for file, names in files
        for piece in _pieces(file.path, names, file.file.size_bytes, found.get(file.path, ()))
    )
    reader = TextReader(schema, dialect, ends, format_)
    return ArrowParts(schema, list(_parts(pieces)), reader.read, PLUGIN)


def _looked_at(
    spark: SparkSession, chunks: Sequence[Chunk], ends: RecordEnds
) -> list[tuple[Chunk, ChunkEnds]]:
    if not chunks:
        return []
    size = _PART_BYTES // _CHUNK_BYTES
    groups = [chunks[n : n + size] for n in range(0, len(chunks), size)]
    job = spark.sparkContext.parallelize(groups, len(groups))
    return job.flatMap(lambda some: [(each, _look(each, ends)) for each in some]).collect()


def _look(chunk: Chunk, record_ends: RecordEnds) -> ChunkEnds:
    """Look at a chunk, moved so that it begins and ends beside no quote."""
    lead = min(chunk.start, 1)
    with Location.of(chunk.path).open_input() as file:
        file.seek(chunk.start - lead)
        data = bytes(file.read(chunk.end - chunk.start + lead + _QUOTES))

    def moved(at: int) -> int:
        last = min(at + _QUOTES, len(data))
        while at < last and data[at] == record_ends.quote:
            at += 1
        return at

    begin = moved(lead) if lead else 0
    end = moved(chunk.end - chunk.start + lead)
    ends = record_ends.ends(data[begin:end], data[begin - 1] if begin else None)
    shift = begin - lead
    first = [None if each is None else (each[0] + shift, each[1]) for each in ends.first]
    blank = not data[lead : chunk.end - chunk.start + lead].strip(b"\r\n")
    return ChunkEnds(ends.inside, (first[0], first[1]), ends.lines, blank)


def _pieces(
    path: str, names: tuple[str, ...], size: int, chunks: Iterable[tuple[Chunk, ChunkEnds]]
) -> Iterator[Piece]:
    start, line, lines, inside = 0, 1, 1, False
    # The header, which may stand below empty lines, is in the first piece.
    begun = False
    for chunk, ends in chunks:
        first = ends.first[inside]
        if begun and first is not None:
            at = chunk.start + first[0]
            if at >= size:
                break
            yield Piece(path, names, start, at, is_last=False, line=line)
            start, line = at, lines + first[1]
        begun |= not ends.blank
        lines += ends.lines
        inside = ends.inside[inside]
    yield Piece(path, names, start, size, line=line)


def _parts(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    part: list[Piece] = []
    size = 0
    for piece in pieces:
        own = piece.end - piece.start
        if part and (size + own > _PART_BYTES or len(part) == _PART_FILES):
            yield part
            part, size = [], 0
        part.append(piece)
        size += own
    if part:
        yield part


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads pieces of files of CSV, of JSON lines or of texts, on executors."""

    schema: Schema
    dialect: Dialect
    ends: RecordEnds
    format: Format

    def read(
        self, pieces: Sequence[Piece]
    ) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, str]]]]:
        """Yield rows, and the records that could not be read, each with the reason."""
        for piece in pieces:
            if self.format is Format.JSON and self.dialect.multiline:
                yield from self._document(piece)
                continue
            lines = _parser(self, piece.names)
            line, begins = piece.line, not piece.start
            for block, is_rest in self._blocks(piece):
                records = block.removeprefix(BOM) if begins else block
                if begins and isinstance(lines, CsvLines) and self.dialect.header:
                    records = records.lstrip(b"\r\n")
                    begins = not records
                    records = records[self.ends.first_end(records) :]
                else:
                    begins = False
                first = line + block.count(b"\n") - records.count(b"\n")
                if is_rest and self.ends.is_open(records):
                    rejected = [BadRecord(0, records.rstrip(b"\r\n"), "A quote is not closed")]
                    rows = lines.read(b"").rows
                else:
                    rows, rejected = self._parsed(lines, records)
                yield (
                    rows,
                    [
                        (
                            _text(bad.raw),
                            f"{bad.reason}. {piece.path}, line {first + bad.line}.",
                        )
                        for bad in rejected
                    ],
                )
                line += block.count(b"\n")

    def _document(self, piece: Piece) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, str]]]]:
        lines = _parser(self, piece.names)
        try:
            with Location.of(piece.path).open_input() as file:
                raw = b"".join(_read(file, piece))
        except OSError as error:
            raise _unreadable(piece, error) from error
        try:
            text = raw.decode(self.dialect.encoding).removeprefix("\ufeff")
            records = lines_of_document(text, whole=is_variant(self.schema))
        except ValueError as error:
            reason = str(error)
            if isinstance(error, UnicodeDecodeError):
                reason = f"Invalid {self.dialect.encoding}: {error.reason}"
            yield lines.read(b"").rows, [(_text(raw), f"{reason}. {piece.path}.")]
            return
        for some in _blocks_of(records):
            parsed = lines.read("".join(f"{record}\n" for _, record in some).encode())
            yield (
                parsed.rows,
                [
                    (
                        _text(bad.raw),
                        f"{bad.reason}. {piece.path}, line {some[bad.line][0] + 1}.",
                    )
                    for bad in parsed.rejected
                ],
            )

    def _blocks(self, piece: Piece) -> Iterator[tuple[bytes, bool]]:
        """Yield whole records, and at last what is behind them, if anything is."""
        rest, line = b"", piece.line
        # What was cut at record ends is whole, unless it is too long to be read at once.
        is_whole = not piece.is_last and piece.end - piece.start <= _LONGEST_RECORD_BYTES
        try:
            with Location.of(piece.path).open_input() as file:
                for data in self._read(file, piece):
                    block = rest + data if rest else data
                    end = len(block) if is_whole else self.ends.whole(block)
                    if end:
                        yield block[:end], False
                    line, rest = line + block.count(b"\n", 0, end), block[end:]
                    if len(rest) > _LONGEST_RECORD_BYTES:
                        break
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(piece, error) from error
        if len(rest) > _LONGEST_RECORD_BYTES:
            most = f"{_LONGEST_RECORD_BYTES // 1024**2} MiB"
            problem = f"The record in line {line} of {piece.path} is longer than {most}."
            is_csv = isinstance(self.ends, CsvQuoting)
            fix = "Close its quote, or set quote to another character."
            raise SourceError(problem, fix=fix if is_csv else "Divide it into lines.")
        if rest:
            yield rest, True

    def _read(self, file: pa.NativeFile, piece: Piece) -> Iterator[bytes]:
        if self.dialect.is_cuttable:
            yield from _read(file, piece)
            return
        decoder = codecs.getincrementaldecoder(self.dialect.encoding)()
        for data in _read(file, piece):
            yield decoder.decode(data).encode()
        yield decoder.decode(b"", final=True).encode()

    def _parsed(
        self, lines: CsvLines | JsonLines | TextLines, records: bytes
    ) -> tuple[pa.RecordBatch, list[BadRecord]]:
        is_text = isinstance(lines, TextLines)
        records, bad = decoded(records, self.dialect, self.ends, empty=not is_text)
        parsed = lines.read(records)
        return parsed.rows, [*bad, *parsed.rejected]


@lru_cache(maxsize=16)
def _parser(reader: TextReader, names: tuple[str, ...]) -> CsvLines | JsonLines | TextLines:
    """Return what parses files of some columns.

    A worker keeps it: it learns in which form times are, and each try that fails costs as much
    as one that does not.
    """
    if isinstance(reader.ends, CsvQuoting):
        return CsvLines(reader.schema, names, reader.dialect, reader.ends)
    if reader.format is Format.JSON:
        return JsonLines(reader.schema, reader.dialect)
    return TextLines()


def _read(file: pa.NativeFile, piece: Piece) -> Iterator[bytes]:
    if not is_compressed(piece.path):
        file.seek(piece.start)
        for start in range(piece.start, piece.end, _LONGEST_RECORD_BYTES):
            yield bytes(file.read(min(_LONGEST_RECORD_BYTES, piece.end - start)))
        return
    stream = unpacked(file, piece.path)
    while data := bytes(stream.read(_CHUNK_BYTES)):
        yield data


def _unreadable(piece: Piece, error: Exception) -> SourceError:
    problem = f"{piece.path} cannot be read: {error}"
    return SourceError(problem, fix="Repair or delete the file.")


def _blocks_of(records: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    size = 0
    for record in records:
        block.append(record)
        size += len(record[1])
        if size >= _CHUNK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _text(raw: bytes) -> str:
    return raw[:_KEPT_BYTES].decode(errors="backslashreplace")
