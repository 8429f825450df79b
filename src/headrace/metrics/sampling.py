"""Looks now and then at what is too dear for a scrape, or might block one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

import structlog

from headrace.metrics import series
from headrace.sdk import RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from headrace.metrics.book import Book, Page
    from headrace.metrics.processes import Processes

log = structlog.get_logger(__name__)


class JvmLook(Protocol):
    """The JVM at one moment; what the data plane's ``JvmWatch`` gives."""

    @property
    def memory(self) -> Mapping[str, Mapping[str, int]]:
        """Bytes by area, and by ``used``, ``committed`` and ``max``."""

    @property
    def collections(self) -> Mapping[str, int]:
        """Garbage collections by collector."""

    @property
    def collecting(self) -> Mapping[str, float]:
        """The seconds they took."""

    @property
    def jobs(self) -> int:
        """Spark jobs that run."""


@dataclass(kw_only=True)
class Sampler:
    """Writes what processes, JVM and Spark do into a book, in a thread of its own.

    Use it in a ``with``. A JVM that hangs makes these figures old, and nothing else.

    Args:
        book: The book.
        processes: The processes.
        jvm: Looks at the JVM; may raise anything when it is gone.
        clock: Gives the present, aware.
        interval: How often it looks.
    """

    book: Book
    processes: Processes
    jvm: Callable[[], JvmLook]
    clock: Callable[[], datetime]
    interval: timedelta
    _over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Look once. Raises what looking raised."""
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
        """Begin to look."""
        # Not waited for at the end: a call into a JVM that hangs does not come back.
        threading.Thread(target=self._run, name="headrace-sampler", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
            except RetriableError as error:
                log.debug("figures of the JVM are missing for now", why=str(error))
            except Exception as error:  # noqa: BLE001 - a JVM that is gone must not end this
                if not self._over.is_set():
                    log.warning("figures of processes and JVM are missing", why=repr(error))
            self._over.wait(self.interval.total_seconds())


def _write_jvm(page: Page, jvm: JvmLook) -> None:
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
