"""Golden tables: what Kafka Connect made of some of the cases, kept for the default run.

``.venv/bin/python -m tests.differential.golden`` records them anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.cases import MAKERS, Case, cases
from tests.differential.oracle import Oracle

from headrace.settings import load_settings

FOLDER = Path(__file__).parent / "golden"
CASES = 8
RECORDS = 6
SEED = 2


def golden(transform: str) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield the recorded cases of a transform, with Kafka's answers."""
    for line in (FOLDER / f"{transform}.jsonl").read_text().splitlines():
        told = json.loads(line)
        yield Case(told["step"], told["records"], sink=told["sink"]), told["kafka"]


def record(oracle: Oracle) -> None:
    """Ask Kafka's classes and keep what they answer."""
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
