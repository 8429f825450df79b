"""The tasks of bench_small_batches as Structured Streaming queries, for comparison.

Each query reads the Delta table of one topic, runs the same chain and writes Parquet with
a checkpoint of its own, as a user would write it by hand. It takes many minutes, so
``make bench`` leaves it out.

    python benchmarks/structured_streaming.py [--tasks 100] [--seconds 20]
"""

import argparse
import statistics
import time
from pathlib import Path

from bench_small_batches import ROWS, Feed
from harness import Bench, bench, cpu_seconds, machine, processes, save
from pyspark.sql.streaming.query import StreamingQuery

LIMIT_SECONDS = 900
"""How long to wait for rows before what has not arrived is given up."""


def started(run: Bench, feed: Feed, target: Path) -> StreamingQuery:
    """Start the query of one topic."""
    rows = (
        run.runtime.spark.readStream.format("delta")
        .load(str(feed.topic.location.local))
        .select("value.*")
        .selectExpr("CAST(id AS STRING) AS id", "text AS word", "price", "'bench' AS origin")
        .where("price >= 0")
    )
    folder = target / feed.topic.name
    return (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )


def taken(query: StreamingQuery) -> int:
    """Return how many rows the query has read and written so far."""
    if (error := query.exception()) is not None:
        raise SystemExit(str(error)[:300])
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def settle(queries: list[StreamingQuery], rows: int) -> float:
    """Wait until each query has written so many rows; return how long that took."""
    began = time.time()
    waiting = queries
    while waiting and time.time() - began < LIMIT_SECONDS:
        waiting = [query for query in waiting if taken(query) < rows]
        time.sleep(0.1)
    return time.time() - began


def main(tasks: int, seconds: int) -> None:
    """Start, idle and keep busy as many queries as bench_small_batches has tasks."""
    print(machine())
    with bench() as run:
        feeds = [Feed(run.runtime.topics.get(f"many-{n}")) for n in range(tasks)]
        for feed in feeds:
            feed.append()
        target = run.target()
        run.runtime.spark.range(1).count()  # both sides begin with a warm session
        began, used = time.time(), cpu_seconds()
        queries = [started(run, feed, target) for feed in feeds]
        settle(queries, ROWS)
        first, first_cpu = time.time() - began, cpu_seconds() - used
        print(f"first batches of all: {first:.1f} s, {first_cpu:.0f} CPU-s", flush=True)
        used, began = cpu_seconds(), time.time()
        time.sleep(20)
        idle = (cpu_seconds() - used) / (time.time() - began)
        print(f"{tasks} idle queries: {idle:.3f} of a core", flush=True)
        half = [(feeds[number], queries[number]) for number in range(tasks // 2)]
        rounds, used = [], cpu_seconds()
        for number in range(max(1, seconds // 10)):
            for feed, _ in half:
                feed.append()
            rounds.append(settle([query for _, query in half], (number + 2) * ROWS))
        cost = (cpu_seconds() - used) / (len(rounds) * len(half))
        memory = sum(p.memory_info().rss for p in processes() if p.name() == "java") / 2**30
        round_ = statistics.median(rounds)
        print(
            f"{len(half)} busy queries, {ROWS} rows each: a round of all takes {round_:.1f} s, "
            f"{cost:.2f} CPU-s a batch; JVM {memory:.1f} GiB",
            flush=True,
        )
        for query in queries:
            query.stop()
    figures = {"first_s": first, "first_cpu_s": first_cpu, "idle_cores": idle}
    figures |= {"round_s": round_, "batch_cpu_s": cost, "jvm_gib": memory}
    save("structured_streaming", {"tasks": tasks, **figures})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=20)
    found = parser.parse_args()
    main(found.tasks, found.seconds)
