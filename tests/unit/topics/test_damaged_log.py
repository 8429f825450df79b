"""A commit of which the power has taken a part is never read as a version without rows."""

from pathlib import Path

import pytest
from tests.unit.topics.made_topics import append, part

from headrace.sdk import DataLostError, Mark, Position, ReadLimit
from headrace.sdk.location import Location
from headrace.topics import Topic, TopicReader, Topics


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    topic = Topics(Location.of(tmp_path)).get("t")
    for number in (1, 2):
        append(topic, [[number], [number]], Mark("source", number, 1))
    return tmp_path


def damage(topic: Topic, how: str) -> Path:
    path = topic.location.local / "_delta_log" / f"{2:020d}.json"
    text = path.read_text()
    whole = text.splitlines(keepends=True)
    torn = {"empty": "", "in a line": text[:-20], "zeros": "\0" * len(text)}
    path.write_text(torn.get(how, "".join(whole[:-1])))
    return path


@pytest.mark.parametrize("how", ["empty", "in a line", "zeros", "between two lines"])
def test_readers_and_writers_are_told_which_file_is_damaged(folder: Path, how: str) -> None:
    topic = Topics(Location.of(folder)).get("t")
    path = damage(topic, how)
    with pytest.raises(DataLostError, match=path.name) as caught:
        TopicReader(topic).latest(Position(), ReadLimit())
    assert "delete it" in caught.value.fix


@pytest.mark.parametrize("how", ["empty", "between two lines"])
def test_nothing_is_appended_behind_it_and_it_may_be_removed(folder: Path, how: str) -> None:
    topic = Topics(Location.of(folder)).get("t")
    path = damage(topic, how)
    with pytest.raises(DataLostError, match=path.name):
        append(topic, [[3]], Mark("source", 3, 1))
    path.unlink()
    topic = Topics(Location.of(folder)).get("t")
    file = part(topic, [{"id": 2}])
    assert topic.append([file], Mark("source", 2, 1), "", topic.log.commit(1).time).version == 2
