"""The tests of a sink, as a pytest class to subclass."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import pytest
from typing_extensions import override

from headrace.sdk.connector import DeliveryGuarantee
from headrace.sdk.errors import RecordError, StaleEpochError
from headrace.sdk.schema import Schema
from headrace.sdk.sink import FrameSink, SinkTask, StagedWrite
from headrace.sdk.testing.driver import (
    ALL_KINDS,
    BrokenPromiseError,
    differences,
    fitted,
    same_value,
    sample_rows,
    sample_schema,
)
from headrace.sdk.testing.harness import Killed, Point
from headrace.sdk.testing.suite import ConnectorAcceptance, check_leaks, skip_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.sdk.testing.driver import Row, SinkDriver
    from headrace.sdk.testing.harness import Harness, SinkBench


PLAIN = Schema.struct({"id": Schema.int64(), "text": Schema.string(optional=True)})
GROWN = Schema.struct(
    {
        "id": Schema.int64(),
        "text": Schema.string(optional=True),
        "more": Schema.string(optional=True),
    }
)


def plain_rows(first: int, count: int = 3) -> list[Row]:
    """Return rows of the schema ``PLAIN``."""
    return [{"id": number, "text": f"row {number}"} for number in range(first, first + count)]


@dataclass
class Fed:
    """A sink's bench with what was fed to it, to compare with what the target holds."""

    bench: SinkBench
    driver: SinkDriver
    rows: list[Row] = field(default_factory=list)

    def feed(self, rows: Sequence[Row], schema: Schema = PLAIN, *, task: int = 0) -> None:
        """Feed a batch."""
        self.bench.feed(rows, schema, task=task)
        self.rows += rows

    def step(self, *, kill: Point | None = None, task: int = 0) -> None:
        """Run a batch with new plugin objects, to its end or to where it is killed."""

        def hook(point: Point) -> None:
            if point is kill:
                raise Killed

        opened = self.bench.open(task=task, hook=hook)
        try:
            opened.step()
        except Killed:
            return  # abandoned, as by a kill
        except StaleEpochError as error:
            raise BrokenPromiseError(
                promise="A receipt is of a batch that the target holds, as it was given.",
                seen=str(error),
                read=FrameSink.committed,
            ) from error
        opened.close()

    def require(self, promise: str, read: object, schema: Schema = PLAIN) -> None:
        """Raise unless the target holds what was fed, once if the sink says so."""
        self.require_rows(self.rows, promise, read, schema)

    def require_rows(
        self, rows: Iterable[Row], promise: str, read: object, schema: Schema = PLAIN
    ) -> None:
        """Raise unless the target holds these rows, once if the sink says so."""
        repeats = self.driver.connector.delivery is DeliveryGuarantee.AT_LEAST_ONCE
        expected = [fitted(schema, row) for row in rows]
        found = differences(expected, read_rows(self.driver, schema), repeats=repeats)
        if found:
            raise BrokenPromiseError(promise=promise, seen=str(found), read=read)


def read_rows(driver: SinkDriver, schema: Schema) -> list[Row]:
    """Return what the target holds, in the form the schema gives it."""
    return [fitted(schema, row) for row in driver.read_back()]


def check_kinds(
    bench: SinkBench, driver: SinkDriver, kinds: Sequence[str]
) -> dict[str, BrokenPromiseError]:
    """Write the sample and return, for each kind of value, how it arrived wrong."""
    schema, rows = sample_schema(kinds), sample_rows(kinds)
    fed = Fed(bench, driver)
    fed.feed(rows, schema)
    fed.step()
    found = read_rows(driver, schema)
    ids = [{"id": row["id"]} for row in rows]
    lost = differences(ids, ({"id": row.get("id")} for row in found))
    if lost:
        promise = "Every record of a batch arrives."
        raise BrokenPromiseError(promise=promise, seen=str(lost), read=FrameSink.write)
    by_id = {row["id"]: row for row in found}
    wrong = {}
    for kind in kinds:
        wanted = {row["id"]: fitted(schema, row)[kind] for row in rows}
        bad = [
            f"{value!r} became {by_id[number].get(kind)!r}"
            for number, value in wanted.items()
            if not same_value(value, by_id[number].get(kind))
        ]
        if bad:
            wrong[kind] = BrokenPromiseError(
                promise=f"Values of the kind {kind} arrive as they are.",
                seen=f"{'; '.join(bad)}. If the target has no such type: see `kinds`.",
                read=FrameSink.write,
            )
    return wrong


def _check_refused_commit(fed: Fed, overtake: Callable[[], None]) -> None:
    """Check that a commit is refused when the target has taken another for its batch."""
    passed = False

    def hook(point: Point) -> None:
        nonlocal passed
        if point is Point.BEFORE_COMMIT:
            overtake()
        passed = passed or point is Point.AFTER_COMMIT

    stale = fed.bench.open(hook=hook)
    with suppress(Exception):  # what is refused raises
        stale.step()
    stale.close()
    if passed and is_exact(fed.driver):
        raise BrokenPromiseError(
            promise="A commit fails when the target holds its batch from another attempt.",
            seen="It was taken for success: whoever counts on it loses records.",
            read=StagedWrite.commit,
        )


def tells_refusals(task: object) -> bool:
    """Return whether a sink's task declares that its target may refuse records."""
    if isinstance(task, FrameSink):
        return task.verifies or type(task).refusals is not FrameSink.refusals
    return isinstance(task, SinkTask) and bool(task.rejects)


def is_exact(driver: SinkDriver) -> bool:
    """Return whether a sink promises that each record arrives once."""
    return driver.connector.delivery is DeliveryGuarantee.EXACTLY_ONCE


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
        wrong = check_kinds(bench, made, self.kinds)
        for kind in self.kinds:
            with subtests.test(kind):
                if kind in wrong:
                    raise wrong[kind]
        for kind in others:
            with subtests.test(kind):
                pytest.skip(self.why_not_all_kinds)

    def test_every_batch_arrives(self, bench: SinkBench, made: SinkDriver) -> None:
        """Check several batches, some empty, each with new plugin objects."""
        skip_if(self.cannot_read_back)
        fed = Fed(bench, made)
        for first, count in ((0, 3), (3, 0), (3, 1), (4, 0), (4, 40)):
            fed.feed(plain_rows(first, count))
            fed.step()
        fed.require("Every batch arrives, also after one with no records.", FrameSink.write)

    def test_the_first_batch_may_be_empty(self, bench: SinkBench, made: SinkDriver) -> None:
        """Check that a sink bears a first batch without records."""
        skip_if(self.cannot_read_back)
        fed = Fed(bench, made)
        fed.feed([])
        fed.step()
        fed.feed(plain_rows(0))
        fed.step()
        fed.require("A batch may have no records, even the first.", FrameSink.write)

    @pytest.mark.parametrize("at", list(Point))
    def test_a_killed_batch_delivers_once_when_it_runs_again(
        self, bench: SinkBench, made: SinkDriver, at: Point
    ) -> None:
        """Check that a batch killed at a point delivers once when it runs again."""
        skip_if(self.cannot_read_back)
        fed = Fed(bench, made)
        for first in (0, 3, 6):
            before = list(fed.rows)
            fed.feed(plain_rows(first))
            fed.step(kill=at)
            if at is not Point.AFTER_COMMIT and is_exact(made):
                promise = f"What was not committed is not visible (killed {at.value})."
                fed.require_rows(before, promise, StagedWrite)
            fed.step()
            read = FrameSink.committed if at is Point.AFTER_COMMIT else StagedWrite.commit
            promise = f"A batch that was killed {at.value} delivers once when it runs again."
            fed.require(promise, read)

    def test_a_batch_killed_many_times_delivers_once(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """Check that a batch killed at one point after the other delivers once."""
        skip_if(self.cannot_read_back)
        fed = Fed(bench, made)
        for first in (0, 3):
            fed.feed(plain_rows(first))
            for point in (*Point, Point.AFTER_COMMIT):
                fed.step(kill=point)
            fed.step()
        fed.require("A batch delivers once, however often it was killed.", FrameSink.committed)

    def test_a_stale_owner_changes_nothing(self, bench: SinkBench, made: SinkDriver) -> None:
        """Check that an owner that lost its task cannot commit over the new one."""
        skip_if(self.cannot_read_back)
        fed = Fed(bench, made)
        fed.feed(plain_rows(0))
        fed.step()
        fed.feed(plain_rows(3))

        def taken_over(point: Point) -> None:
            if point is Point.BEFORE_COMMIT:
                fed.step()
                fed.feed(plain_rows(6))
                fed.step()

        stale = bench.open(hook=taken_over)
        with suppress(Exception):  # to refuse it is right; that nothing changes is checked
            stale.step()
        stale.close()
        promise = "A stale owner's commit changes nothing, as a newer epoch has committed."
        fed.require(promise, StagedWrite.commit)
        fed.feed(plain_rows(9))
        fed.step()
        fed.require("The new owner goes on after a stale owner's commit.", FrameSink.committed)

    def test_of_two_attempts_at_a_batch_one_is_taken_and_the_other_is_told(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """Check that of two attempts at one batch one is taken and the other is told."""
        skip_if(self.cannot_read_back)
        fed = Fed(bench, made)
        fed.feed(plain_rows(0))
        fed.step()
        fed.feed(plain_rows(3))
        _check_refused_commit(fed, fed.step)
        promise = "A batch that another attempt has committed is there once."
        fed.require(promise, StagedWrite.commit)
        fed.feed(plain_rows(6))
        fed.step()
        fed.require("The new owner goes on after a stale owner's commit.", FrameSink.committed)

    def test_a_number_that_has_other_records_in_the_target_is_refused(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """Check that a batch whose number has other records in the target is refused."""
        skip_if(self.cannot_read_back)
        if not is_exact(made):
            pytest.skip("The sink keeps no marks.")
        fed = Fed(bench, made)
        fed.feed(plain_rows(0))
        fed.step()
        other = Fed(bench.copied(), made, fed.rows)
        bench.feed(plain_rows(3), PLAIN)

        def overtake() -> None:
            other.feed(plain_rows(6))
            other.step()

        _check_refused_commit(fed, overtake)
        promise = "A batch that is refused changes nothing of what the target holds."
        other.require(promise, StagedWrite.commit)

    def test_a_field_that_is_new_in_mid_stream_arrives(
        self, bench: SinkBench, made: SinkDriver
    ) -> None:
        """Check that a field that is new in mid-stream arrives, and old rows stay."""
        skip_if(self.cannot_read_back or self.cannot_evolve)
        fed = Fed(bench, made)
        fed.feed(plain_rows(0))
        fed.step()
        fed.feed([{**row, "more": f"more {row['id']}"} for row in plain_rows(3)], GROWN)
        fed.step()
        promise = "A field that is new in mid-stream arrives; older rows have null there."
        fed.require(promise, FrameSink.write, GROWN)
        fed.feed(plain_rows(6))
        fed.step()
        promise = "A batch without the new field, such as one in flight, arrives too."
        fed.require(promise, FrameSink.write, GROWN)

    def test_what_the_target_refuses_is_dead_lettered_and_the_rest_arrives(
        self, headrace_harness: Harness, bench: SinkBench, made: SinkDriver
    ) -> None:
        """Check that refused records are dead-lettered once, and others arrive, over kills."""
        skip_if(self.cannot_read_back or self.cannot_refuse)
        task = headrace_harness.unstarted(made.connector, made.config())
        if not tells_refusals(task):
            pytest.skip("The sink does not tell which records its target refuses.")
        fed = Fed(bench, made)
        bench.tolerate()
        refused = []
        for first, killed in ((0, None), (10, Point.BEFORE_COMMIT), (20, Point.AFTER_COMMIT)):
            good = plain_rows(first, 5)
            refused.append(first + 7)
            bench.feed([*good[:2], made.refused(first + 7), *good[2:]], PLAIN)
            fed.rows += good
            if killed is not None:
                fed.step(kill=killed)
            fed.step()
        fed.require("What the target does not refuse arrives.", SinkTask)
        letters = [(each.stage, each.value["id"]) for each in bench.dead_letters()]
        if sorted(letters) != [("TASK_PUT", number) for number in refused]:
            raise BrokenPromiseError(
                promise="What the target refuses is dead-lettered, once.",
                seen=f"Refused were {refused}, dead-lettered {letters}.",
                read=FrameSink.refusals,
            )

    @pytest.mark.parametrize("at", [Point.BEFORE_WRITE, Point.BEFORE_COMMIT])
    def test_an_outage_of_the_target_loses_nothing(
        self, bench: SinkBench, made: SinkDriver, at: Point
    ) -> None:
        """Check that an outage of the target, before or within a batch, loses nothing."""
        skip_if(self.cannot_read_back or self.cannot_break)
        fed = Fed(bench, made)
        fed.feed(plain_rows(0))
        fed.step()
        fed.feed(plain_rows(3))

        def outage(point: Point) -> None:
            if point is at:
                made.break_target()

        opened = bench.open(hook=outage)
        error: Exception | None = None
        try:
            opened.step()
        except Exception as raised:  # noqa: BLE001 - any error tells of the outage
            error = raised
        made.repair_target()
        opened.close()
        if error is None and at is Point.BEFORE_WRITE:
            raise BrokenPromiseError(
                promise="A batch that cannot be written fails.",
                seen="break_target was not noticed. (Does it break anything?)",
                read=FrameSink.write,
            )
        if isinstance(error, RecordError):
            raise BrokenPromiseError(
                promise="An outage is no record's fault: RetriableError asks for another try.",
                seen=f"It raised {error!r}.",
                read=RecordError,
            )
        fed.step()
        fed.require("An outage loses nothing: the batch runs again.", StagedWrite.commit)

    def test_tasks_do_not_disturb_each_other(self, bench: SinkBench, made: SinkDriver) -> None:
        """Check that two tasks of one connector write side by side."""
        skip_if(self.cannot_read_back)
        fed = Fed(bench, made)
        fed.feed(plain_rows(0), task=0)
        fed.feed(plain_rows(100), task=1)

        def other(point: Point) -> None:
            if point is Point.BEFORE_COMMIT:
                fed.step(task=1)

        opened = bench.open(task=0, hook=other)
        opened.step()
        opened.close()
        fed.feed(plain_rows(103), task=1)
        fed.step(task=1, kill=Point.AFTER_COMMIT)
        fed.step(task=1)
        fed.require("Tasks of one connector do not disturb each other.", SinkTask)

    def test_nothing_is_left_after_stop(self, bench: SinkBench, made: SinkDriver) -> None:
        """Check that nothing is left of a sink's task after it has stopped."""
        fed = Fed(bench, made)
        numbers = iter(range(1_000))

        def cycle() -> None:
            fed.feed(plain_rows(next(numbers), 1))
            fed.step()

        check_leaks(cycle)
