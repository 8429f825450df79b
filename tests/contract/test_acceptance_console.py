"""The console and the noop sink pass what the acceptance kit can ask of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import structlog
from typing_extensions import override

from headrace.sdk.testing import BadConfig, Row, SinkAcceptance, SinkDriver
from headrace_plugins.connectors.console.connector import ConsoleSink
from headrace_plugins.connectors.noop.connector import NoopSink


class ConsoleDriver(SinkDriver):
    """Reads what was printed."""

    connector = ConsoleSink

    def __init__(self, console: pytest.CaptureFixture[str]) -> None:
        self._console = console
        self._printed = ""

    @override
    def config(self) -> Mapping[str, str]:
        return {"format": "json", "limit": "1000"}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [BadConfig({"format": "loud"}, "format"), BadConfig({"limit": "-1"}, "limit")]

    @override
    def read_back(self) -> list[Row]:
        self._printed += self._console.readouterr().out
        # Not splitlines, which also divides at characters that JSON leaves as they are.
        return [json.loads(line)["value"] for line in self._printed.split("\n") if line]


class TestConsole(SinkAcceptance):
    kinds = ("boolean", "int8", "int16", "int32", "int64", "float64", "string", "array", "map")
    why_not_all_kinds = "It prints JSON, which has no such type."
    cannot_break = "A console is always there."

    @pytest.fixture(autouse=True)
    def _console(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        structlog.reset_defaults()
        structlog.configure()  # what a test before may have left: logs go to stdout

    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return ConsoleDriver(self._capsys)


class NoopDriver(SinkDriver):
    connector = NoopSink

    @override
    def config(self) -> Mapping[str, str]:
        return {}

    @override
    def read_back(self) -> list[Row]:
        return []


class TestNoop(SinkAcceptance):
    cannot_read_back = "It keeps nothing."

    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return NoopDriver()
