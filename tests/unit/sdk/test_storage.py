"""Errors of the storage are told from others, and say what is wrong where."""

import errno
import os
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.sdk.folders import write_part
from headrace.sdk.location import Location
from headrace.sdk.storage import denied_error, storage_error, storage_error_of_text

OF_DELTALAKE = (
    "Generic LocalFileSystem error\n   \x1b[31m↳\x1b[0m Unable to open file /no/t/1.json#1\n"
    "   \x1b[31m↳\x1b[0m {} (os error {})\n"
)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_a_missing_right_is_told_with_the_path_and_what_helps(number: int) -> None:
    error = OSError(number, os.strerror(number), "/no/such/file.tmp")
    assert storage_error(error) is None  # else it would be tried again for ever
    assert str(denied_error(error)) == (
        f"[sink.failed] /no/such/file.tmp cannot be written to: {os.strerror(number)}. Fix: "
        "Give the worker's user the right to write there, or choose another path."
    )


def test_a_missing_right_to_a_folder_says_neither_reading_nor_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    access = os.access

    def denied(path: object, mode: int) -> bool:  # as for another user than root
        below = closed in Path(str(path)).parents
        return not below and not (Path(str(path)) == closed and mode == os.X_OK)

    monkeypatch.setattr(os, "access", denied)
    found = denied_error(OSError(errno.EACCES, "Permission denied", str(closed / "a.csv")))
    monkeypatch.setattr(os, "access", access)
    assert found is not None
    assert found.problem == f"{closed}/a.csv cannot be accessed: Permission denied."


def test_an_error_whose_text_is_in_a_jvm_that_is_gone_is_none_of_the_storage() -> None:
    class JavaError(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    assert storage_error(JavaError()) is None
    assert denied_error(JavaError()) is None


def test_only_a_full_file_system_is_said_to_need_space() -> None:
    locked = storage_error(OSError(errno.EROFS, "Read-only file system", "/no/t/1"))
    assert str(locked) == (
        "[storage.unavailable] The file system is read-only at /no/t/1. Fix: Repair the file "
        "system; the task then continues automatically."
    )


def test_a_missing_right_to_something_else_than_a_file_is_none_of_the_storage() -> None:
    assert denied_error(PermissionError(errno.EACCES, "Permission denied")) is None


def test_what_deltalake_raises_without_a_number_is_known_by_its_text() -> None:
    denied = denied_error(OSError(OF_DELTALAKE.format("Operation not permitted", 1)))
    full = storage_error(OSError(OF_DELTALAKE.format("No space left on device", 28)))
    assert denied is not None
    assert denied.problem == "/no/t/1.json#1 cannot be written to: Operation not permitted."
    assert full is not None
    assert full.problem.startswith("There is no space left at /no/t/1.json#1 (")


def test_the_text_of_a_missing_right_is_known_with_its_path_only() -> None:
    found = storage_error_of_text("/no/such/file (Permission denied)")
    assert found is not None
    assert found.problem == "/no/such/file cannot be written to: Permission denied."
    assert storage_error_of_text("Permission denied") is None


@pytest.mark.parametrize(
    ("free", "told"), [(4096, " At /home 4,096 bytes are free."), (93_216_768, "")]
)
def test_a_place_is_named_only_where_it_is_full_itself(
    free: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")  # noqa: PYI024 - stands for what shutil returns
    sizes = {"/home": free, "/topics": 500_000_000}
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage(sizes[str(place)]))
    found = storage_error(OSError(errno.ENOSPC, "full"), [Path("/topics"), Path("/home")])
    assert found is not None
    assert found.problem == f"There is no space left.{told}"


@pytest.mark.parametrize(
    ("flag", "free", "problem"),
    [
        (os.ST_RDONLY, 10**6, "The file system is read-only at /no/a b/staging"),
        (0, 0, "There is no space left at /no/a b/staging"),
        (0, 10**6, None),
    ],
)
def test_why_hadoop_could_not_make_a_folder_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, flag: int, free: int, problem: str | None
) -> None:
    disk = namedtuple("disk", "f_flag f_bavail f_frsize f_blocks f_bfree")  # noqa: PYI024 - as os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda _: disk(flag, free, 4096, 10**6, free))
    text = "Mkdirs failed to create file:/no/a b/staging (exists=false, cwd=file:/work)"
    found = storage_error_of_text(text)
    assert (found is None) == (problem is None)
    if found is not None and problem is not None:
        assert found.code == "storage.unavailable"
        assert found.problem.startswith(problem)


def test_an_error_of_the_source_does_not_get_the_path_of_the_target(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(PermissionError) as failed:
        write_part(Location.of(tmp_path), "snappy", 0, rows())
    assert failed.value.filename is None
    assert denied_error(failed.value) is None
