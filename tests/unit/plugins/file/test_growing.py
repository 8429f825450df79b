"""Mode grow: what is added to files, over partial lines, rotation, truncation, restarts."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.sdk import CapturedBatch, CaptureSource, Position

Follow = Callable[..., CaptureSource]


def add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def poll(task: CaptureSource) -> CapturedBatch | None:
    batch = task.poll()
    assert batch is None or isinstance(batch, CapturedBatch)
    return batch


def texts(task: CaptureSource) -> list[str]:
    found: list[str] = []
    while (batch := poll(task)) is not None:
        found += batch.values.column(0).to_pylist()
    return found


def rows(task: CaptureSource) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while (batch := poll(task)) is not None:
        found += batch.values.to_pylist()
    return found


def restarted(
    follow: Follow, context: Any, batch: CapturedBatch | None, path: Path, **keys: str
) -> CaptureSource:
    assert batch is not None
    context.at = batch.position
    return follow(path, **keys)


def test_each_line_is_a_text_and_the_position_counts_bytes(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n\nfour ü\n", "utf-8")
    batch = poll(follow(path))
    assert batch is not None
    assert batch.scalar
    assert batch.values.column(0).to_pylist() == ["one", "two", "", "four ü"]
    offset = batch.position.offset({"filename": str(path)})
    assert offset is not None
    assert offset["position"] == path.stat().st_size


def test_a_carriage_return_belongs_to_the_end_of_a_line(follow: Follow, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\r\ntw\ro\r\n")
    assert texts(follow(path)) == ["one", "tw\ro"]


def test_a_partial_line_is_held_back_until_its_end_comes(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    task = follow(path)
    assert texts(task) == ["one"]
    add(path, "o")
    assert texts(task) == []
    add(path, "!\nthree")
    assert texts(task) == ["two!"]


def test_a_file_that_is_not_there_yet_is_waited_for(follow: Follow, tmp_path: Path) -> None:
    task = follow(tmp_path / "log")
    assert poll(task) is None
    add(tmp_path / "log", "one\n")
    assert texts(task) == ["one"]


def test_a_truncated_file_is_read_from_its_beginning(follow: Follow, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    task = follow(path)
    assert texts(task) == ["one", "two"]
    path.write_text("new\n")
    assert texts(task) == ["new"]


def test_a_truncation_is_noticed_even_if_the_file_has_grown_beyond_its_old_size(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    task = follow(path)
    texts(task)
    path.write_text("other\nlines\nand more\n")
    assert texts(task) == ["other", "lines", "and more"]


def test_a_rotated_file_is_finished_before_the_new_one_begins(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    task = follow(path)
    assert texts(task) == ["one"]
    add(path, "two\nlast without end")
    path.rename(tmp_path / "log.1")
    assert texts(task) == ["two"]
    add(path, "new\n")
    assert texts(task) == ["last without end", "new"]


def test_rotation_while_stopped_loses_and_repeats_nothing(
    follow: Follow, tmp_path: Path, context: Any
) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    batch = poll(follow(path))
    add(path, "three\n")
    path.rename(tmp_path / "log.1")
    path.write_text("new\n")
    assert texts(restarted(follow, context, batch, path)) == ["three", "new"]


def test_a_rewritten_file_is_noticed_after_a_restart_by_its_beginning(
    follow: Follow, tmp_path: Path, context: Any
) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    batch = poll(follow(path))
    path.write_text("something longer\n")
    assert texts(restarted(follow, context, batch, path)) == ["something longer"]


@pytest.mark.parametrize("stopped", [False, True])
def test_rotation_through_names_that_are_followed_too_repeats_nothing(
    follow: Follow, tmp_path: Path, context: Any, stopped: bool
) -> None:
    path = tmp_path / "app.log"
    pattern = tmp_path / "app.log*"
    path.write_text("0 a\n")
    task = follow(pattern)
    found = drained(task, context)
    for number in range(1, 4):
        if stopped:
            task.stop()
        add(path, f"{number - 1} b\n")
        for old in (3, 2, 1):
            if (tmp_path / f"app.log.{old}").exists():
                (tmp_path / f"app.log.{old}").rename(tmp_path / f"app.log.{old + 1}")
        path.rename(tmp_path / "app.log.1")
        path.write_text(f"{number} a\n")
        if stopped:
            task = follow(pattern)
        found += drained(task, context)
    assert sorted(found) == sorted(
        [*(f"{n} a" for n in range(4)), *(f"{n} b" for n in range(3))]
    )
    assert drained(follow(pattern), context) == []


def test_a_file_that_leaves_the_pattern_is_finished(
    follow: Follow, tmp_path: Path, context: Any
) -> None:
    path = tmp_path / "app.log"
    path.write_text("one\n")
    task = follow(tmp_path / "*.log")
    assert drained(task, context) == ["one"]
    add(path, "two\npartial")
    path.rename(tmp_path / "gone")
    path.write_text("new\n")
    assert drained(task, context) == ["two", "partial", "new"]


def test_an_offset_of_kafkas_own_form_is_taken(
    follow: Follow, tmp_path: Path, context: Any
) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    context.at = Position.of({"filename": str(path)}, {"position": 4})
    assert texts(follow(path)) == ["two"]


def test_a_poll_stays_within_its_limits_and_a_longer_line_still_comes_whole(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("a\nb\nc\n" + "x" * 100 + "\n")
    task = follow(path, batch_size="2", batch_max_bytes="10")
    sizes = []
    while (batch := poll(task)) is not None:
        sizes.append(len(batch.values))
    assert sizes == [2, 1, 1]


def test_bytes_that_are_no_text_are_rejected_alone(follow: Follow, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"good\n\xff\xfe\nbetter\n")
    batch = poll(follow(path))
    assert batch is not None
    assert batch.values.column(0).to_pylist() == ["good", "better"]
    assert [raw for raw, _ in batch.rejected] == [b"\xff\xfe"]


def test_csv_gives_typed_rows_and_its_header_is_no_row(
    follow: Follow, tmp_path: Path, context: Any
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,price,on,at,zip,ok\n1,2.5,2024-01-31,2024-01-31 10:00:00,007,true\n")
    task = follow(path)
    first = poll(task)
    assert first is not None
    assert not first.scalar
    assert first.values.to_pylist() == [
        {
            "id": 1,
            "price": 2.5,
            "on": date(2024, 1, 31),
            "at": datetime(2024, 1, 31, 10, tzinfo=UTC),
            "zip": "007",
            "ok": True,
        }
    ]
    add(path, "2,,,,x,\n")
    assert rows(restarted(follow, context, first, path)) == [
        {"id": 2, "price": None, "on": None, "at": None, "zip": "x", "ok": None}
    ]


def test_bad_lines_of_csv_are_rejected_with_their_reason_and_the_others_come(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    lines = [f"{n},name{n}" for n in range(1000)]
    lines[100], lines[500], lines[700], lines[999] = "x,y", "1,2,3", "1,2,3", "only"
    path.write_text("\n".join(lines) + "\n")
    batch = poll(follow(path, schema="id BIGINT, name STRING", header="false"))
    assert batch is not None
    assert len(batch.values) == 996
    raws = dict(batch.rejected)
    assert sorted(raw for raw, _ in batch.rejected) == [b"1,2,3", b"1,2,3", b"only", b"x,y"]
    assert "invalid value 'x'" in raws[b"x,y"]
    assert "3 values instead of 2" in raws[b"1,2,3"]


def test_a_column_of_csv_that_turns_out_to_have_fractions_is_widened(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n")
    task = follow(path)
    assert rows(task) == [{"n": 1}]
    add(path, "2.5\n")
    assert rows(task) == [{"n": 2.5}]


def test_times_with_and_without_a_zone_are_told_apart(follow: Follow, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("2024-01-01T12:00:00\n2024-01-01T12:00:00Z\n2024-01-01T12:00:00+02:00\n")
    task = follow(path, schema="at TIMESTAMP", header="false", time_zone="Europe/Paris")
    hours = sorted(row["at"].hour for row in rows(task))
    assert hours == [10, 11, 12]


@pytest.mark.parametrize(
    ("name", "text", "row"),
    [
        ("a.csv", "id,txt\n1,x\n", {"id": 1, "txt": "x"}),
        ("a.json", '{"id":1,"txt":"x"}\n', {"id": 1, "txt": "x"}),
    ],
)
def test_a_mark_of_the_encoding_is_no_part_of_the_first_record(
    follow: Follow, tmp_path: Path, name: str, text: str, row: dict[str, Any]
) -> None:
    file = tmp_path / name
    file.write_text(f"\ufeff{text}", encoding="utf-8")
    task = follow(file, format=name.partition(".")[2])
    assert rows(task) == [row]
    if name == "a.csv":
        add(file, "2,y\n")
        assert rows(task) == [{"id": 2, "txt": "y"}]


def test_times_in_another_format_are_read_with_it(follow: Follow, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("on;at\n31/01/2024;31.01.2024 10:05\n")
    keys = {"timestamp_format": "dd.MM.yyyy HH:mm", "date_format": "dd/MM/yyyy"}
    assert rows(follow(path, delimiter=";", **keys)) == [
        {"on": date(2024, 1, 31), "at": datetime(2024, 1, 31, 10, 5, tzinfo=UTC)}
    ]


def test_json_lines_grow_the_schema_and_bad_ones_are_rejected(
    follow: Follow, tmp_path: Path, context: Any
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1, "at": "2024-01-01"}\n')
    task = follow(path)
    assert rows(task) == [{"a": 1, "at": "2024-01-01"}]
    add(path, '{"a": 2, "b": {"c": [1]}}\n{"a": \n{"a": 3}\n')
    batch = poll(task)
    assert batch is not None
    assert batch.values.to_pylist() == [
        {"a": 2, "at": None, "b": {"c": [1]}},
        {"a": 3, "at": None, "b": None},
    ]
    assert [raw for raw, _ in batch.rejected] == [b'{"a": ']
    assert [f.name for f in context.schemas.stored[str(path)].fields] == ["a", "at", "b"]


def test_declared_json_types_are_kept(follow: Follow, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"at": "2024-01-01T00:00:00Z", "on": "2024-01-02", "d": "1.50", "x": 1}\n')
    (row,) = rows(follow(path, schema="at TIMESTAMP, on DATE, d DECIMAL(10,2)"))
    assert row["at"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert row["on"] == date(2024, 1, 2)
    assert str(row["d"]) == "1.50"
    assert "x" not in row


def test_all_files_of_a_pattern_are_followed_and_none_is_starved(
    follow: Follow, tmp_path: Path
) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n{name} 3\n")
    (tmp_path / "_c.log").write_text("being written\n")
    (tmp_path / "a.log.gz").write_bytes(b"compressed by a rotation\n")
    task = follow(tmp_path / "*.log*", batch_size="1")
    found = texts(task)
    assert found[:2] == ["a.log 1", "b.log 1"]
    assert len(found) == 6


def test_an_idle_poll_is_cheap(follow: Follow, tmp_path: Path) -> None:
    import time

    path = tmp_path / "log"
    path.write_text("one\npartial")
    task = follow(path)
    texts(task)
    begun = time.thread_time()  # of this thread's processor: what else runs is not counted
    for _ in range(1000):
        assert poll(task) is None
    assert time.thread_time() - begun < 1


STEPS = st.one_of(
    st.text(alphabet="ab\n", min_size=1, max_size=12),
    st.sampled_from(["rotate", "restart", "poll"]),
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25), of_all=st.booleans())
def test_whatever_happens_each_line_comes_once_and_in_order(
    follow: Follow, tmp_path: Path, context: Any, steps: list[str], of_all: bool
) -> None:
    folder = tmp_path / os.urandom(4).hex()
    folder.mkdir()
    path = folder / "log"
    path.touch()
    context.at = Position()
    # The pattern also finds the names that rotation gives, in which files have no order.
    followed = folder / "log*" if of_all else path
    task, written = follow(followed), ""
    found: list[str] = []
    for number, step in enumerate(["poll", *steps, "poll"]):
        if step == "rotate":
            # A writer ends its last line before it goes on to another file.
            end = "" if not written or written.endswith("\n") else "\n"
            add(path, end)
            written += end
            path.rename(folder / f"log.{number}")
            path.touch()
        elif step == "restart":
            task.stop()
            task = follow(followed)
        elif step != "poll":
            add(path, step)
            written += step
            continue
        found += drained(task, context)
    expected = written.split("\n")[:-1]
    assert sorted(found) == sorted(expected)
    if not of_all:
        assert found == expected
    task.stop()


def drained(task: CaptureSource, context: Any) -> list[str]:
    found: list[str] = []
    while (batch := poll(task)) is not None:
        found += batch.values.column(0).to_pylist()
        context.at = batch.position
    return found


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_csv_file_without_rows_gives_nothing(
    follow: Follow, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"id\n{text}")
    assert poll(follow(path)) is None


def test_a_value_in_quotes_may_have_line_breaks_and_come_in_parts(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,name\n1,"a\nb"\n2,"c')
    task = follow(path, format="csv")
    assert rows(task) == [{"id": 1, "name": "a\nb"}]
    add(path, "\nd\n")
    assert rows(task) == []
    add(path, '"\n3,e\n')
    assert rows(task) == [{"id": 2, "name": "c\nd\n"}, {"id": 3, "name": "e"}]


def test_batches_of_so_many_records_are_not_cut_within_quotes(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,name\n1,"a\nb"\n2,"c\nd"\n')
    task = follow(path, format="csv", batch_size="2")
    sizes = []
    while (batch := poll(task)) is not None:
        sizes.append(batch.values.num_rows)
    assert sizes == [1, 1]


def test_a_quote_that_is_not_closed_for_long_is_a_bad_record(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,name\n1,x\n2,"open\n')
    task = follow(path, format="csv")
    assert rows(task) == [{"id": 1, "name": "x"}]
    add(path, "3,y\n" * 400_000)
    batch = poll(task)
    assert batch is not None
    assert [(bad[0], bad[1]) for bad in batch.rejected] == [
        (b'2,"open', "A quote is not closed")
    ]
    assert len(rows(task)) == 400_000


def test_a_line_with_an_invalid_byte_is_rejected_and_the_others_go_on(
    follow: Follow, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,name\n1,x\n2,\xff\n3,y\n")
    batch = poll(follow(path, format="csv"))
    assert batch is not None
    assert batch.values.to_pylist() == [{"id": 1, "name": "x"}, {"id": 3, "name": "y"}]
    assert [bad[0] for bad in batch.rejected] == [b"2,\xff"]


@pytest.mark.parametrize(
    ("format_", "data", "expected"),
    [
        ("csv", "name,n\n\u00fc,1\n", [{"name": "\u00fc", "n": 1}]),
        ("json", '{"name":"\u00fc"}\n', [{"name": "\u00fc"}]),
        ("text", "\u00fc\n", [{"value": "\u00fc"}]),
    ],
)
def test_each_format_is_decoded(
    follow: Follow, tmp_path: Path, format_: str, data: str, expected: Any
) -> None:
    path = tmp_path / "log"
    path.write_text(data, encoding="latin-1")
    found = rows(follow(path, format=format_, encoding="ISO-8859-1"))
    assert [{k: v for k, v in row.items() if k in expected[0]} for row in found] == expected


@pytest.mark.parametrize("encoding", ["UTF-8", "GB18030"])
def test_a_text_line_that_cannot_be_decoded_is_rejected(
    follow: Follow, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n\xff\xff\n\nthree\n")
    batch = poll(follow(path, format="text", encoding=encoding))
    assert batch is not None
    assert batch.values.column(0).to_pylist() == ["one", "", "three"]
    assert [bad[0] for bad in batch.rejected] == [b"\xff\xff"]


def test_a_line_of_json_that_is_an_array_is_rejected(follow: Follow, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('[1]\n{"a":1}\n')
    batch = poll(follow(path, format="json"))
    assert batch is not None
    assert batch.values.to_pylist() == [{"a": 1}]
    assert len(batch.rejected) == 1
