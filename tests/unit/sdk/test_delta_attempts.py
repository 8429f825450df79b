"""A Delta table takes one attempt at a batch, and remembers which, whatever others do."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.sdk import Mark
from headrace.sdk.delta import AddedFile, add_files, find_receipt
from headrace.sdk.errors import StaleEpochError

ROWS = pa.table({"a": [1]})
FIRST = Mark("app", 1, 1, "range")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path, ROWS)
    return tmp_path


def add(table: DeltaTable, path: Path, mark: Mark) -> None:
    name = f"{mark.application}-{mark.epoch}.parquet"
    pq.write_table(ROWS, path / name)
    file = AddedFile(name, (path / name).stat().st_size, 1)
    add_files(table, [file], mark, mark.receipt({}), datetime.now(UTC))


def test_of_attempts_that_saw_the_same_table_one_is_added(table: Path) -> None:
    one, two, other = (DeltaTable(table) for _ in range(3))
    add(one, table, FIRST)
    with pytest.raises(StaleEpochError):
        add(two, table, Mark("app", 1, 2, "range"))
    add(other, table, Mark("other", 1, 1))
    assert DeltaTable(table).to_pyarrow_table().num_rows == 3


def overwrite(table: Path) -> None:
    write_deltalake(table, ROWS, mode="overwrite")


def compact(table: Path) -> None:
    DeltaTable(table).optimize.compact()


def checkpoint(table: Path) -> None:
    DeltaTable(table).create_checkpoint()


def append_often(table: Path) -> None:
    for _ in range(25):
        write_deltalake(table, ROWS, mode="append")


@pytest.mark.parametrize("work", [overwrite, compact, checkpoint, append_often])
def test_what_other_programs_do_keeps_the_mark_and_the_receipt(
    table: Path, work: Callable[[Path], None]
) -> None:
    add(DeltaTable(table), table, FIRST)
    work(table)
    receipt = find_receipt(DeltaTable(table), FIRST)
    assert FIRST.wrote(receipt)
    with pytest.raises(StaleEpochError):
        Mark("app", 1, 2, "range").wrote(receipt)
