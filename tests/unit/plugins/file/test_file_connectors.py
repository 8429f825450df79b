"""What the file connectors say of a configuration, and how they divide the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.control.connector_settings import sink_def
from headrace.sdk import CaptureSource, ConfigError, ConfigErrors, FrameSource, Position
from headrace.sdk.config import Config
from headrace_plugins.connectors.file.listing import Share
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.file.source import FileSource

Parse = Callable[[Mapping[str, str]], Config]
KAFKA = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@dataclass
class ConnectorStore:
    name: str = "c"
    schemas: Any = None
    at: Position = field(default_factory=Position)

    def position(self) -> Position:
        return self.at

    def positions(self) -> Mapping[int, Position]:
        return {0: self.at}

    def request_task_reconfiguration(self) -> None: ...

    def raise_error(self, error: Exception) -> None: ...


def problems(config: Config) -> dict[str | None, str]:
    return {error.field: str(error) for error in FileSource.check(config)}


def divided(parse: Parse, props: dict[str, str], tasks: int, at: Position) -> list[str]:
    connector = FileSource()
    connector.start(parse(props), ConnectorStore(at=at))
    return [one["task.share"] for one in connector.task_configs(tasks)]


def test_kafkas_definition_is_taken_as_it_is(config: Parse, tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.touch()
    parsed = config(
        {"connector.class": KAFKA, "file": str(path), "topic": "t", "batch.size": "9"}
    )
    assert problems(parsed) == {}
    assert isinstance(FileSource.task(parsed), CaptureSource)
    assert KAFKA in FileSource.aliases


def test_kafkas_source_needs_a_topic(config: Parse, tmp_path: Path) -> None:
    parsed = config({"connector.class": "FileStreamSource", "file": str(tmp_path / "x")})
    assert problems(parsed)["topic"].startswith(
        '[config.invalid] topic: Missing required configuration "topic"'
    )


def test_a_path_has_one_name_only(config: Parse) -> None:
    with pytest.raises(ConfigErrors, match="path and file are the same setting"):
        config({"path": "/a", "file": "/b"})
    with pytest.raises(ConfigErrors, match="No path is set"):
        config({})


@pytest.mark.parametrize(
    ("path", "keys", "told"),
    [
        ("none.csv", {}, ("path", "does not exist")),
        ("none/*.csv", {}, ("path", "none does not exist")),
        ("empty", {}, ("format", "There are no files at")),
        ("a.csv", {"schema": "id BIGINTT"}, ("schema", "a type and not 'BIGINTT'")),
        ("a.csv", {"date.format": "EEE dd"}, ("date.format", "'EEE dd' is not supported")),
        ("a.csv", {"date.format": "[" * 500}, ("date.format", "is not supported")),
        ("a.csv", {"timestamp.format": "yyyy'"}, ("timestamp.format", "is not supported")),
        ("a.csv", {"time.zone": "Europe/Berln"}, ("time.zone", "'Europe/Berln'")),
        ("a.csv", {"encoding": "zlib"}, ("encoding", "Unknown encoding")),
        ("a.csv", {"encoding": "idna"}, ("encoding", "Unknown encoding")),
        ("a.csv", {"encoding": "a\0b"}, ("encoding", "Unknown encoding")),
        ("a.csv", {"delimiter": "||"}, ("delimiter", "not a single character")),
        ("a.csv", {"delimiter": "\n"}, ("delimiter", "not a single character within a line")),
        ("a.csv", {"quote": ","}, ("delimiter", "the quote or the escape character")),
        ("a.csv", {"escape": ";", "delimiter": ";"}, ("delimiter", "the escape character")),
        ("a.csv.gz", {"mode": "grow"}, ("path", "compressed files")),
        ("a.parquet", {"mode": "grow"}, ("format", "does not support format parquet")),
        ("a.csv", {"mode": "grow", "encoding": "UTF-16"}, ("encoding", "encoding UTF-16")),
        (
            "a.csv",
            {"delimiter": "€", "encoding": "latin-1"},
            ("delimiter", "not have the delim"),
        ),
        ("a.csv", {"mode": "grow", "escape": "§"}, ("escape", "only an ASCII character")),
        (
            "a.csv",
            {"schema": "a INT, b ARRAY<INT>"},
            ("schema", "b cannot have the type ARRAY<"),
        ),
        ("none/a.csv", {"mode": "grow"}, ("path", "none does not exist")),
    ],
)
def test_what_is_wrong_is_told_with_its_key(
    config: Parse, tmp_path: Path, path: str, keys: dict[str, str], told: tuple[str, str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").write_text("id\n1\n")
    found = problems(config({"path": str(tmp_path / path), **keys}))
    assert list(found) == [told[0]]
    assert told[1] in found[told[0]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told(config: Parse, tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch(mode=0)
    assert "No permission" in problems(config({"path": str(tmp_path / "a.csv")}))["path"]


def test_a_pattern_that_matches_nothing_yet_is_fine(config: Parse, tmp_path: Path) -> None:
    assert problems(config({"path": str(tmp_path / "*.csv.gz")})) == {}


def test_an_unknown_format_is_refused(config: Parse) -> None:
    with pytest.raises(ConfigErrors, match="xml"):
        config({"path": "/a", "format": "xml"})


def test_a_remote_path_is_refused(config: Parse) -> None:
    assert "mount the remote one" in problems(config({"path": "s3://b/*.csv"}))["path"]


def test_whole_files_are_divided_as_they_were_at_first(config: Parse, tmp_path: Path) -> None:
    props = {"path": str(tmp_path), "format": "csv"}
    assert divided(config, props, 2, Position()) == ["0/2", "1/2"]
    at = Position.of({"path": str(tmp_path), "share": "0/2"}, {"files": 1})
    assert divided(config, props, 4, at) == ["0/2", "1/2"]
    with pytest.raises(ConfigError, match=r"tasks\.max to 2"):
        divided(config, props, 1, at)
    single = Position.of({"path": str(tmp_path)}, {"files": 1})
    assert divided(config, props, 3, single) == ["0/1"]


def test_one_file_needs_one_task(config: Parse, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.touch()
    assert divided(config, {"path": str(path)}, 3, Position()) == ["0/1"]


def test_every_file_belongs_to_one_share() -> None:
    for path in (f"/data/{number}.csv" for number in range(100)):
        assert sum(Share(number, 3).has(path) for number in range(3)) == 1


def test_offsets_given_by_a_person_are_checked(config: Parse) -> None:
    alter = partial(FileSource.alter_offsets, config({"path": "/p"}))
    alter(Position.of({"filename": "/p"}, {"position": 9}))
    alter(Position.of({"path": "/p"}, {"files": 0}))
    with pytest.raises(
        ConfigError, match="Partition objects should contain the key 'filename'"
    ):
        alter(Position.of({"file": "/p"}, {"position": 9}))
    for offset in ({"position": -1}, {"position": "x"}, {"position": True}, {}):
        with pytest.raises(ConfigError, match="must be an integer"):
            alter(Position.of({"filename": "/p"}, offset))


def test_a_set_of_files_is_a_frame_source(config: Parse, tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    assert isinstance(FileSource.task(config({"path": str(tmp_path)})), FrameSource)


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ({"mode": "append", "format": "parquet"}, "format"),
        ({"mode": "append", "compression": "gzip"}, "compression"),
        ({"format": "avro", "compression": "gzip"}, "compression"),
        ({"format": "parquet", "compression": "bzip2"}, "compression"),
        ({"format": "text", "partition.by": "a"}, "partition.by"),
        ({"quote": "ab"}, "quote"),
    ],
)
def test_the_sink_says_what_does_not_go_together(
    tmp_path: Path, keys: dict[str, str], at: str
) -> None:
    definition = FileSink.config_def().merged(sink_def())
    given = {"name": "c", "connector.class": "file", "topics": "t"}
    parsed = definition.parse({**given, "path": str(tmp_path), **keys})
    assert [error.field for error in FileSink.check(parsed)] == [at]
