"""Turns what Spark raises into Headrace's errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

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
from headrace.sdk.storage import storage_error_of_text

REJECTED = "HEADRACE-REJECTED "
"""What the plan raises at the first bad record when none is tolerated."""

_RAISED = re.compile(REJECTED + r"(\{.*?\})(?: SQLSTATE| \[|\n|$)", re.DOTALL)
_TRACEBACK = "Traceback (most recent call last)"
_LAST = re.compile(r"^([A-Za-z_][\w.]*): (.+)$")
_CANCELLED = {"SPARK_JOB_CANCELLED"}
"""The conditions of Spark's exceptions for jobs that were cancelled."""
_OF_FILES = ("java.io.", "java.nio.file.", "org.apache.hadoop.fs.")
"""How the names of Java's exceptions of files begin."""
_FILE_ERROR = re.compile(
    r"(?:^|: )(?:java\.(?:io|nio\.file)\.\w+: |(?:OS|Permission)Error: \[Errno \d+\] )"
    r"(.+?)(?:: '[^']*')?$"
)
"""An exception of files in Spark's text of a failed task, with what the system said."""
_RUST_ERROR = re.compile(
    r"^(?:OSError|_internal\.\w+|deltalake\.[\w.]+): (.*(?:\n[ \t]+.*)*?\(os error \d+\))",
    re.MULTILINE,
)
"""One of deltalake in the trace of a Python worker; its reason may stand on further lines."""
_MAX_CAUSES = 50
_NO_MEMORY = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|java\.lang\.OutOfMemoryError"
    r"|^(?:pyarrow\.lib\.Arrow)?MemoryError\b",
    re.MULTILINE,
)
"""What Spark says when the system has ended a process, or Java or Python found no memory."""
_PYTHON = re.compile(r"(?<![\w.])[\w.]+: \[([\w.]+)\] (.+)")
"""The last line of the traceback of one of Headrace's errors, or of a plugin's own."""
_AFTER = re.compile(r"^Asks to wait ([\d.]+) s\.$", re.MULTILINE)
"""The note of a RetriableError, which follows its text in a traceback."""


class CancelledError(HeadraceError):
    """The task's Spark job was cancelled because the task is stopping."""

    code = "task.cancelled"


def translate(error: Exception, doing: str) -> HeadraceError:
    """Return what an error of a Spark job means.

    Args:
        error: What Spark raised.
        doing: What was going on, for the text of an error that says nothing else.
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
    if _NO_MEMORY.search(text):
        return SparkMemoryError()
    problem = f"Spark failed while {doing}: {_plain(_main_line(text))}"
    return _side(error)(problem, fix=_IN_LOG)


def _side(error: Exception) -> type[HeadraceError]:
    """Return the class of the side that failed, as far as Spark's conditions say it."""
    conditions = [found for java in _java_causes(error) if (found := _condition(java))]
    # The cause says more than what it made fail, such as the task of a write.
    for condition in reversed(conditions):
        if condition.startswith(_OF_READING):
            return SourceError
        if condition.startswith(_OF_WRITING):
            return SinkError
    return SparkError


_IN_LOG = "The whole trace is in the log; --verbose shows it, also of headrace logs."
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
"""What Spark advises to set, which Headrace sets itself, and a code that nobody looks up."""


def _plain(line: str) -> str:
    return _ADVICE.sub("", line).strip()


def _main_line(text: str) -> str:
    """Return the line that says most: the first, or what ended the code of a plugin."""
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
        problem="Spark's JVM has died, most likely for lack of memory.",
        fix="Raise HEADRACE_DRIVER_MEMORY or lower batch.max.rows; jvm.log says more.",
    )


def _was_cancelled(error: Exception) -> bool:
    """Return whether Spark says so by its own condition: texts may be anybody's."""
    return any(_condition(java) in _CANCELLED for java in _java_causes(error))


def _storage_error(error: Exception) -> HeadraceError | None:
    """Return what it means that Java or a Python worker could not read or write."""
    for java in _java_causes(error):
        message = str(java.getMessage())
        name = str(java.getClass().getName())
        if name.startswith(_OF_FILES) and (found := storage_error_of_text(message)):
            return found
        # Of what an executor raised Spark may give the text only: the class and the message
        # in the first line of the trace, or the last line of Python's.
        lines = message.splitlines()
        for line in lines[:1] + lines[1:] * (_TRACEBACK in message):
            match = _FILE_ERROR.search(line)
            if match is not None and (found := storage_error_of_text(match[1], line)):
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
    """Yield the exception of Java and its causes, the outermost first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_MAX_CAUSES):
        if java is None:
            return
        yield java
        java = java.getCause()


def _root_text(error: Exception) -> str:
    """Return the messages of the whole chain of causes, the innermost first."""
    texts = [str(error), *(str(java.getMessage()) for java in _java_causes(error))]
    return "\n".join(reversed(texts))


def not_tolerated(text: str) -> ToleranceExceededError:
    """Return the error of a record that is not tolerated, given its cause as JSON."""
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
    """Go on where a target refuses a record; what else fails a job stays Spark's error.

    Its cause is looked for where the batch fails.
    """
    try:
        with suppress(RecordError):
            yield
    except PySparkException as error:
        if not isinstance(translate(error, "copying"), RecordError):
            raise
