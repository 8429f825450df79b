"""What growing files were read to stays known when their tasks become more or fewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.task_doubles import Context, Schemas

from headrace.sdk import CapturedBatch, CaptureSource, Position
from headrace.sdk.config import Config
from headrace_plugins.connectors.file.listing import Share
from headrace_plugins.connectors.file.rotation import base_path
from headrace_plugins.connectors.file.source import FileSource

Parse = Callable[[Mapping[str, str]], Config]


@dataclass
class Connector:
    """A connector whose tasks' positions are kept as the store keeps them."""

    parse: Parse
    path: str
    stored: dict[int, Position] = field(default_factory=dict)
    name: str = "c"
    schemas: Any = field(default_factory=Schemas)

    def position(self) -> Position:
        merged = Position()
        for _, position in sorted(self.stored.items()):
            merged = merged.merged(position)
        return merged

    def positions(self) -> Mapping[int, Position]:
        return self.stored

    def request_task_reconfiguration(self) -> None: ...

    def raise_error(self, error: Exception) -> None: ...

    def configs(self, tasks: int) -> list[Mapping[str, str]]:
        source = FileSource()
        keys = {"mode": "grow", "format": "text", "rotate.wait.ms": "0"}
        source.start(self.parse({"path": self.path, **keys}), self)
        return list(source.task_configs(tasks))

    def run(self, tasks: int, *, polls: int = 50) -> list[str]:
        """Plan and run that many tasks; return the lines they found."""
        found: list[str] = []
        for number, config in enumerate(self.configs(tasks)):
            task = FileSource.task(self.parse(config))
            assert isinstance(task, CaptureSource)
            task.start(Context(task=number, at=self.stored.get(number, Position())))
            for _ in range(polls):
                batch = task.poll()
                if batch is None:
                    break
                assert isinstance(batch, CapturedBatch)
                found += batch.values.column(0).to_pylist()
                self.stored[number] = batch.position
            task.stop()
        return found


@pytest.fixture
def make(config: Parse, tmp_path: Path) -> Callable[[str], Connector]:
    return lambda pattern: Connector(config, str(tmp_path / pattern))


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("tasks", [(2, 1), (1, 2), (2, 3, 2), (3, 1, 4, 2), (2, 2)])
def test_a_change_of_tasks_max_reads_nothing_again(
    make: Callable[[str], Connector], tmp_path: Path, tasks: tuple[int, ...]
) -> None:
    files = [tmp_path / f"{number}.log" for number in range(12)]
    connector = make("*.log")
    for round_, count in enumerate(tasks):
        for file in files:
            add(file, f"{file.name} {round_}\n")
        wanted = sorted(f"{file.name} {round_}" for file in files)
        assert sorted(connector.run(count)) == wanted
        assert connector.run(count) == []


def test_a_task_that_read_on_is_not_set_back_by_one_that_had_the_file_before(
    make: Callable[[str], Connector], tmp_path: Path
) -> None:
    connector = make("*.log")
    names = (f"f{number}.log" for number in range(99))
    mover = next(
        path
        for path in (tmp_path / name for name in names)
        if Share(0, 2).has(str(path)) and Share(2, 3).has(str(path))
    )
    mover.write_text("1\n2\n")
    assert connector.run(2) == ["1", "2"]
    add(mover, "3\n4\n5\n")
    assert connector.run(3) == ["3", "4", "5"]
    assert connector.run(2) == []
    add(mover, "6\n")
    assert connector.run(3) == ["6"]
    assert connector.run(2) == []


def test_tasks_whose_files_stay_keep_their_configuration(
    make: Callable[[str], Connector], tmp_path: Path
) -> None:
    connector = make("*.log")
    for number in range(6):
        (tmp_path / f"{number}.log").write_text("1\n")
    before = connector.configs(3)
    connector.run(3)
    assert connector.configs(3) == before


def test_a_rotated_file_belongs_to_the_task_of_its_log(
    make: Callable[[str], Connector], tmp_path: Path
) -> None:
    connector = make("*.log*")
    logs = [tmp_path / f"{number}.log" for number in range(8)]
    for log in logs:
        log.write_text("1\n2\n")
    assert len(connector.run(2)) == 16
    for log in logs:
        log.rename(f"{log}.1")
        log.write_text("3\n")
    assert connector.run(2) == ["3"] * 8
    assert connector.run(3) == []


def test_positions_of_earlier_versions_are_merged_by_the_file_that_is_there(
    make: Callable[[str], Connector], tmp_path: Path
) -> None:
    connector = make("*.log")
    log = tmp_path / "a.log"
    log.write_text("1\n2\n")
    connector.run(1)
    ((partition, offset),) = connector.stored[0].items()
    old = {key: offset[key] for key in ("position", "inode", "head", "head_bytes")}
    early = {**old, "position": 2}
    gone = {**old, "position": 99, "inode": 1}
    connector.stored = {
        number: Position.of(partition, each) for number, each in enumerate([early, old, gone])
    }
    for tasks in (3, 1, 2):
        assert connector.run(tasks) == []


def test_the_names_of_a_rotation_belong_to_one_share() -> None:
    for number in range(3):
        share = Share(number, 3)
        paths = [f"/var/log/app.log{end}" for end in ("", ".1", ".2.gz", "-20260131")]
        assert len({share.has(base_path(path)) for path in paths}) == 1
