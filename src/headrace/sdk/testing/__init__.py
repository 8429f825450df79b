"""The acceptance kit: the tests that make a class a connector.

Write a driver of the outside system, subclass the class of tests for the kind of
connector, and run pytest:

    class TestAcmeSource(SourceAcceptance):
        def driver(self, tmp_path: Path) -> SourceDriver:
            return AcmeDriver(tmp_path)

The tests run the connector in the real runtime, which pytest finds by itself.
"""

from headrace.sdk.testing.driver import Arrived, BadConfig, DeadLetter, SinkDriver, SourceDriver
from headrace.sdk.testing.harness import (
    CaptureBench,
    Configs,
    Harness,
    Killed,
    Moved,
    OpenSource,
    OpenTask,
    Point,
    Running,
    SinkBench,
    SourceBench,
)
from headrace.sdk.testing.promise import BrokenPromiseError
from headrace.sdk.testing.rows import Row, fitted
from headrace.sdk.testing.sample import ALL_KINDS, sample_rows, sample_schema
from headrace.sdk.testing.sinks import SinkAcceptance
from headrace.sdk.testing.sources import CaptureAcceptance, SourceAcceptance

__all__ = [
    "ALL_KINDS",
    "Arrived",
    "BadConfig",
    "BrokenPromiseError",
    "CaptureAcceptance",
    "CaptureBench",
    "Configs",
    "DeadLetter",
    "Harness",
    "Killed",
    "Moved",
    "OpenSource",
    "OpenTask",
    "Point",
    "Row",
    "Running",
    "SinkAcceptance",
    "SinkBench",
    "SinkDriver",
    "SourceAcceptance",
    "SourceBench",
    "SourceDriver",
    "fitted",
    "sample_rows",
    "sample_schema",
]
