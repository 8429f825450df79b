"""Divides text files into parts of complete records that executors read in parallel."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.sdk import ArrowParts, Schema, SourceError
from headrace.sdk.location import Location
from headrace.sdk.struct_exprs import is_variant
from headrace_plugins.connectors.file.csv_lines import CsvLines
from headrace_plugins.connectors.file.folder_columns import filled, names_of, optional
from headrace_plugins.connectors.file.formats import (
    BOM,
    PLUGIN,
    Dialect,
    Format,
    is_compressed,
    unpacked,
)
from headrace_plugins.connectors.file.json_lines import (
    LONGEST_DOCUMENT,
    JsonLines,
    lines_of_document,
)
from headrace_plugins.connectors.file.record_ends import (
    ChunkEnds,
    CsvQuoting,
    LineEnds,
    RecordEnds,
)
from headrace_plugins.connectors.file.text_blocks import BadRecord, Parsed, TextLines, decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from headrace_plugins.connectors.file.listing import Group

_CHUNK_BYTES = 8 * 1024 * 1024
"""The approximate size of the data that is parsed at once."""
_PART_BYTES = 4 * _CHUNK_BYTES
_PART_FILES = 256
_QUOTES = 64 * 1024
"""How far a chunk's bounds may move so that they are not next to a quote or escape."""
_LONGEST_RECORD_BYTES = 64 * 1024 * 1024
_UNDECODABLE = "headrace_undecodable"
"""An error handler, as Python's surrogateescape resumes within a character of UTF-16."""
_SURROGATE = 0xDC00
"""Stands for a byte 0, the next ones for those up to 255."""
_SURROGATES = re.compile("[\udc00-\udcff]")
_COUNTED_BYTES = 1024 * 1024 * 1024
"""Up to here in a file, the lines before a part are counted to number those in it."""
_KEPT_BYTES = 1024 * 1024
"""The maximum size of a bad record that is stored."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A byte range of a file, independent of record ends."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Complete records of a file.

    Args:
        names: The file's columns, in order.
        start, end: The byte range; the whole file if it is compressed.
        is_last: Whether the piece ends at the file's end.
        line: The number of its first line, from 1. None if unknown: the piece then consists of
            the lines that begin in its byte range.
        folders: The values in the names of the file's folders, as a row.
    """

    path: str
    names: tuple[str, ...]
    start: int
    end: int
    is_last: bool = True
    line: int | None = 1
    folders: pa.RecordBatch | None = None


def text_parts(
    spark: SparkSession,
    groups: Sequence[Group],
    schema: Schema,
    dialect: Dialect,
    format_: Format,
) -> ArrowParts:
    """Return the rows of CSV files or JSON lines, or the lines of text files.

    Large files are split at record ends. For CSV, where line ends may be in quotes, a Spark
    job finds the record ends.
    """
    ends = dialect.ends if format_ is Format.CSV else LineEnds()
    wholes = {
        file.number: Piece(
            file.path,
            tuple(f.name for f in group.schema.fields),
            0,
            file.file.size_bytes,
            folders=group.folders.get(file.number),
        )
        for group in groups
        for file in group.files
    }
    files = [wholes[number] for number in sorted(wholes)]
    is_cut = dialect.is_cuttable and not (format_ is Format.JSON and dialect.multiline)
    chunks = {
        file.path: [
            Chunk(file.path, start, min(start + _CHUNK_BYTES, file.end))
            for start in range(0, file.end, _CHUNK_BYTES)
        ]
        for file in files
        if is_cut and file.end > 2 * _CHUNK_BYTES and not is_compressed(file.path)
    }
    found: dict[str, list[tuple[Chunk, ChunkEnds]]] = {}
    if isinstance(ends, CsvQuoting):
        for chunk, its_ends in _looked_at(spark, [*chain(*chunks.values())], ends):
            found.setdefault(chunk.path, []).append((chunk, its_ends))
    pieces: list[Piece] = []
    for file in files:
        if file.path in chunks and file.path not in found:
            pieces += (
                replace(file, start=c.start, end=c.end, is_last=c.end == file.end, line=None)
                for c in chunks[file.path]
            )
        else:
            pieces += _pieces(file, found.get(file.path, ()))
    reader = TextReader(schema, dialect, ends, format_)
    return ArrowParts(schema, list(_parts(pieces)), reader.read, PLUGIN)


def _looked_at(
    spark: SparkSession, chunks: Sequence[Chunk], ends: CsvQuoting
) -> list[tuple[Chunk, ChunkEnds]]:
    if not chunks:
        return []
    size = _PART_BYTES // _CHUNK_BYTES
    groups = [chunks[n : n + size] for n in range(0, len(chunks), size)]
    job = spark.sparkContext.parallelize(groups, len(groups))
    return job.flatMap(lambda some: [(each, _look(each, ends)) for each in some]).collect()


def _look(chunk: Chunk, record_ends: CsvQuoting) -> ChunkEnds:
    """Scan a chunk, moved so that it does not begin or end next to a quote."""
    lead = min(chunk.start, 1)
    with Location.of(chunk.path).open_input() as file:
        file.seek(chunk.start - lead)
        data = bytes(file.read(chunk.end - chunk.start + lead + _QUOTES))

    def moved(at: int) -> int:
        last = min(at + _QUOTES, len(data))
        while at < last and data[at] in {record_ends.quote, record_ends.escape}:
            at += 1
        return at

    begin = moved(lead) if lead else 0
    end = moved(chunk.end - chunk.start + lead)
    ends = record_ends.ends(data[begin:end], data[begin - 1] if begin else None)
    shift = begin - lead
    first = [None if each is None else (each[0] + shift, each[1]) for each in ends.first]
    blank = not data[lead : chunk.end - chunk.start + lead].strip(b"\r\n")
    return ChunkEnds(ends.inside, (first[0], first[1]), ends.lines, blank)


def _pieces(file: Piece, chunks: Iterable[tuple[Chunk, ChunkEnds]]) -> Iterator[Piece]:
    start, line, lines, inside = 0, 1, 1, False
    # The header, which may follow empty lines, is in the first piece.
    begun = False
    for chunk, ends in chunks:
        first = ends.first[inside]
        if begun and first is not None:
            at = chunk.start + first[0]
            if at >= file.end:
                break
            yield replace(file, start=start, end=at, is_last=False, line=line)
            start, line = at, lines + first[1]
        begun |= not ends.blank
        lines += ends.lines
        inside = ends.inside[inside]
    yield replace(file, start=start, line=line)


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
    """Reads pieces of CSV files, JSON lines or text files, on executors."""

    schema: Schema
    dialect: Dialect
    ends: RecordEnds
    format: Format

    def read(
        self, pieces: Sequence[Piece]
    ) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, str]]]]:
        """Yield rows, and the rejected records, each with the reason."""
        for piece in pieces:
            is_document = self.format is Format.JSON and self.dialect.multiline
            read = self._document if is_document else self._records
            for rows, rejected in read(piece):
                yield filled(rows, piece.folders, self.schema), rejected

    def _records(self, piece: Piece) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, str]]]]:
        piece = _at_lines(piece) if piece.line is None else piece
        lines = _parser(self, piece.names, names_of(piece.folders))
        line, start, begins, after = piece.line, piece.start, not piece.start, ""
        for block, is_rest in self._blocks(piece):
            records = block.removeprefix(BOM) if begins else block
            if begins and isinstance(lines, CsvLines) and self.dialect.header:
                records = records.lstrip(b"\r\n")
                begins = not records
                records = records[self.ends.first_end(records) :]
            else:
                begins = False
            skipped = self.ends.lines(block[: len(block) - len(records)])
            for parsed in self._parsed(lines, records, is_rest=is_rest):
                if parsed.rejected and line is None:
                    line, after = _line_at(piece.path, start)
                first = (line or 1) + skipped
                yield (
                    parsed.rows,
                    [
                        (text, f"{reason}. {piece.path}, line {first + bad.line}{after}.")
                        for bad in parsed.rejected
                        for text, reason in [self._shown(bad)]
                    ],
                )
            start += len(block)
            if line is not None:
                line += self.ends.lines(block)

    def _document(self, piece: Piece) -> Iterator[tuple[pa.RecordBatch, list[tuple[str, str]]]]:
        lines = _parser(self, piece.names, names_of(piece.folders))
        try:
            with Location.of(piece.path).open_input() as file:
                raw = bytes(unpacked(file, piece.path).read(LONGEST_DOCUMENT + 1))
        except OSError as error:
            raise _unreadable(piece, error) from error
        if len(raw) > LONGEST_DOCUMENT:
            problem = f"{piece.path} is larger than {LONGEST_DOCUMENT >> 20} MiB."
            raise SourceError(problem, fix="Split the document, or write JSON lines.")
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
        """Yield blocks of complete records, and finally an incomplete rest, if any."""
        rest, line = b"", piece.line or 1
        # A piece that was split at record ends is complete, unless it is read in several steps.
        is_whole = not piece.is_last and piece.end - piece.start <= _LONGEST_RECORD_BYTES
        try:
            with Location.of(piece.path).open_input() as file:
                for data in self._read(file, piece):
                    block = rest + data if rest else data
                    end = len(block) if is_whole else self.ends.whole(block)
                    if end:
                        yield block[:end], False
                    line += 0 if is_whole else self.ends.lines(block[:end])
                    rest = block[end:]
                    if len(rest) > _LONGEST_RECORD_BYTES:
                        break
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(piece, error) from error
        if len(rest) > _LONGEST_RECORD_BYTES:
            most = f"{_LONGEST_RECORD_BYTES // 1024**2} MiB"
            problem = f"The record in line {line} of {piece.path} is longer than {most}."
            is_csv = isinstance(self.ends, CsvQuoting)
            fix = "Close its quote, or set quote to another character."
            raise SourceError(problem, fix=fix if is_csv else "Split it into lines.")
        if rest:
            yield rest, True

    def _read(self, file: pa.NativeFile, piece: Piece) -> Iterator[bytes]:
        if self.dialect.is_cuttable:
            yield from _read(file, piece)
            return
        # Bytes that cannot be decoded become surrogates, whose records are rejected.
        decoder = codecs.getincrementaldecoder(self.dialect.encoding)(_UNDECODABLE)
        for data in chain(_read(file, piece, _CHUNK_BYTES), [b""]):
            text = self.dialect.stand_ins.text(decoder.decode(data, final=not data))
            yield text.encode(errors="surrogatepass")

    def _shown(self, bad: BadRecord) -> tuple[str, str]:
        """Return a bad record's text and reason, with the bytes that were not decoded."""
        if self.dialect.is_cuttable:
            return _text(bad.raw), bad.reason
        text = self.dialect.stand_ins.text(bad.raw.decode(errors="surrogatepass"))[:_KEPT_BYTES]
        shown = _SURROGATES.sub(lambda found: f"\\x{ord(found[0]) - _SURROGATE:02x}", text)
        is_known = shown == text or self.dialect.is_utf8
        return shown, bad.reason if is_known else f"Invalid {self.dialect.encoding}"

    def _parsed(
        self, lines: CsvLines | JsonLines | TextLines, records: bytes, *, is_rest: bool
    ) -> Iterator[Parsed]:
        if is_rest and self.ends.is_open(records):
            bad = BadRecord(0, records.rstrip(b"\r\n"), "A quote is not closed")
            yield Parsed(lines.read(b"").rows, [bad])
            return
        is_text = isinstance(lines, TextLines)
        records, misfits = decoded(records, self.dialect, self.ends, empty=not is_text)
        if misfits:
            yield Parsed(lines.read(b"").rows, misfits)
        yield from lines.parts(records)


@lru_cache(maxsize=16)
def _parser(
    reader: TextReader, names: tuple[str, ...], elsewhere: tuple[str, ...]
) -> CsvLines | JsonLines | TextLines:
    """Return a parser for files with the columns ``names``, and others ``elsewhere``.

    A worker caches the parser: it learns the form of times, and a failed attempt costs as much
    as a successful one.
    """
    if isinstance(reader.ends, CsvQuoting):
        return CsvLines(optional(reader.schema, elsewhere), names, reader.dialect)
    if reader.format is Format.JSON:
        return JsonLines(optional(reader.schema, elsewhere), reader.dialect)
    return TextLines()


def _surrogates(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    some = error.object[error.start : error.end]
    return "".join(chr(_SURROGATE + byte) for byte in some), error.end


codecs.register_error(_UNDECODABLE, _surrogates)


def _read(
    file: pa.NativeFile, piece: Piece, size: int = _LONGEST_RECORD_BYTES
) -> Iterator[bytes]:
    if not is_compressed(piece.path):
        if piece.end - piece.start > size:
            size = _CHUNK_BYTES  # so that a record is known to be too long once it is
        file.seek(piece.start)
        for start in range(piece.start, piece.end, size):
            yield bytes(file.read(min(size, piece.end - start)))
        return
    stream = unpacked(file, piece.path)
    while data := bytes(stream.read(_CHUNK_BYTES)):
        yield data


def _at_lines(piece: Piece) -> Piece:
    """Return the piece with its bounds moved to complete lines that begin in it."""
    try:
        with Location.of(piece.path).open_input() as file:
            start = _next_line(file, piece.start)
            end = piece.end if piece.is_last else _next_line(file, piece.end)
            is_last = piece.is_last or end == file.size()
    except OSError as error:
        raise _unreadable(piece, error) from error
    return replace(piece, start=start, end=max(start, end), is_last=is_last)


def _next_line(file: pa.NativeFile, at: int) -> int:
    """Return the start of the first line that begins at or after ``at``."""
    if not at:
        return 0
    file.seek(at := at - 1)
    while data := bytes(file.read(_QUOTES)):
        if (end := data.find(b"\n")) >= 0:
            return at + end + 1
        at += len(data)
    return at


def _line_at(path: str, end: int) -> tuple[int, str]:
    """Return the number of the line that begins at byte ``end``, and where it counts from.

    Each part counts the lines before it by itself, which is too much in a very large file.
    """
    if end > _COUNTED_BYTES:
        return 1, f" after byte {end}"
    line = 1
    with Location.of(path).open_input() as file:
        while end > 0 and (data := file.read(min(end, _CHUNK_BYTES))):
            line += data.count(b"\n")
            end -= len(data)
    return line, ""


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
