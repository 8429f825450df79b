"""A connector whose configuration breaks a promise fails the check of that promise."""

from collections.abc import Iterable, Mapping, Sequence

import pytest

from headrace.acceptance.harness import Harness
from headrace.sdk import ConfigError, FrameSource, Position, ReadLimit, SourceConnector
from headrace.sdk.config import Config, ConfigDef, ConfigType
from headrace.sdk.testing import BadConfig, BrokenPromiseError, SourceDriver
from headrace.sdk.testing.suite import ConnectorAcceptance


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
        if config["width"] < 1:
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


class DecidesRowsByNoKey(Scale):
    """Names a key that it does not have."""

    row_keys = ("width", "schema")


class Kit(ConnectorAcceptance):
    """Its tests, to be called one by one."""

    def driver(self, tmp_path):
        raise NotImplementedError


KIT = Kit()


@pytest.mark.parametrize(
    ("connector", "check", "seen"),
    [
        (
            ChecksNothing,
            KIT.test_a_bad_configuration_is_refused_and_its_key_named,
            "It was accepted.",
        ),
        (NamesAnother, KIT.test_a_bad_configuration_is_refused_and_its_key_named, "path"),
        (
            Loose,
            KIT.test_a_bad_configuration_is_refused_and_its_key_named,
            "Validation itself failed",
        ),
        (
            Loose,
            KIT.test_the_connector_and_its_keys_are_documented,
            "Keys without a doc: path.",
        ),
        (
            DecidesRowsByNoKey,
            KIT.test_the_keys_that_decide_rows_are_keys_of_the_connector,
            "Unknown keys: schema.",
        ),
        (FailsToStop, KIT.test_stop_bears_a_start_that_never_was, "stop raised Attribute"),
    ],
)
def test_a_broken_configuration_is_found(
    headrace_harness: Harness, connector, check, seen: str
) -> None:
    driver = ScaleDriver()
    driver.connector = connector
    arguments = (
        [driver]
        if check
        in {
            KIT.test_the_connector_and_its_keys_are_documented,
            KIT.test_the_keys_that_decide_rows_are_keys_of_the_connector,
        }
        else [headrace_harness, driver]
    )
    with pytest.raises(BrokenPromiseError, match=seen.replace(".", "[.]")):
        check(*arguments)


@pytest.mark.parametrize(
    "check",
    [
        KIT.test_a_missing_required_key_is_named,
        KIT.test_a_value_of_the_wrong_type_is_named,
        KIT.test_a_bad_configuration_is_refused_and_its_key_named,
        KIT.test_stop_bears_a_start_that_never_was,
    ],
)
def test_a_good_configuration_passes(headrace_harness: Harness, check) -> None:
    check(headrace_harness, ScaleDriver())
