"""The acceptance kit: the tests that make a class a connector.

Write a driver of the outside system, subclass the class of tests for the kind of
connector, and run pytest:

    class TestAcmeSource(SourceAcceptance):
        def driver(self, tmp_path: Path) -> SourceDriver:
            return AcmeDriver(tmp_path)

The tests run the connector in the real runtime, which pytest finds by itself.
"""

from headrace.sdk.testing.captures import CaptureAcceptance
from headrace.sdk.testing.driver import (
    ALL_KINDS,
    Arrived,
    BadConfig,
    BrokenPromiseError,
    DeadLetter,
    Point,
    Row,
    SinkDriver,
    SourceDriver,
    fitted,
    sample_rows,
    sample_schema,
)
from headrace.sdk.testing.sinks import SinkAcceptance
from headrace.sdk.testing.sources import SourceAcceptance

__all__ = [
    "ALL_KINDS",
    "Arrived",
    "BadConfig",
    "BrokenPromiseError",
    "CaptureAcceptance",
    "DeadLetter",
    "Point",
    "Row",
    "SinkAcceptance",
    "SinkDriver",
    "SourceAcceptance",
    "SourceDriver",
    "fitted",
    "sample_rows",
    "sample_schema",
]
