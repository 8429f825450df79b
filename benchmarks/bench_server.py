"""Two hundred connectors in one server: its start, what they cost idle, and fifty at work.

python benchmarks/bench_server.py [--pairs 100] [--busy 50] [--rows 1000] [--seconds 150]

A pair is a source that follows a growing file into a topic, and a sink that writes the topic
into another file, as Kafka Connect's own two file connectors do.
"""

import argparse
import json
import sqlite3
import statistics
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from harness import machine, save
from server_process import Server, fail, serving, until

ASKED_EVERY = 0.1
"""Seconds between two requests of a client that watches a server."""
GIB = 2**30


@dataclass
class Pair:
    """A source and a sink, with the files that they read and write."""

    number: int
    folder: Path
    seen_bytes: int = 0
    sent: int = 0
    sendings: list[tuple[int, float]] = field(default_factory=list)
    """Where the file ended after each addition, and when that was."""
    came: int = 0

    @property
    def source(self) -> Path:
        """Return the file that grows."""
        return self.folder / f"in-{self.number}.txt"

    @property
    def target(self) -> Path:
        """Return the file that the rows end in."""
        return self.folder / f"out-{self.number}.txt"

    def configs(self) -> dict[str, dict[str, str]]:
        """Return both configurations, by the connectors' names."""
        topic = f"lines-{self.number}"
        reads = {"connector.class": "FileStreamSource", "file": str(self.source)}
        writes = {"connector.class": "FileStreamSink", "file": str(self.target)}
        return {
            f"source-{self.number}": {**reads, "topic": topic},
            f"sink-{self.number}": {**writes, "topics": topic},
        }

    def send(self, rows: int) -> None:
        """Add lines that tell when they were written, and their numbers."""
        now = time.time()
        lines = [f"{now:.6f} {self.sent + n}\n" for n in range(rows)]
        self.sent += rows
        with self.source.open("a") as file:
            file.write("".join(lines))
            self.sendings.append((file.tell(), now))

    def receive(self) -> list[float]:
        """Return how old the rows are that are new in the target.

        Ends the benchmark when one is missing before them, or is there twice.
        """
        try:
            if self.target.stat().st_size == self.seen_bytes:
                return []
        except FileNotFoundError:
            return []
        now = time.time()
        with self.target.open("rb") as file:
            file.seek(self.seen_bytes)
            found = file.read()
        found = found[: found.rfind(b"\n") + 1]
        self.seen_bytes += len(found)
        ages = []
        for line in found.splitlines():
            sent, number = line.split()
            if int(number) != self.came:
                fail(f"{self.target}: row {int(number)} came where {self.came} was due")
            self.came += 1
            ages.append(now - float(sent))
        return ages


def all_came(pairs: list[Pair]) -> bool:
    """Look into all targets; say whether all that was sent has come."""
    for pair in pairs:
        pair.receive()
    return all(pair.came == pair.sent for pair in pairs)


@dataclass
class Watcher:
    """Asks a server what its clients ask, at a steady pace, in a thread."""

    server: Server
    idle: list[str]
    """Connectors that may be paused and resumed."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        turn = 0
        while not self._ended.is_set():
            path = f"/connectors/{self.idle[turn % len(self.idle)]}"
            turn += 1
            for kind, method, asked in (
                ("list", "GET", "/connectors"),
                ("list with status", "GET", "/connectors?expand=status"),
                ("status", "GET", f"{path}/status"),
                ("config", "GET", f"{path}/config"),
                ("pause", "PUT", f"{path}/pause"),
                ("resume", "PUT", f"{path}/resume"),
            ):
                time.sleep(ASKED_EVERY)
                self.server.timed(kind, method, asked)


@dataclass
class Run:
    """The phases, in their order."""

    pairs: list[Pair]
    home: Path
    figures: dict[str, object] = field(default_factory=dict)

    def tell(self, name: str, figures: dict[str, object]) -> None:
        """Print what was measured, and keep it."""
        self.figures[name] = figures
        print(f"{name}:", flush=True)
        for key, value in figures.items():
            print(f"  {key}: {_short(value)}", flush=True)

    def start(self, server: Server) -> None:
        """Create all connectors, one by one, and wait until each has carried a row."""
        listening = time.time()
        for pair in self.pairs:
            for name, config in pair.configs().items():
                server.ask("POST", "/connectors", {"name": name, "config": config})
        created = time.time()
        running = until(lambda: server.all_running(2 * len(self.pairs)), 1.0)
        carried = until(lambda: all_came(self.pairs))
        self.tell(
            "start",
            {
                "until it listens, s": listening - server.began,
                "created after, s": created - server.began,
                "all run after, s": running - server.began,
                "all have carried a row after, s": carried - server.began,
                "CPU-s": server.cpu_seconds(),
            },
        )

    def restart(self, server: Server) -> None:
        """Wait until the stored connectors run, and have carried what came meanwhile."""
        listening = time.time()
        running = until(lambda: server.all_running(2 * len(self.pairs)), 1.0)
        carried = until(lambda: all_came(self.pairs))
        self.tell(
            "restart",
            {
                "until it listens, s": listening - server.began,
                "all run after, s": running - server.began,
                "all have carried a row after, s": carried - server.began,
                "CPU-s": server.cpu_seconds(),
            },
        )

    def idle(self, server: Server, seconds: float) -> None:
        """Measure what it costs when nothing comes, and how it answers then."""
        time.sleep(10)
        cores = server.cores_of(seconds)
        memory = server.memory_bytes()
        with Watcher(server, self._names(self.pairs)):
            time.sleep(seconds / 2)
        until(lambda: server.all_running(2 * len(self.pairs)))
        self.tell("idle", {"cores": cores, **_memory(memory), "REST": server.answer_times()})

    def load(self, server: Server, busy: int, rows: int, seconds: float) -> None:
        """Add rows to some of the files for a while; take the age of each row in its target.

        The first third counts apart: the JVM is still compiling what a server has long used.
        """
        pairs, each = self.pairs[:busy], 10
        pause = busy * each / rows  # between two additions to the same file
        ages: list[tuple[float, float]] = []
        ended = threading.Event()

        def receive() -> None:
            while not ended.wait(0.05):
                at = time.time()
                ages.extend((at, age) for pair in pairs for age in pair.receive())

        receiver = threading.Thread(target=receive)
        receiver.start()
        began, before = time.time(), server.cpu_seconds()
        with Watcher(server, self._names(self.pairs[busy:] or self.pairs)):
            turn = 0
            while time.time() - began < seconds:
                for number, pair in enumerate(pairs):
                    due = began + (turn + number / busy) * pause
                    time.sleep(max(0.0, due - time.time()))
                    pair.send(each)
                turn += 1
        after, took = server.cpu_seconds(), time.time() - began
        memory = server.memory_bytes()
        until(lambda: all(pair.came == pair.sent for pair in pairs))
        ended.set()
        receiver.join()
        self.tell("way", way(self.home / "store.db", pairs, began + seconds / 3))
        warm = [age for at, age in ages if at - began > seconds / 3]
        self.tell(
            "load",
            {
                "rows/s": sum(pair.sent for pair in pairs) / took,
                "p50 s": statistics.median(warm),
                "p95 s": statistics.quantiles(warm, n=20)[-1],
                "max s": max(warm),
                "p95 s, the first third included": _p95([age for _, age in ages]),
                "cores": {k: (after[k] - before.get(k, 0)) / took for k in after},
                **_memory(memory),
                "REST": server.answer_times(),
            },
        )

    @staticmethod
    def _names(pairs: list[Pair]) -> list[str]:
        return [name for pair in pairs for name in pair.configs()]


def way(store: Path, pairs: list[Pair], since: float) -> dict[str, object]:
    """Return how long rows took into their topic, and what their sinks' batches took.

    From the store, where each batch is with its bounds and the times of its begin and end.
    """
    query = (
        "SELECT end, begun_us / 1e6, finished_us / 1e6 FROM batches WHERE connector = ? AND "
        "finished_us IS NOT NULL AND begun_us / 1e6 > ? ORDER BY id"
    )
    into_topic, appends, waits, batches = [], [], [], []
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        for pair in pairs:
            appended = []
            sendings = [each for each in pair.sendings if each[1] > since]
            for end, begun, finished in db.execute(query, [f"source-{pair.number}", since]):
                [entry] = json.loads(end)
                appended.append(finished)
                appends.append(finished - begun)
                while sendings and sendings[0][0] <= entry["offset"]["position"]:
                    into_topic.append(finished - sendings.pop(0)[1])
            for _, begun, finished in db.execute(query, [f"sink-{pair.number}", since]):
                batches.append(finished - begun)
                while appended and appended[0] <= begun:
                    waits.append(begun - appended.pop(0))
    found = {
        "line to topic, s": into_topic,
        "of which the append's transaction, s": appends,
        "in the topic until a batch of the sink, s": waits,
        "that batch, s": batches,
    }
    return {key: _spread(values) for key, values in found.items()}


def _spread(values: list[float]) -> dict[str, float]:
    return {"count": len(values), "p50": statistics.median(values), "p95": _p95(values)}


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _memory(used: dict[str, int]) -> dict[str, object]:
    shown = {kind: size / GIB for kind, size in used.items()}
    return {"PSS GiB": {**shown, "all": sum(shown.values())}}


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(each)}" for key, each in value.items())
    return str(value)


def main(pairs: int, busy: int, rows: int, seconds: float, idle: float) -> None:
    """Run all phases and keep the figures."""
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-server-") as name:
        folder = Path(name)
        run = Run([Pair(number, folder) for number in range(pairs)], folder / "home")
        for pair in run.pairs:
            pair.send(1)
        with serving(run.home) as server:
            run.start(server)
            run.idle(server, idle)
            if busy:
                run.load(server, busy, rows, seconds)
            stopping = time.time()
        stopped = time.time() - stopping
        for pair in run.pairs:
            pair.send(1)
        with serving(run.home) as server:
            run.restart(server)
        run.tell("stop", {"seconds": stopped})
    save("server", {"pairs": pairs, "busy": busy, **run.figures})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--busy", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--idle", type=float, default=60)
    found = parser.parse_args()
    main(found.pairs, found.busy, found.rows, found.seconds, found.idle)
