"""A batch that all targets hold is finished without its records, which may be gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from headrace.dataplane import Flow, Step
from headrace.model import Batch, Counts, TaskId
from headrace.sdk import DataLostError, Mark, Position
from headrace.sdk.location import Location
from headrace_plugins.transforms.routers import RegexRouter

END = Position.of({"log": "a"}, {"row": 3})
BATCH = Batch(TaskId("c", 0), 7, 2, Position(), END, datetime.now(UTC), again=True)


class Gone:
    """A source whose rows are gone."""

    def read(self, *_: object) -> object:
        raise DataLostError


@dataclass
class Target:
    """A sink that may hold the batch."""

    holds: bool
    topic: str = "t"

    def committed(self, mark: Mark, topic: str) -> str | None:
        assert (mark.batch, topic) == (7, self.topic)
        return mark.receipt({"read": 3, "written": 3}) if self.holds else None


def flow(*targets: Target, steps: Sequence[Step] = ()) -> Flow:
    unused: Any = None
    return Flow(
        spark=unused,
        application="c-1-0",
        topic="t",
        source=cast("Any", Gone()),
        steps=steps,
        sinks=cast("Any", targets),
        names=[str(number) for number, _ in enumerate(targets)],
        staging=Location.of("."),
    )


def test_the_counts_are_those_of_the_receipts() -> None:
    assert flow(Target(holds=True), Target(holds=True)).run(BATCH) == Counts(read=3, written=3)


def test_one_target_without_it_leaves_it_in_doubt() -> None:
    with pytest.raises(DataLostError):
        flow(Target(holds=True), Target(holds=False)).run(BATCH)


def test_it_is_looked_for_in_the_topic_that_the_chain_gives() -> None:
    props = {"regex": "t", "replacement": "renamed"}
    step = Step(RegexRouter("r", RegexRouter.config_def().parse(props)))
    counts = flow(Target(holds=True, topic="renamed"), steps=[step]).run(BATCH)
    assert counts == Counts(read=3, written=3)
