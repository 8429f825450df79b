"""The error hierarchy: what went wrong, where, and how to fix it."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from typing_extensions import override


class Category(StrEnum):
    """What has to be fixed: the definition, the run, or the machine's environment."""

    CONFIG = "config"
    RUN = "run"
    ENVIRONMENT = "environment"


class HeadraceError(Exception):
    """Something went wrong in Headrace.

    The base class of every error that Headrace or a plugin raises on purpose.
    Its text is `[code] field: problem Fix: fix`, without the parts that are empty.
    A subclass sets `code`, a stable dotted name that users may search and match on, and
    `category`, which the command line turns into an exit code.
    Errors can be pickled, because executors send them to the driver.

    Args:
        problem: What is wrong, as a sentence. If empty, the first line of the class docstring.
        fix: What to do about it, as a sentence.
        field: The configuration key, column or field path that caused the error.
    """

    code: ClassVar[str] = "internal"
    category: ClassVar[Category] = Category.RUN

    def __init__(self, problem: str = "", *, fix: str = "", field: str | None = None) -> None:
        summary = (type(self).__doc__ or type(self).__name__).strip().splitlines()[0]
        self.problem = problem or summary
        self.fix = fix
        self.field = field
        super().__init__(self.problem)

    @override
    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        fix = f" Fix: {self.fix}" if self.fix else ""
        return f"[{self.code}] {where}{self.problem}{fix}"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args`, which cannot hold keyword-only arguments.
        return _restored, (type(self), self.args, self.__dict__)

    def to_json(self) -> dict[str, Any]:
        """Return the error as JSON values: `code`, `category`, `problem`, `fix`, `field`."""
        return {
            "code": self.code,
            "category": self.category.value,
            "problem": self.problem,
            "fix": self.fix,
            "field": self.field,
        }


def error_class(code: str) -> type[HeadraceError] | None:
    """Return the error class with a code, among all loaded classes, plugins' included."""
    found: list[type[HeadraceError]] = [HeadraceError]
    for kind in found:
        if vars(kind).get("code") == code:
            return kind
        found += kind.__subclasses__()
    return None


def _restored(
    kind: type[HeadraceError], args: tuple[object, ...], state: Mapping[str, object]
) -> HeadraceError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(HeadraceError):
    """A definition, a configuration value or a schema is not valid."""

    code = "config.invalid"
    category = Category.CONFIG


class ConfigErrors(ConfigError):  # noqa: N818 - the plural says that it contains several
    """Several configuration values are not valid: all of them are shown at once.

    Args:
        errors: At least one error, in display order.
    """

    code = "config.several_invalid"

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors: tuple[ConfigError, ...] = tuple(errors)
        lines = "".join(f"\n- {error}" for error in self.errors)
        noun = "value is" if len(self.errors) == 1 else "values are"
        super().__init__(f"{len(self.errors)} configuration {noun} not valid:{lines}")

    @override
    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "errors": [error.to_json() for error in self.errors]}


class SetupError(HeadraceError):
    """The machine lacks something that Headrace needs, such as Java, a jar or a package."""

    code = "environment.incomplete"
    category = Category.ENVIRONMENT


class RetriableError(HeadraceError):
    """The external system is temporarily unavailable; the same request may succeed later.

    A plugin raises it without waiting; the worker decides when to retry. The error never counts
    against a record.

    Args:
        after: The minimum wait before a retry, if the system specified one.
    """

    code = "task.retriable"

    def __init__(
        self,
        problem: str = "",
        *,
        after: timedelta | None = None,
        fix: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, fix=fix, field=field)
        self.after = after
        if after is not None:  # the driver sees only the traceback of an executor's error
            self.add_note(f"Asks to wait {after.total_seconds()} s.")

    @override
    def to_json(self) -> dict[str, Any]:
        seconds = None if self.after is None else self.after.total_seconds()
        return {**super().to_json(), "after_seconds": seconds}


class StorageUnavailableError(RetriableError):
    """Data cannot be stored now: no space, over quota, read-only, or an input/output error.

    The batch is retried until storage is available.
    """

    code = "storage.unavailable"


class DataLostError(HeadraceError):
    """The source no longer has the data that follows the stored position."""

    code = "source.data_lost"


class RangeChangedError(DataLostError):
    """The data in a range has changed since the batch was planned.

    A source raises it from ``read`` or ``splits``, before it has returned any record. If the
    batch runs for the first time, it is dropped and planned again. If it may have run before,
    it fails, because targets may contain the previous data.
    """

    code = "source.range_changed"


class RecordError(HeadraceError):
    """One record is bad; the others around it may be good.

    This is the error that `errors.tolerance=all` tolerates.
    """

    code = "record.invalid"


class RejectedError(RecordError):
    """The target rejected some of the records.

    A sink raises it if it knows which records; see ``SinkTask.rejects``.

    Args:
        rows: The target's error for each rejected record, by its index in the call, from 0.
    """

    code = "record.rejected"

    def __init__(self, rows: Mapping[int, Exception]) -> None:
        self.rows = dict(rows)
        first = next(iter(self.rows.values()), "")
        super().__init__(f"The target rejected {len(self.rows)} of the records: {first}")


class UnfitRecordError(HeadraceError):
    """The transform does not accept records of this shape.

    A transform raises it while the chain is compiled, where Kafka Connect's transform would
    raise for each record: for example for a string instead of a struct, or for a missing field.
    The data is wrong, not the configuration: the chain rejects the records and continues.

    Args:
        message: Kafka Connect's error message.
        where: An SQL condition, never null, that matches these records; other records are left
            unchanged.
    """

    code = "record.unfit"

    def __init__(
        self,
        message: str,
        *,
        exception: str = "org.apache.kafka.connect.errors.DataException",
        where: str = "true",
    ) -> None:
        self.message = message
        self.exception = exception
        self.where = where
        super().__init__(message)


class SinkError(HeadraceError):
    """A sink could not write."""

    code = "sink.failed"


class SourceError(HeadraceError):
    """A source could not read."""

    code = "source.failed"


class StaleEpochError(HeadraceError):
    """The task's lease has passed to another owner: this one must stop and write no more."""

    code = "task.stale_epoch"


class StateError(HeadraceError):
    """The request is not possible in the current state of the connector, task or run."""

    code = "state.invalid"
