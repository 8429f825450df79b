"""The targets that must survive a loss of power. A new sink enters with one Case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROWS = 40
_LOG = "_delta_log"


@dataclass(frozen=True)
class Case:
    """One connector that runs two batches or more.

    Args:
        name: Of the connector.
        definition: What it moves; ``{folder}`` stands for a folder of its own.
        roots: The targets, relative to the folder of all of them.
        named: Returns the files of a target that stand for its rows, when all is over.
        decider: Matches the file with which a batch is in the target.
        staged: Matches further files that must be on disk before the decider is.
        decides_late: Whether another library commits, before we can flush what it wrote;
            ``find_receipt`` then looks whether the files are whole.
    """

    name: str
    definition: Mapping[str, Any]
    roots: tuple[str, ...]
    named: Callable[[Path], Iterator[Path]]
    decider: re.Pattern[str]
    staged: re.Pattern[str] | None = None
    decides_late: bool = False


def table_files(table: Path) -> Iterator[Path]:
    """Yield the commits of a Delta table, and the files that they add."""
    for commit in (table / _LOG).glob("*.json"):
        yield commit
        for line in commit.read_text().splitlines():
            if "add" in (action := json.loads(line)):
                yield table / unquote(action["add"]["path"])


def folder_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, and the marks."""
    yield from (path for path in folder.rglob("part-*") if "staging" not in path.parts)
    yield from (folder / "_headrace").glob("*.json")


def line_files(folder: Path) -> Iterator[Path]:
    """Yield the file that lines are added to, and its state."""
    yield folder / "lines.txt"
    yield from folder.glob("_headrace/*/state.json")


_COMMIT = re.compile(rf"/{_LOG}/\d{{20}}\.json$")
_GENERATED = {
    "connector": "datagen",
    "rows": ROWS,
    "schema": "id BIGINT NOT NULL, name STRING",
}


def _direct(name: str, sink: Mapping[str, Any]) -> dict[str, Any]:
    source = {**_GENERATED, "name": name}
    return {"name": name, "batch.max.rows": ROWS // 2, "source": source, "sinks": [sink]}


def _growing(name: str, **more: Any) -> dict[str, Any]:
    source = {"connector": "file", "mode": "grow", "path": f"{{inputs}}/{name}.jsonl"}
    return {"name": name, "source": source, "topic": name, **more}


INPUTS = {
    "captured": "".join(f'{{"id": {number}}}\n' for number in range(ROWS)),
    "journaled": "".join(f'{{"id": {number}}}\n' for number in range(ROWS)) + "no JSON\n",
}
"""The files of sources that grow, by the connectors that read them."""

CASES = [
    Case(
        "topic",
        {k: v for k, v in _direct("topic", {}).items() if k != "sinks"} | {"topic": "topic"},
        ("topics/topic",),
        table_files,
        _COMMIT,
    ),
    Case("captured", _growing("captured"), ("topics/captured",), table_files, _COMMIT),
    Case(
        "journaled",
        _growing("journaled", **{"errors.tolerance": "all"}),
        ("topics/journaled", "topics/journaled.dlq"),
        table_files,
        re.compile(rf"/~captures/.*{_COMMIT.pattern}"),
    ),
    Case(
        "appended",
        _direct("appended", {"connector": "delta", "path": "{folder}"}),
        ("targets/appended",),
        table_files,
        _COMMIT,
    ),
    Case(
        "merged",
        _direct(
            "merged",
            {"connector": "delta", "path": "{folder}", "mode": "upsert", "key.fields": "id"},
        ),
        ("targets/merged",),
        table_files,
        _COMMIT,
        decides_late=True,
    ),
    Case(
        "spark",
        _direct(
            "spark",
            {
                "connector": "delta",
                "path": "{folder}",
                "table.properties": "delta.enableRowTracking=true",
            },
        ),
        ("targets/spark",),
        table_files,
        _COMMIT,
        decides_late=True,
    ),
    Case(
        "folder",
        _direct(
            "folder",
            {"connector": "file", "path": "{folder}", "format": "json", "partition.by": "name"},
        ),
        ("targets/folder",),
        folder_files,
        re.compile(r"/_headrace/[^/.]+\.json$"),
    ),
    Case(
        "lines",
        _direct("lines", {"connector": "file", "path": "{folder}/lines.txt", "mode": "append"}),
        ("targets/lines",),
        line_files,
        re.compile(r"/_headrace/lines[^/]*/state\.json$"),
        re.compile(r"/staging/.*/part-[^/]*$"),
    ),
    Case(
        "rejected",
        _direct("rejected", {"connector": "delta", "path": "{folder}"})
        | {
            "errors.tolerance": "all",
            "transforms": [{"type": "Cast", "spec": "name:int32"}],
        },
        ("targets/rejected", "topics/rejected.dlq"),
        table_files,
        re.compile(rf"/targets/.*{_COMMIT.pattern}"),
    ),
]
