"""Files of changes, and how they are divided into parts and batches."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import Schema
from headrace.sdk.errors import StorageUnavailableError
from headrace_plugins.changes import spool
from headrace_plugins.changes.log import Run, Shape
from headrace_plugins.changes.parts import grouped
from headrace_plugins.changes.spool import Entry, SpooledRun, SpoolFolder, SpoolWriter, taken
from headrace_plugins.databases.catalog import Column, TableName


def shape(table: str = "t", *columns: str) -> Shape:
    described = [Column(name=n, type="text", schema=Schema.string()) for n in columns or "v"]
    return Shape(TableName("public", table), tuple(described), ())


def run(*texts: str) -> Run:
    return Run(shape(), pa.RecordBatch.from_pydict({"v": list(texts)}))


def texts(spooled: SpooledRun) -> list[str]:
    return [text for rows in spooled.read() for text in rows.column("v").to_pylist()]


def placed(rows: int, table: str = "t", *columns: str) -> SpooledRun:
    """Return a run of which only its number of rows matters."""
    return SpooledRun(shape(table, *columns), "", 0, 0, rows)


# --- files ------------------------------------------------------------------------------


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SpoolWriter]:
    with closing(SpoolWriter(tmp_path)) as made:
        yield made


def test_a_run_can_be_read_as_soon_as_it_is_written(writer: SpoolWriter) -> None:
    for text in ("a", "b"):
        written = writer.write(run(text, text * 2))
        assert written.rows == 2
        assert texts(written) == [text, text * 2]


def test_runs_share_files_until_these_are_full(
    writer: SpoolWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_FILE_BYTES", 1000)
    runs = [writer.write(run(str(n) * 200)) for n in range(9)]
    names = [each.file for each in runs]
    assert names == sorted(names)
    files = sorted(tmp_path.glob("*.arrow"))
    assert 1 < len(files) < 9
    assert sum(each.size_bytes for each in runs) == sum(f.stat().st_size for f in files)
    assert [texts(each) for each in runs] == [[str(n) * 200] for n in range(9)]


def test_an_entry_is_as_large_as_its_runs(writer: SpoolWriter, tmp_path: Path) -> None:
    runs = [writer.write(run("a")), writer.write(run("b", "c"))]
    entry = Entry(runs, {"lsn": 1})
    assert entry.rows == 3
    assert entry.size_bytes == sum(file.stat().st_size for file in tmp_path.glob("*.arrow"))


def test_a_folder_that_takes_nothing_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError, match="Cannot write changes"):
        SpoolWriter(tmp_path / "gone").write(run("a"))


# --- parts ------------------------------------------------------------------------------


def test_few_changes_are_one_part() -> None:
    runs = [placed(100)] * 5
    assert grouped(runs, 8) == [tuple(runs)]


def test_many_changes_are_as_many_parts_as_are_wanted() -> None:
    found = grouped([placed(25_000)] * 16, 4)
    assert [len(group) for group in found] == [4, 4, 4, 4]


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=30), st.integers(1, 16))
def test_parts_have_all_runs_in_their_order(rows: list[int], count: int) -> None:
    runs = [placed(number) for number in rows]
    found = grouped(runs, count)
    assert [each for group in found for each in group] == runs
    assert all(found)
    assert len(found) <= max(1, count)


# --- folders ----------------------------------------------------------------------------

LIFE = """
import sys, time
from pathlib import Path
from headrace_plugins.changes.spool import SpoolFolder
folder = SpoolFolder(Path(sys.argv[1]))
print(folder.path, flush=True)
time.sleep(600)
"""


def test_each_life_has_a_folder_that_others_leave_alone(tmp_path: Path) -> None:
    first = SpoolFolder(tmp_path)
    (first.path / "1.arrow").write_text("x")
    second = SpoolFolder(tmp_path)
    assert (first.path / "1.arrow").exists()
    first.remove()
    assert not first.path.exists()
    assert second.path.exists()
    second.remove()


def test_what_a_life_has_left_that_was_killed_goes_with_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIFE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as life:
        assert life.stdout is not None
        left = Path(life.stdout.readline().strip())
        SpoolFolder(tmp_path).remove()
        assert left.exists()
        life.kill()
    SpoolFolder(tmp_path).remove()
    assert not left.exists()


# --- batches ----------------------------------------------------------------------------


def end_of(
    entries: Sequence[Sequence[SpooledRun]], most: int | None = None, until: int | None = None
) -> int | None:
    """Return where a batch of entries ends, which stand at 1, 2 and so on."""
    placed_at = [Entry(runs, {"lsn": n}) for n, runs in enumerate(entries, 1)]
    bound = None if until is None else {"lsn": until}
    found = taken(placed_at, most, bound, lambda place: (place["lsn"],))
    return None if found is None else int(found["lsn"])


def test_a_batch_takes_all_that_is_there() -> None:
    assert end_of([]) is None
    assert end_of([[placed(5)], [placed(6)]]) == 2


def test_a_batch_has_no_more_rows_than_wanted() -> None:
    entries = [[placed(5)], [placed(5)], [placed(5)]]
    assert [end_of(entries, most) for most in (9, 10, 14, 15)] == [1, 2, 2, 3]


def test_a_transaction_of_more_rows_is_a_batch() -> None:
    assert end_of([[placed(50)], [placed(1)]], 9) == 1


def test_a_batch_does_not_pass_a_place() -> None:
    entries = [[placed(5)], [placed(5)], [placed(5)]]
    assert [end_of(entries, None, until) for until in range(5)] == [None, 1, 2, 3, 3]


def test_a_batch_ends_before_a_table_gets_other_columns() -> None:
    first, other, second = placed(5), placed(5, "u"), placed(5, "t", "v", "w")
    assert end_of([[first], [other], [first], [second], [first]]) == 3
    assert end_of([[second], [other, second], [first]]) == 2


def test_a_transaction_with_both_shapes_of_a_table_is_a_batch_of_its_own() -> None:
    first, second = placed(5), placed(5, "t", "v", "w")
    assert end_of([[first, second], [second], [first]]) == 1
    assert end_of([[first], [first, second], [second]]) == 1
    assert end_of([[first], [first, second], [second]]) == 1
