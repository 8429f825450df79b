"""What the data plane needs to know of a process's settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

__all__ = ["SparkSettings"]


class SparkSettings(Protocol):
    """The settings that decide how Spark starts; the caller reads and owns them."""

    @property
    def home(self) -> Path:
        """State; Spark's logs go to `logs` below it."""

    @property
    def cache(self) -> Path:
        """The jars and the class archive, which set-up can make again."""

    @property
    def java_home(self) -> Path | None:
        """A Java 17 or 21; None to have one looked for."""

    @property
    def master(self) -> str:
        """Spark's master."""

    @property
    def driver_memory(self) -> str:
        """The heap of Spark's driver, such as `1g`."""

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """The user's own Spark settings, which win over ours."""
