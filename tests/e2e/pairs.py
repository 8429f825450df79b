"""A server with pairs of connectors that copy lines, and what tests do to it."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
from tests.waiting import until

HEADRACE = Path(sys.executable).with_name("headrace")
SOURCE = "headrace_plugins.connectors.file.source.FileSource"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
SECONDS = 300


def jvms(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Java's own children end quickly
            if child.name() == "java":
                found.append(child)
    return found


def kill(process: subprocess.Popen[str]) -> None:
    until(lambda: jvms(process))
    for jvm in jvms(process):
        jvm.kill()


@dataclass
class Pairs:
    """A server, and pairs of connectors that copy lines from a folder to a file."""

    folder: Path
    pairs: int
    env: dict[str, str] = field(default_factory=dict)
    fed: Counter[str] = field(default_factory=Counter)
    url: str = ""
    out_folder: Path | None = None

    @property
    def outs(self) -> Path:
        return self.out_folder or self.folder

    @property
    def log(self) -> Path:
        return self.folder / "server.err"

    @contextmanager
    def serving(self) -> Iterator[subprocess.Popen[str]]:
        home = {"HEADRACE_HOME": str(self.folder / "home"), **self.env}
        with (
            self.log.open("a") as errors,
            subprocess.Popen(
                [HEADRACE, "server", "--port", "0", "--json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **home},
            ) as process,
        ):
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, self.log.read_text()[-3000:]
                self.url = json.loads(line)["url"]
                yield process
            finally:
                process.terminate()
                process.wait(60)

    def ask(self, path: str) -> Any:
        return httpx2.get(f"{self.url}{path}", timeout=30).json()

    def create(self, name: str, config: dict[str, str]) -> None:
        body = {"name": name, "config": {"poll.interval.ms": "100", **config}}
        answer = httpx2.post(f"{self.url}/connectors", json=body, timeout=60)
        assert answer.status_code == 201, answer.text

    def sink(self, out: str, topic: str) -> dict[str, str]:
        return {"connector.class": SINK, "topics": topic, "file": str(self.outs / out)}

    def make(self) -> None:
        for n in range(self.pairs):
            (self.folder / f"in-{n}").mkdir()
            source = {"connector.class": SOURCE, "path": f"{self.folder}/in-{n}"}
            self.create(f"source-{n}", {**source, "format": "text", "topic": f"t{n}"})
            self.create(f"sink-{n}", self.sink(f"out-{n}", f"t{n}"))

    def feed(self) -> None:
        for n in range(self.pairs):
            number = self.fed[f"{n}"]
            lines = "".join(f"{n} {number} {row}\n" for row in range(5))
            hidden = self.folder / f"in-{n}" / f".{number}"
            hidden.write_text(lines)
            hidden.rename(self.folder / f"in-{n}" / f"{number}.txt")
            self.fed[f"{n}"] += 1

    def out(self, n: int) -> list[str]:
        return self.lines(f"out-{n}")

    def lines(self, out: str) -> list[str]:
        file = self.outs / out
        text = file.read_text() if file.exists() else ""
        return [line.removeprefix("Struct{value=").rstrip("}") for line in text.splitlines()]

    def wanted(self, n: int) -> list[str]:
        return sorted(
            f"{n} {file} {row}" for file in range(self.fed[f"{n}"]) for row in range(5)
        )

    def rows(self) -> int:
        return sum(len(self.out(n)) for n in range(self.pairs))

    def arrived(self) -> bool:
        return all(sorted(self.out(n)) == self.wanted(n) for n in range(self.pairs))

    def told(self) -> object:
        found = {n: (len(self.out(n)), len(self.wanted(n))) for n in range(self.pairs)}
        return found, self.ask("/connectors?expand=status"), self.log.read_text()[-3000:]
