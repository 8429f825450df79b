"""Joining small files changes no row, whoever else writes meanwhile."""

import json
import threading
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.sdk import SinkError
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.table import Compaction, Maintenance, TableFile, Vacuum

ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "day": pa.array([date(2024, 2, 29), None]),
        "at": pa.array([datetime(2024, 2, 29, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "amount": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(30, 2)),
        "word": pa.array(["a/b %41", None]),
        "part": pa.array(["x y/=%", None]),
        "deep": pa.array([{"a": [1, 2]}, None], pa.struct([("a", pa.list_(pa.int32()))])),
    }
)


def append(table: Path, rows: pa.Table = ROWS, times: int = 3, **more: object) -> None:
    for _ in range(times):
        write_deltalake(table, rows, mode="append", **more)  # type: ignore[call-overload]


def compaction(table: Path) -> Compaction:
    return Compaction(table=Location.of(table), application="copy-1-0")


def rows(table: Path) -> list[dict[str, object]]:
    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=str)


def files(table: Path) -> int:
    return len(DeltaTable(table).file_uris())


@pytest.mark.parametrize("divided", [[], ["part"], ["day", "part"]])
def test_rows_of_all_types_are_as_before_in_few_files(
    tmp_path: Path, divided: list[str]
) -> None:
    append(tmp_path, partition_by=divided or None)
    more = ROWS.append_column("late", pa.array([7, None], pa.int32()))
    append(tmp_path, more, schema_mode="merge", partition_by=divided or None)
    before, many = rows(tmp_path), files(tmp_path)
    removed, added = compaction(tmp_path).run(DeltaTable(tmp_path))
    assert rows(tmp_path) == before
    assert (removed, added) == (many, files(tmp_path)) == (many, 2 if divided else 1)
    table = DeltaTable(tmp_path)
    [last] = table.history(1)
    assert last["operation"] == "OPTIMIZE"
    assert compaction(tmp_path).run(table) == (0, 0)
    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sum(each["num_records"] for each in found) == len(before)
    # Its statistics lead to its rows.
    wide = DeltaTable(tmp_path).to_pyarrow_table(filters=[("id", ">=", 2)])
    assert wide.num_rows == len(before) / 2


@pytest.mark.parametrize("name", ["/{0}", "../{0}", "file:///{0}", "link.parquet"])
def test_files_that_are_not_in_the_table_are_not_copied_into_it(
    tmp_path: Path, name: str
) -> None:
    table, secret = tmp_path / "table", tmp_path / "secret.parquet"
    append(table, times=1)
    pq.write_table(ROWS, secret)
    (table / "link.parquet").symlink_to(secret)
    path = name.format(secret.name if name.startswith("..") else str(secret)[1:])
    add = {"path": path, "partitionValues": {}, "size": 9, "modificationTime": 1}
    log = table / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps({"add": {**add, "dataChange": True}}) + "\n")
    append(table, times=1)
    assert compaction(table).run(DeltaTable(table)) == (2, 1)
    [file] = [TableFile({"path": path})]
    with pytest.raises(SinkError, match="outside of it"), file.opened(Location.of(table)):
        pass


def test_of_two_that_saw_the_same_files_one_joins_them(tmp_path: Path) -> None:
    append(tmp_path)
    seen, before = DeltaTable(tmp_path), rows(tmp_path)
    compaction(tmp_path).run(DeltaTable(tmp_path))
    held = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(SinkError, match="during their compaction"):
        compaction(tmp_path).run(seen)
    assert rows(tmp_path) == before
    assert set(tmp_path.rglob("*.parquet")) == held, "what it wrote is gone again"


@pytest.mark.parametrize("other", ["append", "delete", "compact"])
def test_what_other_writers_do_meanwhile_counts(tmp_path: Path, other: str) -> None:
    append(tmp_path)
    seen = DeltaTable(tmp_path)
    match other:
        case "append":
            append(tmp_path, times=1)
        case "delete":
            DeltaTable(tmp_path).delete("id = 1")
        case _:
            DeltaTable(tmp_path).optimize.compact()
    before = rows(tmp_path)
    if other == "append":
        compaction(tmp_path).run(seen)
        assert files(tmp_path) == 2
    else:
        with pytest.raises(SinkError):
            compaction(tmp_path).run(seen)
    assert rows(tmp_path) == before


def test_tasks_that_keep_one_table_at_a_time_double_nothing(tmp_path: Path) -> None:
    append(tmp_path, times=20)
    before = rows(tmp_path)

    def maintain(number: int) -> None:
        work = Maintenance(
            table=Location.of(tmp_path),
            application=f"copy-{number}-0",
            vacuum=Vacuum.CREATED,
        )
        with suppress(SinkError):  # another was faster
            work.run()

    threads = [threading.Thread(target=maintain, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(tmp_path) == before
    assert files(tmp_path) < 20


def test_large_files_stay_as_they_are(tmp_path: Path) -> None:
    append(tmp_path, times=4)
    size = max(pa.table(DeltaTable(tmp_path).get_add_actions())["size_bytes"].to_pylist())
    target = {"delta.targetFileSize": str(2 * size + 1)}
    DeltaTable(tmp_path).alter.set_table_properties(target)
    assert compaction(tmp_path).run(DeltaTable(tmp_path)) == (4, 2)
    target = {"delta.targetFileSize": "1"}
    DeltaTable(tmp_path).alter.set_table_properties(target)
    assert compaction(tmp_path).run(DeltaTable(tmp_path)) == (0, 0)


def test_files_without_rows_go(tmp_path: Path) -> None:
    append(tmp_path, ROWS.slice(0, 0))
    before = files(tmp_path)
    removed, added = compaction(tmp_path).run(DeltaTable(tmp_path))
    assert (removed, added) == (before, 0)
    assert not rows(tmp_path)
