"""A batch that cannot run any more is given up by a person, and nothing is given up blindly."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from tests.unit.control.test_offsets import FILES, Bench
from tests.unit.worker.scripts import now

from headrace.control import GivenUp, Holding, TargetView, UnfinishedBatches
from headrace.model import Batch, Connector, TargetState, TaskId
from headrace.sdk import Position, StateError

TASK = TaskId("c", 0)
START = Position.of({"filename": "/in"}, {"position": 10})
END = Position.of({"filename": "/in"}, {"position": 20})


@dataclass
class Answers:
    """Targets that answer as they are told to."""

    views: Sequence[TargetView] = (TargetView("Sink", Holding.NO),)
    topics: Sequence[str] = field(default=())

    def ask(
        self, connector: Connector, batch: Batch, topics: Sequence[str]
    ) -> Sequence[TargetView]:
        assert (connector.name, batch.start, batch.end) == ("c", START, END)
        self.topics = topics
        return self.views


class Doubt(Bench):
    """A stopped connector whose task has an unfinished batch."""

    def __init__(self) -> None:
        super().__init__()
        self.make(FILES)
        self.run(START, "c")
        lease = self.state.lease(TASK, "w", now(), timedelta(seconds=60))
        self.batch = self.state.begin_batch(TASK, lease.epoch, START, END, now()).id
        self.state.release(lease)
        self.answers = Answers()

    def give_up(self, **how: bool) -> GivenUp:
        batches = UnfinishedBatches(self.connectors, self.answers)
        return batches.give_up(TASK, self.batch, "ann", **how)


@pytest.fixture
def doubt() -> Doubt:
    return Doubt()


@pytest.mark.parametrize(
    ("skip", "position", "told"),
    [(False, START, "some of them gets duplicates"), (True, END, "are skipped")],
)
def test_the_task_goes_on_from_the_start_or_the_end_of_the_batch(
    doubt: Doubt, skip: bool, position: Position, told: str
):
    given = doubt.give_up(skip=skip)
    assert (given.done, told in given.meaning) == (True, True)
    assert "position 10 and filename /in, position 20" in given.meaning
    assert doubt.state.unfinished_batch(TASK) is None
    assert doubt.state.position(TASK) == position
    lease = doubt.state.lease(TASK, "w", now(), timedelta(seconds=60))
    again = doubt.state.begin_batch(TASK, lease.epoch, position, END.without({}), now())
    assert again.id == doubt.batch + 1


def test_who_gave_what_up_is_on_record(doubt: Doubt):
    doubt.give_up(skip=True)
    [update] = doubt.offsets.history("c")
    assert (update.action, update.by) == ("give-up", "ann")
    assert [change.effect for change in update.changes] == ["skipped"]
    event = doubt.wanted.events(kinds=["offsets"])[-1]
    assert event.detail["batch"] == {
        "task": 0,
        "id": doubt.batch,
        "start": START.to_json(),
        "end": END.to_json(),
    }


def test_a_dry_run_changes_nothing(doubt: Doubt):
    doubt.answers.views = [TargetView("Sink", Holding.YES)]
    given = doubt.give_up(dry_run=True)
    assert (given.done, given.targets) == (False, doubt.answers.views)
    assert doubt.state.unfinished_batch(TASK) is not None


@pytest.mark.parametrize(
    ("views", "problem", "fix"),
    [
        (
            [("A", "yes"), ("B", "no")],
            "A holds batch 1 of task c-0. B may not hold it.",
            "Start the",
        ),
        (
            [("A", "part"), ("B", "no")],
            "Batch 1 of task c-0 is partly written. A: away",
            "lost",
        ),
        (
            [("A", "part"), ("B", "yes")],
            "B holds batch 1 of task c-0. A may not hold it.",
            "Start the",
        ),
        ([("A", "unknown")], "Cannot determine whether batch 1 was written. A: away", "force"),
    ],
)
def test_what_a_target_holds_or_may_hold_is_given_up_by_force_only(
    doubt: Doubt, views: list[tuple[str, str]], problem: str, fix: str
):
    doubt.answers.views = [TargetView(name, Holding(holds), "away") for name, holds in views]
    with pytest.raises(StateError) as refused:
        doubt.give_up()
    assert problem in refused.value.problem
    assert fix in refused.value.fix
    assert doubt.state.unfinished_batch(TASK) is not None
    doubt.give_up(force=True)
    assert doubt.state.unfinished_batch(TASK) is None


def test_only_the_unfinished_batch_of_a_stopped_connector_is_given_up(doubt: Doubt):
    doubt.batch += 1
    with pytest.raises(StateError, match="Batch 2 is not an unfinished batch of task c-0"):
        doubt.give_up()
    doubt.batch -= 1
    doubt.connectors.set_target("c", TargetState.RUNNING, "ann")
    with pytest.raises(StateError, match="must be in the STOPPED state"):
        doubt.give_up()
    doubt.stopped()
    doubt.give_up()
    with pytest.raises(StateError, match="Batch 1 is not an unfinished batch"):
        doubt.give_up()


def test_whoever_still_runs_the_batch_keeps_it(doubt: Doubt):
    doubt.state.lease(TASK, "w", now(), timedelta(seconds=60))
    with pytest.raises(StateError, match="is run by w"):
        doubt.give_up()


def test_the_refused_change_of_offsets_names_the_way_out(doubt: Doubt):
    with pytest.raises(StateError, match="Batch 1 of task c-0 is unfinished") as refused:
        doubt.offsets.reset("c", "ann")
    assert "headrace connector offsets give-up c --task 0 --batch 1" in refused.value.fix


def test_an_undo_is_of_the_last_change_that_moved_something(doubt: Doubt):
    doubt.give_up()
    with pytest.raises(StateError, match="have not been changed"):
        doubt.offsets.undo("c", "ann")
