"""The one error tree: what went wrong, where, and how to put it right."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from typing_extensions import override


class Category(StrEnum):
    """Who has to act: the author of the definition, the run, or the machine."""

    CONFIG = "config"
    RUN = "run"
    ENVIRONMENT = "environment"


class HeadraceError(Exception):
    """Something went wrong in Headrace.

    Every error that Headrace or a plugin raises on purpose is one of these.
    Its text is `[code] field: problem Fix: fix`, without the parts it does not have.
    A subclass sets `code`, a stable dotted name that users may search and match on, and
    `category`, which the command line turns into an exit code.
    Errors survive pickling, as they travel from executors to the driver.

    Args:
        problem: What is wrong, as a sentence. The first line of the class's docstring if empty.
        fix: What to do about it, as a sentence.
        field: The configuration key, column or field path that is at fault.
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
        """Give the error as JSON values: `code`, `category`, `problem`, `fix` and `field`."""
        return {
            "code": self.code,
            "category": self.category.value,
            "problem": self.problem,
            "fix": self.fix,
            "field": self.field,
        }


def error_class(code: str) -> type[HeadraceError] | None:
    """Return the class that a code is of, among all that are loaded; a plugin's own too."""
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


class ConfigErrors(ConfigError):  # noqa: N818 - the plural says that it holds several
    """Several configuration values are not valid: all of them are shown at once.

    Args:
        errors: At least one error, in the order in which they are to be shown.
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
    """The other system cannot serve us now, and the same request may succeed later.

    A plugin raises it and returns at once; the worker decides when to call again. It is never
    counted against a record.

    Args:
        after: The shortest wait that makes sense, if the system said so.
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
        if after is not None:  # of an executor's errors the driver sees the traceback only
            self.add_note(f"Asks to wait {after.total_seconds()} s.")

    @override
    def to_json(self) -> dict[str, Any]:
        seconds = None if self.after is None else self.after.total_seconds()
        return {**super().to_json(), "after_seconds": seconds}


class StorageUnavailableError(RetriableError):
    """Data cannot be stored now: no space, over quota, read-only, or an input/output error.

    The batch is tried again until it can.
    """

    code = "storage.unavailable"


class DataLostError(HeadraceError):
    """The source no longer has the data that follows the stored position."""

    code = "source.data_lost"


class RangeChangedError(DataLostError):
    """What a range stands for has changed since it was planned.

    A source raises it from ``read`` or ``splits``, before it has given any record: a batch
    that runs for the first time is then dropped and planned again, and one that may have run
    before fails, as targets may hold what was there before.
    """

    code = "source.range_changed"


class RecordError(HeadraceError):
    """One record is bad; the others around it may be good.

    This is the error that `errors.tolerance=all` tolerates.
    """

    code = "record.invalid"


class RejectedError(RecordError):
    """The target refuses some of the records that it was given.

    A sink raises it when it knows which; see ``SinkTask.rejects``.

    Args:
        rows: What the target says of each, by the record's number among those given, from 0.
    """

    code = "record.rejected"

    def __init__(self, rows: Mapping[int, Exception]) -> None:
        self.rows = dict(rows)
        first = next(iter(self.rows.values()), "")
        super().__init__(f"The target refuses {len(self.rows)} of the records: {first}")


class UnfitRecordError(HeadraceError):
    """Records of this shape cannot go through a transform.

    A transform raises it while the chain is compiled, where Kafka Connect's would raise for
    each record: a text where a struct is needed, say, or a field that is not there. It is
    data and not configuration: the chain rejects the records and continues.

    Args:
        message: What Kafka Connect says.
        where: SQL condition, never null, for the records concerned; the others stay as
            they are.
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
    """The task's lease has passed to another holder: this one must stop and write no more."""

    code = "task.stale_epoch"


class StateError(HeadraceError):
    """What was asked does not fit the state that the connector, task or run is in."""

    code = "state.invalid"
