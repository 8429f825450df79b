"""The tests for sinks, as a pytest class to subclass."""

from __future__ import annotations

from abc import abstractmethod
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
    Killed,
    Point,
    Row,
    SinkDriver,
    differences,
    fitted,
    killer,
    same_value,
    sample_rows,
    sample_schema,
)
from headrace.sdk.testing.suite import ConnectorAcceptance, check_leaks, skip_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.acceptance.harness import Harness, SinkBench


PLAIN = Schema.struct({"id": Schema.int64(), "text": Schema.string(optional=True)})
GROWN = Schema.struct(
    {
        "id": Schema.int64(),
        "text": Schema.string(optional=True),
        "more": Schema.string(optional=True),
    }
)


def plain_rows(first: int, count: int = 3) -> list[Row]:
    """Return rows with the schema ``PLAIN``."""
    return [{"id": number, "text": f"row {number}"} for number in range(first, first + count)]


@dataclass
class Fed:
    """A sink's bench and the rows fed to it, to compare with the rows in the target."""

    bench: SinkBench
    driver: SinkDriver
    rows: list[Row] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether the sink guarantees exactly-once delivery."""
        return self.driver.connector.delivery is DeliveryGuarantee.EXACTLY_ONCE

    def feed(self, rows: Sequence[Row], schema: Schema = PLAIN, *, task: int = 0) -> None:
        self.bench.feed(rows, schema, task=task)
        self.rows += rows

    def step(self, *, kill: Point | None = None, task: int = 0) -> None:
        """Run a batch with new plugin objects, to its end or until it is killed."""
        opened = self.bench.open(task=task, hook=killer(kill))
        try:
            opened.step()
        except Killed:
            return  # abandoned, as by a kill
        except StaleEpochError as error:
            raise BrokenPromiseError(
                promise="committed returns the unchanged receipt of a batch in the target.",
                seen=str(error),
                read=FrameSink.committed,
            ) from error
        opened.close()

    def write(self, rows: Sequence[Row], schema: Schema = PLAIN) -> None:
        """Feed a batch and run it."""
        self.feed(rows, schema)
        self.step()

    def found(self, schema: Schema) -> list[Row]:
        """Return the rows in the target, in the canonical form for the schema."""
        return [fitted(schema, row) for row in self.driver.read_back()]

    def require(
        self,
        promise: str,
        read: object,
        schema: Schema = PLAIN,
        rows: Iterable[Row] | None = None,
    ) -> None:
        """Raise unless the target has the fed rows, or ``rows``; once if the sink is exact."""
        expected = [fitted(schema, row) for row in (self.rows if rows is None else rows)]
        found = differences(expected, self.found(schema), repeats=not self.is_exact)
        if found:
            raise BrokenPromiseError(promise=promise, seen=found, read=read)

    def check_kinds(self, kinds: Sequence[str]) -> dict[str, BrokenPromiseError]:
        """Write the sample and return an error for each kind of value that arrived changed."""
        schema, rows = sample_schema(kinds), sample_rows(kinds)
        self.write(rows, schema)
        found = self.found(schema)
        ids = [{"id": row["id"]} for row in rows]
        lost = differences(ids, ({"id": row.get("id")} for row in found))
        if lost:
            promise = "Every record of a batch arrives."
            raise BrokenPromiseError(promise=promise, seen=lost, read=FrameSink.write)
        by_id = {row["id"]: row for row in found}
        wrong = {}
        for kind in kinds:
            expected = {row["id"]: fitted(schema, row)[kind] for row in rows}
            bad = [
                f"{value!r} became {by_id[number].get(kind)!r}"
                for number, value in expected.items()
                if not same_value(value, by_id[number].get(kind))
            ]
            if bad:
                wrong[kind] = BrokenPromiseError(
                    promise=f"Values of the kind {kind} arrive unchanged.",
                    seen=f"{'; '.join(bad)}. If the target has no such type, see `kinds`.",
                    read=FrameSink.write,
                )
        return wrong

    def check_refused_commit(self, overtake: Callable[[], None]) -> None:
        """Check that a commit fails if the target has accepted another one for the batch."""
        passed = False

        def hook(point: Point) -> None:
            nonlocal passed
            if point is Point.BEFORE_COMMIT:
                overtake()
            passed = passed or point is Point.AFTER_COMMIT

        self.attempt(hook)
        if passed and self.is_exact:
            raise BrokenPromiseError(
                promise="A commit fails if the target holds its batch from another attempt.",
                seen="It was taken for success: records are lost.",
                read=StagedWrite.commit,
            )

    def attempt(
        self, hook: Callable[[Point], None], after: Callable[[], None] = lambda: None
    ) -> Exception | None:
        """Run a batch with a hook, then ``after``; return the error that ended the batch."""
        opened = self.bench.open(hook=hook)
        try:
            opened.step()
        except Exception as error:  # noqa: BLE001 - the check decides which is right
            return error
        finally:
            after()
            opened.close()
        return None


class SinkAcceptance(ConnectorAcceptance):
    """The tests for sinks.

    Subclass it with a name that pytest collects, and return a driver. Set an attribute that
    begins with ``cannot`` to the reason why a promise does not apply; the reason is shown for
    each test skipped because of it. A sink whose connector claims only ``at_least_once`` may
    repeat records but must not lose any.
    """

    kinds: ClassVar[Sequence[str]] = ALL_KINDS
    """The kinds of value that the target supports; see ``headrace.sdk.testing.ALL_KINDS``."""
    why_not_all_kinds: ClassVar[str] = ""
    """Why it does not support the others."""
    cannot_read_back: ClassVar[str] = ""
    """Why nothing can be read from the target."""
    cannot_evolve: ClassVar[str] = ""
    """Why the schema cannot change mid-stream."""
    cannot_refuse: ClassVar[str] = ""
    """Why the target rejects no row of the kit, although the sink reports rejected rows."""
    cannot_break: ClassVar[str] = ""
    """Why the driver cannot make the target fail."""

    @override
    @abstractmethod
    def driver(self, tmp_path: Path) -> SinkDriver:
        """Return a driver for an empty target; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def bench(
        self, headrace_harness: Harness, made: SinkDriver, tmp_path: Path
    ) -> Iterator[SinkBench]:
        home = tmp_path / "headrace"
        with headrace_harness.sink(made.connector, made.config, home) as bench:
            yield bench

    @pytest.fixture
    def fed(self, bench: SinkBench, made: SinkDriver) -> Fed:
        skip_if(self.cannot_read_back)
        return Fed(bench, made)

    def test_values_of_every_kind_arrive_as_they_are(
        self, fed: Fed, subtests: pytest.Subtests
    ) -> None:
        others = [kind for kind in ALL_KINDS if kind not in self.kinds]
        if others and not self.why_not_all_kinds:
            pytest.fail("kinds is incomplete: give the reason in why_not_all_kinds.")
        wrong = fed.check_kinds(self.kinds)
        for kind in self.kinds:
            with subtests.test(kind):
                if kind in wrong:
                    raise wrong[kind]
        for kind in others:
            with subtests.test(kind):
                pytest.skip(self.why_not_all_kinds)

    def test_every_batch_arrives(self, fed: Fed) -> None:
        for first, count in ((0, 3), (3, 0), (3, 1), (4, 0), (4, 40)):
            fed.write(plain_rows(first, count))
        fed.require("Every batch arrives, also after one with no records.", FrameSink.write)

    def test_the_first_batch_may_be_empty(self, fed: Fed) -> None:
        fed.write([])
        fed.write(plain_rows(0))
        fed.require("A batch may have no records, even the first.", FrameSink.write)

    @pytest.mark.parametrize("at", list(Point))
    def test_a_killed_batch_delivers_once_when_it_runs_again(self, fed: Fed, at: Point) -> None:
        for first in (0, 3, 6):
            before = list(fed.rows)
            fed.feed(plain_rows(first))
            fed.step(kill=at)
            if at is not Point.AFTER_COMMIT and fed.is_exact:
                promise = f"Uncommitted records are not visible (killed {at.value})."
                fed.require(promise, StagedWrite, rows=before)
            fed.step()
            read = FrameSink.committed if at is Point.AFTER_COMMIT else StagedWrite.commit
            promise = f"A batch that was killed {at.value} delivers once when it runs again."
            fed.require(promise, read)

    def test_a_batch_killed_many_times_delivers_once(self, fed: Fed) -> None:
        for first in (0, 3):
            fed.feed(plain_rows(first))
            for point in (*Point, Point.AFTER_COMMIT):
                fed.step(kill=point)
            fed.step()
        fed.require("A batch delivers once, however often it was killed.", FrameSink.committed)

    def test_a_stale_owner_changes_nothing(self, fed: Fed) -> None:
        fed.write(plain_rows(0))
        fed.feed(plain_rows(3))

        def taken_over(point: Point) -> None:
            if point is Point.BEFORE_COMMIT:
                fed.step()
                fed.write(plain_rows(6))

        fed.attempt(taken_over)  # it may raise or not; it must not change anything
        promise = "A stale owner's commit changes nothing after a newer epoch has committed."
        fed.require(promise, StagedWrite.commit)
        fed.write(plain_rows(9))
        promise = "The new owner continues after a stale owner's commit."
        fed.require(promise, FrameSink.committed)

    def test_of_two_attempts_at_a_batch_one_is_taken_and_the_other_fails(
        self, fed: Fed
    ) -> None:
        fed.write(plain_rows(0))
        fed.feed(plain_rows(3))
        fed.check_refused_commit(fed.step)
        promise = "A batch that another attempt has committed is in the target once."
        fed.require(promise, StagedWrite.commit)
        fed.write(plain_rows(6))
        promise = "The new owner continues after a stale owner's commit."
        fed.require(promise, FrameSink.committed)

    def test_a_number_that_has_other_records_in_the_target_is_refused(self, fed: Fed) -> None:
        if not fed.is_exact:
            pytest.skip("The sink keeps no marks.")
        fed.write(plain_rows(0))
        other = Fed(fed.bench.copied(), fed.driver, fed.rows)
        fed.bench.feed(plain_rows(3), PLAIN)
        fed.check_refused_commit(lambda: other.write(plain_rows(6)))
        promise = "A rejected batch does not change the target."
        other.require(promise, StagedWrite.commit)

    def test_a_field_that_is_new_in_mid_stream_arrives(self, fed: Fed) -> None:
        skip_if(self.cannot_evolve)
        fed.write(plain_rows(0))
        fed.write([{**row, "more": f"more {row['id']}"} for row in plain_rows(3)], GROWN)
        promise = "A field that is added mid-stream arrives; it is null in older rows."
        fed.require(promise, FrameSink.write, GROWN)
        fed.write(plain_rows(6))
        promise = "A batch without the new field, such as one in flight, arrives too."
        fed.require(promise, FrameSink.write, GROWN)

    def test_what_the_target_refuses_is_dead_lettered_and_the_rest_arrives(
        self, headrace_harness: Harness, fed: Fed
    ) -> None:
        skip_if(self.cannot_refuse)
        task = headrace_harness.unstarted(fed.driver.connector, fed.driver.config())
        declared = (
            task.verifies or type(task).refusals is not FrameSink.refusals
            if isinstance(task, FrameSink)
            else isinstance(task, SinkTask) and bool(task.rejects)
        )
        if not declared:
            pytest.skip("The sink does not report which records its target rejects.")
        fed.bench.tolerant = True
        refused = []
        for first, killed in ((0, None), (10, Point.BEFORE_COMMIT), (20, Point.AFTER_COMMIT)):
            good = plain_rows(first, 5)
            refused.append(first + 7)
            fed.bench.feed([*good[:2], fed.driver.refused(first + 7), *good[2:]], PLAIN)
            fed.rows += good
            if killed is not None:
                fed.step(kill=killed)
            fed.step()
        fed.require("Records that the target does not reject arrive.", SinkTask)
        letters = [(each.stage, each.value["id"]) for each in fed.bench.dead_letters()]
        if sorted(letters) != [("TASK_PUT", number) for number in refused]:
            raise BrokenPromiseError(
                promise="Each record that the target rejects is dead-lettered once.",
                seen=f"Rejected: {refused}; dead-lettered: {letters}.",
                read=FrameSink.refusals,
            )

    @pytest.mark.parametrize("at", [Point.BEFORE_WRITE, Point.BEFORE_COMMIT])
    def test_an_outage_of_the_target_loses_nothing(self, fed: Fed, at: Point) -> None:
        skip_if(self.cannot_break)
        fed.write(plain_rows(0))
        fed.feed(plain_rows(3))

        def outage(point: Point) -> None:
            if point is at:
                fed.driver.break_target()

        error = fed.attempt(outage, after=fed.driver.repair_target)
        if error is None and at is Point.BEFORE_WRITE:
            raise BrokenPromiseError(
                promise="A batch that cannot be written fails.",
                seen="break_target was not noticed. (Does it make writes fail?)",
                read=FrameSink.write,
            )
        if isinstance(error, RecordError):
            raise BrokenPromiseError(
                promise="An outage is not an error of a record: raise RetriableError.",
                seen=f"It raised {error!r}.",
                read=RecordError,
            )
        fed.step()
        fed.require("An outage loses nothing: the batch runs again.", StagedWrite.commit)

    def test_tasks_do_not_disturb_each_other(self, fed: Fed) -> None:
        fed.feed(plain_rows(0), task=0)
        fed.feed(plain_rows(100), task=1)

        def other(point: Point) -> None:
            if point is Point.BEFORE_COMMIT:
                fed.step(task=1)

        opened = fed.bench.open(task=0, hook=other)
        opened.step()
        opened.close()
        fed.feed(plain_rows(103), task=1)
        fed.step(task=1, kill=Point.AFTER_COMMIT)
        fed.step(task=1)
        fed.require("Tasks of one connector do not disturb each other.", SinkTask)

    def test_nothing_is_left_after_stop(self, bench: SinkBench, made: SinkDriver) -> None:
        fed, numbers = Fed(bench, made), iter(range(1_000))
        check_leaks(lambda: fed.write(plain_rows(next(numbers), 1)))
