"""What a small batch costs, and a hundred tasks over a hundred topics.

python benchmarks/bench_small_batches.py [--tasks 100] [--seconds 30]
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from harness import Bench, Quiet, bench, cpu_seconds, machine, save, timed
from ruamel.yaml import YAML
from typing_extensions import override

from headrace.model import Batch, Definition, TaskId, TaskState
from headrace.sdk import Mark, Schema
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.delta import AddedFile
from headrace.sdk.durability import Durability, set_durability
from headrace.topics import Topic, topic_row_schema
from headrace.worker import BatchLoop

ROWS = 100
WARM_UPS = 150
"""How many batches go before those that count: a service has run many more, and the JVM is
still compiling after thirty."""
TURNS = 60
TARGETS = {
    "files of a folder": {"connector": "file", "format": "parquet"},
    "lines of a file": {"connector": "file", "mode": "append"},
    "a Delta table": {"connector": "delta", "optimize.interval.commits": "0"},
}
VALUE = Schema.struct(
    {"id": Schema.int64(), "text": Schema.string(), "price": Schema.float64()}
)
STEPS = [
    {"type": "ReplaceField", "renames": "text:word"},
    {"type": "Cast", "spec": "id:string"},
    {"type": "Filter", "condition": "price >= 0"},
    {"type": "InsertField", "static.field": "origin", "static.value": "bench"},
]


@dataclass
class Feed:
    """Appends a few rows at a time to one topic, as a capture would."""

    topic: Topic
    appended: int = 0

    def append(self) -> int:
        """Append and return the topic's version."""
        schema = self.topic.prepare(topic_row_schema(VALUE, None))
        rows = [{"id": n, "text": f"t{n}", "price": n / 2} for n in range(ROWS)]
        table = pa.Table.from_pylist([{"value": row, "offset": 0} for row in rows])
        self.appended += 1
        path = Path("data") / f"feed-{self.appended}.parquet"
        (self.topic.location.local / "data").mkdir(exist_ok=True)
        pq.write_table(conform(table, to_arrow(schema)), self.topic.location.local / path)
        size = (self.topic.location.local / path).stat().st_size
        file = AddedFile(path.as_posix(), size, ROWS)
        mark = Mark(f"feed-{self.topic.name}", self.appended, 1)
        return self.topic.append([file], mark, "", datetime.now(UTC)).version


@dataclass
class Arrivals(Quiet):
    """Knows when the rows of each version of each topic were durable in the target."""

    waiting: dict[tuple[str, int], float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    first: dict[TaskId, float] = field(default_factory=dict)
    failed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, topic: str, version: int, at: float) -> None:
        """Remember when rows were appended."""
        with self.lock:
            self.waiting[topic, version] = at

    @override
    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """Settle all versions up to the batch's end."""
        now = time.time()
        with self.lock:
            if batch.counts.read:
                self.first.setdefault(batch.task, now)
            for partition, offset in batch.end.items():
                topic, newest = partition["topic"], offset["version"]
                done = [key for key in self.waiting if key[0] == topic and key[1] <= newest]
                self.latencies += [now - self.waiting.pop(key) for key in done]

    @override
    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        """Note a failure."""
        super().state_changed(task, state, error)
        self.failed = self.failed or error is not None


def small_batch(run: Bench) -> dict[str, float]:
    """Time one warm batch of a hundred rows, topic to Parquet, four transforms included."""
    feed = Feed(run.runtime.topics.get("small"))
    definition = {
        "topic": "small",
        "transforms": STEPS,
        "sinks": [{"connector": "file", "path": str(run.target()), "format": "parquet"}],
    }
    feed.append()
    loop = run.loop(definition)
    seconds, cpu = [], []
    for number in range(WARM_UPS + 30):
        feed.append()
        began, used = time.perf_counter(), cpu_seconds()
        loop.step()
        if number >= WARM_UPS:
            seconds.append(time.perf_counter() - began)
            cpu.append(cpu_seconds() - used)
    found = {"seconds": statistics.median(seconds), "cpu_seconds": statistics.median(cpu)}
    cost = f"{found['seconds']:.3f} s, {found['cpu_seconds']:.3f} CPU-s"
    print(f"small batch: {cost} (medians of 30)", flush=True)
    return found


def durability_cost(run: Bench) -> dict[str, dict[str, float]]:
    """Time warm batches of a hundred rows that wait for the disk, beside those that do not.

    Both take turns, so that what else the machine does falls on both.
    """
    found = {}
    for number, (kind, sink) in enumerate(TARGETS.items()):
        feed = Feed(run.runtime.topics.get(f"durable-{number}"))
        feed.append()
        target = {**sink, "path": str(run.target())}
        loop = run.loop({"topic": feed.topic.name, "sinks": [target]}, f"durable-{number}")

        def step(feed: Feed = feed, loop: BatchLoop = loop) -> float:
            feed.append()
            return timed(loop.step)

        found[kind] = _in_turns(step)
    feed = Feed(run.runtime.topics.get("durable-append"))
    found["append to a topic"] = _in_turns(lambda: timed(feed.append))
    for kind, each in found.items():
        print(
            f"{kind}: {1000 * each['fsync']:.1f} ms with fsync, {1000 * each['os']:.1f} ms "
            f"without (medians of {TURNS})",
            flush=True,
        )
    return found


def _in_turns(step: Callable[[], float]) -> dict[str, float]:
    """Return the median seconds of a step, by durability."""
    seconds: dict[Durability, list[float]] = {mode: [] for mode in Durability}
    for number in range(WARM_UPS // 2 + TURNS):
        for mode in Durability:
            set_durability(mode)
            took = step()
            if number >= WARM_UPS // 2:
                seconds[mode].append(took)
    set_durability(Durability.FSYNC)
    return {mode.value: statistics.median(each) for mode, each in seconds.items()}


def many_tasks(run: Bench, tasks: int, seconds: int) -> dict[str, float]:
    """Run a task for each of many topics: the start, the idle cost, and the busy latency."""
    feeds = [Feed(run.runtime.topics.get(f"many-{n}")) for n in range(tasks)]
    for feed in feeds:
        feed.append()
    definitions = _sinks_of(run, feeds)
    arrivals = Arrivals()
    began = time.time()
    thread = threading.Thread(
        target=run.runtime.run, args=[definitions, arrivals], kwargs={"once": False}
    )
    thread.start()
    while len(arrivals.first) < tasks and thread.is_alive() and not arrivals.failed:
        time.sleep(0.05)
    first = max(arrivals.first.values()) - began
    print(f"{tasks} tasks: first batches of all after {first:.1f} s")
    time.sleep(5)
    used, since = cpu_seconds(), time.time()
    time.sleep(20)
    idle = (cpu_seconds() - used) / (time.time() - since)
    print(f"{tasks} idle tasks: {idle:.3f} of a core")
    _keep_busy(feeds[: tasks // 2], arrivals, seconds)
    run.runtime.stop()
    thread.join()
    late, middle = (
        statistics.quantiles(arrivals.latencies, n=20)[-1],
        statistics.median(arrivals.latencies),
    )
    print(
        f"{tasks // 2} busy tasks, an append a second each: median {middle:.1f} s, "
        f"p95 {late:.1f} s, {len(arrivals.waiting)} not written"
    )
    return {"first_s": first, "idle_cores": idle, "median_s": middle, "p95_s": late}


def _sinks_of(run: Bench, feeds: list[Feed]) -> list[Definition]:
    """Return one sink connector with a task for each topic."""
    path = run.folder / "many.yaml"
    target = {"connector": "file", "path": str(run.target() / "${topic}"), "format": "parquet"}
    topics = [feed.topic.name for feed in feeds]
    with path.open("w") as file:
        YAML().dump({"name": "many", "topics": topics, "sinks": [target]}, file)
    return run.runtime.definitions([path])


def _keep_busy(feeds: list[Feed], arrivals: Arrivals, seconds: int) -> None:
    """Append to every topic once a second."""
    for round_ in range(seconds):
        began = time.time()
        for number, feed in enumerate(feeds):
            pause = began + number / len(feeds) - time.time()
            time.sleep(max(0.0, pause))
            at = time.time()
            arrivals.sent(feed.topic.name, feed.append(), at)
        if round_ % 10 == 0:
            print(f"  {round_} s, {len(arrivals.waiting)} appends waiting", flush=True)
    deadline = time.time() + 60
    while arrivals.waiting and time.time() < deadline:
        time.sleep(0.1)


def main(tasks: int, seconds: int) -> None:
    """Run both and keep the figures."""
    print(machine())
    with bench() as run:
        figures = {
            "small_batch": small_batch(run),
            "durability": durability_cost(run),
            "many_tasks": many_tasks(run, tasks, seconds),
        }
    save("small_batches", {"tasks": tasks, **figures})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=30)
    found = parser.parse_args()
    main(found.tasks, found.seconds)
