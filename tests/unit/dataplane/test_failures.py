"""What Spark says of a failed job is told as the error that it stands for."""

import traceback
from datetime import timedelta
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from headrace.dataplane.failures import translate
from headrace.model import SchemaChangeError
from headrace.sdk import HeadraceError, RetriableError, SourceError

TRACE = """Job aborted: Traceback (most recent call last):
  File "target.py", line 147, in write
    write()
{}"""


def raised(message: str) -> PySparkException:
    error = PySparkException("failed")
    error.java_exception = SimpleNamespace(  # type: ignore[attr-defined]  # PySpark's have it
        getMessage=lambda: message,
        getClass=lambda: SimpleNamespace(getName=lambda: "org.apache.spark.SparkException"),
        getCondition=lambda: "NONE",
        getCause=lambda: None,
    )
    return error


@pytest.mark.parametrize(
    "text",
    [
        "[AMBIGUOUS_REFERENCE_TO_FIELDS] Ambiguous reference to the field `id`.",
        "[COLUMN_ALREADY_EXISTS] The column `id` already exists. Choose another name.",
    ],
)
def test_fields_that_differ_in_case_only_are_named_with_what_helps(text: str) -> None:
    assert str(translate(raised(text), "running batch 1")) == (
        "[source.failed] Several fields are called `id`: Spark ignores the case of names. Fix: "
        "Rename one of them in the source, or declare a schema that leaves one out."
    )


@pytest.mark.parametrize(
    "last",
    [
        "PermissionError: [Errno 1] Operation not permitted: '/no/t/1.json'",
        (
            "OSError: Generic LocalFileSystem error\n   \x1b[31m↳\x1b[0m Unable to open file "
            "/no/t/1.json\n   \x1b[31m↳\x1b[0m Operation not permitted (os error 1)\n"
        ),
        (
            "_internal.DeltaError: Failed to parse parquet: Unable to open file /no/t/1.json: "
            "Operation not permitted (os error 1)"
        ),
    ],
)
def test_a_python_worker_that_may_not_write_says_where_and_what_helps(last: str) -> None:
    error = translate(raised(TRACE.format(last)), "running batch 69")
    assert str(error) == (
        "[sink.failed] /no/t/1.json cannot be written to: Operation not permitted. Fix: Give "
        "the worker's user the right to write there, or choose another path."
    )


class AwayError(RetriableError):
    """A plugin's own error."""

    code = "acme.away"


@pytest.mark.parametrize(
    "error", [SchemaChangeError("It grew."), SourceError("It ended."), AwayError("It is away.")]
)
def test_an_error_of_an_executor_is_the_same_on_the_driver(error: HeadraceError) -> None:
    text = "".join(traceback.format_exception(error))
    found = translate(raised(f"Job aborted: {text}"), "running batch 69")
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_a_busy_system_on_an_executor_says_how_long_to_wait() -> None:
    away = RetriableError("It is away.\nSee its page.", after=timedelta(minutes=2), fix="Wait.")
    error = translate(raised("".join(traceback.format_exception(away))), "running batch 69")
    assert isinstance(error, RetriableError)
    assert error.after == timedelta(minutes=2)
