"""A sink that breaks a promise fails the check of that promise, and a good one passes."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.acceptance.harness import Harness
from headrace.sdk import (
    DeliveryGuarantee,
    FrameSink,
    Mark,
    RecordError,
    Refusal,
    SinkBatch,
    SinkConnector,
)
from headrace.sdk.config import Config, ConfigDef, ConfigType
from headrace.sdk.sink import StagedWrite
from headrace.sdk.testing import BrokenPromiseError, Point, SinkAcceptance, SinkDriver
from headrace.sdk.testing.sinks import Fed

KINDS = ("boolean", "int64", "float64", "string", "array", "struct")


class Writer(FrameSink):
    """Writes a file of JSON for each batch, whose name is its mark, behind its receipt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def committed(self, mark: Mark, topic: str) -> str | None:
        return held(self.folder / self.name(mark))

    def write(self, frame, batch: SinkBatch) -> StagedWrite:
        lines = [self.line(row["value"].asDict(recursive=True)) for row in frame.collect()]
        staged = self.folder / f".{uuid.uuid4().hex}"
        staged.write_text("".join(lines))
        final = self.folder / self.name(batch.mark)
        return self.staged(staged, final, len(lines), batch.mark)

    def name(self, mark: Mark) -> str:
        return f"{mark.application}-{mark.batch}.jsonl"

    def line(self, value: Mapping[str, object]) -> str:
        return f"{json.dumps(value)}\n"

    def staged(self, staged: Path, final: Path, rows: int, mark: Mark) -> StagedWrite:
        return Staged(staged, final, rows, mark)


def held(file: Path) -> str | None:
    return file.read_text().partition("\n")[0] if file.exists() else None


@dataclass(frozen=True)
class Staged:
    staged: Path
    final: Path
    rows: int
    mark: Mark

    def commit(self, receipt: str) -> None:
        whole = self.staged.with_suffix(".whole")
        whole.write_text(f"{receipt}\n{self.staged.read_text()}")
        try:
            self.final.hardlink_to(whole)  # fails where there is a file already
        except FileExistsError:
            self.mark.wrote(held(self.final))
        whole.unlink()
        self.staged.unlink()

    def abort(self) -> None:
        self.staged.unlink(missing_ok=True)


class Folder(SinkConnector):
    """Writes JSON lines into a folder."""

    delivery = DeliveryGuarantee.EXACTLY_ONCE
    writer: type[Writer] = Writer

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("path", ConfigType.STRING, doc="The folder.")

    @classmethod
    def task(cls, config: Config) -> FrameSink:
        return cls.writer(Path(config.get_str("path")))


class FolderDriver(SinkDriver):
    connector: type[SinkConnector] = Folder

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def config(self) -> Mapping[str, str]:
        return {"path": str(self.folder)}

    def read_back(self) -> list[Mapping[str, object]]:
        files = sorted(self.folder.glob("*.jsonl"))
        lines = (line for file in files for line in file.read_text().splitlines()[1:])
        return [json.loads(line) for line in lines]

    def refused(self, number: int) -> Mapping[str, object]:
        return {"id": number, "text": None}

    def break_target(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def repair_target(self) -> None:
        self.folder.with_name("away").rename(self.folder)


class DoublesOnRerun(Writer):
    """Keeps no mark."""

    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    def name(self, mark: Mark) -> str:
        return f"{uuid.uuid4().hex}.jsonl"


class DoublesForStaleOwner(Writer):
    """Its mark has the epoch in it, and only its own is looked for."""

    def committed(self, mark: Mark, topic: str) -> str | None:
        return "" if list(self.folder.glob(f"{mark.application}-{mark.batch}-*")) else None

    def name(self, mark: Mark) -> str:
        return f"{mark.application}-{mark.batch}-{mark.epoch}.jsonl"


class TakesAnyMarkForItsOwn(Writer):
    """Writes nothing where it finds its batch, and says nothing."""

    def staged(self, staged: Path, final: Path, rows: int, mark: Mark) -> StagedWrite:
        return Unless(staged, final, rows, mark)


class Unless(Staged):
    def commit(self, receipt: str) -> None:
        if not self.final.exists():
            super().commit(receipt)


class WritesOver(Writer):
    """Puts its file in the place of the one that is there."""

    def staged(self, staged: Path, final: Path, rows: int, mark: Mark) -> StagedWrite:
        return Over(staged, final, rows, mark)


class Over(Staged):
    def commit(self, receipt: str) -> None:
        self.final.unlink(missing_ok=True)
        super().commit(receipt)


class IgnoresRanges(Writer):
    """Tells attempts apart by their epochs only."""

    def staged(self, staged: Path, final: Path, rows: int, mark: Mark) -> StagedWrite:
        return ByEpoch(staged, final, rows, mark)


class ByEpoch(Staged):
    def commit(self, receipt: str) -> None:
        found = json.loads(held(self.final) or "{}").get("attempt")
        if not found or found["epoch"] != self.mark.epoch:
            super().commit(receipt)


class WritesEarly(Writer):
    """Makes everything visible in ``write``."""

    def staged(self, staged: Path, final: Path, rows: int, mark: Mark) -> StagedWrite:
        super().staged(staged, final, rows, mark).commit("")
        return AlreadyThere(rows)


@dataclass(frozen=True)
class AlreadyThere:
    rows: int

    def commit(self, receipt: str) -> None:
        pass

    def abort(self) -> None:
        pass


class ClaimsTooMuch(Writer):
    """Takes every batch that runs again for a committed one."""

    def committed(self, mark: Mark, topic: str) -> str | None:
        return ""


class LosesARow(Writer):
    """Counts a row that it does not write."""

    def line(self, value: Mapping[str, object]) -> str:
        return "" if value["id"] == 5 else super().line(value)


class FailsOnEmpty(Writer):
    """Takes for granted that a batch has rows."""

    def staged(self, staged: Path, final: Path, rows: int, mark: Mark) -> StagedWrite:
        assert rows / rows == 1
        return super().staged(staged, final, rows, mark)


class BendsTexts(Writer):
    """Writes an empty text as null, and a big number as a float."""

    def line(self, value: Mapping[str, object]) -> str:
        bent = {name: None if item == "" else item for name, item in value.items()}
        return super().line(bent | {"int64": bent.get("int64") and float(str(bent["int64"]))})


class IgnoresNewFields(Writer):
    """Writes the fields that it knows."""

    def line(self, value: Mapping[str, object]) -> str:
        return super().line({"id": value["id"], "text": value["text"]})


class HidesOutages(Writer):
    """Reports nothing when the folder is away."""

    def write(self, frame, batch: SinkBatch) -> StagedWrite:
        try:
            return super().write(frame, batch)
        except OSError:
            return AlreadyThere(frame.count())


class BlamesRecords(Writer):
    """Takes an outage for a bad record."""

    def write(self, frame, batch: SinkBatch) -> StagedWrite:
        try:
            return super().write(frame, batch)
        except OSError as error:
            raise RecordError from error


class SharesMarks(Writer):
    """Forgets that a connector has several tasks."""

    def name(self, mark: Mark) -> str:
        return f"{mark.batch}.jsonl"


class LeaksChildren(Writer):
    """Starts a process and does not end it."""

    children: list[subprocess.Popen[bytes]] = []  # noqa: RUF012 - for the test to end them

    def start(self, context) -> None:
        wait = [sys.executable, "-c", "input()"]
        self.children.append(subprocess.Popen(wait, stdin=subprocess.PIPE))


class Picky(Writer):
    """Refuses records without a text."""

    condition = "value.text IS NULL"

    def refusals(self, frame, batch: SinkBatch) -> Sequence[Refusal]:
        return [Refusal(condition=self.condition, problem="There is no text.")]


class TooPicky(Picky):
    """Refuses what its target would take."""

    condition = "value.text IS NULL OR value.id % 10 = 1"


class ForgetsReceipts(Picky):
    """Knows that it has a batch, and not what became of its bad records."""

    def committed(self, mark: Mark, topic: str) -> str | None:
        return None if super().committed(mark, topic) is None else ""


def writing(writer: type[Writer], **more: object) -> type[SinkConnector]:
    return type("BrokenFolder", (Folder,), {"writer": writer, **more})


def kinds(fed: Fed) -> None:
    for broken in fed.check_kinds(KINDS).values():
        raise broken


class Kit(SinkAcceptance):
    """Its tests, to be called one by one."""

    def driver(self, tmp_path):
        raise NotImplementedError


KIT = Kit()


def refused(fed: Fed) -> None:
    """Check it, whatever the sink says of what its target refuses."""
    connector: Any = fed.driver.connector
    config: Any = connector.config_def().parse(fed.driver.config())
    harness: Any = SimpleNamespace(unstarted=lambda *_: Picky(config))
    KIT.test_what_the_target_refuses_is_dead_lettered_and_the_rest_arrives(harness, fed)


CHECKS: dict[str, Callable[..., None]] = {
    "kinds": kinds,
    "batches": KIT.test_every_batch_arrives,
    "empty first": KIT.test_the_first_batch_may_be_empty,
    **{
        f"killed {at.value}": partial(
            KIT.test_a_killed_batch_delivers_once_when_it_runs_again, at=at
        )
        for at in Point
    },
    "killed twice": KIT.test_a_batch_killed_many_times_delivers_once,
    "stale": KIT.test_a_stale_owner_changes_nothing,
    "overlap": KIT.test_of_two_attempts_at_a_batch_one_is_taken_and_the_other_fails,
    "other range": KIT.test_a_number_that_has_other_records_in_the_target_is_refused,
    "grows": KIT.test_a_field_that_is_new_in_mid_stream_arrives,
    "outage at write": partial(
        KIT.test_an_outage_of_the_target_loses_nothing, at=Point.BEFORE_WRITE
    ),
    "outage at commit": partial(
        KIT.test_an_outage_of_the_target_loses_nothing, at=Point.BEFORE_COMMIT
    ),
    "two tasks": KIT.test_tasks_do_not_disturb_each_other,
    "leaks": lambda fed: KIT.test_nothing_is_left_after_stop(fed.bench, fed.driver),
    "refused": refused,
}

BEFORE_COMMIT = "killed between write and commit"
AFTER_COMMIT = "killed between commit and finish"
Case = tuple[type[Writer], str, str, str]
"""A writer, the check it fails, what is then said, and what the author is to read."""

BROKEN: list[Case] = [
    (DoublesOnRerun, AFTER_COMMIT, "more often than expected", "FrameSink.committed"),
    (DoublesOnRerun, "killed twice", "more often than expected", "FrameSink.committed"),
    (DoublesForStaleOwner, "stale", "more often than expected", "StagedWrite.commit"),
    (TakesAnyMarkForItsOwn, "overlap", "taken for success", "StagedWrite.commit"),
    (TakesAnyMarkForItsOwn, "other range", "taken for success", "StagedWrite.commit"),
    (WritesOver, "overlap", "taken for success", "StagedWrite.commit"),
    (WritesOver, "other range", "taken for success", "StagedWrite.commit"),
    (IgnoresRanges, "other range", "taken for success", "StagedWrite.commit"),
    (WritesEarly, BEFORE_COMMIT, "never expected", "StagedWrite"),
    (ClaimsTooMuch, BEFORE_COMMIT, "already has", "FrameSink.committed"),
    (LosesARow, "batches", "1 rows are missing", "FrameSink.write"),
    (BendsTexts, "kinds", "became 1.0", "FrameSink.write"),
    (IgnoresNewFields, "grows", "missing", "FrameSink.write"),
    (HidesOutages, "outage at write", "was not noticed", "FrameSink.write"),
    (BlamesRecords, "outage at write", "RecordError", "RecordError"),
    (SharesMarks, "two tasks", "missing", "SinkTask"),
    (TooPicky, "refused", "3 rows are missing", "SinkTask"),
    (ForgetsReceipts, "refused", "dead-lettered", "FrameSink.refusals"),
]


def run(harness: Harness, connector: type[SinkConnector], check: str, folder: Path) -> None:
    driver = FolderDriver(folder / "target")
    driver.connector = connector
    with harness.sink(connector, driver.config, folder / "home") as bench:
        CHECKS[check](Fed(bench, driver))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("check", CHECKS)
def test_a_good_sink_passes(headrace_harness: Harness, check: str, tmp_path: Path) -> None:
    run(headrace_harness, writing(Picky) if check == "refused" else Folder, check, tmp_path)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def test_a_broken_promise_is_found_and_named(
    headrace_harness: Harness, case: Case, tmp_path: Path
) -> None:
    writer, check, seen, read = case
    with pytest.raises(BrokenPromiseError) as broken:
        run(headrace_harness, writing(writer), check, tmp_path)
    message = str(broken.value)
    assert seen in message
    assert f"{read}\n" in message.partition("Read: ")[2]


def test_a_sink_that_fails_on_an_empty_batch_fails(
    headrace_harness: Harness, tmp_path: Path
) -> None:
    with pytest.raises(ZeroDivisionError):
        run(headrace_harness, writing(FailsOnEmpty), "empty first", tmp_path)


def test_child_processes_that_are_left_are_found(
    headrace_harness: Harness, tmp_path: Path
) -> None:
    try:
        with pytest.raises(BrokenPromiseError, match="4 child processes"):
            run(headrace_harness, writing(LeaksChildren), "leaks", tmp_path)
    finally:
        for child in LeaksChildren.children:
            child.communicate()


@pytest.mark.parametrize("check", [AFTER_COMMIT, "stale", "two tasks"])
def test_at_least_once_may_repeat(
    headrace_harness: Harness, check: str, tmp_path: Path
) -> None:
    connector = writing(DoublesOnRerun, delivery=DeliveryGuarantee.AT_LEAST_ONCE)
    run(headrace_harness, connector, check, tmp_path)


def test_at_least_once_may_not_lose(headrace_harness: Harness, tmp_path: Path) -> None:
    connector = writing(ClaimsTooMuch, delivery=DeliveryGuarantee.AT_LEAST_ONCE)
    with pytest.raises(BrokenPromiseError, match="already has"):
        run(headrace_harness, connector, BEFORE_COMMIT, tmp_path)


def test_a_column_that_is_bent_is_named_and_no_other(
    headrace_harness: Harness, tmp_path: Path
) -> None:
    connector = writing(BendsTexts)
    driver = FolderDriver(tmp_path / "target")
    driver.connector = connector
    kinds: Sequence[str] = ("boolean", "int64", "string")
    with headrace_harness.sink(connector, driver.config, tmp_path / "home") as bench:
        assert set(Fed(bench, driver).check_kinds(kinds)) == {"int64", "string"}
