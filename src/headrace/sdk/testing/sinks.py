"""The tests of a sink, as a pytest class to subclass."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import pytest
from typing_extensions import override

from headrace.sdk.testing import sink_checks
from headrace.sdk.testing.harness import Point
from headrace.sdk.testing.sample import ALL_KINDS
from headrace.sdk.testing.suite import ConnectorAcceptance, skip_if

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.sdk.testing.driver import SinkDriver
    from headrace.sdk.testing.harness import Harness, SinkBench


class SinkAcceptance(ConnectorAcceptance):
    """The tests that a sink passes.

    Subclass it with a name that pytest collects, and return a driver. An attribute that
    begins with ``cannot`` holds the reason why a promise does not apply; the reason is
    shown for each test that is skipped by it. A sink whose connector claims only
    ``at_least_once`` may repeat records, and lose none.
    """

    kinds: ClassVar[Sequence[str]] = ALL_KINDS
    """The kinds of value that the target has; see ``headrace.sdk.testing.ALL_KINDS``."""
    why_not_all_kinds: ClassVar[str] = ""
    """Why it lacks the others."""
    cannot_read_back: ClassVar[str] = ""
    """Why nothing can be read from the target."""
    cannot_evolve: ClassVar[str] = ""
    """Why the schema cannot change in mid-stream."""
    cannot_refuse: ClassVar[str] = ""
    """Why no row of the kit's is refused by the target, although the sink tells of some."""
    cannot_break: ClassVar[str] = ""
    """Why the driver cannot make the target fail."""

    @override
    @abstractmethod
    def driver(self, tmp_path: Path) -> SinkDriver:
        """Return a driver of an empty target; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def bench(
        self, headrace_harness: Harness, made: SinkDriver, tmp_path: Path
    ) -> Iterator[SinkBench]:
        """Give a bench for the test."""
        home = tmp_path / "headrace"
        with headrace_harness.sink(made.connector, made.config, home) as bench:
            yield bench

    def test_values_of_every_kind_arrive_as_they_are(
        self, bench: SinkBench, made: SinkDriver, subtests: pytest.Subtests
    ) -> None:
        """See ``FrameSink.write``."""
        skip_if(self.cannot_read_back)
        others = [kind for kind in ALL_KINDS if kind not in self.kinds]
        if others and not self.why_not_all_kinds:
            pytest.fail("kinds leaves some out: say why in why_not_all_kinds.")
        wrong = sink_checks.check_kinds(bench, made, self.kinds)
        for kind in self.kinds:
            with subtests.test(kind):
                if kind in wrong:
                    raise wrong[kind]
        for kind in others:
            with subtests.test(kind):
                pytest.skip(self.why_not_all_kinds)

    def test_every_batch_arrives(self, bench: SinkBench, made: SinkDriver) -> None:
        """See ``FrameSink.write``."""
        skip_if(self.cannot_read_back)
        sink_checks.check_batches(bench, made)

    def test_the_first_batch_may_be_empty(self, bench: SinkBench, made: SinkDriver) -> None:
        """See ``FrameSink.write``."""
        skip_if(self.cannot_read_back)
        sink_checks.check_first_batch_empty(bench, made)

    @pytest.mark.parametrize("at", list(Point))
    def test_a_killed_batch_delivers_once_when_it_runs_again(
        self, bench: SinkBench, made: SinkDriver, at: Point
    ) -> None:
        """See ``FrameSink.committed`` and ``StagedWrite``."""
        skip_if(self.cannot_read_back)
        sink_checks.check_sink_killed(bench, made, at)

    def test_a_batch_killed_many_times_delivers_once(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """See ``FrameSink.committed`` and ``StagedWrite``."""
        skip_if(self.cannot_read_back)
        sink_checks.check_killed_twice(bench, made)

    def test_a_stale_owner_changes_nothing(self, bench: SinkBench, made: SinkDriver) -> None:
        """See ``StagedWrite.commit``."""
        skip_if(self.cannot_read_back)
        sink_checks.check_stale_epoch(bench, made)

    def test_of_two_attempts_at_a_batch_one_is_taken_and_the_other_is_told(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """See ``StagedWrite.commit`` and ``Mark.wrote``."""
        skip_if(self.cannot_read_back)
        sink_checks.check_overlap(bench, made)

    def test_a_number_that_has_other_records_in_the_target_is_refused(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """See ``StagedWrite.commit`` and ``Mark.wrote``."""
        skip_if(self.cannot_read_back)
        if not sink_checks.is_exact(made):
            pytest.skip("The sink keeps no marks.")
        sink_checks.check_other_range(bench, made)

    def test_a_field_that_is_new_in_mid_stream_arrives(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """See ``SinkBatch.schema``."""
        skip_if(self.cannot_read_back or self.cannot_evolve)
        sink_checks.check_growing_schema(bench, made)

    def test_what_the_target_refuses_is_dead_lettered_and_the_rest_arrives(
        self, headrace_harness: Harness, bench: SinkBench, made: SinkDriver
    ) -> None:
        """See ``SinkTask.rejects``, ``FrameSink.refusals`` and ``FrameSink.verifies``."""
        skip_if(self.cannot_read_back or self.cannot_refuse)
        task = headrace_harness.unstarted(made.connector, made.config())
        if not sink_checks.tells_refusals(task):
            pytest.skip("The sink does not tell which records its target refuses.")
        sink_checks.check_refused(bench, made)

    @pytest.mark.parametrize("at", [Point.BEFORE_WRITE, Point.BEFORE_COMMIT])
    def test_an_outage_of_the_target_loses_nothing(
        self, bench: SinkBench, made: SinkDriver, at: Point
    ) -> None:
        """See ``StagedWrite.commit`` and ``RetriableError``."""
        skip_if(self.cannot_read_back or self.cannot_break)
        sink_checks.check_outage(bench, made, at)

    def test_tasks_do_not_disturb_each_other(self, bench: SinkBench, made: SinkDriver) -> None:
        """See ``Mark``."""
        skip_if(self.cannot_read_back)
        sink_checks.check_two_tasks(bench, made)

    def test_nothing_is_left_after_stop(self, bench: SinkBench, made: SinkDriver) -> None:
        """See ``SinkTask.stop``."""
        sink_checks.check_sink_leaks(bench, made)
