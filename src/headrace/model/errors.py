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
        name: The name or class that was asked for.
        known: The names that exist; those close to `name` are offered in `fix`.
        kind: What was looked for, such as "connector" or "transform".
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
            fix = f"Use one of: {', '.join(names)}; or install the package that has it."
        else:
            fix = "Install the package that has it."
        super().__init__(f"No {kind} is called {name!r}.", fix=fix, field=field)


class TopicNotFoundError(ConfigError):
    """There is no topic of that name, or it is not of the kind that is asked for."""

    code = "topic.not_found"


class SparkUnavailableError(RetriableError):
    """Spark's JVM has ended, and another is being started.

    The worker raises it for what was running; the batch runs again once Spark does.
    """

    code = "spark.unavailable"

    def __init__(
        self,
        problem: str = "",
        *,
        after: timedelta | None = timedelta(seconds=30),
        fix: str = "If it ended for lack of memory, raise HEADRACE_DRIVER_MEMORY or lower "
        "batch.max.rows; jvm.log says more.",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, after=after, fix=fix, field=field)


class SparkMemoryError(RetriableError):
    """A Python worker or an executor of Spark has ended, as a rule for lack of memory.

    The batch is tried again, in smaller pieces where that can be.
    """

    code = "spark.out_of_memory"

    def __init__(
        self,
        problem: str = "A Python worker or an executor of Spark ended, most likely for lack of "
        "memory.",
        *,
        after: timedelta | None = None,
        fix: str = "Lower batch.max.rows, or give them more memory: HEADRACE_DRIVER_MEMORY "
        "where Spark runs in this process, else spark.executor.memory and "
        "spark.executor.memoryOverhead.",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, after=after, fix=fix, field=field)


class SparkError(HeadraceError):
    """Spark failed, and does not say whether at the source, in the chain or at a sink."""

    code = "spark.failed"


class SparkLostError(SetupError):
    """Spark's JVM has ended too often, and is not started again."""

    code = "spark.lost"


class ToleranceExceededError(HeadraceError):
    """A record failed and the connector does not tolerate failing records.

    Args:
        stage: Where it failed, such as "transform" or "sink".
        plugin: The plugin that refused the record.
        exception: The name of the exception's class.
        message: The exception's text.
        record: A short text of the record, with its topic and position; empty when it must
            not be shown.
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
            fix="Fix the data or the definition, or set errors.tolerance=all to pass such "
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
