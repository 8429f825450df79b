"""What is looked at now and then is in the book, and whoever hangs holds nobody up."""

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

from tests.unit.metrics.told import AT, empty

from headrace.metrics import Exposition, Processes, Sampler, WorkerMetrics


@dataclass
class Jvm:
    memory: dict[str, dict[str, int]] = field(
        default_factory=lambda: {
            "heap": {"used": 5, "committed": 7, "max": 9},
            "nonheap": {"used": 2},
        }
    )
    collections: dict[str, int] = field(default_factory=lambda: {"G1": 3})
    collecting: dict[str, float] = field(default_factory=lambda: {"G1": 0.25})
    jobs: int = 2


def sampler(book: WorkerMetrics, jvm, interval=timedelta(milliseconds=1)) -> Sampler:
    return Sampler(
        book=book, processes=Processes(), jvm=jvm, clock=lambda: AT, interval=interval
    )


def test_a_look_at_the_jvm_is_in_the_exposition():
    book = empty()
    sampler(book, Jvm).look()
    text = Exposition(book).render(None)[0].decode()
    assert 'headrace_jvm_memory_used_bytes{area="heap"} 5.0\n' in text
    assert 'headrace_jvm_gc_seconds_total{gc="G1"} 0.25\n' in text
    assert "headrace_spark_jobs_running 2.0\n" in text
    assert 'headrace_worker_processes{process="driver"}' in text
    assert "headrace_worker_sampled_timestamp_seconds 1.7952624e+09\n" in text


def test_a_scrape_does_not_wait_for_a_jvm_that_hangs():
    book, asked, hangs = empty(), threading.Event(), threading.Event()

    def look() -> Jvm:
        asked.set()
        hangs.wait()
        return Jvm()

    with sampler(book, look):
        assert asked.wait(60)
        assert b"headrace_worker_info" in Exposition(book).render(None)[0]
    hangs.set()


def test_a_look_that_fails_is_followed_by_another():
    book, looks = empty(), []

    def look() -> Jvm:
        looks.append(1)
        if len(looks) == 1:
            raise ConnectionError
        return Jvm()

    with sampler(book, look):
        end = time.monotonic() + 60
        while b"headrace_spark_jobs_running" not in Exposition(book).render(None)[0]:
            assert time.monotonic() < end
            time.sleep(0.005)
