"""A connector whose check does not end keeps nobody waiting for ever."""

import threading
from collections.abc import Iterable
from datetime import timedelta

from typing_extensions import override

from headrace.control import check_definition
from headrace.model import Definition, PluginSpec
from headrace.plugins import Registry
from headrace.sdk import ConfigError, FrameSink, SinkConnector
from headrace.sdk.config import Config, ConfigDef

MAY = threading.Event()


class HangingSink(SinkConnector):
    """Asks a system that gives no answer."""

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        MAY.wait(60)
        return ()

    @override
    @classmethod
    def task(cls, config: Config) -> FrameSink:
        raise NotImplementedError


def test_a_check_that_hangs_is_an_error_of_its_connector() -> None:
    sink = PluginSpec(f"{HangingSink.__module__}.HangingSink", {}, "sinks.0")
    definition = Definition("c", topics=("t",), sinks=(sink,))
    found = check_definition(definition, Registry(check_timeout=timedelta(milliseconds=20)))
    MAY.set()
    (error,) = found.errors
    assert (error.code, error.field) == ("plugin.timeout", "sinks.0.connector")
    assert "0.02 s" in error.problem
    assert not check_definition(definition, Registry()).errors
