"""Which files a Delta source reads that a table's log names, where paths are limited."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.task_doubles import Context
from tests.unit.plugins.connectors.delta_planning import SOME, Table

from headrace.plugins import Access
from headrace.sdk import Position, ReadLimit, SourceError
from headrace.sdk.deltalog import write_commit
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.reader import DeltaReader


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def add(path: str, **more: Any) -> dict[str, Any]:
    file = {"path": path, "partitionValues": {"name": "0"}, "size": 1, "modificationTime": 1}
    return {"add": {**file, "dataChange": True, **more}}


def reads(task: DeltaReader, start: Position) -> None:
    """Plan a batch, and read one that another task has planned."""
    end = task.latest(start, ReadLimit())
    session: Any = None  # it comes to none
    task.read(session, start, end)


OUTSIDE = ("{url}", "file:{path}", "{path}", "../name=0/secret", "%2e%2e/name=0/secret")


@pytest.mark.parametrize("feed", ["true", "false"])
@pytest.mark.parametrize("outside", OUTSIDE)
def test_files_outside_of_the_allowed_paths_are_not_read(
    table: Table, outside: str, feed: str
) -> None:
    table.create(enableChangeDataFeed="true")
    secret = table.path.parent / "name=0" / "secret"
    secret.parent.mkdir()
    secret.touch()
    path = outside.format(url=secret.as_uri(), path=str(secret).replace("=", "%3D"))
    write_commit(Location.of(table.path), 1, {"commitInfo": {}}, add(path))
    for start in (Position(), table.at(0)):
        task = table.read(table.path, read_change_feed=feed)
        for go_on in (partial(task.latest, start, SOME), partial(reads, task, start)):
            with pytest.raises(
                SourceError, match=r"names a file outside of it: .*secret is not"
            ) as caught:
                go_on()
            assert "allowed_paths" in caught.value.fix
        for allowed in ((), (table.path, secret.parent)):
            task = table.read(*allowed, read_change_feed=feed)
            assert task.latest(start, SOME) != start


@pytest.mark.parametrize("feed", ["true", "false"])
@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("p", "file:///etc/vector.bin", "names a file outside"),
        ("p", "/etc/vector.bin", "names a file outside"),
        ("p", "vector.bin", "not a valid deletion vector"),
        ("u", "../..vBn[lx{q8@P<9BNH/isA", "names a file outside"),
        ("u", "/etcvBn[lx{q8@P<9BNH/isA", "names a file outside"),
        ("u", "file:/etcvBn[lx{q8@P<9BNH/isA", "not a valid deletion vector"),
        ("u", "abvBn[lx{q8@P<9BNH/isA", ""),
        ("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0", ""),
    ],
)
def test_deletion_vectors_outside_of_the_allowed_paths_are_not_read(
    table: Table, kind: str, text: str, problem: str, feed: str
) -> None:
    table.create(enableChangeDataFeed="true")
    vector = {"storageType": kind, "pathOrInlineDv": text, "sizeInBytes": 1, "cardinality": 1}
    (table.path / "secret").touch()
    removed = {"path": "secret", "dataChange": True}
    actions = [add("secret"), {"remove": {**removed, "deletionVector": vector}}]
    if feed == "false":
        actions = [add("secret", deletionVector=vector)]
    write_commit(Location.of(table.path), 1, {"commitInfo": {}}, *actions)
    task = table.read(table.path, read_change_feed=feed)
    if problem:
        with pytest.raises(SourceError, match=problem):
            task.latest(table.at(0), SOME)
    else:
        assert task.latest(table.at(0), SOME) != table.at(0)


@pytest.mark.parametrize(
    "path", ["//host/secret", "file:secret", "c:/secret", "a?b", "a#b", ""]
)
def test_what_is_not_a_path_is_refused(table: Table, path: str) -> None:
    table.create()
    write_commit(Location.of(table.path), 1, {"commitInfo": {}}, add(path))
    with pytest.raises(SourceError, match="is not a path"):
        table.read().latest(table.at(0), SOME)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_checkpoint_outside_of_the_allowed_paths_is_not_read(table: Table, form: str) -> None:
    table.fill(1)
    name = table.log(1).with_name(f"{1:020d}.checkpoint.{UUID(int=1)}.{form}")

    def write(path: str) -> DeltaReader:
        sidecar = {"path": path, "sizeInBytes": 1, "modificationTime": 1}
        if form == "json":
            name.write_text(json.dumps({"sidecar": sidecar}) + "\n")
        else:
            pq.write_table(pa.table({"sidecar": [None, sidecar]}), name)
        return DeltaReader(table.config())

    for path in ("/etc/checkpoint.parquet", "file:///etc/checkpoint.parquet", "../../../x"):
        with pytest.raises(SourceError, match="names a file outside"):
            write(path).start(Context(access=Access(paths=(table.path,))))
