"""A batch of ``headrace run`` that cannot run any more is given up by a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.control import Holding, read_definitions
from headrace.model import Batch, BatchState, Counts, Definition, TaskId
from headrace.runtime.app import Runtime
from headrace.sdk import ConfigError, Mark, Position, Schema, StateError
from headrace.sdk.errors import StaleEpochError
from headrace.settings import load_settings
from headrace_plugins.connectors.file.folder import FolderSink

TASK = TaskId("copy", 0)
END = Position.of({"path": "in/*.csv"}, {"count": 1})
MINUTE = timedelta(minutes=1)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime(load_settings(home=tmp_path / "home")) as opened:
        yield opened


@pytest.fixture
def definition(runtime: Runtime, tmp_path: Path) -> Definition:
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"name: copy\nsource: {{connector: file, path: {tmp_path}/in/*.csv}}\n"
        f"sinks: [{{connector: file, path: {tmp_path}/out}}]\n"
    )
    (tmp_path / "in").mkdir()
    [found] = read_definitions(file, runtime.registry.reads)
    return found


@pytest.fixture
def batch(runtime: Runtime) -> Batch:
    store = runtime.state
    lease = store.lease(TASK, "w", store.now(), MINUTE)
    begun = store.begin_batch(TASK, lease.epoch, Position(), END, store.now())
    store.release(lease)
    return begun


@pytest.mark.parametrize(("skip", "position"), [(False, Position()), (True, END)])
def test_its_records_are_read_again_or_left_out(
    runtime: Runtime, definition: Definition, batch: Batch, skip: bool, position: Position
) -> None:
    way_out = runtime.giving_up(definition)
    shown = way_out.give_up(None, skip=skip, force=False, dry_run=True)
    assert (shown.batch.id, shown.done) == (batch.id, False)
    assert runtime.state.batches(TASK, 1)[0].state is not BatchState.FINISHED
    given = way_out.give_up(0, skip=skip, force=False, dry_run=False)
    assert [each.holds for each in given.targets] == [Holding.NO]
    assert runtime.state.position(TASK) == position
    with pytest.raises(ConfigError, match="copy has no unfinished batch"):
        way_out.give_up(None, skip=skip, force=False, dry_run=False)


def test_whoever_ran_it_cannot_finish_it_any_more(
    runtime: Runtime, definition: Definition, batch: Batch
) -> None:
    runtime.giving_up(definition).give_up(None, skip=False, force=False, dry_run=False)
    with pytest.raises(StaleEpochError):
        runtime.state.finish_batch(TASK, batch.epoch, batch.id, Counts(), runtime.state.now())


def test_it_is_refused_while_the_task_runs(
    runtime: Runtime, definition: Definition, batch: Batch
) -> None:
    runtime.state.lease(TASK, "another", runtime.state.now(), MINUTE)
    with pytest.raises(StateError, match="another"):
        runtime.giving_up(definition).give_up(None, skip=False, force=True, dry_run=False)


def test_what_a_target_holds_is_given_up_by_force_only(
    runtime: Runtime, definition: Definition, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def committed(_self: FolderSink, mark: Mark, _topic: str) -> str:
        return mark.receipt({})

    monkeypatch.setattr(FolderSink, "committed", committed)
    way_out = runtime.giving_up(definition)
    with pytest.raises(StateError, match="holds batch 1 of task copy-0"):
        way_out.give_up(None, skip=True, force=False, dry_run=False)
    way_out.give_up(None, skip=True, force=True, dry_run=False)
    assert runtime.state.position(TASK) == END


@pytest.mark.parametrize(
    "topic", ["customers", "sink 40bf3df91bda: customers", "sink 0: customers"]
)
def test_a_sink_with_a_folder_for_each_table_is_asked_by_the_names_of_streams(
    runtime: Runtime, tmp_path: Path, batch: Batch, topic: str
) -> None:
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"name: copy\nsource: {{connector: file, path: {tmp_path}/in/*.csv}}\n"
        f"sinks: [{{connector: delta, path: '{tmp_path}/lake/${{table}}'}}]\n"
    )
    (tmp_path / "in").mkdir()
    [found] = read_definitions(file, runtime.registry.reads)
    runtime.state.put_schema("copy", topic, Schema.struct({}))
    way_out = runtime.giving_up(found)
    given = way_out.give_up(None, skip=False, force=False, dry_run=False)
    assert [each.holds for each in given.targets] == [Holding.NO]


def test_a_topic_is_asked_beside_the_schema_that_a_path_was_inferred_to_have(
    runtime: Runtime, tmp_path: Path, batch: Batch
) -> None:
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"name: copy\nsource: {{connector: file, path: {tmp_path}/in/*.csv}}\ntopic: copied\n"
    )
    (tmp_path / "in").mkdir()
    [found] = read_definitions(file, runtime.registry.reads)
    runtime.state.put_schema("copy", f"{tmp_path}/in/*.csv", Schema.struct({}))
    given = runtime.giving_up(found).give_up(None, skip=False, force=False, dry_run=False)
    assert [each.holds for each in given.targets] == [Holding.NO]


def test_offsets_are_not_reset_beside_it(
    runtime: Runtime, definition: Definition, batch: Batch
) -> None:
    with pytest.raises(StateError, match="Batch 1 of task copy-0 is unfinished") as raised:
        runtime.reset_offsets(definition)
    assert batch.way_out in raised.value.fix
