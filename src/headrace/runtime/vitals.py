"""What a server needs to be well: Spark, the store, the plugin hosts and the disk."""

from __future__ import annotations

import shutil
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from headrace.control import Finding, Health, HealthState, store_look
from headrace.model import SparkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headrace.capture import HostSupervisor
    from headrace.runtime.app import Runtime
    from headrace.spark import SparkSupervisor


def vitals(runtime: Runtime, store: Callable[[], object]) -> Health:
    """Return what looks at all that a server needs; ``store`` asks the store for anything."""
    settings = runtime.settings
    folders = [settings.home, settings.topics_dir]
    return Health(
        {
            "spark": lambda: _spark(runtime.engine),
            "store": store_look(store),
            "hosts": lambda: _hosts(runtime.hosts),
            "disk": lambda: _disk(folders, settings.health_free_bytes),
        }
    )


def _spark(engine: SparkSupervisor) -> Finding:
    try:
        if not engine.answers():
            return Finding(HealthState.UNHEALTHY, "Spark's JVM does not answer.")
    except SparkUnavailableError as error:
        return Finding(HealthState.DEGRADED, error.problem)
    again = engine.starts - 1
    more = f" It was started again {again} times." if again > 0 else ""
    return Finding(words=f"Spark's JVM answers.{more}")


def _hosts(hosts: HostSupervisor | None) -> Finding:
    if hosts is None:
        return Finding(words="None is needed.")
    if down := hosts.down:
        return Finding(HealthState.DEGRADED, f"No plugin host runs with {', '.join(down)}.")
    return Finding(words=f"{len(hosts.pids)} plugin hosts run.")


def _disk(folders: Sequence[Path], free_bytes: int) -> Finding:
    least: tuple[int, Path] | None = None
    for folder in folders:
        if not folder.is_dir():
            continue
        free = shutil.disk_usage(folder).free
        try:
            with TemporaryFile(dir=folder) as file:
                file.write(b"written")
        except OSError as error:
            words = f"{folder} cannot be written to: {error.strerror}. {free:,} bytes are free."
            return Finding(HealthState.UNHEALTHY, words)
        least = min(least or (free, folder), (free, folder))
    if least is None:
        return Finding(HealthState.UNHEALTHY, f"{folders[0]} does not exist.")
    state = HealthState.HEALTHY if least[0] >= free_bytes else HealthState.DEGRADED
    return Finding(state, f"{least[1]} has {least[0]:,} bytes free.")
