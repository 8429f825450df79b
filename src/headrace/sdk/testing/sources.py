"""The tests of a source, as pytest classes to subclass."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import pytest
from typing_extensions import override

from headrace.sdk.testing import (
    capture_checks,
    position_checks,
    running_checks,
    source_checks,
)
from headrace.sdk.testing.harness import Point
from headrace.sdk.testing.suite import ConnectorAcceptance, skip_if

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.sdk.testing.driver import SourceDriver
    from headrace.sdk.testing.harness import CaptureBench, Harness, SourceBench


class SourceAcceptance(ConnectorAcceptance):
    """The tests that a frame or split source passes.

    Subclass it with a name that pytest collects, and return a driver. An attribute that
    begins with ``cannot`` or ``un`` holds the reason why a promise does not apply; the
    reason is shown for each test that is skipped by it.
    """

    unordered: ClassVar[str] = ""
    """Why records do not arrive in the order in which they were appended."""
    unlimited: ClassVar[str] = ""
    """Why a limit of rows does not divide what was appended in several parts."""
    cannot_replay: ClassVar[str] = ""
    """Why what was acknowledged cannot be read again."""

    @override
    @abstractmethod
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return a driver of an empty outside system; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def bench(
        self, headrace_harness: Harness, made: SourceDriver, tmp_path: Path
    ) -> Iterator[SourceBench]:
        """Give a bench for the test."""
        home = tmp_path / "headrace"
        with headrace_harness.source(made.connector, made.config, home) as bench:
            yield bench

    def test_an_empty_system_gives_no_batch_and_no_error(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``ReplayableSource.latest``."""
        source_checks.check_empty(bench, made)

    def test_everything_is_read_once_and_in_order(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``ReplayableSource.latest``; not in order if ``unordered``."""
        source_checks.check_everything_once(bench, made, ordered=not self.unordered)

    @pytest.mark.parametrize("rows", [1, 2, 7])
    def test_a_restart_after_every_batch_neither_loses_nor_repeats(
        self, bench: SourceBench, made: SourceDriver, rows: int
    ) -> None:
        """See ``ReplayableSource.latest``."""
        source_checks.check_resume(bench, made, rows)

    @pytest.mark.parametrize("at", list(Point))
    def test_a_killed_batch_runs_again_with_the_same_rows(
        self, bench: SourceBench, made: SourceDriver, at: Point
    ) -> None:
        """See ``FrameSource.read`` and ``SplitSource.splits``."""
        source_checks.check_killed(bench, made, at)

    def test_the_same_range_gives_the_same_rows_again(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``FrameSource.read`` and ``SplitSource.read``."""
        skip_if(self.cannot_replay)
        source_checks.check_replay(bench, made)

    def test_a_range_of_another_configuration_is_refused(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``check_range``."""
        source_checks.check_foreign_range(bench, made)

    def test_tasks_share_the_rows(self, bench: SourceBench, made: SourceDriver) -> None:
        """See ``Connector.task_configs``."""
        source_checks.check_tasks(bench, made)

    def test_latest_never_passes_until(self, bench: SourceBench, made: SourceDriver) -> None:
        """See ``ReplayableSource.latest``."""
        position_checks.check_until(bench, made)

    def test_latest_is_start_while_idle(self, bench: SourceBench, made: SourceDriver) -> None:
        """See ``ReplayableSource.latest``."""
        position_checks.check_idle(bench, made)

    def test_latest_without_limit_is_the_end_of_all_that_is_there(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``ReplayableSource.latest``."""
        position_checks.check_no_limit(bench, made)

    def test_a_limit_of_rows_divides_the_work(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``ReplayableSource.latest``."""
        skip_if(self.unlimited)
        position_checks.check_limit(bench, made)

    def test_positions_survive_storing_and_may_be_given_back(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``Position`` and ``SourceConnector.alter_offsets``."""
        position_checks.check_positions(bench, made)

    def test_offline_reads_what_is_there_and_ends(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``ReplayableSource.latest``."""
        running_checks.check_offline(bench, made)

    def test_real_time_reads_what_is_appended_meanwhile(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``ReplayableSource.latest``."""
        skip_if(made.fixed)
        running_checks.check_real_time(bench, made)

    def test_it_stops_in_time_while_idle(self, bench: SourceBench, made: SourceDriver) -> None:
        """See ``SourceTask.stop``."""
        running_checks.check_stop_idle(bench, made)

    def test_it_stops_in_time_while_reading_and_loses_nothing(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """See ``SourceTask.stop``."""
        running_checks.check_stop_reading(bench, made)

    def test_nothing_is_left_after_stop(self, bench: SourceBench, made: SourceDriver) -> None:
        """See ``SourceTask.stop``."""
        source_checks.check_source_leaks(bench, made)


class CaptureAcceptance(ConnectorAcceptance):
    """The tests that a capture passes; see ``SourceAcceptance`` for how to use it."""

    cannot_redeliver: ClassVar[str] = ""
    """Why what was polled and never made durable does not come again."""

    @override
    @abstractmethod
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return a driver of an empty outside system; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def bench(
        self, headrace_harness: Harness, made: SourceDriver, tmp_path: Path
    ) -> Iterator[CaptureBench]:
        """Give a bench for the test."""
        home = tmp_path / "headrace"
        with headrace_harness.capture(made.connector, made.config, home) as bench:
            yield bench

    def test_an_empty_system_gives_nothing_soon(self, bench: CaptureBench) -> None:
        """See ``CaptureSource.poll``."""
        capture_checks.check_capture_empty(bench)

    def test_a_restart_after_every_poll_neither_loses_nor_repeats(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        """See ``CaptureSource``."""
        capture_checks.check_capture_once(bench, made)

    def test_a_kill_before_commit_repeats_nothing_that_is_durable(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        """See ``CaptureSource.commit``."""
        capture_checks.check_capture_killed_after_append(bench, made)

    def test_a_kill_before_the_append_loses_nothing(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        """See ``CaptureSource.commit``."""
        skip_if(self.cannot_redeliver)
        capture_checks.check_capture_killed_before_append(bench, made)

    def test_every_poll_says_where_it_stands(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        """See ``CapturedBatch`` and ``Record``."""
        capture_checks.check_capture_positions(bench, made)

    def test_it_stops_in_time(self, bench: CaptureBench) -> None:
        """See ``SourceTask.stop``."""
        capture_checks.check_capture_stop(bench)

    def test_nothing_is_left_after_stop(self, bench: CaptureBench, made: SourceDriver) -> None:
        """See ``SourceTask.stop``."""
        capture_checks.check_capture_leaks(bench, made)
