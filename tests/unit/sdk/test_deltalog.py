"""Commits to a Delta table's log: whole, in their order, and fenced by their transactions."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from headrace.sdk import DataLostError, Mark, RetriableError, deltalog
from headrace.sdk.delta import AddedFile, add_files
from headrace.sdk.deltalog import (
    CommitConflictError,
    commit,
    commit_file,
    create_checkpoint,
    create_table,
    flush_commits,
    load_table,
    misses_commit,
)
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = pa.table({"a": pa.array([1], pa.int64())})
SCHEMA = DeltaSchema.from_arrow(ROWS.schema)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    create_table(Location.of(path), SCHEMA)
    return path


def staged(table: Path, name: str = "data/a/x.parquet") -> AddedFile:
    path = table / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(ROWS, path)
    return AddedFile(name, path.stat().st_size, 1)


def note(table: Path, seen: int, application: str = "b", number: int = 1) -> int:
    marks = {application: number}
    return commit(
        Location.of(table), seen, [], operation="WRITE", transactions=marks, details={}, now=NOW
    )


def test_rows_the_mark_and_what_else_is_told_are_in_the_table(table: Path) -> None:
    add_files(
        DeltaTable(table), [staged(table)], Mark("a", 7, 1), "r", NOW, details={"more": "x"}
    )
    found = DeltaTable(table)
    assert found.to_pyarrow_table().to_pylist() == [{"a": 1}]
    assert found.transaction_version("a") == 7
    entry = found.history(1)[0]
    assert (entry["headrace.receipt"], entry["more"], entry["operation"]) == ("r", "x", "WRITE")


@pytest.mark.parametrize("name", ["a b", "é%20=?#+&'(~!,@$*;[]", "x=1/y"])
def test_any_name_of_a_file_is_found_again(table: Path, name: str) -> None:
    add_files(
        DeltaTable(table), [staged(table, f"data/{name}.parquet")], Mark("a", 1, 1), "", NOW
    )
    assert DeltaTable(table).to_pyarrow_table().num_rows == 1


def test_values_of_partitions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = DeltaSchema.from_arrow(pa.schema([("a", pa.int64()), ("p", pa.string())]))
    create_table(Location.of(path), schema, partition_by=["p"])
    files = []
    for value in ("x y", None):
        file = staged(path, f"data/p={value}/f.parquet")
        files.append(AddedFile(file.path, file.size_bytes, 1, {"p": value}))
    add_files(DeltaTable(path), files, Mark("a", 1, 1), "", NOW)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=str) == [{"a": 1, "p": "x y"}, {"a": 1, "p": None}]


def test_commits_of_others_are_passed(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    note(table, 1, "other")
    assert note(table, 0) == 3
    assert DeltaTable(table).to_pyarrow_table().num_rows == 1


def test_a_transaction_that_did_not_see_the_one_before_is_refused(table: Path) -> None:
    seen = DeltaTable(table)
    add_files(DeltaTable(table), [], Mark("a", 1, 1), "", NOW)
    with pytest.raises(StaleEpochError):
        add_files(seen, [staged(table)], Mark("a", 1, 2), "", NOW)
    assert DeltaTable(table).to_pyarrow_table().num_rows == 0


def test_a_transaction_through_deltalake_is_seen_as_well(table: Path) -> None:
    marked = CommitProperties(app_transactions=[Transaction("a", 1)])
    write_deltalake(table, ROWS, mode="append", commit_properties=marked)
    with pytest.raises(CommitConflictError):
        note(table, 0, "a")


def test_a_change_of_the_definition_is_not_passed(table: Path) -> None:
    seen = DeltaTable(table)
    more = pa.table({"a": pa.array([1], pa.int64()), "b": ["x"]})
    write_deltalake(table, more, mode="append", schema_mode="merge")
    with pytest.raises(RetriableError):
        add_files(seen, [staged(table)], Mark("a", 1, 1), "", NOW)


@pytest.mark.parametrize("removed", ["x.parquet", "y.parquet"])
def test_a_file_that_others_have_removed_is_not_removed_again(
    table: Path, removed: str
) -> None:
    names = ["data/a/x.parquet", "data/a/y.parquet"]
    add_files(DeltaTable(table), [staged(table, n) for n in names], Mark("a", 1, 1), "", NOW)
    seen = DeltaTable(table)
    gone = [{"remove": {"path": f"data/a/{removed}", "dataChange": True}}]
    add_files(DeltaTable(table), [], Mark("b", 1, 1), "", NOW, removed=gone)
    own = [{"remove": {"path": names[0], "dataChange": True}}]
    if removed == "x.parquet":
        with pytest.raises(RetriableError):
            add_files(seen, [], Mark("c", 1, 1), "", NOW, removed=own)
        return
    add_files(seen, [], Mark("c", 1, 1), "", NOW, removed=own)
    assert DeltaTable(table).to_pyarrow_table().num_rows == 0


def test_another_transaction_that_did_not_see_the_one_before_is_tried_again(
    table: Path,
) -> None:
    seen = DeltaTable(table)
    note(table, 0, "run")
    with pytest.raises(RetriableError):
        add_files(seen, [], Mark("a", 1, 1), "", NOW, transactions={"run": 1})
    add_files(DeltaTable(table), [], Mark("a", 1, 1), "", NOW)


def test_a_name_that_a_checkpoint_stands_for_is_not_taken_again(table: Path) -> None:
    for number in range(1, 4):
        note(table, number - 1, "other", number)
    create_checkpoint(DeltaTable(table))
    commit_file(Location.of(table), 1).local.unlink()
    with pytest.raises(CommitConflictError):
        note(table, 0)


def test_a_table_is_created_once(table: Path) -> None:
    add_files(DeltaTable(table), [staged(table)], Mark("a", 1, 1), "", NOW)
    assert create_table(Location.of(table), SCHEMA) is None
    assert DeltaTable(table).to_pyarrow_table().num_rows == 1
    assert not list(table.glob(".*"))


def test_properties_that_delta_does_not_know_are_kept(tmp_path: Path) -> None:
    made = create_table(Location.of(tmp_path / "t"), SCHEMA, properties={"headrace.x": "1"})
    assert made is not None
    assert made.metadata().configuration == {"headrace.x": "1"}


@pytest.mark.parametrize("torn", [True, False])
def test_a_commit_whose_files_are_not_whole_is_told(table: Path, torn: bool) -> None:
    marked = CommitProperties(app_transactions=[Transaction("a", 1)])
    write_deltalake(table, ROWS, mode="append", commit_properties=marked)
    flush_commits(Location.of(table), Mark("a", 1, 1))
    (file,) = table.glob("*.parquet")
    file.write_bytes(b"") if torn else file.unlink()
    flush_commits(
        Location.of(table), Mark("a", 2, 1)
    )  # what others have lost is not for this batch to tell
    with pytest.raises(DataLostError, match="missing or incomplete"):
        flush_commits(Location.of(table), Mark("a", 1, 1))


def test_files_that_a_later_version_has_replaced_need_not_be_there(table: Path) -> None:
    marked = CommitProperties(app_transactions=[Transaction("a", 1)])
    write_deltalake(table, ROWS, mode="append", commit_properties=marked)
    write_deltalake(table, ROWS, mode="overwrite")
    old = min(table.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    old.unlink()
    flush_commits(Location.of(table), Mark("a", 1, 1))


def test_a_commit_that_upkeep_forgets_meanwhile_need_not_be_flushed(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        note(table, number, number=number + 1)
    flushed: list[list[str]] = []

    def forgetful(files: Iterable[Location], **_: object) -> None:
        flushed.append([path.name for path in files])
        if len(flushed) == 1:
            commit_file(Location.of(table), 0).delete()
            raise FileNotFoundError

    monkeypatch.setattr(deltalog, "sync", forgetful)
    flush_commits(Location.of(table), None)
    assert flushed[1] == flushed[0][1:]


def test_statistics_may_hold_what_python_takes_for_the_end_of_a_line(table: Path) -> None:
    text = "a\u0085b\u2028c\u2029d"
    rows = pa.table({"a": pa.array([2], pa.int64()), "text": pa.array([text])})
    write_deltalake(table, rows, mode="append", schema_mode="merge")
    newest = DeltaTable(table).version()
    (added,) = (
        action["add"]
        for action in deltalog.actions_in(commit_file(Location.of(table), newest))
        if "add" in action
    )
    assert text in added["stats"]


@pytest.mark.parametrize(("missed", "checkpoint"), [(0, None), (2, None), (2, 1)])
def test_a_listing_that_misses_a_commit_made_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: int, checkpoint: int | None
) -> None:
    for version in range(4):
        write_deltalake(tmp_path / "table", ROWS, mode="append")
        if version == checkpoint:
            DeltaTable(tmp_path / "table").create_checkpoint()
    table = Location.of(tmp_path / "table")
    file, aside = Path(str(commit_file(table, missed))), tmp_path / "aside"
    file.rename(aside)
    with pytest.raises(DeltaError) as damaged:  # it stays one
        load_table(table)
    assert misses_commit(damaged.value)

    def listed(path: str, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(path, version=version)
        finally:
            if aside.exists():
                aside.rename(file)

    monkeypatch.setattr(deltalog, "DeltaTable", listed)
    assert load_table(table).version() == 3
