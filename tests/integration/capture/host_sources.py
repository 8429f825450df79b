"""Captures for tests of the plugin host. Its processes import this file."""

import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from typing_extensions import override

from headrace.sdk import (
    CapturedBatch,
    CaptureSource,
    Header,
    Position,
    Record,
    RetriableError,
    Schema,
    SourceConnector,
    TaskContext,
)
from headrace.sdk.config import Config, ConfigDef, ConfigType

PARTITION = {"counter": "a"}
KEYS: dict[str, tuple[ConfigType, Any]] = {
    "limit": (ConfigType.LONG, 100),
    "rows": (ConfigType.LONG, 10),
    "kind": (ConfigType.STRING, "record"),
    "pause": (ConfigType.DOUBLE, 0.0),
    "trouble": (ConfigType.STRING, ""),
    "notes": (ConfigType.STRING, ""),
    "secret": (ConfigType.PASSWORD, ""),
}
BUSY = "not now"
CUT = "the wire is cut"
log = logging.getLogger("counter")


class Counter(SourceConnector):
    """Counts to ``limit``, a few numbers a poll."""

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        definition = ConfigDef()
        for name, (kind, default) in KEYS.items():
            definition = definition.define(name, kind, default, doc=f"The {name}.")
        return definition

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[CaptureSource]:
        return CounterTask


class Modules(Counter):
    """Gives the names of the modules that the host has loaded."""

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[CaptureSource]:
        return ModulesTask


class ModulesTask(CaptureSource):
    @override
    def poll(self) -> Sequence[Record] | None:
        names = [] if self.context.position() else sorted(sys.modules)
        self.poll = lambda: None  # type: ignore[method-assign]  # all is said
        return [_record(0, {"name": name}) for name in names]


class CounterTask(CaptureSource):
    def __init__(self, config: Config) -> None:
        self.config = config
        self.limit = config["limit"]
        self.trouble = config.get_str("trouble")
        self.notes = Path(config.get_str("notes") or os.devnull)
        self.polls = 0

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        offset = context.position().offset(PARTITION)
        self.next = 0 if offset is None else int(offset["next"])
        self.note(f"start {self.next}")
        if self.trouble == "chatter":
            print("printed by a plugin")  # noqa: T201 - that is the trouble
            log.warning("the secret is %s", self.config["secret"].value)
        if self.trouble == "ledger":
            context.ledger.append([{"file": "a"}, {"file": "b"}])
            self.note(f"ledger {len(context.ledger)} {context.ledger.slice(1, 2)}")

    @override
    def poll(self) -> Sequence[Record] | CapturedBatch | None:
        self.polls += 1
        self.make_trouble()
        time.sleep(self.config["pause"])
        numbers = range(self.next, min(self.next + self.config["rows"], self.limit))
        if not numbers:
            return None
        self.next = numbers.stop
        kind = self.config.get_str("kind")
        if kind == "batch":
            return self.batch(numbers)
        return [MAKERS[kind](number) for number in numbers]

    def batch(self, numbers: range) -> CapturedBatch:
        rejected = [(b"\xffbad", "no number")] if self.trouble == "reject" else []
        rows = pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})
        position = Position.of(PARTITION, {"next": numbers.stop})
        return CapturedBatch(rows, position, rejected=rejected)

    def make_trouble(self) -> None:
        if self.trouble == "busy" and self.polls <= 2:
            self.note("busy")
            raise RetriableError(BUSY)
        if self.trouble == "broken":
            raise ValueError(CUT)
        if self.trouble == "hang":
            time.sleep(60)

    @override
    def ended(self, position: Position) -> bool:
        return self.trouble == "ends late" and self.polls > 5

    @override
    def commit(self, position: Position) -> None:
        offset = position.offset(PARTITION) or {}
        self.note(f"commit {offset['next']}")

    @override
    def commit_record(self, record: Record) -> None:
        self.note("record")

    @override
    def stop(self) -> None:
        self.note("stop")

    def note(self, text: str) -> None:
        with self.notes.open("a") as file:
            file.write(text + "\n")


def _record(number: int, value: Any, **told: Any) -> Record:
    told.setdefault("topic", "numbers")
    return Record(
        value=value,
        source_partition=PARTITION,
        source_offset={"next": number + 1},
        **told,
    )


ROW = Schema.struct({"n": Schema.int64()})
MAKERS = {
    "record": lambda n: _record(n, {"n": n}, value_schema=ROW),
    "json": lambda n: _record(n, {"n": n, "name": None} if n < 5 else {"n": n, "name": "x"}),
    "headers": lambda n: _record(
        n, n, value_schema=Schema.int64(), key=str(n), headers=(Header("h", n),)
    ),
    "spread": lambda n: _record(n, {"n": n}, topic="even" if n % 2 == 0 else "odd"),
    "mixed": lambda n: _record(n, {"n": "seven" if n == 7 else n}),
}
