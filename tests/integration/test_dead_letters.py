"""A poisoned stream: every bad record dead-lettered with its cause, and repaired ones once."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.progress import Scoreboard
from headrace.dataplane import Claimed, DeadLetterFilter, DeadLetterQueue
from headrace.model import Counts, TaskId
from headrace.runtime.app import Runtime
from headrace.runtime.tasks import names_of
from headrace.sdk import ConfigError, Mark, StateError
from headrace.sdk.location import Location
from headrace.topics import LETTERS, Topic, Topics
from headrace.topics.log import DeltaLog

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
    claimed = pipe.dead_letter_queue().claim(DeadLetterFilter(), mended, ["out"])
    assert (claimed.records, claimed.unknown) == (2, 0)
    assert pipe.dead_letter_queue().claim(DeadLetterFilter(), mended, ["out"]).unknown == 2
    assert pipe.replay(mended) == (0, 0, Counts(read=2, written=2))
    assert pipe.delivered() == pipe.expected(without=(9,))


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
    assert again["message"].startswith("The JSON does not fit the record: value STRUCT<")
    assert json.loads(again["value"]) == {"id": "seven"}
    mended.write_text("{}\nnonsense\n")
    with pytest.raises(ConfigError, match="2 of 2 lines"):
        pipe.dead_letter_queue().claim(DeadLetterFilter(), mended, ["out"])


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
    assert (
        runtime.dead_letter_queue("two.dlq").claim(DeadLetterFilter(), mended, names).records
        == 1
    )
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
    assert found.claim(DeadLetterFilter(), None, ["sink"]) == Claimed(0)


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
    box = DeadLetterQueue(runtime.spark, anew, Location.of(topics))
    assert [line["id"] for line in box.lines(DeadLetterFilter(), 5)] == ["1-0"]
    assert box.discard(DeadLetterFilter()) == 1
    assert box.lines(DeadLetterFilter(), 5) == []
