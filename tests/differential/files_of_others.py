"""What the file source makes of files that other projects test with.

``.venv/bin/python -m tests.differential.files_of_others`` writes the page anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.differential import other_readers
from tests.differential.corpora import Corpus, UnavailableError, corpora
from tests.differential.file_reading import Read, read
from tests.differential.json_test_suite import SUITE, cases, suite_table
from tests.differential.other_readers import Rows, same

from headrace.sdk import ConfigError, SourceError
from headrace.sdk.sqltext import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "files-of-others.md"
REMEDY = "run: .venv/bin/python -m tests.differential.files_of_others"
_ABOUT = """# Files of others

<!-- Made by tests/differential/files_of_others.py; do not edit. -->

What the source `file` makes of files that other projects test with.
The tests fetch them from package registries.
The source reads each, and its rows are compared with those that another reader gives.

- *read*: every row is as the other reader gives it.
- *read, but*: some values or rows differ, for the reason that is given.
- *bad records*: so many go to the dead letters, or stop the task if none is tolerated.
- *refused*: an error stops the task before anything of the file is written."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Files of one format from one package."""

    title: str
    corpus: str
    files: tuple[str, ...]
    format: str
    long: bool = False
    known: Mapping[str, str] = field(default_factory=dict)
    """Why files of these names are not read as the other reader gives them."""


_JULIAN = (
    "Spark wrote dates of the Julian calendar, and says so in the file; the other reader "
    "takes them for Gregorian."
)
_UNSIGNED = "It holds -1 in columns of unsigned bytes, which the format leaves undefined."
SECTIONS = (
    Section(
        title="CSV of csv-spectrum",
        corpus="csv-spectrum 2.0.0",
        files=("package/csvs/*.csv",),
        format="csv",
        known={
            "location_coordinates.csv": "The project's JSON has another telephone number than "
            "its CSV."
        },
    ),
    Section(
        title="CSV of Spark",
        corpus="Spark SQL 4.0.0",
        files=("test-data/*.csv", "test-data/*.tsv"),
        format="csv",
    ),
    Section(
        title="CSV of Drill",
        corpus="Drill 1.21.2",
        files=("**/*.csv", "**/*.csvh", "textinput/**/*.tsv", "testframework/test[A-S]*/*.tsv"),
        format="csv",
        long=True,
    ),
    Section(
        title="JSON of Spark",
        corpus="Spark SQL 4.0.0",
        files=("test-data/*.json",),
        format="json",
    ),
    Section(
        title="JSON of Drill",
        corpus="Drill 1.21.2",
        files=("jsoninput/**/*.json", "store/json/**/*.json", "flatten/*.json", "json/*.json"),
        format="json",
        long=True,
    ),
    Section(
        title="Parquet of Spark",
        corpus="Spark SQL 4.0.0",
        files=("test-data/*.parq*",),
        format="parquet",
        known={"before_1582_*_v2_4_6.*": _JULIAN, "before_1582_*_v3_2_0.*": _JULIAN},
    ),
    Section(
        title="Parquet of parquet-java",
        corpus="Parquet 1.15.2",
        files=("*.parquet",),
        format="parquet",
    ),
    Section(
        title="Parquet of Drill",
        corpus="Drill 1.21.2",
        files=(
            *("*.parquet", "parquet/*.parquet", "parquet/[deuhpv]*/**/*.parquet"),
            *("parquet2/*.parquet", "store/**/*.parquet", "join/**/*.parquet"),
            *("lateraljoin/**/*.parquet", "multilevel/parquetWith*/**/*.parquet"),
            "project/**/*.parquet",
        ),
        format="parquet",
        long=True,
        known={"uint_types.parquet": _UNSIGNED},
    ),
    Section(
        title="Avro of fastavro",
        corpus="fastavro 1.13.1",
        files=("*/tests/avro-files/*.avro",),
        format="avro",
    ),
    Section(
        title="Avro of Spark",
        corpus="Spark Avro 4.0.0",
        files=("*.avro", "test-random-partitioned/*.avro"),
        format="avro",
        long=True,
        known={"before_1582_*_v2_4_6.*": _JULIAN, "before_1582_*_v3_2_0.*": _JULIAN},
    ),
    Section(
        title="Avro of Avro",
        corpus="Avro 1.12.0",
        files=("share/**/*.avro",),
        format="avro",
        long=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A line of a table; ``is_wrong`` if it is neither right, nor known, nor refused."""

    file: str
    outcome: str
    why: str = ""
    is_wrong: bool = False


def judged(spark: SparkSession, section: Section, path: Path, root: Path) -> Judged:
    """Return what the source makes of a file."""
    name = path.relative_to(root).as_posix()
    try:
        return _compared(spark, section, path, name)
    except (ConfigError, SourceError) as error:
        return Judged(file=name, outcome="refused", why=_without(str(error), path, name))
    except Exception as error:  # noqa: BLE001 - any other error is what is looked for
        why = f"{type(error).__name__}: {error}"
        return Judged(file=name, outcome="failed", why=_without(why, path, name), is_wrong=True)


def _without(text: str, path: Path, name: str) -> str:
    """Return a text without the machine's paths, as a cell of a table."""
    text = re.sub(r"(?:file:/*)?" + re.escape(str(path).lstrip("/")), path.name, text)
    text = text.replace(f"/{path.name}", path.name).replace(str(path.parent), "")
    text = text.replace(name, path.name)
    return " ".join(text.split()).replace("|", "\\|")


def _compared(spark: SparkSession, section: Section, path: Path, name: str) -> Judged:
    keys = {"format": section.format}
    if section.format == "csv":
        keys |= _csv_keys(path)
    found = read(spark, path, **keys)
    if section.format == "csv":
        found = replace(found, rows=[_texts(row.values(), row) for row in found.rows])
    readers, bad = _others(section, path, found)
    reason = next((w for each, w in section.known.items() if fnmatch(path.name, each)), None)
    failures = []
    for other, rows in readers:
        try:
            expected = rows()
        except Exception as error:  # noqa: BLE001 - another reader may fail as it likes
            failures.append(f"{other} fails: {str(error).splitlines()[0].strip()}")
            continue
        count = len(found.rows) + len(found.bad)
        if bad is None and found.bad and count == len(expected):
            # Of a file that has no malformed rows, those are compared that are none here.
            expected = [row for row in expected if any(same(o, row) for o in found.rows)]
        if same(found.rows, expected) and bad in (None, len(found.bad)):
            return Judged(file=name, outcome=_outcome(found), why=_reasons(found, path, name))
        if reason is not None:
            return Judged(
                file=name, outcome=_outcome(found).replace("read", "read, but"), why=reason
            )
        failures.append(f"{other} gives {_difference(found.rows, expected)}")
    return Judged(
        file=name,
        outcome=_outcome(found),
        why=_without("; ".join(failures), path, name),
        is_wrong=not all(" fails: " in each for each in failures),
    )


def _outcome(found: Read) -> str:
    rows = f"read: {len(found.rows)} rows" if found.rows or not found.bad else ""
    bad = f"bad records: {len(found.bad)}" if found.bad else ""
    return ", ".join(filter(None, [rows, bad]))


def _reasons(found: Read, path: Path, name: str) -> str:
    return _without(found.bad[0], path, name) if found.bad else ""


def _difference(ours: Rows, theirs: Rows) -> str:
    if len(ours) != len(theirs):
        return f"{len(theirs)} rows and the source {len(ours)}"
    pair = next((o, t) for o, t in zip(ours, theirs, strict=True) if not same(o, t))
    return f"{pair[1]} and the source {pair[0]}"[:400]


def _csv_keys(path: Path) -> dict[str, str]:
    """Return keys with which all columns are texts, where the header names each once."""
    delimiter = _delimiter(path)
    keys = {"delimiter": "tab" if delimiter == "\t" else delimiter}
    try:
        header, _, _ = other_readers.by_csv(path, delimiter)
    except UnicodeDecodeError:
        return keys
    names = _names(header)
    if names and len(set(names)) == len(names):
        keys["schema"] = ", ".join(f"{quote(each)} STRING" for each in names)
    return keys


def _names(header: Sequence[str]) -> list[str]:
    return [name or f"_c{number}" for number, name in enumerate(header)]


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix == ".tsv" else ","


def _others(
    section: Section, path: Path, found: Read
) -> tuple[list[tuple[str, Callable[[], Rows]]], int | None]:
    """Return other readers, and how many bad records there are if they tell."""
    match section.format:
        case "csv":
            header, good, bad = other_readers.by_csv(path, _delimiter(path))
            names = _names(header)
            readers = [("csv of Python", lambda: [_texts(row, names) for row in good])]
            beside = path.parents[1] / "json" / f"{path.stem}.json"
            if beside.exists():
                document = json.loads(beside.read_text())
                rows = document if isinstance(document, list) else [document]
                readers = [("the project", lambda: [_texts(r.values(), r) for r in rows])]
            return readers, bad
        case "json":
            rows, bad = other_readers.by_json(path)
            return [("json of Python", lambda: rows)], bad
        case "avro":
            return [("fastavro", lambda: other_readers.by_fastavro(path))], 0
        case _:
            readers = [
                ("pyarrow", lambda: other_readers.by_pyarrow(path)),
                ("duckdb", lambda: other_readers.by_duckdb(path)),
            ]
            # The other reader is to be another one.
            return (readers[::-1] if found.by_arrow else readers), None


def _texts(values: Any, names: Any) -> dict[str, Any]:
    # Python's reader does not tell nothing from an empty text.
    return {name: value or None for name, value in zip(names, values, strict=True)}


def table(judgements: Sequence[Judged]) -> str:
    """Return a table of files."""
    lines = ["| File | Outcome | Why |", "| --- | --- | --- |"]
    lines += [f"| `{each.file}` | {each.outcome} | {each.why} |" for each in judgements]
    return "\n".join(lines)


def judge(spark: SparkSession, section: Section, settings: Settings) -> list[Judged]:
    """Return what the source makes of the files of a section. Raises UnavailableError."""
    corpus = corpora()[section.corpus]
    root = corpus.root(settings)
    return [
        judged(spark, section, path, root) for path in corpus.files(settings, section.files)
    ]


def section_of(title: str, corpus: Corpus, text: str) -> str:
    """Return a section of the page."""
    return f"## {title}\n\nFrom `{corpus.package}`.\n\n{text}\n"


def _main() -> None:
    from headrace.settings import load_settings
    from headrace.spark.session import close_session, open_session

    settings = load_settings(master="local[2]", driver_memory="1g")
    spark = open_session(settings, app_name="files-of-others", short_lived=True)
    try:
        PAGE.write_text("\n".join([f"{_ABOUT}\n", *_sections(spark, settings)]))
    finally:
        close_session()


def _sections(spark: SparkSession, settings: Settings) -> Iterator[str]:
    suite = corpora()[SUITE]
    yield section_of("JSONTestSuite", suite, suite_table(cases(spark, suite.root(settings))))
    for section in SECTIONS:
        found = judge(spark, section, settings)
        yield section_of(section.title, corpora()[section.corpus], table(found))


if __name__ == "__main__":
    try:
        _main()
    except UnavailableError as error:
        raise SystemExit(str(error)) from None
