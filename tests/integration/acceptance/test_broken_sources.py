"""A source that breaks a promise fails the check of that promise, and a good one passes."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from headrace.acceptance.harness import Harness
from headrace.sdk import (
    ConfigError,
    DeliveryGuarantee,
    FrameSource,
    Position,
    ReadLimit,
    SourceConnector,
    StreamFrameSource,
    check_range,
)
from headrace.sdk.config import Config, ConfigDef, ConfigType
from headrace.sdk.sqltext import rows
from headrace.sdk.testing import (
    BrokenPromiseError,
    Point,
    SourceAcceptance,
    SourceDriver,
)

FILE = {"file": "journal"}


class Reader(FrameSource):
    """Reads a file of JSON, a row a line; its position counts lines."""

    def __init__(self, config: Config) -> None:
        self.path = Path(config.get_str("path"))

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end = len(self.lines())
        if limit.rows is not None:
            end = min(end, line_of(start) + limit.rows)
        if limit.until is not None:
            end = min(end, line_of(limit.until))
        return start if end == line_of(start) else place(end)

    def read(self, spark, start, end):
        check_range(start, end, [FILE])
        return self.frame(spark, self.lines()[line_of(start) : line_of(end)])

    def frame(self, spark, lines: Iterable[str]):
        values = [(row["id"], row["text"]) for row in map(json.loads, lines)]
        frame = spark.createDataFrame(values, "id BIGINT, text STRING")
        return rows(frame.coalesce(1))

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


class Journal(SourceConnector):
    """Reads a file of JSON lines."""

    delivery = DeliveryGuarantee.EXACTLY_ONCE
    reader: type[Reader] = Reader

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("path", ConfigType.STRING, doc="The file.")

    @classmethod
    def task_class(cls, config: Config) -> type[FrameSource] | type[StreamFrameSource]:
        return cls.reader


class JournalDriver(SourceDriver):
    connector: type[SourceConnector] = Journal

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self) -> Mapping[str, str]:
        return {"path": str(self.path)}

    def append(self, rows) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)


def place(line: int) -> Position:
    return Position.of(FILE, {"line": line}) if line else Position()


def line_of(position: Position) -> int:
    offset = position.offset(FILE)
    return int(offset["line"]) if offset else 0


class RepeatsAfterResume(Reader):
    """Reads its last row again after a restart."""

    def start(self, context) -> None:
        self.resumed = line_of(context.position())

    def read(self, spark, start, end):
        first = line_of(start)
        again = 1 if first and first == self.resumed else 0
        return self.frame(spark, self.lines()[first - again : line_of(end)])


class LosesAfterResume(Reader):
    """Counts what it skipped as read, after a restart."""

    def start(self, context) -> None:
        self.resumed = line_of(context.position())

    def read(self, spark, start, end):
        first = line_of(start)
        lost = 1 if first and first == self.resumed else 0
        return self.frame(spark, self.lines()[first + lost : line_of(end)])


class ForgetsUnfinished(Reader):
    """Reads a range only once, in whichever process."""

    def read(self, spark, start, end):
        seen = self.path.with_name("seen")
        first = max(line_of(start), int(seen.read_text()) if seen.exists() else 0)
        seen.write_text(str(line_of(end)))
        return self.frame(spark, self.lines()[first : line_of(end)])


class ReadsToTheEnd(Reader):
    """Reads what is there by now and not what the range says."""

    def read(self, spark, start, end):
        return self.frame(spark, self.lines()[line_of(start) :])


class ReadsAnyRange(Reader):
    """Takes a range of another file for an empty one."""

    def read(self, spark, start, end):
        return self.frame(spark, self.lines()[line_of(start) : line_of(end)])


class PassesUntil(Reader):
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return super().latest(start, ReadLimit(rows=limit.rows))


class NeverGetsThere(Reader):
    """Stays one line before the bound."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        end = super().latest(start, limit)
        return place(line_of(end) - 1) if end == limit.until != start else end


class StopsShort(Reader):
    """Has a limit of its own."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return super().latest(start, ReadLimit(rows=2, until=limit.until))


class NeverRests(Reader):
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return super().latest(start, limit).moved({"clock": "1"}, {"ns": time.time_ns()})

    def read(self, spark, start, end):
        return self.frame(spark, self.lines()[line_of(start) : line_of(end)])


class IgnoresLimit(Reader):
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return super().latest(start, ReadLimit(until=limit.until))


class Backwards(Reader):
    def read(self, spark, start, end):
        return self.frame(spark, reversed(self.lines()[line_of(start) : line_of(end)]))


class SeesTheStartOnly(Reader):
    """Looks into its file once."""

    def start(self, context) -> None:
        self.seen = super().lines()

    def lines(self) -> list[str]:
        return self.seen


class StopsLate(Reader):
    def stop(self) -> None:
        time.sleep(3.5)


class LeaksThreads(Reader):
    """Starts a thread that does not end."""

    waits = threading.Event()

    def start(self, context) -> None:
        threading.Thread(target=self.waits.wait, daemon=True, name="watcher").start()


class LeaksFiles(Reader):
    """Opens a file and does not close it."""

    held: list[IO[str]] = []  # noqa: RUF012 - shared, so that they are not collected

    def start(self, context) -> None:
        self.held.append(self.path.open("a"))


class TasksDoTheSame(Journal):
    """Gives each task all of the work."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [dict(self.config.originals)] * max_tasks


class TooManyTasks(Journal):
    """Asks for more tasks than it may."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [dict(self.config.originals)] * (max_tasks + 1)


class RefusesItsPositions(Journal):
    """Knows no position."""

    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        raise ConfigError(field="offsets")


def reading(reader: type[Reader]) -> type[SourceConnector]:
    return type(reader.__name__, (Journal,), {"reader": reader, "__doc__": "Broken."})


def name_of(case: "Case") -> str:
    return f"{case[0].__name__}-{case[1]}"


class Kit(SourceAcceptance):
    """Its tests, to be called one by one."""

    def driver(self, tmp_path):
        raise NotImplementedError


KIT = Kit()

CHECKS: dict[str, Callable[..., None]] = {
    "empty": KIT.test_an_empty_system_gives_no_batch_and_no_error,
    "in order": KIT.test_everything_is_read_once_and_in_order,
    "resume by 2": partial(
        KIT.test_a_restart_after_every_batch_neither_loses_nor_repeats, limit=2
    ),
    "killed before the write": partial(
        KIT.test_a_killed_batch_runs_again_with_the_same_rows, at=Point.BEFORE_WRITE
    ),
    "killed before the commit": partial(
        KIT.test_a_killed_batch_runs_again_with_the_same_rows, at=Point.BEFORE_COMMIT
    ),
    "killed after the commit": partial(
        KIT.test_a_killed_batch_runs_again_with_the_same_rows, at=Point.AFTER_COMMIT
    ),
    "replay": KIT.test_the_same_range_gives_the_same_rows_again,
    "foreign range": KIT.test_a_range_of_another_configuration_is_refused,
    "tasks": KIT.test_tasks_share_the_rows,
    "until": KIT.test_latest_never_passes_until,
    "idle": KIT.test_latest_is_start_while_idle,
    "limit": KIT.test_a_limit_of_rows_divides_the_work,
    "no limit": KIT.test_latest_without_limit_is_the_end_of_all_that_is_there,
    "positions": KIT.test_positions_survive_storing_and_may_be_set_again,
    "offline": KIT.test_offline_reads_what_is_there_and_ends,
    "real time": KIT.test_real_time_reads_what_is_appended_meanwhile,
    "stop idle": KIT.test_it_stops_in_time_while_idle,
    "stop reading": KIT.test_it_stops_in_time_while_reading_and_loses_nothing,
    "leaks": KIT.test_nothing_is_left_after_stop,
}

Case = tuple[type[SourceConnector], str, str, str]
"""A connector, the check it fails, what is then said, and what the author is to read."""

BROKEN: list[Case] = [
    (reading(RepeatsAfterResume), "resume by 2", "more often than expected", "latest"),
    (reading(LosesAfterResume), "resume by 2", "missing", "latest"),
    (reading(ForgetsUnfinished), "killed before the commit", "missing", "read"),
    (reading(ReadsToTheEnd), "replay", "The same range gives the same rows", "read"),
    (reading(ReadsAnyRange), "foreign range", "it read 0 records", "read"),
    (reading(PassesUntil), "until", "never passes limit.until", "latest"),
    (reading(NeverGetsThere), "until", "reaches it", "latest"),
    (reading(StopsShort), "no limit", "without a limit is the end", "latest"),
    (reading(NeverRests), "idle", "still continued", "latest"),
    (reading(NeverRests), "empty", "planned a batch of 0 records", "latest"),
    (reading(IgnoresLimit), "limit", "batches of [8] rows", "latest"),
    (reading(Backwards), "in order", "arrived as", "splits"),
    (reading(SeesTheStartOnly), "real time", "missing", "latest"),
    (reading(StopsLate), "stop idle", "It stopped after", "Task.stop"),
    (reading(LeaksThreads), "leaks", "threads (watcher", "stop"),
    (reading(LeaksFiles), "leaks", "open files or connections", "stop"),
    (TasksDoTheSame, "tasks", "more often than expected", "task_configs"),
    (TooManyTasks, "tasks", "there were 3 tasks", "task_configs"),
    (RefusesItsPositions, "positions", "It rejected", "alter_offsets"),
]


def run(harness: Harness, connector: type[SourceConnector], check: str, folder: Path) -> None:
    driver = JournalDriver(folder / "journal")
    driver.connector = connector
    with harness.source(connector, driver.config, folder / "home") as bench:
        CHECKS[check](bench, driver)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("check", CHECKS)
def test_a_good_source_passes(headrace_harness: Harness, check: str, tmp_path: Path) -> None:
    run(headrace_harness, Journal, check, tmp_path)


@pytest.mark.parametrize("case", BROKEN, ids=name_of)
def test_a_broken_promise_is_found_and_named(
    headrace_harness: Harness, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector, check, seen, read = case
    # Those that keep no promise are not waited for as long.
    monkeypatch.setattr(Kit, "patience_seconds", 3)
    monkeypatch.setattr(Kit, "grace_seconds", 1)
    with pytest.raises(BrokenPromiseError) as broken:
        run(headrace_harness, connector, check, tmp_path)
    message = str(broken.value)
    assert seen in message
    assert f"{read}\n" in message.partition("Read: ")[2]
