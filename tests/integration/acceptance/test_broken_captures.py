"""A capture that breaks a promise fails the check of that promise, and a good one passes."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.acceptance.harness import Harness
from headrace.sdk import (
    CapturedBatch,
    CaptureSource,
    DeliveryGuarantee,
    Position,
    Record,
    SourceConnector,
)
from headrace.sdk.config import Config, ConfigDef, ConfigType
from headrace.sdk.testing import BrokenPromiseError, CaptureAcceptance, SourceDriver

QUEUE = {"queue": "q"}


class Taker(CaptureSource):
    """Takes messages, a file each, from a queue; removes them once they are durable."""

    def __init__(self, config: Config) -> None:
        self.folder = Path(config.get_str("path"))

    def poll(self) -> list[Record] | CapturedBatch | None:
        files = [file for file in self.waiting() if int(file.stem) >= self.durable()]
        return [self.record(file) for file in files[:2]]

    def waiting(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))

    def durable(self) -> int:
        offset = self.context.position().offset(QUEUE)
        return int(offset["next"]) if offset else 0

    def record(self, file: Path) -> Record:
        row = json.loads(file.read_text())
        place = {"next": int(file.stem) + 1}
        return Record("q", row, source_partition=QUEUE, source_offset=place)

    def commit(self, position: Position) -> None:
        offset = position.offset(QUEUE)
        for file in self.waiting():
            if offset and int(file.stem) < int(offset["next"]):
                file.unlink()


class InBatches(Taker):
    """Gives Arrow batches."""

    def poll(self) -> CapturedBatch | None:
        files = [file for file in self.waiting() if int(file.stem) >= self.durable()]
        if not files:
            return None
        rows = pa.RecordBatch.from_pylist([json.loads(file.read_text()) for file in files])
        return CapturedBatch(rows, Position.of(QUEUE, {"next": int(files[-1].stem) + 1}))


class LetsGoAtPoll(Taker):
    """Removes what it has polled."""

    def record(self, file: Path) -> Record:
        record = super().record(file)
        file.unlink()
        return record


class ForgetsItsPlace(Taker):
    """Takes what is in the queue for new."""

    def durable(self) -> int:
        return 0


class SaysNoPlace(Taker):
    def record(self, file: Path) -> Record:
        record = super().record(file)
        file.unlink()
        return Record("q", record.value)


class Blocks(Taker):
    def poll(self) -> list[Record] | CapturedBatch | None:
        time.sleep(2.5)
        return super().poll()


class BlocksForGood(Taker):
    def poll(self) -> list[Record] | CapturedBatch | None:
        time.sleep(7)
        return None


class LeaksFiles(Taker):
    held: list[object] = []  # noqa: RUF012 - shared, so that they are not collected

    def start(self, context) -> None:
        super().start(context)
        self.held.append((self.folder / "log").open("a"))


class Queue(SourceConnector):
    """Takes messages from a folder."""

    delivery = DeliveryGuarantee.EXACTLY_ONCE
    taker: type[Taker] = Taker

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("path", ConfigType.STRING, doc="The folder.")

    @classmethod
    def task_class(cls, config: Config) -> type[CaptureSource]:
        return cls.taker


class QueueDriver(SourceDriver):
    connector: type[SourceConnector] = Queue

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        folder.mkdir()

    def config(self) -> Mapping[str, str]:
        return {"path": str(self.folder)}

    def append(self, rows) -> None:
        for row in rows:
            (self.folder / f"{self.count:04d}.json").write_text(json.dumps(row))
            self.count += 1


def idle(check: Callable[..., None]) -> Callable[..., None]:
    return lambda bench, _: check(bench)


class Kit(CaptureAcceptance):
    """Its tests, to be called one by one."""

    def driver(self, tmp_path):
        raise NotImplementedError


KIT = Kit()

CHECKS: dict[str, Callable[..., None]] = {
    "empty": idle(KIT.test_an_empty_system_gives_nothing_soon),
    "once": KIT.test_a_restart_after_every_poll_neither_loses_nor_repeats,
    "killed after the append": KIT.test_a_kill_before_commit_repeats_nothing_that_is_durable,
    "killed before the append": KIT.test_a_kill_before_the_append_loses_nothing,
    "positions": KIT.test_every_poll_says_where_it_stands,
    "stop": idle(KIT.test_it_stops_in_time),
    "leaks": KIT.test_nothing_is_left_after_stop,
}
BROKEN = [
    (LetsGoAtPoll, "killed before the append", "missing"),
    (ForgetsItsPlace, "killed after the append", "more often than expected"),
    (SaysNoPlace, "positions", r"It was Position\(\[\]\)"),
    (Blocks, "empty", "0 records after 2"),
    (BlocksForGood, "stop", "still polled"),
    (LeaksFiles, "leaks", "open files"),
]


def run(harness: Harness, taker: type[Taker], check: str, folder: Path) -> None:
    connector: type[SourceConnector] = type("OwnQueue", (Queue,), {"taker": taker})
    driver = QueueDriver(folder / "queue")
    with harness.capture(connector, driver.config, folder / "home") as bench:
        CHECKS[check](bench, driver)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("taker", [Taker, InBatches])
@pytest.mark.parametrize("check", CHECKS)
def test_a_good_capture_passes(
    headrace_harness: Harness, taker: type[Taker], check: str, tmp_path: Path
) -> None:
    run(headrace_harness, taker, check, tmp_path)


@pytest.mark.parametrize(("taker", "check", "seen"), BROKEN)
def test_a_broken_promise_is_found(
    headrace_harness: Harness, taker, check: str, seen: str, tmp_path: Path
) -> None:
    with pytest.raises(BrokenPromiseError, match=seen):
        run(headrace_harness, taker, check, tmp_path)
