"""Which rows the batches of a Delta source have: plans and errors, without Spark."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plugins.connectors.delta_planning import SOME, Table, ids, planned

from headrace.sdk import (
    ConfigError,
    DataLostError,
    HeadraceError,
    Position,
    ReadLimit,
    SourceError,
    StateError,
)
from headrace.sdk.deltalog import write_commit
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.reader import DeltaReader, Place
from headrace_plugins.connectors.delta.source import DeltaSource


def time_of(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ({}, [1, 2, 3, 4]),
        ({"starting_version": "0"}, [1, 2, 3, 4]),
        ({"starting_version": "2"}, [2, 3, 4]),
        ({"starting_version": "4"}, [4]),
        ({"starting_version": "5"}, []),
        ({"starting_version": "latest"}, []),
        ({"starting_version": "2", "snapshot_mode": "initial"}, [1, 2, 3, 4]),
        ({"starting_version": "latest", "snapshot_mode": "initial"}, [1, 2, 3, 4]),
        ({"snapshot_mode": "never"}, []),
        ({"starting_timestamp": time_of(2)}, [2, 3, 4]),
        ({"starting_timestamp": "1970-01-01T00:00:02.001"}, [3, 4]),
        ({"starting_timestamp": "1970-01-01"}, [1, 2, 3, 4]),
        ({"starting_timestamp": time_of(9)}, []),
        ({"starting_timestamp": time_of(2), "snapshot_mode": "initial"}, [1, 2, 3, 4]),
        ({"ending_version": "2"}, [1, 2]),
        ({"ending_version": "9"}, [1, 2, 3, 4]),
        ({"ending_timestamp": time_of(2)}, [1, 2]),
        ({"ending_timestamp": "1970-01-01 00:00:03.500"}, [1, 2, 3]),
        ({"starting_version": "2", "ending_version": "3"}, [2, 3]),
        (
            {"starting_version": "2", "ending_version": "2", "snapshot_mode": "initial"},
            [1, 2],
        ),
        ({"starting_timestamp": time_of(3), "ending_timestamp": time_of(3)}, [3]),
    ],
)
@pytest.mark.parametrize("files", ["1", "3", "1000"])
def test_a_start_and_an_end_are_versions_or_times(
    table: Table, keys: dict[str, str], rows: list[int], files: str
) -> None:
    table.fill(4)
    found, _ = planned(table.read(**keys, max_files=files))
    assert [row for batch in found for row in batch] == rows
    assert all(len(batch) <= int(files) for batch in found)


def test_where_a_task_begins_is_written_down_once(table: Table) -> None:
    table.fill(2)
    end = table.read(starting_version="latest").latest(Position(), SOME)
    table.append(3)
    later = table.read(starting_version="latest")
    assert ids(later, Position(), end) == []
    assert planned(later, end)[0] == [[3]]


def test_a_first_batch_is_the_same_however_late_it_runs(table: Table) -> None:
    table.fill(2)
    task = table.read(starting_version="latest")
    start = task.latest(Position(), SOME)
    table.append(3)
    for keys in ({"starting_version": "latest"}, {}):
        first = table.read(**keys)
        end = first.latest(Position(), SOME)
        rows = ids(first, Position(), end)
        table.append(int(table.versions) + 1)
        assert ids(table.read(**keys), Position(), end) == rows
    assert planned(table.read(), start)[0] == [[3, 4, 5]]


def test_a_run_that_ends_comes_to_the_end_that_was_there_when_it_began(table: Table) -> None:
    table.fill(3)
    task = table.read(max_files="2")
    until = task.latest(Position(), ReadLimit())
    table.append(4)
    found, end = planned(task, limit=ReadLimit(rows=1_000_000, until=until))
    assert found == [[1, 2], [3]]
    assert end == until
    assert task.latest(end, ReadLimit(until=until)) == until


def test_limits_of_rows_and_bytes_divide_a_snapshot_and_what_follows(table: Table) -> None:
    table.fill(3)
    task = table.read()
    assert planned(task, limit=ReadLimit(rows=2))[0] == [[1, 2], [3]]
    assert planned(task, limit=ReadLimit(size_bytes=1))[0] == [[1], [2], [3]]
    assert planned(task, table.at(0), ReadLimit(rows=2))[0] == [[1, 2], [3]]
    lag = task.lag(table.at(1))
    assert lag.rows == 2
    assert lag.size_bytes == task.size_bytes(table.at(1), table.at(3)) > 0


def test_a_rewrite_of_the_same_rows_repeats_none(table: Table) -> None:
    table.create()
    table.append(1)
    task = table.read()
    _, start = planned(task)
    write_deltalake(table.path, pa.table({"id": [7], "name": ["1"]}), mode="append")
    DeltaTable(table.path).optimize.compact()
    table.append(2)
    assert planned(task, start)[0] == [[1, 2]]


def test_a_task_ends_where_its_end_is_certain(table: Table) -> None:
    table.fill(2)
    task = table.read(starting_version="2", ending_version="3")
    _, at = planned(task)
    assert not task.ended(at)
    table.append(3)
    table.append(4)
    found, at = planned(task, at)
    assert found == [[3]]
    assert task.ended(at)
    timed = table.read(ending_timestamp=time_of(4))
    _, at = planned(timed)
    assert not timed.ended(at)  # another commit of that time may come
    table.append(5)
    assert timed.ended(at)
    assert not table.read().ended(at)


@pytest.mark.parametrize(
    ("condition", "problem", "keys"),
    [
        ("id = 1", "deletes rows", "skip.change.commits or ignore.deletes"),
        ("id = 10", "updates or deletes rows", "skip.change.commits to"),
    ],
)
def test_a_commit_that_changes_rows_is_an_error_after_what_came_before(
    table: Table, condition: str, problem: str, keys: str
) -> None:
    table.create()
    write_deltalake(table.path, pa.table({"id": [10, 11], "name": ["5", "5"]}), mode="append")
    table.append(1)
    table.delete(condition)
    table.append(3)
    task = table.read(starting_version="0")
    end = task.latest(Position(), SOME)
    assert ids(task, Position(), end) == [5, 1]
    with pytest.raises(SourceError, match=f"Version 3 .* {problem}") as caught:
        task.latest(end, SOME)
    assert keys in caught.value.fix
    # The end of all that is there lies behind it: an offline run comes to the error too.
    assert task.latest(end, ReadLimit()) != end

    assert planned(table.read(skip_change_commits="true"), end)[0] == [[3]]
    if condition == "id = 1":
        assert planned(table.read(ignore_deletes="true"), end)[0] == [[3]]
    else:
        assert planned(table.read(ignore_changes="true"), end)[0] == [[5, 3]]
        with pytest.raises(SourceError):
            table.read(ignore_deletes="true").latest(end, SOME)


def test_a_version_without_a_change_feed_is_an_error(table: Table) -> None:
    table.fill(1)
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable(table.path).alter.set_table_properties(feed)
    table.append(3)
    with pytest.raises(SourceError, match=r"Version 1 .* no change feed") as caught:
        planned(table.read(read_change_feed="true", starting_version="0"))
    assert '{"version": 1}' in caught.value.fix
    task = table.read(read_change_feed="true")
    found, at = planned(task)
    assert found == [[1, 3]]
    off = {"delta.enableChangeDataFeed": "false"}
    DeltaTable(table.path).alter.set_table_properties(off)
    table.append(5)
    with pytest.raises(SourceError, match="Version 5 "):
        planned(task, at)


def test_a_version_of_a_feed_is_never_divided(table: Table) -> None:
    table.create(enableChangeDataFeed="true")
    table.append(1, 2, 3)
    table.append(4)
    task = table.read(read_change_feed="true", starting_version="0", max_files="1")
    found = [sorted(batch) for batch in planned(task)[0]]
    assert found == [[1, 2, 3], [4]]


def test_a_feed_begins_at_the_end_of_a_version(table: Table) -> None:
    table.create(enableChangeDataFeed="true")
    table.append(1, 2, 3)
    table.append(4)
    rows = table.read(starting_version="0", max_files="2")
    half = rows.latest(Position(), SOME)
    assert len(ids(rows, Position(), half)) == 2
    feed = table.read(read_change_feed="true", starting_version="0")
    with pytest.raises(StateError, match="2 files of version 1 ") as caught:
        feed.latest(half, SOME)
    assert "ending.version to 1" in caught.value.fix
    with pytest.raises(StateError, match="2 files of version 1 "):
        ids(feed, Position(), half)  # of an attempt before the feed was set
    found, whole = planned(table.read(ending_version="1"), half)
    assert [len(batch) for batch in found] == [1]
    assert planned(feed, whole)[0] == [[4]]
    (again,), _ = planned(feed, table.at(1, index=0))
    assert sorted(again) == [1, 2, 3, 4]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("version", [0, None])
def test_vacuumed_files_are_an_error_with_a_way_out(
    table: Table, version: int | None, begun: bool
) -> None:
    table.create()
    for name in (1, 2):
        write_deltalake(table.path, pa.table({"id": [name], "name": ["1"]}), mode="append")
    start = Position() if version is None else table.at(version)
    task = table.read(max_files="1")
    end = task.latest(start, SOME)
    DeltaTable(table.path).optimize.compact()
    vacuum = DeltaTable(table.path).vacuum
    vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    session: Any = None  # it comes to none
    again = start if version == 0 else end

    def go_on() -> object:
        return task.read(session, start, end) if begun else task.latest(again, SOME)

    with pytest.raises(DataLostError, match=r"version \d is gone.*VACUUM") as caught:
        go_on()
    assert "newer snapshot" in caught.value.fix
    assert planned(table.read())[0] == [[1]]


def test_versions_that_the_log_has_forgotten_are_an_error_with_a_way_out(table: Table) -> None:
    table.fill(4)
    DeltaTable(table.path).create_checkpoint()
    for version in (0, 1, 2):
        table.log(version).unlink()
    with pytest.raises(DataLostError, match=r"Version 2 .* begins with version 3") as caught:
        table.read(starting_version="2").latest(Position(), SOME)
    assert '{"version": 2}' in caught.value.fix
    assert planned(table.read(), table.at(2))[0] == [[3, 4]]
    with pytest.raises(ConfigError, match="begins with version 3, which is later"):
        table.read(starting_timestamp=time_of(1)).latest(Position(), SOME)
    old = table.at(2, index=0, snapshot=True)
    with pytest.raises(DataLostError, match="can no longer be read at version 2"):
        table.read().latest(old, SOME)


def test_a_table_that_was_made_anew_is_an_error_with_a_way_out(table: Table) -> None:
    table.fill(1)
    task = table.read()
    _, at = planned(task)
    shutil.rmtree(table.path)
    with pytest.raises(ConfigError, match="not a Delta table"):
        task.latest(at, SOME)
    table.create()
    with pytest.raises(DataLostError, match=r"ends at version 0.*created again") as caught:
        task.latest(at, SOME)
    assert "reset the offsets" in caught.value.fix
    table.append(2)
    table.append(3)
    for reader in (task, table.read()):
        with pytest.raises(DataLostError, match="another id"):
            reader.latest(at, SOME)
        with pytest.raises(DataLostError, match="another id"):
            ids(reader, Position(), at)
    assert planned(table.read())[0] == [[2, 3]]


def test_a_table_made_anew_in_files_of_the_same_numbers_is_noticed(table: Table) -> None:
    table.fill(1)
    task = table.read()
    _, at = planned(task)
    other = Table(table.path.with_name("other"))
    other.fill(1)
    for version in (0, 1):
        table.log(version).write_text(other.log(version).read_text())
    with pytest.raises(DataLostError, match="another id"):
        task.latest(at, SOME)


def put_back(table: Table, copy: Path) -> None:
    shutil.rmtree(table.path)
    shutil.copytree(copy, table.path)


def test_a_table_put_back_from_an_older_copy_and_written_on_is_an_error(table: Table) -> None:
    table.fill(2)
    copy = table.path.with_name("copy")
    shutil.copytree(table.path, copy)
    task = table.read()
    _, at = planned(task, table.at(2))
    table.append(3)
    table.append(4)
    end = task.latest(at, SOME)
    put_back(table, copy)
    assert planned(task, at)[0] == []  # nothing of the copy is another
    table.append(30)
    table.append(40)
    for reader in (task, table.read()):
        with pytest.raises(DataLostError, match=r"another version 4 .*older copy"):
            reader.latest(end, SOME)
        with pytest.raises(DataLostError, match="another version 4 "):
            ids(reader, at, end)
    table.append(50)
    with pytest.raises(DataLostError, match="another version 4 "):
        table.read().latest(end, SOME)
    rewound = DeltaSource.position_at(table.config(), end, datetime.fromtimestamp(4, UTC))
    assert rewound is not None
    put_back(table, copy)
    table.append(31)
    with pytest.raises(DataLostError, match="another version 3 "):
        table.read().latest(rewound, SOME)


def test_a_position_goes_on_where_its_commit_cannot_be_compared(table: Table) -> None:
    table.fill(3)
    task = table.read()
    _, at = planned(task)
    offset = at.offset({"path": str(table.path)})
    assert offset is not None
    assert offset["commit"].startswith("3-")
    table.append(4)
    older = {name: offset[name] for name in ("version", "table")}
    altered = {**offset, "version": 2}
    for known, rows in ((offset, [4]), (older, [4]), (altered, [3, 4])):
        position = Position.of({"path": str(table.path)}, known)
        DeltaSource.alter_offsets(table.config(), position)
        assert planned(table.read(), position)[0] == [rows]
    DeltaTable(table.path).create_checkpoint()
    for version in range(4):
        table.log(version).unlink()
    assert planned(task, at)[0] == [[4]]
    assert planned(table.read(), at)[0] == [[4]]


def test_columns_that_an_overwrite_drops_are_an_error(table: Table) -> None:
    table.fill(1)
    task = table.read(skip_change_commits="true")
    _, at = planned(task)
    write_deltalake(
        table.path,
        pa.table({"name": ["9"], "other": [1]}),
        mode="overwrite",
        schema_mode="overwrite",
    )
    with pytest.raises(SourceError, match="id was dropped"):
        task.latest(at, SOME)


def test_a_damaged_commit_is_an_error(table: Table) -> None:
    table.fill(1)
    task = table.read()
    _, at = planned(task)
    for text in ("", '{"commitInfo": {}}\n{"add": {"pa'):
        table.log(2).write_text(text)
        with pytest.raises(DataLostError, match="truncated"):
            task.latest(at, SOME)


def test_an_unknown_feature_is_named(table: Table) -> None:
    table.create()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["magic"], "writerFeatures": ["magic"]}
    write_commit(Location.of(table.path), 1, {"protocol": protocol | features})
    (error,) = DeltaSource.check(table.config())
    assert error.field == "path"
    assert "magic" in error.problem


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        ({"file": "x"}, {"version": 1}),
        ({"path": "x"}, {"version": "1"}),
        ({"path": "x"}, {"version": -2}),
        ({"path": "x"}, {"version": 1, "index": -1}),
        ({"path": "x"}, {"version": 1, "commit": 1}),
        ({"path": "x"}, {}),
    ],
)
def test_offsets_that_are_none_are_refused(
    table: Table, partition: dict[str, Any], offset: dict[str, Any]
) -> None:
    table.create()
    with pytest.raises(ConfigError, match="Invalid position"):
        DeltaSource.alter_offsets(table.config(), Position.of(partition, offset))


def test_a_rewind_goes_to_what_was_committed_at_a_time_or_later(table: Table) -> None:
    table.fill(3)
    task = table.read()
    _, at = planned(task)
    there = DeltaSource.position_at(table.config(), at, datetime.fromtimestamp(2, UTC))
    assert there is not None
    DeltaSource.alter_offsets(table.config(), there)
    assert planned(task, there)[0] == [[2, 3]]


def test_a_range_that_goes_backwards_is_refused(table: Table) -> None:
    table.fill(2)
    task = table.read()
    with pytest.raises(StateError, match="begins at"):
        ids(task, table.at(2), table.at(1))


def test_an_end_before_the_table_or_before_the_start_reads_nothing(table: Table) -> None:
    table.fill(2)
    os.utime(table.log(0), (1, 1))
    with pytest.raises(ConfigError, match="created after this time"):
        table.read(ending_timestamp="1970-01-01").latest(Position(), SOME)
    task = table.read(starting_version="2", ending_timestamp=time_of(1))
    for limit in (SOME, ReadLimit()):
        assert planned(task, limit=limit)[0] == [[]]


def test_a_start_behind_the_table_is_refused_when_the_task_begins(table: Table) -> None:
    table.fill(1)
    with pytest.raises(ConfigError, match="newest version of the table is 1"):
        table.read(starting_version="3").latest(Position(), SOME)


@given(
    st.builds(
        Place,
        st.integers(-1, 2**40),
        st.none() | st.integers(0, 2**40),
    )
)
def test_a_place_survives_as_an_offset(place: Place) -> None:
    assert Place.of(json.loads(json.dumps(place.offset()))) == place


_FILES = st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=4)
"""Files of a version: how many rows each has, and whether they are new."""


_Files = list[tuple[int, bool]]


def commit(table: Table, version: int, content: _Files) -> list[str]:
    """Commit files without rows; return those that are new."""
    actions: list[dict[str, Any]] = []
    new = []
    for number, (count, change) in enumerate(content):
        path = f"name=0/{version}-{number}"
        (table.path / path).parent.mkdir(exist_ok=True)
        (table.path / path).touch()
        add = {
            "path": path,
            "partitionValues": {"name": "0"},
            "size": count,
            "modificationTime": version * 10 + number,
            "dataChange": change,
            "stats": json.dumps({"numRecords": count}),
        }
        actions.append({"add": add})
        new += [path] if change else []
    info = {"commitInfo": {"timestamp": version}}
    write_commit(Location.of(table.path), version, info, *actions)
    return new


def paths(task: DeltaReader, begin: Position, end: Position) -> list[str]:
    return [file.path for piece in task._range(begin, end) for file in piece.files]


@settings(max_examples=60)
@given(
    versions=st.lists(_FILES, min_size=1, max_size=6),
    start=st.sampled_from([None, "0", "1", "latest"]),
    limits=st.tuples(st.integers(1, 20), st.integers(1, 5)),
    more=st.lists(_FILES, max_size=2),
)
def test_batches_have_every_new_file_once_and_in_order(
    versions: list[_Files],
    start: str | None,
    limits: tuple[int, int],
    more: list[_Files],
) -> None:
    with TemporaryDirectory() as folder:
        table = Table(Path(folder) / "table")
        table.create()
        batches_of(table, versions, start, limits, more)


def batches_of(
    table: Table,
    versions: list[_Files],
    start: str | None,
    limits: tuple[int, int],
    more: list[_Files],
) -> None:
    rows, files = limits

    # A snapshot has all files, a commit those that are new.
    new = {
        version: commit(table, version, content) for version, content in enumerate(versions, 1)
    }
    every = [
        f"name=0/{version}-{number}"
        for version, content in enumerate(versions, 1)
        for number in range(len(content))
    ]
    keys = {"starting_version": start} if start else {}
    limit = ReadLimit(rows=rows)
    found: list[str] = []
    at = Position()
    ranges: list[tuple[Position, Position, list[str]]] = []
    arriving = list(enumerate(more, len(versions) + 1))
    while True:
        # Each batch is planned by a task of its own, as after a crash.
        task = table.read(**keys, max_files=str(files))
        end = task.latest(at, limit)
        if end == at:
            if not arriving:
                break
            version, content = arriving.pop(0)
            new[version] = commit(table, version, content)
            if start is None and not found and not ranges:
                every += [f"name=0/{version}-{number}" for number in range(len(content))]
            continue
        batch = paths(task, at, end)
        assert len(batch) <= files
        ranges.append((at, end, batch))
        found += batch
        at = Position.from_json(end.to_json())
    later = [path for version, some in new.items() for path in some if version > len(versions)]
    if start is None:
        expected = every + [path for path in later if path not in every]
    elif start == "latest":
        expected = later
    else:
        expected = [p for version, some in new.items() for p in some if version >= int(start)]
    assert found == expected
    another = table.read(**keys)
    for begin, end, batch in ranges:
        assert paths(another, begin, end) == batch


def test_errors_of_the_log_are_errors_of_headrace(table: Table) -> None:
    table.create()
    table.log(0).write_text("nonsense")
    with pytest.raises(HeadraceError):
        table.read()


def test_a_batch_looks_at_its_own_commits_only(table: Table) -> None:
    table.fill(6)
    DeltaTable(table.path).create_checkpoint()
    table.log(5).write_text("nonsense")
    task = table.read()
    first = task.latest(table.at(1), ReadLimit(rows=2))
    assert ids(task, table.at(1), first) == [2, 3]
    with pytest.raises(DataLostError, match="truncated"):
        planned(task, first)
