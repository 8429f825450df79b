"""JSONTestSuite: documents that a parser must take (y_), must not take (n_), or may (i_)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.differential.file_reading import Read, read_each, read_here
from tests.differential.other_readers import comparable, same

from headrace.sdk import ConfigError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUITE = "JSONTestSuite in pyjson5 2.0.1"
_NUMBER = "Taken, as Python and Spark write it."
_TWICE = "Names a field twice."
_KNOWN = {
    "n_number_NaN": _NUMBER,
    "n_number_infinity": _NUMBER,
    "n_number_minus_infinity": _NUMBER,
}
_KNOWN_INFERRED = {
    "y_object_duplicated_key*": _TWICE,
    "y_object_empty_key": "Spark has no fields without a name.",
}
_KNOWN_DOCUMENTS = {
    "y_object_duplicated_key*": _TWICE,
    "n_single_space": "Nothing is there to read.",
    "n_structure_no_data": "Nothing is there to read.",
    "n_structure_UTF8_BOM_no_data": "Nothing is there to read.",
}
_WAYS = ("STRING", "inferred", "document")
_ABOUT = """A parser must take what is called `y_…`, must not take `n_…`, and may take `i_…`.
Each is read in three ways.
Two have it in a line, as `{"v": CASE}`, if it has no line break itself:
the field is declared as `STRING`, or its type is inferred.
In the third it is a document, with `multiline` and `schema: VARIANT`.

All that must be taken is read with the right value, but for what the table has.
All that must not be taken is a bad record, but for what the table has.
A file is refused if it has no good line that columns could be inferred from."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the source makes of a case, one way."""

    name: str
    way: str
    outcome: str
    why: str = ""
    is_wrong: bool = False


def cases(spark: SparkSession, root: Path) -> list[Case]:
    """Return what the source makes of all cases."""
    files = sorted(root.glob("*/third-party/JSONTestSuite/test_parsing/*.json"))
    with tempfile.TemporaryDirectory() as folder:
        found = [*_lines(spark, files, Path(folder)), *_documents(spark, files, Path(folder))]
    return sorted(found, key=lambda case: case.name)


def suite_table(found: Sequence[Case]) -> str:
    """Return a table of what is not as a name says, or has to be said."""
    lines = [_ABOUT, "", "| Case | As STRING | Inferred | As a document | Why |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, group in groupby(found, key=lambda case: case.name):
        ways = {case.way: case for case in group}
        why = " ".join(dict.fromkeys(case.why for case in ways.values() if case.why))
        if why or name.startswith("i_"):
            cells = [ways[way].outcome if way in ways else "" for way in _WAYS]
            lines.append(f"| `{name}` | {' | '.join(cells)} | {why} |")
    return "\n".join(lines)


def _lines(spark: SparkSession, files: Sequence[Path], folder: Path) -> Iterator[Case]:
    for number, file in enumerate(files):
        raw = file.read_bytes()
        if b"\n" in raw:
            continue
        line = folder / f"{number}.json"
        line.write_bytes(b'{"v": ' + raw + b"}\n")
        for way, keys in (("STRING", {"schema": "v STRING"}), ("inferred", {})):
            known = _KNOWN if keys else _KNOWN | _KNOWN_INFERRED
            try:
                found = read_here(spark, line, **keys)
            except (ConfigError, SourceError):
                yield _judged(file, way, "refused", known)
                continue
            is_right = [row.get("v") for row in found.rows] == [] or _is_right(found, raw)
            yield _judged(file, way, _outcome(found), known, is_right=is_right)
        line.unlink()


def _is_right(found: Read, raw: bytes) -> bool:
    """Return whether the one row is what Python reads, if that reads it."""
    try:
        expected = json.loads(raw)
    except ValueError:
        return True
    return len(found.rows) == 1 and _same(found.rows[0]["v"], expected)


def _same(ours: Any, theirs: Any) -> bool:
    # Equal values may be nested too deeply to be made comparable.
    return bool(ours == theirs) or same(ours, comparable(theirs))


def _documents(spark: SparkSession, files: Sequence[Path], folder: Path) -> Iterator[Case]:
    for number, file in enumerate(files):
        (folder / f"{number:04}.json").write_bytes(file.read_bytes())
    read = read_each(spark, folder, multiline="true", schema="VARIANT")
    for number, file in enumerate(files):
        rows, is_bad = read.get(f"{number:04}.json", ([], False))
        outcome = "bad record" if is_bad else "read" if rows else "nothing"
        is_right = outcome != "read" or _document_is_right(rows, file.read_bytes())
        known = _KNOWN | _KNOWN_DOCUMENTS
        yield _judged(file, "document", outcome, known, is_right=is_right)


def _document_is_right(rows: Sequence[Any], raw: bytes) -> bool:
    try:
        expected = json.loads(raw)
    except ValueError:
        return True
    # Spark has no JSON for null.
    ours = None if rows[0] is None else json.loads(rows[0])
    return len(rows) == 1 and _same(ours, expected)


def _outcome(found: Read) -> str:
    return "bad record" if found.bad else "read" if found.rows else "nothing"


def _judged(
    file: Path, way: str, outcome: str, known: dict[str, str], *, is_right: bool = True
) -> Case:
    kind = file.name[0]
    expected = {"y": ("read",), "n": ("bad record", "refused"), "i": (outcome,)}[kind]
    is_expected = outcome in expected and (is_right or kind == "i")
    reason = next((why for name, why in known.items() if fnmatch(file.stem, name)), None)
    why = "" if is_expected else reason or "It is not what its name says."
    return Case(
        name=file.stem,
        way=way,
        outcome=outcome if is_right else f"{outcome} with another value",
        why=why,
        is_wrong=not is_expected and reason is None,
    )
