"""Samples periodically what is too slow for a scrape: the JVM and the processes."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import psutil
import structlog

from headrace.metrics import series
from headrace.sdk import RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime, timedelta

    from headrace.metrics.worker_metrics import Page, WorkerMetrics
    from headrace.spark import JvmFigures


log = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class Sampler:
    """Writes metrics of processes, JVM and Spark to a book, in a thread. A context manager.

    If the JVM hangs, only these metrics become stale.

    Args:
        jvm: Reads the JVM's metrics; may raise anything if it has ended.
    """

    book: WorkerMetrics
    processes: Processes
    jvm: Callable[[], JvmFigures]
    clock: Callable[[], datetime]
    interval: timedelta
    _over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Sample once. Raises any error of the sampling."""
        used, jvm = self.processes.look(), self.jvm()

        def write(page: Page) -> None:
            for process, usage in used.items():
                page.set(series.PROCESSES, usage.count, process=process)
                page.set(series.MEMORY_RSS, usage.rss, process=process)
                if usage.pss is not None or not usage.count:
                    page.set(series.MEMORY_PSS, usage.pss or 0, process=process)
                page.raise_to(series.CPU_TIME, usage.cpu, process=process)
            _write_jvm(page, jvm)
            page.set(series.SAMPLED, self.clock().timestamp())

        self.book.write(write)

    def __enter__(self) -> Self:
        # A daemon that is not joined: a call to a JVM that hangs never returns.
        threading.Thread(target=self._run, name="headrace-sampler", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
            except RetriableError as error:
                log.debug("JVM metrics are temporarily unavailable", why=str(error))
            except Exception as error:  # noqa: BLE001 - an ended JVM must not end this thread
                if not self._over.is_set():
                    log.warning("process and JVM metrics are unavailable", why=repr(error))
            self._over.wait(self.interval.total_seconds())


def _write_jvm(page: Page, jvm: JvmFigures) -> None:
    by_kind = {
        "used": series.JVM_MEMORY_USED,
        "committed": series.JVM_MEMORY_COMMITTED,
        "max": series.JVM_MEMORY_MAX,
    }
    for area, sizes in jvm.memory.items():
        for kind, size in sizes.items():
            page.set(by_kind[kind], size, area=area)
    for gc, count in jvm.collections.items():
        page.raise_to(series.JVM_GC_COUNT, count, gc=gc)
    for gc, seconds in jvm.collecting.items():
        page.raise_to(series.JVM_GC_TIME, seconds, gc=gc)
    page.set(series.SPARK_JOBS, jvm.jobs)


DRIVER, JVM, HOST, PYTHON = "driver", "jvm", "host", "python"


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource usage of all processes of one kind.

    Args:
        count: The number of processes.
        rss: Their memory, in bytes; shared memory is counted for each process.
        pss: Their memory, in bytes, with shared memory divided; None if the system does not
            report it.
        cpu: Their CPU time since the first sample, in seconds, including ended processes.
    """

    count: int = 0
    rss: int = 0
    pss: int | None = None
    cpu: float = 0.0


@dataclass
class Processes:
    """Samples this process and its descendants, by kind.

    A child of the JVM is one of Spark's Python workers; any other child has its parent's kind.
    """

    jvm: Callable[[], int | None] = lambda: None
    hosts: Callable[[], Collection[int]] = tuple
    _cpu: dict[tuple[int, float], float] = field(default_factory=dict)
    _spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def look(self) -> Mapping[str, Usage]:
        """Return the current usage by kind. Not thread-safe."""
        own = psutil.Process()
        kinds = {own.pid: DRIVER}
        found = {kind: Usage() for kind in (DRIVER, JVM, HOST, PYTHON)}
        alive: dict[tuple[int, float], float] = {}
        jvm, hosts = self.jvm(), set(self.hosts())
        # Parents come before their children.
        for process in [own, *own.children(recursive=True)]:
            try:
                kind = kinds.get(process.pid) or _kind(process, kinds, jvm, hosts)
                kinds[process.pid] = kind
                found[kind] = self._with(process, kind, found[kind], alive)
            except psutil.Error:
                continue  # it has ended meanwhile
        self._cpu = alive
        return {kind: replace(usage, cpu=self._spent[kind]) for kind, usage in found.items()}

    def _with(
        self,
        process: psutil.Process,
        kind: str,
        usage: Usage,
        alive: dict[tuple[int, float], float],
    ) -> Usage:
        with process.oneshot():
            times = process.cpu_times()
            memory = process.memory_full_info()
            key = (process.pid, process.create_time())
        spent = times.user + times.system
        self._spent[kind] += max(0.0, spent - self._cpu.get(key, 0.0))
        alive[key] = spent
        pss = getattr(memory, "pss", None)
        return Usage(
            count=usage.count + 1,
            rss=usage.rss + memory.rss,
            pss=usage.pss if pss is None else (usage.pss or 0) + pss,
        )


def _kind(
    process: psutil.Process, kinds: Mapping[int, str], jvm: int | None, hosts: set[int]
) -> str:
    if process.pid == jvm:
        return JVM
    if process.pid in hosts:
        return HOST
    parent = kinds.get(process.ppid(), DRIVER)
    return PYTHON if parent == JVM else parent
