"""The upkeep of a Delta table deletes what the sink left over, and nothing of anybody else."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headrace.sdk import Mark
from headrace.sdk.delta import AddedFile, add_files, staging_folder
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.columns import Fit
from headrace_plugins.connectors.delta.table import Maintenance, Vacuum, create_table

OLD = time.time() - 8 * 24 * 3600
NOW = datetime.now(UTC)
OURS, THEIRS = "copy-1-0", "other-2-0"
FIT = Fit(({"name": "a", "type": "long", "nullable": True, "metadata": {}},), {"a": "a"})
ROWS = pa.table({"a": pa.array([1], pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "lake"
    write_deltalake(path, ROWS)
    return path


def age(*files: Path) -> None:
    for file in files:
        for path in (file, *file.rglob("*")):
            os.utime(path, (OLD, OLD))


def staged(table: Path, application: str, folder: str = "data", *, batch: int = 7) -> Path:
    """Stage a file as an attempt does; return the attempt's folder."""
    attempt = table / staging_folder(Mark(application, batch, 1), folder)
    attempt.mkdir(parents=True)
    pq.write_table(ROWS, attempt / "part-0.parquet")
    return attempt


def maintain(table: Path, vacuum: Vacuum = Vacuum.ALWAYS) -> None:
    Maintenance(table=Location.of(table), application=OURS, vacuum=vacuum).run()


def set_retention(table: Path, text: str) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.deletedFileRetentionDuration": text})


def test_a_table_inside_the_table_and_other_files_stay(table: Path) -> None:
    write_deltalake(table / "orders", pa.table({"b": [1, 2, 3]}))
    notes = table / "notes.txt"
    notes.write_text("mine")
    age(notes, table / "orders")
    maintain(table)
    assert DeltaTable(table / "orders").to_pyarrow_table().num_rows == 3
    assert notes.exists()


@pytest.mark.parametrize("folder", ["data", "_headrace"])
def test_what_another_task_has_staged_stays_however_old_it_is(table: Path, folder: str) -> None:
    attempt = staged(table, THEIRS, folder)
    set_retention(table, "interval 0 hours")
    age(attempt)
    maintain(table)
    assert (attempt / "part-0.parquet").exists()


@pytest.mark.parametrize("folder", ["data", "_headrace"])
def test_what_a_crashed_attempt_of_the_task_left_is_deleted_after_a_week(
    table: Path, folder: str
) -> None:
    old, young = staged(table, OURS, folder), staged(table, OURS, folder, batch=8)
    age(old)
    maintain(table)
    assert not old.exists()
    assert young.exists()


def test_a_large_attempt_that_is_still_written_to_stays(table: Path) -> None:
    attempt = staged(table, OURS)
    os.utime(attempt, (OLD, OLD))
    maintain(table)
    assert attempt.exists()


def test_files_that_an_older_version_names_stay(table: Path) -> None:
    attempt = staged(table, OURS)
    name = (attempt / "part-0.parquet").relative_to(table).as_posix()
    file = AddedFile(name, (attempt / "part-0.parquet").stat().st_size, 1)
    add_files(DeltaTable(table), [file], Mark(OURS, 7, 1), "{}", NOW)
    version = DeltaTable(table).version()
    DeltaTable(table).delete()
    age(attempt)
    maintain(table, Vacuum.NEVER)
    assert DeltaTable(table, version=version).to_pyarrow_table().num_rows == 2


def replace_all(path: Path) -> None:
    """Replace a table's files by none, to be deleted at once."""
    set_retention(path, "interval 0 hours")
    DeltaTable(path).delete()


def test_replaced_files_are_deleted_in_tables_that_the_sink_has_created(tmp_path: Path) -> None:
    path = tmp_path / "own"
    create_table(Location.of(path), FIT, partition_by=(), properties={})
    write_deltalake(path, ROWS, mode="append")
    replace_all(path)
    maintain(path, Vacuum.NEVER)
    assert len(list(path.glob("*.parquet"))) == 1
    write_deltalake(path, ROWS, mode="append")
    DeltaTable(path).delete()
    maintain(path, Vacuum.CREATED)
    assert len(list(path.glob("*.parquet"))) == 1


@pytest.mark.parametrize(("vacuum", "left"), [(Vacuum.CREATED, 1), (Vacuum.ALWAYS, 0)])
def test_replaced_files_of_other_tables_are_deleted_only_if_asked_for(
    table: Path, vacuum: Vacuum, left: int
) -> None:
    replace_all(table)
    maintain(table, vacuum)
    assert len(list(table.glob("*.parquet"))) == left


def test_a_table_that_was_made_anew_by_another_program_is_not_the_sinks(tmp_path: Path) -> None:
    path = tmp_path / "t"
    create_table(Location.of(path), FIT, partition_by=(), properties={})
    for file in (path / "_delta_log").iterdir():
        file.unlink()
    write_deltalake(path, ROWS)
    replace_all(path)
    maintain(path, Vacuum.CREATED)
    assert len(list(path.glob("*.parquet"))) == 1


@pytest.mark.parametrize("application", ["copy/0", "a~b", "ä 100%"])
def test_files_of_any_application_are_joined(table: Path, application: str) -> None:
    for batch in (1, 2, 3):
        staging = staging_folder(Mark(application, batch, 1))
        path = table / staging / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(ROWS, path)
        name = path.relative_to(table).as_posix()
        file = AddedFile(name, path.stat().st_size, 1)
        add_files(DeltaTable(table), [file], Mark(application, batch, 1), "", NOW)
    maintain(table)
    assert len(DeltaTable(table).file_uris()) == 1


def test_the_log_of_a_table_that_keeps_it_for_ever_stays(table: Path) -> None:
    properties = {
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": "interval 1 days",
    }
    DeltaTable(table).alter.set_table_properties(properties)
    age(table / "_delta_log")
    maintain(table)
    assert (table / "_delta_log" / f"{0:020d}.json").exists()


def test_upkeep_keeps_the_mark_and_the_rows(table: Path) -> None:
    marked = CommitProperties(app_transactions=[Transaction(OURS, 3)])
    for _ in range(3):
        write_deltalake(table, ROWS, mode="append", commit_properties=marked)
    maintain(table)
    assert DeltaTable(table).transaction_version(OURS) == 3
    assert DeltaTable(table).to_pyarrow_table().num_rows == 4
