"""What all acceptance classes have: a driver, a runtime, and the checks of configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import pytest

from headrace.sdk.testing import config_checks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.sdk.testing.driver import SinkDriver, SourceDriver
    from headrace.sdk.testing.harness import Harness


def skip_if(reason: str) -> None:
    """Skip the test that calls it when there is a reason, and show the reason."""
    if reason:
        pytest.skip(reason)


class ConnectorAcceptance(ABC):
    """The tests of every connector. Subclass one of the classes made of it instead."""

    @abstractmethod
    def driver(self, tmp_path: Path) -> SourceDriver | SinkDriver:
        """Return a driver of an empty outside system; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Iterator[SourceDriver | SinkDriver]:
        """Give the test's driver, and close it at the end."""
        folder = tmp_path / "outside"
        folder.mkdir()
        driver = self.driver(folder)
        try:
            yield driver
        finally:
            driver.close()

    def test_a_good_configuration_is_accepted(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        """See ``Connector.check``."""
        config_checks.check_good_config(headrace_harness, made)

    def test_a_missing_required_key_is_named(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        """See ``Connector.config_def``."""
        config_checks.check_required_keys(headrace_harness, made)

    def test_a_value_of_the_wrong_type_is_named(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        """See ``Connector.config_def``."""
        config_checks.check_wrong_values(headrace_harness, made)

    def test_a_bad_configuration_is_refused_and_its_key_named(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        """See ``Connector.check``."""
        if not made.bad_configs():
            pytest.skip("The driver's bad_configs gives none.")
        config_checks.check_bad_configs(headrace_harness, made)

    def test_the_connector_and_its_keys_are_documented(
        self, made: SourceDriver | SinkDriver
    ) -> None:
        """See ``ConfigDef.define``."""
        config_checks.check_documented(made)

    def test_stop_bears_a_start_that_never_was(
        self, headrace_harness: Harness, made: SourceDriver | SinkDriver
    ) -> None:
        """See ``Connector.stop`` and ``SourceTask.stop``."""
        config_checks.check_stop_without_start(headrace_harness, made)
