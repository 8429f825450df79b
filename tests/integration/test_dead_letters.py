"""A poisoned stream: every bad record dead-lettered with its cause, and repaired ones once."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name
from tests.unit.topics.made_topics import Clock, tending

from headrace.cli.progress import Scoreboard
from headrace.dataplane import Claimed, DeadLetterFilter, DeadLetterQueue
from headrace.dataplane.arrow_letters import MOST_ROWS, FewLetters
from headrace.dataplane.dead_letter_queue import claims_of
from headrace.dataplane.dead_letters import DEAD_LETTER_TOPIC
from headrace.model import Counts, TaskId, TaskState
from headrace.runtime.app import Runtime
from headrace.runtime.tasks import names_of
from headrace.sdk import ConfigError, Mark, StateError
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import to_spark_json
from headrace.topics import LETTERS, Topic, Topics, UpkeepPolicy
from headrace.topics.table_log import DeltaLog

pytestmark = pytest.mark.spark

ROWS = 3000
NAME = "poisoned"
DEFINITION = """
name: poisoned
errors.tolerance: all
errors.deadletterqueue.context.headers.enable: true
source:
  connector: file
  path: {folder}/in
  format: csv
  schema: id bigint, amount string, "at" timestamp
transforms:
  - type: Cast
    spec: amount:float64
sinks:
  - connector: delta
    path: {folder}/out
"""


def line(number: int) -> str:
    """One in a hundred is malformed, another cannot be cast."""
    amount = "much" if number % 100 == 7 else f"{number}.5"
    id_ = "x" if number % 100 == 9 else str(number)
    return f"{id_},{amount},2026-01-02T03:04:05.{number:06d}Z"


class Pipe:
    """A connector with its input, its output and its dead letters."""

    def __init__(self, runtime: Runtime, folder: Path, rows: int) -> None:
        self.runtime, self.folder, self.rows = runtime, folder, rows
        self.file = folder / "poisoned.yaml"
        self.file.write_text(DEFINITION.replace('"at"', "at").format(folder=folder))
        (folder / "in").mkdir()
        lines = "".join(f"{line(number)}\n" for number in range(rows))
        (folder / "in" / "a.csv").write_text(f"id,amount,at\n{lines}")
        (self.definition,) = runtime.definitions([self.file])

    def run(self) -> Counts:
        board = Scoreboard(lambda: 0.0)
        outcome = self.runtime.run([self.definition], board, once=True)
        assert not outcome.errors
        return self.runtime.state.totals(TaskId(NAME, 0))

    def replay(self, file: Path | None = None, **chosen: Any) -> tuple[int, int, Counts]:
        """Return how many were claimed, how many await repair, and what became of all."""
        before = self.runtime.state.totals(TaskId(NAME, -1))
        board = Scoreboard(lambda: 0.0)
        claimed, outcome = self.runtime.replay(
            self.definition, DeadLetterFilter(**chosen), file, board
        )
        assert not outcome.errors
        after = self.runtime.state.totals(TaskId(NAME, -1))
        made = Counts(
            after.read - before.read,
            after.written - before.written,
            after.filtered - before.filtered,
            after.rejected - before.rejected,
        )
        return claimed.records, claimed.unrepaired, made

    def dead_letter_queue(self) -> DeadLetterQueue:
        return self.runtime.dead_letter_queue("poisoned.dlq")

    def groups(self, **chosen: Any) -> dict[str, int]:
        found = self.dead_letter_queue().groups(DeadLetterFilter(**chosen))
        return {f"{group['stage']} {group['class']}": group["letters"] for group in found}

    def delivered(self) -> list[tuple[int, float, int]]:
        out = self.runtime.spark.read.format("delta").load(str(self.folder / "out"))
        rows = out.selectExpr("id", "amount", "unix_micros(at) % 1000000").collect()
        return sorted((row[0], row[1], row[2]) for row in rows)

    def expected(self, *, without: tuple[int, ...] = ()) -> list[tuple[int, float, int]]:
        return [(n, n + 0.5, n) for n in range(self.rows) if n % 100 not in without]


def repaired(file: Path, target: Path) -> int:
    """Mend exported letters by hand, as a person or a script would."""
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    for letter in lines:
        if letter["stage"] == "TRANSFORMATION":
            letter["value"]["amount"] = f"{letter['value']['id']}.5"
        else:
            number = int(letter["value"].split(".")[-1].rstrip("Z"))
            at = f"2026-01-02T03:04:05.{number:06d}Z"
            letter["value"] = {"id": number, "amount": f"{number}.5", "at": at}
    target.write_text("".join(f"{json.dumps(letter)}\n" for letter in lines))
    return len(lines)


def check_poisoned_stream(runtime: Runtime, folder: Path, rows: int) -> None:
    pipe, bad = Pipe(runtime, folder, rows), rows // 100
    counts = pipe.run()
    assert counts.balanced
    assert (counts.read, counts.written, counts.rejected) == (rows, rows - 2 * bad, 2 * bad)
    assert sorted(counts.causes.values()) == [bad, bad]
    assert pipe.delivered() == pipe.expected(without=(7, 9))
    causes = {"TASK_POLL file": bad, "TRANSFORMATION cast-1 (Cast)": bad}
    assert sorted(pipe.groups().values()) == [bad, bad], pipe.groups()
    assert {key.split()[0] for key in pipe.groups()} == {key.split()[0] for key in causes}

    # Unchanged, the same error comes again as a new letter; what is no record waits.
    assert pipe.replay() == (bad, bad, Counts(read=bad, rejected=bad))
    assert sorted(pipe.groups().values()) == [bad, bad]

    exported, mended = folder / "letters.jsonl", folder / "mended.jsonl"
    assert pipe.dead_letter_queue().export(DeadLetterFilter(), exported) == 2 * bad
    assert repaired(exported, mended) == 2 * bad
    assert pipe.replay(mended) == (2 * bad, 0, Counts(read=2 * bad, written=2 * bad))
    assert pipe.delivered() == pipe.expected()
    assert pipe.groups() == {}
    # Once: what was replayed is not open any more.
    assert pipe.replay(mended) == (0, 0, Counts())
    assert pipe.replay() == (0, 0, Counts())
    assert pipe.delivered() == pipe.expected()


def test_repaired_letters_bring_the_missing_records_once(runtime, tmp_path: Path) -> None:
    check_poisoned_stream(runtime, tmp_path, ROWS)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_million_records_with_one_bad_in_a_hundred_at_each_stage(
    runtime, tmp_path: Path
) -> None:
    check_poisoned_stream(runtime, tmp_path, 1_000_000)


def test_a_replay_that_was_killed_after_its_claim_is_finished_by_the_next(
    runtime, tmp_path: Path
) -> None:
    pipe = Pipe(runtime, tmp_path, 200)
    pipe.run()
    exported, mended = tmp_path / "letters.jsonl", tmp_path / "mended.jsonl"
    pipe.dead_letter_queue().export(DeadLetterFilter(stage="TRANSFORMATION"), exported)
    assert repaired(exported, mended) == 2
    queue = pipe.dead_letter_queue()
    claimed = queue.claim(NAME, DeadLetterFilter(), mended, ["out"])
    assert (claimed.records, claimed.unknown) == (2, 0)
    assert queue.claim(NAME, DeadLetterFilter(), mended, ["out"]).unknown == 2
    assert pipe.replay(mended) == (0, 0, Counts(read=2, written=2))
    assert pipe.delivered() == pipe.expected(without=(9,))


def test_connectors_with_one_topic_replay_their_own_letters_once(
    runtime: Runtime, tmp_path: Path
) -> None:
    board, definitions = Scoreboard(lambda: 0.0), []
    for number, name in enumerate(["one", "two"]):
        folder = tmp_path / name
        (folder / "in").mkdir(parents=True)
        (folder / "in" / "a.csv").write_text(f"id,amount,at\n{number},much,\n")
        shared = f"name: {name}\n{DEAD_LETTER_TOPIC}: poisoned.dlq"
        text = DEFINITION.replace("name: poisoned", shared).replace('"at"', "at")
        (folder / "c.yaml").write_text(text.format(folder=folder))
        definitions += runtime.definitions([folder / "c.yaml"])
    assert not runtime.run(definitions, board, once=True).errors
    exported, mended = tmp_path / "letters.jsonl", tmp_path / "mended.jsonl"
    runtime.dead_letter_queue("poisoned.dlq").export(DeadLetterFilter(), exported)
    assert repaired(exported, mended) == 2

    def replayed() -> list[int]:
        for each in reversed(definitions):
            _, outcome = runtime.replay(each, DeadLetterFilter(), mended, board)
            assert not outcome.errors
        folders = (str(tmp_path / name / "out") for name in ("one", "two"))
        rows = (runtime.spark.read.format("delta").load(folder).collect() for folder in folders)
        return [row["id"] for each in rows for row in each]

    assert replayed() == [0, 1]
    for each in definitions:
        assert [task.number for task in runtime.reset_offsets(each)] == [0]
    assert replayed() == [0, 1]


KILLED = """
import os, signal, sys
from pathlib import Path

from headrace.dataplane import DeadLetterFilter, DeadLetterQueue
from headrace.sdk.location import Location
from headrace.topics import Topic, Topics

when, topics, mended = sys.argv[1], Location.of(Path(sys.argv[2])), Path(sys.argv[3])
append = Topic.append


def killed(*args):
    if when == "after":
        append(*args)
    os.kill(os.getpid(), signal.SIGKILL)


Topic.append = killed
queue = DeadLetterQueue(None, Topics(topics).get("poisoned.dlq"), topics)
queue.claim("poisoned", DeadLetterFilter(), mended, ["out"])
"""
"""Claims a few letters, and is killed before the transaction of the claim or after it."""


def test_letters_go_once_though_their_claim_was_killed_at_its_transaction(
    runtime, tmp_path: Path
) -> None:
    pipe = Pipe(runtime, tmp_path, 200)
    pipe.run()
    exported, mended = tmp_path / "letters.jsonl", tmp_path / "mended.jsonl"
    pipe.dead_letter_queue().export(DeadLetterFilter(), exported)
    assert repaired(exported, mended) == 4
    lines = mended.read_text()
    mended.write_text(lines.splitlines()[0])

    def claim(when: str) -> int:
        command = [sys.executable, "-c", KILLED, when]
        command += [str(runtime.settings.topics_dir.path), str(mended)]
        return subprocess.run(command, check=False).returncode

    assert claim("before") == -signal.SIGKILL
    assert sum(pipe.groups().values()) == 4
    assert claim("after") == -signal.SIGKILL
    assert sum(pipe.groups().values()) == 3
    mended.write_text(lines)
    # Two claims: that of the killed one, and one of the others.
    assert pipe.replay(mended) == (3, 0, Counts(read=4, written=4))
    assert pipe.delivered() == pipe.expected()
    assert pipe.replay(mended) == (0, 0, Counts())


def test_letters_are_chosen_by_cause_time_and_name_and_discarded(
    runtime, tmp_path: Path
) -> None:
    pipe = Pipe(runtime, tmp_path, 200)
    pipe.run()
    box = pipe.dead_letter_queue()
    assert sum(pipe.groups(exception="DataException").values()) == 2
    assert pipe.groups(connector="other") == {}
    first = box.lines(DeadLetterFilter(stage="TRANSFORMATION"), 5)
    assert first[0]["value"] == {
        "id": 7,
        "amount": "much",
        "at": "2026-01-02T03:04:05.000007Z",
    }
    assert first[0]["headers"] == []
    assert box.lines(DeadLetterFilter(stage="TASK_POLL"), 1)[0]["value"] == line(9)
    rejected = box.groups(DeadLetterFilter())[0]["first"]
    assert rejected.startswith("20")
    assert box.discard(DeadLetterFilter(ids=[first[0]["id"]])) == 1
    assert box.discard(DeadLetterFilter(stage="TASK_POLL")) == 2
    assert box.discard(DeadLetterFilter(stage="TASK_POLL")) == 0
    assert [each["id"] for each in box.lines(DeadLetterFilter(), 5)] == [first[1]["id"]]


def no_spark() -> Any:
    pytest.fail("What concerns few letters has asked for Spark.")


def claimed_of_a_copy(
    runtime: Runtime,
    copy: Path,
    spark: Callable[[], Any],
    chosen: DeadLetterFilter,
    repaired: Path | None = None,
) -> tuple[Claimed, list[Any]]:
    """Return what a claim says, and the rows that it holds."""
    shutil.copytree(runtime.settings.topics_dir.path, copy)
    folder = Location.of(copy)
    queue = DeadLetterQueue(spark, Topics(folder).get("poisoned.dlq"), folder)
    before = claims_of("poisoned.dlq", folder).log.newest()
    claimed = queue.claim(chosen.connector or NAME, chosen, repaired, ["out"])
    claims = claims_of("poisoned.dlq", folder)
    paths = [
        str(copy / "~letters" / "poisoned.dlq" / file.path)
        for version in range(before + 1, claims.log.newest() + 1)
        for file in claims.log.commit(version).added
    ]
    shape = T.StructType.fromJson(to_spark_json(claims.schema()))
    rows = runtime.spark.read.schema(shape).parquet(*paths).drop("offset") if paths else None
    return claimed, sorted(rows.collect(), key=str) if rows else []


def test_few_letters_are_claimed_without_spark_as_with_it(
    runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = Pipe(runtime, tmp_path, 200)
    pipe.run()
    (tmp_path / "in" / "b.csv").write_text("id,amount,at\n1,none,2026-01-02T00:00:00Z\n")
    pipe.run()
    clock, at_once = Clock(), UpkeepPolicy(compact_after=timedelta(0), compact_files=2)
    clock.now = datetime.now(UTC)
    upkeep = tending(runtime.topics, clock, at_once)
    for _ in range(2):
        clock.pass_by(timedelta(minutes=30))
        upkeep.run_once()
    topic = runtime.topics.get("poisoned.dlq")
    assert topic.segments()
    (tmp_path / "in" / "c.csv").write_text("id,amount,at\n2,none,2026-01-02T00:00:00Z\n")
    pipe.run()
    letters = pipe.dead_letter_queue().lines(DeadLetterFilter(), 20)
    fit = [each for each in letters if each["stage"] == "TRANSFORMATION"]
    assert (len(letters), len(fit)) == (6, 4)
    queue = DeadLetterQueue(no_spark, topic, runtime.settings.topics_dir)
    assert queue.discard(DeadLetterFilter(ids=[fit[0]["id"]])) == 1
    early, late = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
    whole = fit[0]["exception"]
    for number, (chosen, claimed) in enumerate(
        [
            (DeadLetterFilter(), Claimed(3, 2)),
            (DeadLetterFilter(connector=NAME, stage="TRANSFORMATION"), Claimed(3)),
            (DeadLetterFilter(exception=whole, since=early, until=late), Claimed(3)),
            (DeadLetterFilter(exception=whole.rpartition(".")[2], ids=()), Claimed(3)),
            (DeadLetterFilter(ids=[each["id"] for each in fit[:2]]), Claimed(1)),
            (DeadLetterFilter(connector="other"), Claimed(0)),
            (DeadLetterFilter(since=late), Claimed(0)),
        ]
    ):
        causes, lines = queue.groups(chosen), queue.lines(chosen, 2)
        exported = queue.export(chosen, tmp_path / "few.jsonl")
        few = claimed_of_a_copy(runtime, tmp_path / f"few-{number}", no_spark, chosen)
        with monkeypatch.context() as patched:
            patched.setattr("headrace.dataplane.arrow_letters.MOST_ROWS", 0)
            copy = tmp_path / f"any-{number}"
            assert claimed_of_a_copy(runtime, copy, lambda: runtime.spark, chosen) == few
            with_spark = pipe.dead_letter_queue()
            assert with_spark.groups(chosen) == causes
            assert with_spark.lines(chosen, 2) == lines
            assert with_spark.export(chosen, tmp_path / "any.jsonl") == exported
        assert (tmp_path / "few.jsonl").read_text() == (tmp_path / "any.jsonl").read_text()
        assert few[0] == claimed
        assert len(few[1]) == claimed.records


def test_few_repaired_letters_are_claimed_without_spark_as_with_it(
    runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = Pipe(runtime, tmp_path, 200)
    pipe.run()
    exported, mended = tmp_path / "letters.jsonl", tmp_path / "mended.jsonl"
    pipe.dead_letter_queue().export(DeadLetterFilter(), exported)
    fit, other, text, same = sorted(
        map(json.loads, exported.read_text().splitlines()),
        key=lambda letter: letter["stage"] != "TRANSFORMATION",
    )
    header = {"key": "by", "value": "hand", "type": "string"}
    fit |= {"key": {"id": 7}, "headers": [header]}
    fit["value"]["amount"] = "2.50"
    text["value"] = {"id": 9, "amount": "9.50", "at": "2026-01-02T03:04:05Z"}
    lines = [fit, {"id": other["id"]}, text, same, {"id": "9-9"}]
    mended.write_text("\r\n".join(json.dumps(each) for each in lines))
    for number, (chosen, claimed) in enumerate(
        [
            (DeadLetterFilter(), Claimed(3, 1, 1)),
            (DeadLetterFilter(stage="TRANSFORMATION"), Claimed(2, 0, 3)),
            (DeadLetterFilter(ids=[text["id"]]), Claimed(1, 0, 4)),
            (DeadLetterFilter(connector="other"), Claimed(0, 0, 5)),
        ]
    ):
        few = claimed_of_a_copy(runtime, tmp_path / f"few-{number}", no_spark, chosen, mended)
        with monkeypatch.context() as patched:
            patched.setattr("headrace.dataplane.arrow_letters._FILE_BYTES", 0)
            copy = tmp_path / f"any-{number}"
            any_ = claimed_of_a_copy(runtime, copy, lambda: runtime.spark, chosen, mended)
        assert (few[0], any_) == (claimed, few)
        rows = {row["id"]: row for row in few[1]}
        assert len(rows) == claimed.records
        if fit["id"] in rows:
            row = rows[fit["id"]]
            assert (row["key"], row["headers"][0].asDict()) == ('{"id": 7}', header)
            assert '"amount": "2.50"' in row["value"]
    mended.write_text('{"id":"1-0"} {"id":"1-1"}\n')
    for most in (100, 0):
        monkeypatch.setattr("headrace.dataplane.arrow_letters._FILE_BYTES", most)
        with pytest.raises(ConfigError, match="1 of 1 lines are not JSON objects"):
            pipe.dead_letter_queue().claim(NAME, DeadLetterFilter(), mended, ["out"])


def test_a_replay_of_nothing_starts_no_spark(
    runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = Pipe(runtime, tmp_path, 200)
    pipe.run()
    assert pipe.dead_letter_queue().discard(DeadLetterFilter(stage="TRANSFORMATION")) == 2
    monkeypatch.setattr(Runtime, "spark", property(lambda _: no_spark()))
    board = Scoreboard(lambda: 0.0)
    claimed, outcome = runtime.replay(pipe.definition, DeadLetterFilter(), None, board)
    assert (claimed, outcome.errors) == (Claimed(0, 2), {})
    [score] = board.scores()
    assert (score.state, score.counts.read) == (TaskState.COMPLETED, 0)


def test_letters_that_do_not_fit_into_memory_are_left_to_spark(
    runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pipe(runtime, tmp_path, 200).run()
    topic = runtime.topics.get("poisoned.dlq")
    every = DeadLetterFilter().matches
    few = FewLetters.read(topic, {}, every)
    assert few is not None
    assert few.rows.num_rows == 4
    monkeypatch.setattr("headrace.dataplane.arrow_letters._MOST_BYTES", few.rows.nbytes - 1)
    assert FewLetters.read(topic, {}, every) is None
    # The ids of closed letters have to fit, too.
    assert FewLetters.read(topic, {topic.location: MOST_ROWS}, every) is None


def test_the_oldest_of_large_letters_are_shown_without_spark(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pipe(runtime, tmp_path, 300).run()
    folder = runtime.settings.topics_dir
    queue = DeadLetterQueue(no_spark, Topics(folder).get("poisoned.dlq"), folder)
    lines = queue.lines(DeadLetterFilter(), 6)
    assert len(lines) == 6
    monkeypatch.setattr("headrace.dataplane.arrow_letters._BATCH_ROWS", 1)
    assert queue.lines(DeadLetterFilter(), 4) == lines[:4]
    monkeypatch.setattr("headrace.dataplane.arrow_letters._MOST_BYTES", 1)
    assert queue.lines(DeadLetterFilter(), 4) == lines[:1]


def test_of_two_that_claim_few_letters_at_once_one_gets_them(runtime, tmp_path: Path) -> None:
    Pipe(runtime, tmp_path, 200).run()
    folder = runtime.settings.topics_dir
    first, second = (
        DeadLetterQueue(no_spark, Topics(folder).get("poisoned.dlq"), folder) for _ in range(2)
    )
    looked = second._next()
    letters = second._few(DeadLetterFilter(stage="TRANSFORMATION"))
    assert first.claim(NAME, DeadLetterFilter(), None, ["out"]).records == 2
    assert letters is not None
    with pytest.raises(StateError, match="Another command is using the letters"):
        second._claim_streams(letters, ["out"], looked, NAME)
    assert second.claim(NAME, DeadLetterFilter(), None, ["out"]) == Claimed(0, 2)


def test_a_repaired_record_that_does_not_fit_is_dead_lettered_again(
    runtime, tmp_path: Path
) -> None:
    pipe = Pipe(runtime, tmp_path, 100)
    pipe.run()
    mended = tmp_path / "mended.jsonl"
    letter = pipe.dead_letter_queue().lines(DeadLetterFilter(stage="TRANSFORMATION"), 1)[0]
    letter["value"] = {"id": "seven"}
    mended.write_text(json.dumps(letter))
    assert pipe.replay(mended) == (1, 0, Counts(read=1, rejected=1))
    assert "VALUE_CONVERTER replay" in pipe.groups()
    [again] = pipe.dead_letter_queue().lines(DeadLetterFilter(stage="VALUE_CONVERTER"), 1)
    assert again["message"] == "The JSON does not fit: value.id BIGINT."
    assert json.loads(again["value"]) == {"id": "seven"}
    again["value"] = "7,2.50"
    mended.write_text(json.dumps(again))
    assert pipe.replay(mended) == (1, 0, Counts(read=1, rejected=1))
    [text] = pipe.dead_letter_queue().lines(DeadLetterFilter(stage="VALUE_CONVERTER"), 1)
    assert text["message"].startswith("The JSON does not fit: value is not an object, value.id")
    mended.write_text("{}\nnonsense\n")
    with pytest.raises(ConfigError, match="2 of 2 lines"):
        pipe.dead_letter_queue().claim(NAME, DeadLetterFilter(), mended, ["out"])


def test_letters_with_variants_and_required_fields_are_replayed_as_records(
    runtime, tmp_path: Path
) -> None:
    pipe = Pipe(runtime, tmp_path, 0)
    (tmp_path / "in" / "a.csv").unlink()
    json_lines = pipe.file.read_text().replace("csv", "json")
    columns = "id bigint not null, amount string, v variant"
    pipe.file.write_text(json_lines.replace("id bigint, amount string, at timestamp", columns))
    (pipe.definition,) = runtime.definitions([pipe.file])
    variants: list[Any] = [{"a": [1.5, None]}, "5", 5, None, [True], "lacks an id"]
    lines = [{"id": n, "amount": "much", "v": variant} for n, variant in enumerate(variants)]
    (tmp_path / "in" / "a.json").write_text("\n".join(map(json.dumps, lines)))
    pipe.run()
    letters = pipe.dead_letter_queue().lines(DeadLetterFilter(), 10)
    for letter in letters:
        letter["value"]["amount"] = "1.5"
    letters[-1]["value"]["id"] = None
    mended = tmp_path / "mended.jsonl"
    mended.write_text("\n".join(map(json.dumps, letters)))
    assert pipe.replay(mended) == (6, 0, Counts(read=6, written=5, rejected=1))
    out = runtime.spark.read.format("delta").load(str(tmp_path / "out")).orderBy("id")
    found = out.selectExpr("to_json(struct(v))").collect()
    # Spark leaves out what is null, and writes a null of JSON.
    assert [json.loads(text).get("v", "missing") for (text,) in found] == [
        "missing" if variant is None else variant for variant in variants[:5]
    ]
    [again] = pipe.dead_letter_queue().lines(DeadLetterFilter(), 10)
    assert again["message"] == "A value that the record's schema requires is null or missing."


def test_a_topic_without_letters_is_refused(runtime) -> None:
    with pytest.raises(ConfigError, match="not a dead-letter topic"):
        runtime.dead_letter_queue("nothing")


TWO_SINKS = """
name: two
errors.tolerance: all
source:
  connector: file
  path: {folder}/in.csv
  schema: id bigint, amount string
transforms:
  - type: Cast
    spec: amount:float64
sinks:
"""
FIRST = "  - connector: file\n    path: {folder}/first\n    format: json\n"
SECOND = (
    "  - connector: delta\n    path: {folder}/second\n    mode: upsert\n    key.fields: id\n"
)
OTHER = "  - connector: file\n    path: {folder}/other\n    format: json\n"


class Sinks:
    """A connector whose second sink alone refuses a record, and whose sinks may change."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime, self.folder = runtime, folder
        (folder / "in.csv").write_text("id,amount\n1,1.5\n,2.5\n3,much\n")
        self.have(FIRST, SECOND)
        assert not runtime.run([self.definition], Scoreboard(lambda: 0.0), once=True).errors

    def have(self, *sinks: str) -> None:
        file = self.folder / "two.yaml"
        file.write_text((TWO_SINKS + "".join(sinks)).format(folder=self.folder))
        (self.definition,) = self.runtime.definitions([file])

    def letters(self) -> list[dict[str, Any]]:
        return self.runtime.dead_letter_queue("two.dlq").lines(DeadLetterFilter(), 5)

    def mended(self, *letters: dict[str, Any]) -> Path:
        file = self.folder / "mended.jsonl"
        file.write_text("".join(f"{json.dumps(letter)}\n" for letter in letters))
        return file

    def replay(self, file: Path | None = None) -> tuple[int, list[Exception]]:
        """Return how many letters were claimed, and what went wrong."""
        board = Scoreboard(lambda: 0.0)
        claimed, outcome = self.runtime.replay(self.definition, DeadLetterFilter(), file, board)
        return claimed.records, list(outcome.errors.values())

    def file(self, name: str) -> list[tuple[int, float]]:
        lines = [
            json.loads(line)
            for part in (self.folder / name).glob("part-*")
            for line in part.read_text().splitlines()
        ]
        return sorted((line["id"], line["amount"]) for line in lines if line.get("id"))

    def table(self) -> list[tuple[int, float]]:
        table = self.runtime.spark.read.format("delta").load(str(self.folder / "second"))
        return sorted((row["id"], row["amount"]) for row in table.collect())


def test_a_letter_of_one_sink_that_the_chain_rejects_in_a_replay_is_open_again(
    runtime, tmp_path: Path
) -> None:
    pipe = Sinks(runtime, tmp_path)
    letter = pipe.letters()[1]
    letter["value"] |= {"id": 2, "amount": "much"}
    assert pipe.replay(pipe.mended(letter)) == (1, [])
    again = pipe.letters()[1]
    assert (again["stage"], again["sink"], again["value"]["id"]) == ("TRANSFORMATION", 1, 2)
    again["value"]["amount"] = "2.5"
    assert pipe.replay(pipe.mended(again)) == (1, [])
    assert [line["value"]["id"] for line in pipe.letters()] == [3]
    assert pipe.table() == [(1, 1.5), (2, 2.5)]


def test_a_letter_of_one_sink_alone_is_replayed_to_that_sink_alone(
    runtime, tmp_path: Path
) -> None:
    pipe = Sinks(runtime, tmp_path)
    counts = runtime.state.totals(TaskId("two", 0))
    assert counts.sinks["0"] == {"written": 2, "rejected": 1}
    assert counts.sinks["1"] == {"written": 1, "rejected": 2}
    assert (pipe.file("first"), pipe.table()) == ([(1, 1.5)], [(1, 1.5)])

    letters = pipe.letters()
    assert [(line["stage"], line.get("sink")) for line in letters] == [
        ("TRANSFORMATION", None),
        ("TASK_PUT", 1),
    ]
    letters[0]["value"]["amount"] = "3.5"
    letters[1]["value"]["id"] = 2
    # Its number is another sink's by now.
    pipe.have(OTHER, FIRST, SECOND)
    assert pipe.replay(pipe.mended(*letters)) == (2, [])
    # The first sink took record 2 as it was, without an id: it does not get it again.
    assert (pipe.file("first"), pipe.file("other")) == ([(1, 1.5), (3, 3.5)], [(3, 3.5)])
    assert pipe.table() == [(1, 1.5), (2, 2.5), (3, 3.5)]


def test_letters_of_a_sink_that_is_gone_wait_for_it(runtime, tmp_path: Path) -> None:
    pipe = Sinks(runtime, tmp_path)
    letter = pipe.letters()[1]
    letter["value"]["id"] = 2
    mended = pipe.mended(letter)
    pipe.have(FIRST, OTHER)
    with pytest.raises(StateError, match="1 of the letters were refused by a sink"):
        pipe.replay(mended)
    assert len(pipe.letters()) == 2

    pipe.have(FIRST, SECOND)
    names = names_of(runtime._planner.plans(pipe.definition)[0])
    queue = runtime.dead_letter_queue("two.dlq")
    assert queue.claim("two", DeadLetterFilter(), mended, names).records == 1
    pipe.have(OTHER)
    claimed, (error,) = pipe.replay(mended)
    assert (claimed, type(error)) == (0, StateError)
    pipe.have(SECOND)
    assert pipe.replay(mended) == (0, [])
    assert pipe.table() == [(1, 1.5), (2, 2.5)]
    assert pipe.file("other") == []


def test_a_topic_whose_letters_are_gone_has_none(runtime, tmp_path: Path) -> None:
    """One empty topic made the list of all of them fail."""
    topic = Topics(runtime.settings.topics_dir).get("empty.dlq")
    topic.prepare(LETTERS)
    found = runtime.dead_letter_queue("empty.dlq")
    assert found.groups(DeadLetterFilter()) == []
    assert found.lines(DeadLetterFilter(stage="TASK_PUT"), 5) == []
    assert found.export(DeadLetterFilter(), tmp_path / "letters.jsonl") == 0
    assert found.discard(DeadLetterFilter()) == 0
    assert found.claim(NAME, DeadLetterFilter(), None, ["sink"]) == Claimed(0)


def test_letters_of_a_topic_that_was_made_anew_are_open(runtime, tmp_path: Path) -> None:
    pipe = Sinks(runtime, tmp_path)
    assert runtime.dead_letter_queue("two.dlq").discard(DeadLetterFilter()) == 2
    assert pipe.letters() == []
    topics, held = runtime.settings.topics_dir.local, tmp_path / "held"
    (topics / "two.dlq").rename(held)
    anew = Topic("two.dlq", Location.of(topics / "two.dlq"))
    anew.prepare(LETTERS)
    file, mark = DeltaLog(Location.of(held)).commit(1).added[0], Mark("other", 1, 1)
    (anew.location.local / file.path).parent.mkdir(parents=True)
    (held / file.path).rename(anew.location.local / file.path)
    anew.append([file], mark, mark.receipt({}), datetime.now(UTC))
    box = DeadLetterQueue(lambda: runtime.spark, anew, Location.of(topics))
    assert [line["id"] for line in box.lines(DeadLetterFilter(), 5)] == ["1-0"]
    assert box.discard(DeadLetterFilter()) == 1
    assert box.lines(DeadLetterFilter(), 5) == []
