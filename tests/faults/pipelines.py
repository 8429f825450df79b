"""The connectors of the soak, and where all that they move must arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.workload import (
    Feeder,
    Target,
    delta_ids,
    folder_json_ids,
    folder_lines,
    is_bad,
    line_ids,
    topic_ids,
)

LETTERS = "orders-letters"
_CAST = {
    "transforms": "cast",
    "transforms.cast.type": "Cast",
    "transforms.cast.spec": "amount:int32",
}


@dataclass
class Pipelines:
    """Connectors by name, and their targets.

    Args:
        feeder: What the sources read.
        topics: The folder of the topics.
        targets: The folder of the targets.
        rate: How many rows a second the generator makes.
    """

    feeder: Feeder
    topics: Path
    targets: Path
    rate: int = 20
    extra: int = 0
    """How often the connector that comes and goes was made."""
    _extras: list[int] = field(default_factory=list)

    def configs(self) -> dict[str, dict[str, str]]:
        """Return the configurations of the connectors that stay."""
        feeder, targets = self.feeder, self.targets
        lines = {"topics": "lines"}
        orders = {"topics": "orders", "errors.tolerance": "all", **_CAST}
        orders["errors.deadletterqueue.topic.name"] = LETTERS
        return {
            "lines": {
                "connector.class": "FileStreamSource",
                "file": str(feeder.log),
                "topic": "lines",
            },
            "lines-file": {
                "connector.class": "FileStreamSink",
                "file": f"{targets}/lines.txt",
                **lines,
            },
            "lines-folder": {
                "connector.class": "headrace_plugins.connectors.file.sink.FileSink",
                "path": f"{targets}/lines",
                "format": "text",
                **lines,
            },
            "lines-delta": {
                "connector.class": "headrace_plugins.connectors.delta.sink.DeltaSink",
                "path": f"{targets}/lines-delta",
                **lines,
            },
            "sets": {
                "connector.class": "headrace_plugins.connectors.file.source.FileSource",
                "path": f"{feeder.sets}/*.json",
                "format": "json",
                "schema": "id BIGINT, part STRING, amount STRING",
                "topic": "orders",
            },
            "orders-append": {
                "connector.class": "headrace_plugins.connectors.delta.sink.DeltaSink",
                "path": f"{targets}/orders-append",
                **orders,
            },
            "orders-upsert": {
                "connector.class": "headrace_plugins.connectors.delta.sink.DeltaSink",
                "path": f"{targets}/orders-upsert",
                "mode": "upsert",
                "key.fields": "id",
                "topics": "orders",
            },
            "orders-folder": {
                "connector.class": "headrace_plugins.connectors.file.sink.FileSink",
                "path": f"{targets}/orders",
                "format": "json",
                "partition.by": "part",
                "topics": "orders",
            },
            "rows": {
                "connector.class": "datagen",
                "schema": "id BIGINT NOT NULL, name STRING",
                "rate": str(self.rate),
                "topic": "rows",
            },
            "rows-append": {
                "connector.class": "headrace_plugins.connectors.delta.sink.DeltaSink",
                "path": f"{targets}/rows-append",
                "topics": "rows",
            },
        }

    def next_extra(self) -> tuple[str | None, str, dict[str, str]]:
        """Return the connector to delete, the one to make in its place, and its settings."""
        before = f"extra-{self.extra}" if self.extra else None
        if self.extra:
            self._extras.append(self.extra)
        self.extra += 1
        config = {
            "connector.class": "headrace_plugins.connectors.file.sink.FileSink",
            "path": f"{self.targets}/extra-{self.extra}",
            "format": "text",
            "topics": "lines",
        }
        return before, f"extra-{self.extra}", config

    def all_targets(self) -> list[Target]:
        """Return every place that must hold what was made, each of it once."""
        lines, rows = self._lines, self._rows
        topics, targets = self.topics, self.targets
        found = [
            Target("topic lines", lambda: topic_ids(topics / "lines"), lines),
            Target("lines-file", lambda: line_ids(targets / "lines.txt"), lines),
            Target("lines-folder", lambda: folder_lines(targets / "lines"), lines),
            Target("lines-delta", lambda: delta_ids(targets / "lines-delta", "value"), lines),
            Target("topic orders", lambda: topic_ids(topics / "orders", part="id"), rows),
            Target("orders-append", self._appended, rows),
            Target("orders-upsert", lambda: delta_ids(targets / "orders-upsert", "id"), rows),
            Target("orders-folder", lambda: folder_json_ids(targets / "orders"), rows),
            Target("topic rows", self._generated, self._generated_so_far),
            Target(
                "rows-append",
                lambda: delta_ids(targets / "rows-append", "id"),
                self._generated_so_far,
            ),
        ]
        if self.extra:
            found.append(self._extra_target(self.extra, lines))
        return found

    def left_targets(self) -> list[Target]:
        """Return the targets of connectors that are gone: nothing may be in them twice."""
        return [self._extra_target(n, self._found_in(n)) for n in self._extras]

    def letters(self) -> list[object]:
        """Return the ids of all rows that were put aside, those that were replayed as well."""
        return [_id_of(str(value)) for value in topic_ids(self.topics / LETTERS)]

    def _lines(self) -> set[object]:
        return {f"line {n}" for n in range(self.feeder.lines)}

    def _rows(self) -> set[object]:
        return set(range(self.feeder.rows))

    def _appended(self) -> list[object]:
        """A row that is bad is among the letters, and comes when they are replayed."""
        held = delta_ids(self.targets / "orders-append", "id")
        there = set(held)
        letters = {each for each in self.letters() if each not in there}
        return [*held, *letters]

    def _generated(self) -> list[object]:
        return topic_ids(self.topics / "rows", part="id")

    def _generated_so_far(self) -> set[object]:
        found = self._generated()
        return set(range(int(max(found, key=lambda n: int(str(n))) + 1))) if found else set()  # type: ignore[operator]

    def _extra_target(self, number: int, expected: Callable[[], set[object]]) -> Target:
        folder = self.targets / f"extra-{number}"
        return Target(f"extra-{number}", lambda: folder_lines(folder), expected)

    def _found_in(self, number: int) -> Callable[[], set[object]]:
        return lambda: set(folder_lines(self.targets / f"extra-{number}")) & self._lines()


def bad_ids(rows: int) -> set[object]:
    """Return the rows that are put aside."""
    return {n for n in range(rows) if is_bad(n)}


def _id_of(value: str) -> object:
    import json

    return json.loads(value)["id"]
