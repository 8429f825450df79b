"""The acceptance kit: tests that every connector should pass.

Write a driver for the external system, subclass the test class for the kind of connector, and
run pytest:

    class TestAcmeSource(SourceAcceptance):
        def driver(self, tmp_path: Path) -> SourceDriver:
            return AcmeDriver(tmp_path)

The tests run the connector in the real runtime, which pytest finds as a plugin.
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
