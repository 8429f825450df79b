"""Every store of connectors lets go of a batch that cannot run any more."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import ConnectorKind, Counts, Stamp, TargetState, TaskId
from headrace.sdk import Position, StateError
from headrace.sdk.errors import StaleEpochError
from headrace.store import (
    ConnectorStore,
    Place,
    Store,
)

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
ANN = Stamp(NOW, "ann")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
def test_an_unfinished_batch_of_a_stopped_connector_can_be_given_up(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    data: Store = Store(place)
    wanted: ConnectorStore = ConnectorStore(place)
    wanted.create("orders", ConnectorKind.SOURCE, {}, TargetState.RUNNING, ANN)
    task, end = TaskId("orders", 0), Position.of({"p": 1}, {"at": 5})
    lease = data.lease(task, "w", NOW, timedelta(seconds=5))
    batch = data.begin_batch(task, lease.epoch, Position(), end, NOW)
    with pytest.raises(StateError, match="is not stopped"):
        wanted.give_up(task, batch.id, ANN, skip=True)
    wanted.set_target("orders", TargetState.STOPPED, ANN)
    with pytest.raises(StateError, match="is run by w"):
        wanted.give_up(task, batch.id, ANN, skip=True)
    data.release(lease)
    assert wanted.give_up(task, batch.id, ANN, skip=True).end == end
    assert (data.unfinished_batch(task), data.position(task)) == (None, end)
    with pytest.raises(StaleEpochError):
        data.finish_batch(task, lease.epoch, batch.id, Counts(), NOW)
    [*_, event] = wanted.events(kinds=["offsets"])
    assert (event.by, event.detail["action"]) == ("ann", "give-up")
    lease = data.lease(task, "w", NOW, timedelta(seconds=5))
    assert data.begin_batch(task, lease.epoch, end, Position(), NOW).id == batch.id + 1
    wanted.close()
    data.close()
