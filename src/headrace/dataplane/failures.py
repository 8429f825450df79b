"""Translates Spark's exceptions into Headrace's errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from headrace.capture import error_from_json
from headrace.model import SparkError, SparkMemoryError, ToleranceExceededError
from headrace.sdk.errors import (
    HeadraceError,
    RecordError,
    SetupError,
    SinkError,
    SourceError,
    error_class,
)
from headrace.sdk.storage import path_in, storage_error_of_text

REJECTED = "HEADRACE-REJECTED "
"""Prefix of the error that the plan raises for the first bad record if none is tolerated."""

_RAISED = re.compile(REJECTED + r"(\{.*?\})(?: SQLSTATE| \[|\n|$)", re.DOTALL)
_TRACEBACK = "Traceback (most recent call last)"
_LAST = re.compile(r"^([A-Za-z_][\w.]*): (.+)$")
_CANCELLED = {"SPARK_JOB_CANCELLED"}
"""The error conditions of Spark's exceptions for cancelled jobs."""
_OF_FILES = ("java.io.", "java.nio.file.", "org.apache.hadoop.fs.")
"""Prefixes of the names of Java's file exceptions."""
_FILE_ERROR = re.compile(
    r"(?:^|: )(?:java\.(?:io|nio\.file)\.\w+: |(?:OS|Permission)Error: \[Errno \d+\] )"
    r"(.+?)(?:: (?:'[^']*'|\"[^\"]*\"))?$"
)
"""A file exception in Spark's text of a failed task, with the system's message."""
_WRITING = re.compile(
    r"Task failed while writing rows to (?:file:)?(/.+?)(?:/_temporary|\. SQLSTATE|\.?$)",
    re.MULTILINE,
)
"""The path of Spark's error for a failed write; the cause has only the system's message."""
_RUST_ERROR = re.compile(
    r"^(?:OSError|_internal\.\w+|deltalake\.[\w.]+): (.*(?:\n[ \t]+.*)*?\(os error \d+\))",
    re.MULTILINE,
)
"""A deltalake error in a Python worker's traceback; its reason may follow on further lines."""
_ALIKE = re.compile(
    r"\[(?:AMBIGUOUS_REFERENCE_TO_FIELDS|COLUMN_ALREADY_EXISTS)\][^`]*(`(?:[^`]|``)*`)"
)
_MAX_CAUSES = 50
_NO_MEMORY = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|java\.lang\.OutOfMemoryError"
    r"|^(?:pyarrow\.lib\.Arrow)?MemoryError\b",
    re.MULTILINE,
)
"""Spark's texts if the system killed a process, or if Java or Python ran out of memory."""
_PYTHON = re.compile(r"(?<![\w.])[\w.]+: \[([\w.]+)\] (.+)")
"""The last line of the traceback of a Headrace error or of a plugin's own error."""
_AFTER = re.compile(r"^Asks to wait ([\d.]+) s\.$", re.MULTILINE)
"""The note of a RetriableError, which follows its text in a traceback."""


class CancelledError(HeadraceError):
    """The task's Spark job was cancelled because the task is stopping."""

    code = "task.cancelled"


def translate(error: Exception, doing: str) -> HeadraceError:
    """Return the Headrace error for an exception of a Spark job.

    Args:
        error: The exception that Spark raised.
        doing: The current operation, for the text of an error that is not recognized.
    """
    text = _root_text(error)
    if (found := _RAISED.search(text)) is not None:
        return not_tolerated(found.group(1))
    if _was_cancelled(error):
        return CancelledError()
    if (storage := _storage_error(error)) is not None:
        return storage
    if (python := _PYTHON.search(text)) is not None and error_class(python[1]) is not None:
        problem, _, fix = python[2].strip().partition(" Fix: ")
        after = _AFTER.search(text, python.end())
        seconds = None if after is None else float(after[1])
        facts = {"problem": problem, "fix": fix, "field": None, "after_seconds": seconds}
        return error_from_json({"code": python[1], **facts})
    if isinstance(error, Py4JNetworkError):
        return _jvm_died()
    return _query_error(error, text, doing)


def _query_error(error: Exception, text: str, doing: str) -> HeadraceError:
    """Return the error of a query, which names the SQL that failed."""
    if (alike := _ALIKE.search(text)) is not None:
        return SourceError(
            problem=f"Several fields are called {alike[1]}: Spark ignores the case of names.",
            fix="Rename one of them in the source, or declare a schema that leaves one out.",
        )
    if _NO_MEMORY.search(text):
        return SparkMemoryError()
    problem = f"Spark failed while {doing}: {_plain(_main_line(text))}"
    sql = _failed_sql(error)
    if sql is None:
        return _side(error)(problem, fix=_IN_LOG)
    return SparkError(f"{problem} It was evaluating: {sql}", fix=f"{_OF_SQL} {_IN_LOG}")


def _failed_sql(error: Exception) -> str | None:
    """Return the SQL expression that failed for a record; None if it was something else."""
    if isinstance(error, AnalysisException):
        return None
    for java in _java_causes(error):
        with suppress(Py4JError):  # other exceptions have no context
            for context in java.getQueryContext():
                if str(context.contextType()) == "SQL":
                    return str(context.fragment())[:_SHOWN_CHARS]
    return None


def _side(error: Exception) -> type[HeadraceError]:
    """Return the error class of the side that failed, from Spark's error conditions."""
    conditions = [found for java in _java_causes(error) if (found := _condition(java))]
    # Inner causes are more specific than outer ones, such as the failed task of a write.
    for condition in reversed(conditions):
        if condition.startswith(_OF_READING):
            return SourceError
        if condition.startswith(_OF_WRITING):
            return SinkError
    return SparkError


_SHOWN_CHARS = 200
_OF_SQL = (
    "Change the expression so that it fails for no record, for example with try_cast, or "
    "remove such records by a Filter before it."
)
_IN_LOG = "The full trace is in the log; use --verbose to show it, also with headrace logs."
_OF_READING = (
    "FAILED_READ_FILE",
    "CANNOT_READ",
    "CANNOT_MERGE_SCHEMAS",
    "MALFORMED_RECORD",
    "PARQUET_COLUMN",
    "PATH_NOT_FOUND",
    "UNABLE_TO_INFER_SCHEMA",
)
_OF_WRITING = ("TASK_WRITE_FAILED", "CANNOT_WRITE", "FAILED_RENAME", "FAILED_WRITE")
_ADVICE = re.compile(
    r'\s*(?:If necessary set|You may|To .{1,80}, set) "spark\.[^"]+" to [^.]*\.'
    r"|\s*SQLSTATE: \w{5}\b"
)
"""Spark's advice on settings, which Headrace sets itself, and the SQLSTATE code."""


def _plain(line: str) -> str:
    return _ADVICE.sub("", line).strip()


def _main_line(text: str) -> str:
    """Return the most specific line: the first, or the error line of a plugin's traceback."""
    lines = [line for line in text.splitlines() if line.strip()]
    if _TRACEBACK in text:
        # The frames of a traceback are indented, the error is not.
        start = next(n for n, line in enumerate(lines) if _TRACEBACK in line)
        error = next((line for line in lines[start + 1 :] if _LAST.match(line)), None)
        if error is not None:
            return error
    return lines[0].strip() if lines else "no message"


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise Spark's errors as Headrace's."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise translate(error, doing) from error
    except ConnectionError as error:
        raise _jvm_died() from error


def _jvm_died() -> SetupError:
    return SetupError(
        problem="Spark's JVM has died, most likely because it ran out of memory.",
        fix="Raise HEADRACE_DRIVER_MEMORY or lower batch.max.rows; see jvm.log for details.",
    )


def _was_cancelled(error: Exception) -> bool:
    """Return whether Spark's own error condition says so; its text may come from user code."""
    return any(_condition(java) in _CANCELLED for java in _java_causes(error))


def _storage_error(error: Exception) -> HeadraceError | None:
    """Return the storage error of Java or a Python worker; None if there is none."""
    written_to = None
    for java in _java_causes(error):
        message = str(java.getMessage())
        name = str(java.getClass().getName())
        if (writing := _WRITING.search(message)) is not None:
            written_to = writing[1]
        if name.startswith(_OF_FILES) and (found := storage_error_of_text(message, written_to)):
            return found
        # For an executor's exception Spark may have the text only: the class and the message
        # are in the first line of the trace, or in the last line of a Python traceback.
        lines = message.splitlines()
        for line in lines[:1] + lines[1:] * (_TRACEBACK in message):
            match = _FILE_ERROR.search(line)
            path = path_in(line) or written_to
            if match is not None and (found := storage_error_of_text(match[1], path)):
                return found
        rust = _RUST_ERROR.search(message) if _TRACEBACK in message else None
        if rust is not None and (found := storage_error_of_text(rust[1])):
            return found
    return None


def _condition(java: Any) -> str | None:
    try:
        return str(java.getCondition())
    except Py4JError:  # it has none
        return None


def _java_causes(error: Exception) -> Iterator[Any]:
    """Yield the Java exception and its causes, the outermost first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_MAX_CAUSES):
        if java is None:
            return
        yield java
        java = java.getCause()


def _root_text(error: Exception) -> str:
    """Return the messages of all causes, the innermost first."""
    texts = [str(error), *(str(java.getMessage()) for java in _java_causes(error))]
    return "\n".join(reversed(texts))


def not_tolerated(text: str) -> ToleranceExceededError:
    """Return the error of a record that is not tolerated, from its cause as JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        found = {"message": text}
    return ToleranceExceededError(
        stage=found.get("stage", ""),
        plugin=found.get("plugin", ""),
        exception=found.get("exception", ""),
        message=found.get("message", ""),
        record=found.get("raw") or "",
    )


@contextmanager
def refusals_passed_over() -> Iterator[None]:
    """Suppress errors of records that a target refuses; other Spark errors are raised as is.

    Their cause is translated where the batch fails.
    """
    try:
        with suppress(RecordError):
            yield
    except PySparkException as error:
        if not isinstance(translate(error, "copying"), RecordError):
            raise
