"""What Spark says of a failed job is told as the error that it stands for."""

from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from headrace.dataplane.failures import translate

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
