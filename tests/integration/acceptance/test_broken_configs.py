"""A connector whose configuration breaks a promise fails the check of that promise."""

from collections.abc import Iterable, Mapping, Sequence

import pytest

from headrace.sdk import ConfigError, FrameSource, Position, ReadLimit, SourceConnector
from headrace.sdk.config import Config, ConfigDef, ConfigType
from headrace.sdk.testing import BadConfig, BrokenPromiseError, Harness, SourceDriver
from headrace.sdk.testing.suite import (
    check_bad_configs,
    check_documented,
    check_required_keys,
    check_stop_without_start,
    check_wrong_values,
)


class Reader(FrameSource):
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return start

    def read(self, spark, start, end):
        return spark.range(0)


class Scale(SourceConnector):
    """Has a required key and a number."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("path", ConfigType.STRING, doc="The file.")
            .define("width", ConfigType.INT, 80, doc="The longest line.")
        )

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        if config.get_int("width") < 1:
            yield ConfigError("must be 1 or more.", field="width", fix="Leave it out.")

    @classmethod
    def task_class(cls, config: Config) -> type[FrameSource]:
        return Reader


class ScaleDriver(SourceDriver):
    connector: type[SourceConnector] = Scale

    def config(self) -> Mapping[str, str]:
        return {"path": "journal"}

    def bad_configs(self) -> Sequence[BadConfig]:
        return [BadConfig({"width": "0"}, "width")]

    def append(self, rows) -> None:
        """Nothing is read here."""


class Closes(Reader):
    """Closes what only start opens."""

    def stop(self) -> None:
        self.context.scratch.rmdir()


class FailsToStop(Scale):
    """Makes tasks that fail to stop."""

    @classmethod
    def task_class(cls, config: Config) -> type[FrameSource]:
        return Closes


class ChecksNothing(Scale):
    """Takes any width."""

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        return ()


class NamesAnother(Scale):
    """Blames another key."""

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        return (ConfigError("is wrong.", field="path") for _ in super().check(config))


class Loose(Scale):
    """Has keys for whose texts it answers itself, and fails at it."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("path", ConfigType.STRING, doc="")
            .define("width", ConfigType.INT, 80, doc="The longest line.")
        )

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("connector", "check", "seen"),
    [
        (ChecksNothing, check_bad_configs, "It was accepted."),
        (NamesAnother, check_bad_configs, "path"),
        (Loose, check_bad_configs, "Validation itself failed"),
        (Loose, check_documented, "These have none: path."),
        (FailsToStop, check_stop_without_start, "stop raised Attribute"),
    ],
)
def test_a_broken_configuration_is_found(
    headrace_harness: Harness, connector, check, seen: str
) -> None:
    driver = ScaleDriver()
    driver.connector = connector
    arguments = [driver] if check is check_documented else [headrace_harness, driver]
    with pytest.raises(BrokenPromiseError, match=seen.replace(".", "[.]")):
        check(*arguments)


@pytest.mark.parametrize(
    "check",
    [check_required_keys, check_wrong_values, check_bad_configs, check_stop_without_start],
)
def test_a_good_configuration_passes(headrace_harness: Harness, check) -> None:
    check(headrace_harness, ScaleDriver())
