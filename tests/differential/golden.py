"""Golden tables: what Kafka Connect made of some of the cases, kept for the default run.

``.venv/bin/python -m tests.differential.golden`` records them anew.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.cases import MAKERS, Case, cases
from tests.differential.converter_cases import KINDS, Conversion, conversions
from tests.differential.converting import asked
from tests.differential.oracle import Oracle

from headrace.settings import load_settings

FOLDER = Path(__file__).parent / "golden"
CONVERSIONS = FOLDER / "conversions.jsonl"
CASES = 8
RECORDS = 6
SEED = 2


def golden(transform: str) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield the recorded cases of a transform, with Kafka's answers."""
    for line in (FOLDER / f"{transform}.jsonl").read_text().splitlines():
        told = json.loads(line)
        yield Case(told["step"], told["records"], sink=told["sink"]), told["kafka"]


def golden_conversions() -> Iterator[tuple[Conversion, dict[str, Any]]]:
    """Yield the recorded cases of all converters, with Kafka's answers."""
    for line in CONVERSIONS.read_text().splitlines():
        told = json.loads(line)
        raws = [raw if raw is None else base64.b64decode(raw) for raw in told["raws"]]
        kafka = told.pop("kafka")
        yield Conversion(**{**told, "raws": raws}), kafka


def record_conversions(oracle: Oracle) -> None:
    """Ask Kafka's converters and keep what they answer."""
    lines = []
    for kind in KINDS:
        for case in conversions(kind, _count(kind), values=RECORDS):
            raws = [raw if raw is None else base64.b64encode(raw).decode() for raw in case.raws]
            told = {**vars(case), "raws": raws, "kafka": asked(oracle, case)}
            lines.append(json.dumps(told, separators=(",", ":")) + "\n")
    CONVERSIONS.write_text("".join(lines))


def _count(kind: str) -> int:
    """Return how many cases are recorded: many of what needs no Spark, one where none is."""
    if kind.startswith("JsonConverter reads") and "headers" not in kind:
        return 12
    return 3 if kind.startswith("JsonConverter") else 1


def record(oracle: Oracle) -> None:
    """Ask Kafka's transforms and keep what they answer."""
    FOLDER.mkdir(exist_ok=True)
    for transform in MAKERS:
        lines = []
        for case in cases(transform, CASES, records=RECORDS, seed=SEED):
            kafka = oracle.chain([case.step], case.records, sink=case.sink)
            told = {"step": case.step, "sink": case.sink, "records": case.records}
            lines.append(json.dumps({**told, "kafka": kafka}, separators=(",", ":")) + "\n")
        (FOLDER / f"{transform}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    with Oracle(load_settings()) as kafka_connect:
        record(kafka_connect)
        record_conversions(kafka_connect)
