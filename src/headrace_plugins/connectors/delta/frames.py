"""Data frames of a table's files and of its change feed, created by Delta's own library.

Delta's streaming source reads the files of a commit by ``DeltaLog.createDataFrame``, which
supports deletion vectors, column mapping and all other features. This module does the same,
with the definition and the files that ``TableHistory`` has found. It does not look up the
table's current state, so a range returns the same rows regardless of later commits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headrace.sdk import ConfigError, Schema, SourceError
from headrace.sdk.errors import SetupError
from headrace.sdk.sparktypes import from_spark_json
from headrace.sdk.sqltext import literal, quote, sql_type
from headrace_plugins.connectors.delta.history import vector_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.sdk.location import Location
    from headrace_plugins.connectors.delta.history import DataFile, Definition

VERSION, MILLIS, NUMBER = "__headrace_version", "__headrace_millis", "__headrace_number"
"""Additional columns for a row's commit and file: partition columns, which cost nothing."""
_NO = False
"""For boolean arguments of Java methods: not a stream, no coarse changes, no catalog."""
_ADDED = (VERSION, MILLIS, NUMBER)
_NO_COLUMN_ID = 2_000_000_000
TYPE, COMMIT, TIME = "_change_type", "_commit_version", "_commit_timestamp"
"""Delta's columns of the change feed."""
_RETYPED = ('"void"',)
"""Types that records do not support, and that are cast."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file of a range.

    Args:
        millis: When the version was committed; None if the log no longer has the commit.
        number: The file's index in its version, or in the snapshot.
    """

    file: DataFile
    version: int
    millis: int | None
    number: int


class SparkTable:
    """Reads a table with Spark. Not thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        location: Location,
        table: str,
        check: Callable[[Location], None],
    ) -> None:
        """Load the log of the table. Raises SetupError if the session has no delta-spark.

        ``table`` is the table's id. ``check`` raises an error for a deletion vector that may
        not be read.
        """
        if "DeltaSparkSessionExtension" not in (spark.conf.get("spark.sql.extensions") or ""):
            raise SetupError(
                problem="Reading Delta tables requires delta-spark, which the session lacks.",
                fix="Start Spark with the feature delta.",
            )
        self._spark, self._location, self._check = spark, location, check
        java: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no other way to Java
        self._scala = java.scala
        self._java = java.java
        self._spark_sql = java.org.apache.spark.sql
        self._delta = self._spark_sql.delta
        self._session: Any = spark._jsparkSession  # noqa: SLF001 - the same
        logs = self._delta.DeltaLog
        self._log = logs.forTable(self._session, location.spark_path)
        if self._log.unsafeVolatileTableId() != table:
            # Delta's cache still has an earlier table of the same path.
            logs.invalidateCache(self._session, self._log.dataPath())
            self._log = logs.forTable(self._session, location.spark_path)
        self._snapshot: tuple[int, Any] | None = None

    def rows(self, definition: Definition, files: Sequence[PlacedFile]) -> DataFrame:
        """Return the rows of files, with the columns for each row's commit and file."""
        self._activate()
        missing = {each.version: [f for f in files if f.file.action is None] for each in files}
        actions = self._actions(files) if any(missing.values()) else {}
        added = self._java.util.ArrayList()
        for each in files:
            action = dict(each.file.action or actions[_qualified(each.file.path)])
            millis = None if each.millis is None else str(each.millis)
            values = (str(each.version), millis, str(each.number))
            action["partitionValues"] = {
                **action["partitionValues"],
                **dict(zip(_ADDED, values, strict=True)),
            }
            added.add(self._action("add", action))
        sequence = self._scala.jdk.javaapi.CollectionConverters.asScala(added).toSeq()
        none = self._scala.Option.empty()
        with _told(self._location):
            state = self._state(_with_columns(definition))
            frame = self._log.createDataFrame(state, sequence, _NO, none)
        return DataFrame(frame, self._spark)

    def changes(self, definition: Definition, first: int, last: int) -> DataFrame:
        """Return the change feed of the versions ``first`` to ``last``, both inclusive.

        All of them must have the same columns.
        """
        self._activate()
        none, some = self._scala.Option.empty(), self._scala.Option.apply
        with _told(self._location):
            frame = self._delta.commands.cdc.CDCReader.changesToBatchDF(
                self._log,
                first,
                last,
                self._session,
                none,
                some(self._state(definition)),
                _NO,
                some(self._state(definition)),
            )
        return DataFrame(frame, self._spark)

    def _activate(self) -> None:
        """Let Delta find the session: it looks for the one of the thread, which has none."""
        self._spark_sql.classic.SparkSession.setActiveSession(self._session)

    def forget_snapshot(self) -> None:
        """Free the cached snapshot after it was read."""
        if self._snapshot is not None:
            self._snapshot[1].uncache()
            self._snapshot = None

    def _actions(self, files: Sequence[PlacedFile]) -> dict[str, Mapping[str, Any]]:
        """Return the log actions of a snapshot's files by path; may run a Spark job."""
        (version,) = {each.version for each in files if each.file.action is None}
        if self._snapshot is None or self._snapshot[0] != version:
            none = self._scala.Option.empty()
            with _told(self._location):
                found = self._log.getSnapshotAt(version, none, none, _NO)
            self._snapshot = version, found
        paths = [_qualified(each.file.path) for each in files if each.file.action is None]
        state = DataFrame(self._snapshot[1].allFiles().toDF(), self._spark)
        columns = ", ".join(c for c in state.columns if c not in ("stats", "tags"))
        chosen = state.where(state["path"].isin(paths)).selectExpr(
            f"to_json(struct({columns}), map('ignoreNullFields', 'false'))"
        )
        with _told(self._location):
            actions = [json.loads(row[0]) for row in chosen.collect()]
        for action in actions:
            if (vector := vector_at(self._location, action)) is not None:
                self._check(vector)
        found = {action["path"]: action for action in actions}
        if missing := set(paths) - set(found):
            raise SourceError(
                problem=f"The log of the table {self._location} lists {min(missing)}, which "
                "Delta's snapshot does not contain under this name.",
                fix="Read the table from a later snapshot.",
            )
        return found

    def _state(self, definition: Definition) -> Any:
        """Return a snapshot with a definition that does not read the log."""
        return self._delta.DummySnapshot(
            self._log.logPath(),
            self._log,
            self._action("metaData", definition.metadata),
            self._scala.Option.empty(),
            self._scala.Option.apply(self._action("protocol", definition.protocol)),
        )

    def _action(self, kind: str, body: Mapping[str, Any]) -> Any:
        return self._delta.actions.Action.fromJson(json.dumps({kind: body}))


_UNQUOTED = "/;:@&=+$,-_.!~*'()"
"""Characters that Java does not escape in the path of a URL, besides letters of any script."""


def _qualified(path: str) -> str:
    """Return a path as Delta's snapshots store it: with a scheme if it is absolute."""
    if not path.startswith("/"):
        return path
    plain = unquote(path)
    return "file://" + re.sub("[\0-\x7f]+", lambda m: percent_encoded(m[0], _UNQUOTED), plain)


def _with_columns(definition: Definition) -> Definition:
    """Return the definition with the columns for a row's commit and file."""
    added = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": _NO_COLUMN_ID + number,
                "delta.columnMapping.physicalName": name,
            },
        }
        for number, name in enumerate(_ADDED)
    ]
    schema = {"type": "struct", "fields": [*definition.fields, *added]}
    partitions = [*definition.metadata["partitionColumns"], *_ADDED]
    metadata = {
        **definition.metadata,
        "schemaString": json.dumps(schema),
        "partitionColumns": partitions,
    }
    return type(definition)(metadata, definition.protocol)


@contextmanager
def _told(location: Location) -> Iterator[None]:
    """Raise errors of Delta's library as SourceError."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        java = getattr(error, "java_exception", None)
        message = str(error if java is None else java.getMessage()).strip()
        problem = f"Delta cannot read {location}: {message.splitlines()[0] or 'no reason'}"
        raise SourceError(problem) from error


def columns_of(definition: Definition) -> dict[str, str]:
    """Return the SQL of a table's columns by name, cast to types that records support."""
    columns = {}
    for field in definition.fields:
        sql = quote(field["name"])
        if any(name in json.dumps(field["type"]) for name in _RETYPED):
            schema = from_spark_json({"type": "struct", "fields": [field]}).fields[0].schema
            sql = f"CAST({sql} AS {sql_type(schema)})"
        columns[field["name"]] = sql
    return columns


def schema_of(definition: Definition) -> Schema:
    """Return the schema of a table's rows. Raises ConfigError for an unsupported type."""
    return from_spark_json({"type": "struct", "fields": definition.fields})


def struct_sql(columns: Mapping[str, str]) -> str:
    """Return the SQL of a struct of columns."""
    return f"struct({', '.join(f'{sql} AS {quote(name)}' for name, sql in columns.items())})"


def key_sql(columns: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return the SQL of the records' key column; an empty list without names."""
    found = {name.lower(): (name, sql) for name, sql in columns.items()}
    missing = [name for name in names if name.lower() not in found]
    if missing:
        raise ConfigError(
            problem=f"The table has no column {missing[0]}.",
            fix=f"Choose from {', '.join(columns)}.",
            field="key.fields",
        )
    parts = dict(found[name.lower()] for name in names)
    return [f"{struct_sql(parts)} AS key"] if parts else []


_IN_FILE = (
    f"array({VERSION}, {NUMBER}, input_file_block_start(), monotonically_increasing_id())"
)
"""The position of a row that was read from a file of the table."""


def row_records(frame: DataFrame, definition: Definition, key: Sequence[str]) -> DataFrame:
    """Return the rows of files as records."""
    columns = columns_of(definition)
    return frame.selectExpr(
        f"{struct_sql(columns)} AS value",
        *key_sql(columns, key),
        f"timestamp_millis({MILLIS}) AS timestamp",
        f"{_IN_FILE} AS position",
    )


def feed_records(frame: DataFrame, definition: Definition, key: Sequence[str]) -> DataFrame:
    """Return the rows of a change feed as records, including Delta's feed columns."""
    columns = columns_of(definition)
    feed = {name: name for name in (TYPE, COMMIT, TIME)}
    return frame.selectExpr(
        f"{struct_sql(columns | feed)} AS value",
        *key_sql(columns, key),
        f"{TIME} AS timestamp",
        f"{_place(frame)} AS position",
    )


def with_feed(frame: DataFrame) -> DataFrame:
    """Return the rows of a snapshot in the form of a change feed, as insertions."""
    time = f"timestamp_millis({MILLIS}) AS {TIME}"
    return frame.selectExpr("*", f"'insert' AS {TYPE}", f"{VERSION} AS {COMMIT}", time)


_RANK = f"""CASE {TYPE} WHEN 'delete' THEN 0 WHEN 'update_preimage' THEN 1
WHEN 'update_postimage' THEN 2 ELSE 3 END"""
"""The order in which the rows of a commit are applied."""
_IN_FEED = f"array({COMMIT}, CAST({_RANK} AS BIGINT), monotonically_increasing_id())"
_OVER = f"OVER (PARTITION BY {COMMIT}, key ORDER BY rank)"


def change_records(
    frame: DataFrame,
    definition: Definition,
    key: Sequence[str],
    table: str,
    *,
    snapshot: bool = False,
) -> DataFrame:
    """Return the rows of a change feed as changes: before, after, op, source, ts.

    The feed contains the row before and the row after an update as separate rows. With a key
    they are joined into one change, and an update of the key itself becomes a deletion and an
    insertion, as in Debezium. Without a key they cannot be matched: updates contain only the
    row after the update.
    """
    columns = columns_of(definition)
    keyed = key_sql(columns, key)
    rows = frame.selectExpr(
        f"{struct_sql(columns)} AS row",
        *(TYPE, COMMIT, TIME),
        f"{_RANK} AS rank",
        f"{_place(frame)} AS position",
        *keyed,
    )
    before, op = f"IF({TYPE} = 'delete', row, NULL)", "'u'"
    if snapshot:
        pass
    elif keyed:
        rows = rows.selectExpr(
            "*",
            f"lag(struct({TYPE} AS type, row)) {_OVER} AS earlier",
            f"lead({TYPE}) {_OVER} AS later",
        ).where(f"NOT ({TYPE} = 'update_preimage' AND later <=> 'update_postimage')")
        paired = f"{TYPE} = 'update_postimage' AND earlier.type <=> 'update_preimage'"
        before = f"CASE WHEN {_IS_GONE} THEN row WHEN {paired} THEN earlier.row END"
        op = f"IF({paired}, 'u', 'c')"
    else:
        rows = rows.where(f"{TYPE} <> 'update_preimage'")
    inserted = "r" if snapshot else "c"
    op = f"CASE WHEN {_IS_GONE} THEN 'd' WHEN {TYPE} = 'insert' THEN '{inserted}' ELSE {op} END"
    source = struct_sql(
        {
            "connector": "'delta'",
            "table": literal(table),
            "version": COMMIT,
            "timestamp": TIME,
            "snapshot": str(snapshot).lower(),
        }
    )
    change = {
        "before": before,
        "after": f"IF({_IS_GONE}, NULL, row)",
        "op": op,
        "source": source,
        "ts": TIME,
    }
    return rows.selectExpr(
        f"{struct_sql(change)} AS value",
        *(["key"] if keyed else []),
        f"{TIME} AS timestamp",
        "position",
    )


def _place(frame: DataFrame) -> str:
    return _IN_FILE if NUMBER in frame.columns else _IN_FEED


_IS_GONE = f"{TYPE} IN ('delete', 'update_preimage')"
