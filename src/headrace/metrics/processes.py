"""What the processes of a server use."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

DRIVER, JVM, HOST, PYTHON = "driver", "jvm", "host", "python"


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes of one kind use together.

    Args:
        count: How many there are.
        rss: Their memory, in bytes; what they share is counted for each.
        pss: Their memory, what they share divided; None where the system does not tell.
        cpu: Their processor time since the first look, in seconds, the ended ones included.
    """

    count: int = 0
    rss: int = 0
    pss: int | None = None
    cpu: float = 0.0


@dataclass
class Processes:
    """Looks at this process and all that it started, by what they are.

    A child of the JVM is one of Spark's Python workers; any other child is what its parent is.

    Args:
        jvm: Gives the JVM's process; None while there is none.
        hosts: Gives the processes of plugin hosts.
    """

    jvm: Callable[[], int | None] = lambda: None
    hosts: Callable[[], Collection[int]] = tuple
    _cpu: dict[tuple[int, float], float] = field(default_factory=dict)
    _spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def look(self) -> Mapping[str, Usage]:
        """Return what is used now. One thread at a time may call it."""
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
        """Return a usage with one more process."""
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
