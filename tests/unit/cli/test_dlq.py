"""`headrace dlq`, over the rejected records of a home folder, without Spark."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.invocation import Invocation
from headrace.dataplane import DeadLetterFilter
from headrace.sdk.location import Location
from headrace.topics import LETTERS, Topics

GROUP = {"connector": "a", "stage": "TRANSFORMATION", "class": "Cast", "exception": "E"}


class Queue:
    """What a topic's queue answers, and what it was asked for."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.chosen: list[DeadLetterFilter] = []

    def groups(self, chosen: DeadLetterFilter) -> list[dict[str, Any]]:
        self.chosen.append(chosen)
        return [{**GROUP, "letters": 1200, "first": "t1", "last": "t2"}]

    def lines(self, chosen: DeadLetterFilter, rows: int) -> list[dict[str, Any]]:
        self.chosen.append(chosen)
        return [{"id": "0-0", "key": None, "rows": rows}]

    def discard(self, chosen: DeadLetterFilter) -> int:
        self.chosen.append(chosen)
        return 3

    def export(self, chosen: DeadLetterFilter, file: Path) -> int:
        self.chosen.append(chosen)
        return 2


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The only dead-letter topic of a home folder, ``d``."""
    found = Queue("d")

    class Home:
        topics = Topics(Location.of(tmp_path))

        def dead_letter_queue(self, topic: str) -> Queue:
            assert topic == found.topic
            return found

    @contextmanager
    def runtime(_invocation: Invocation, *, short_lived: bool) -> Iterator[Home]:
        assert short_lived
        yield Home()

    Home.topics.get("d").prepare(LETTERS)
    monkeypatch.setattr(Invocation, "runtime", runtime)
    return found


def test_letters_are_counted_in_all_topics_or_in_one(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["d"]):
        assert main(["dlq", "list", *words, "--stage", "transformation"]) == 0
        assert capsys.readouterr().out.splitlines()[-1].split()[-3:] == ["1,200", "t1", "t2"]
    assert queue.chosen == [DeadLetterFilter(stage="TRANSFORMATION")] * 2
    assert main(["dlq", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["topic"] == "d"


def test_letters_are_chosen_shown_discarded_and_exported(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "show", "d", "--rows", "5", "--id", "0-0", "--json"]) == 0
    assert capsys.readouterr().out == '{"id": "0-0", "key": null, "rows": 5}\n'
    assert main(["dlq", "discard", "d"]) == 2
    assert "This would discard all letters." in capsys.readouterr().err
    assert main(["dlq", "discard", "d", "--since", "2026-01-01T00:00Z"]) == 0
    assert main(["dlq", "discard", "d", "--all"]) == 0
    assert capsys.readouterr().out == "d: discarded 3\n" * 2
    assert main(["dlq", "export", "d", "out", "--connector", "a"]) == 0
    assert capsys.readouterr().out == "letters 2, file out\n"
    assert queue.chosen == [
        DeadLetterFilter(ids=("0-0",)),
        DeadLetterFilter(since=datetime.fromisoformat("2026-01-01T00:00Z")),
        DeadLetterFilter(),
        DeadLetterFilter(connector="a"),
    ]
