"""The errors that only the runtime raises; a plugin's are in ``headrace.sdk``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from typing_extensions import override

from headrace.sdk import ConfigError, HeadraceError, RetriableError
from headrace.sdk.errors import Category, SetupError


class PluginNotFoundError(HeadraceError):
    """No plugin of that name is installed.

    Args:
        name: The requested name or class.
        known: The existing names; close matches to `name` are suggested in `fix`.
        kind: The kind of plugin, such as "connector" or "transform".
        field: The configuration key that named the plugin.
    """

    code = "plugin.not_found"
    category = Category.CONFIG

    def __init__(
        self,
        name: str,
        *,
        known: Iterable[str] = (),
        kind: str = "plugin",
        field: str | None = None,
    ) -> None:
        self.name = name
        names = sorted(set(known))
        self.close_matches: tuple[str, ...] = tuple(difflib.get_close_matches(name, names))
        if self.close_matches:
            fix = f"Did you mean {' or '.join(self.close_matches)}?"
        elif names:
            fix = f"Use one of: {', '.join(names)}; or install the package that provides it."
        else:
            fix = "Install the package that provides it."
        super().__init__(f"No {kind} is called {name!r}.", fix=fix, field=field)


class TopicNotFoundError(ConfigError):
    """The topic does not exist, or is not of the required kind."""

    code = "topic.not_found"


class SparkUnavailableError(RetriableError):
    """Spark's JVM has ended, and a new one is being started.

    The worker raises it for the batches that were running; they are retried once Spark is back.
    """

    code = "spark.unavailable"

    def __init__(
        self,
        problem: str = "",
        *,
        after: timedelta | None = timedelta(seconds=30),
        fix: str = "If it ran out of memory, raise HEADRACE_DRIVER_MEMORY or lower "
        "batch.max.rows; see jvm.log.",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, after=after, fix=fix, field=field)


class SparkMemoryError(RetriableError):
    """A Python worker or an executor of Spark has ended, usually because it ran out of memory.

    The batch is retried, in smaller pieces if possible.
    """

    code = "spark.out_of_memory"

    def __init__(
        self,
        problem: str = "A Python worker or an executor of Spark ended, most likely because it "
        "ran out of memory.",
        *,
        after: timedelta | None = None,
        fix: str = "Lower batch.max.rows, or raise the memory: HEADRACE_DRIVER_MEMORY if Spark "
        "runs in this process, otherwise spark.executor.memory and "
        "spark.executor.memoryOverhead.",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, after=after, fix=fix, field=field)


class SparkError(HeadraceError):
    """Spark failed; whether at the source, in the chain or at a sink is unknown."""

    code = "spark.failed"


class SparkLostError(SetupError):
    """Spark's JVM has ended too often, and is not restarted."""

    code = "spark.lost"


class SparkCrashedError(SparkError):
    """Spark's JVM has crashed repeatedly while only this task ran."""

    code = "spark.crashed"

    def __init__(self, times: int) -> None:
        super().__init__(
            f"Spark's JVM ran out of memory or crashed {times} times while only this task ran.",
            fix="If a record or file is too large for the memory, remove it; otherwise raise "
            "HEADRACE_DRIVER_MEMORY or lower batch.max.rows. Then restart the task. See "
            "jvm.log.",
        )


class ToleranceExceededError(HeadraceError):
    """A record failed and the connector does not tolerate failed records.

    Args:
        stage: Where it failed, such as "transform" or "sink".
        plugin: The plugin that rejected the record.
        exception: The name of the exception's class.
        message: The exception's message.
        record: A summary of the record, with its topic and position; empty if it must not be
            shown.
    """

    code = "record.not_tolerated"

    def __init__(
        self, *, stage: str, plugin: str, exception: str, message: str, record: str = ""
    ) -> None:
        self.stage = stage
        self.plugin = plugin
        self.exception = exception
        self.message = message
        self.record = record
        sample = f" Record: {record}" if record else ""
        cause = message.rstrip(".")
        super().__init__(
            f"{plugin} failed in stage {stage} with {exception}: {cause}.{sample}",
            fix="Fix the data or the definition, or set errors.tolerance=all to send such "
            "records to the dead-letter topic.",
        )

    @override
    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "stage": self.stage,
            "plugin": self.plugin,
            "exception": self.exception,
            "message": self.message,
            "record": self.record,
        }


class TooManyRejectedError(HeadraceError):
    """More records were rejected than the connector's limits allow."""

    code = "record.too_many_rejected"


class SchemaChangeError(HeadraceError):
    """The schema of the records has changed in a way that the connector does not allow."""

    code = "schema.changed"
