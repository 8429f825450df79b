"""What every connector is: a described, configurable plan for tasks."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from typing_extensions import override

from headrace.sdk.config import Config, Configured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from headrace.sdk.errors import ConfigError
    from headrace.sdk.position import Position
    from headrace.sdk.schema import Schema


class DeliveryGuarantee(StrEnum):
    """How often a record may arrive in the target when a batch runs twice."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class SchemaMemory(Protocol):
    """Remembers the schema of each stream of a connector, across restarts."""

    def get(self, stream: str) -> Schema | None:
        """Return what was stored last for ``stream``, or None."""

    def put(self, stream: str, schema: Schema) -> None:
        """Store ``schema`` durably; equal schemas are stored once."""


class Ledger(Protocol):
    """A durable, ordered list of things a source discovered, such as files.

    A source whose input has no natural order appends what it finds and uses the
    length of the list as its position: a range of the list is then the same set of
    things each time it is read.
    """

    def append(self, items: Sequence[Mapping[str, str | int]], after: int | None = None) -> int:
        """Add ``items`` in order, durably; return the new length.

        Args:
            items: The items.
            after: How long the list must be before. An append whose answer was lost may be
                repeated: what it has added is not added again.

        Raises StateError: the list has another length, and other items: read it again.
        """

    def slice(self, start: int, end: int) -> list[dict[str, str | int]]:
        """Return the items in ``[start, end)``."""

    def __len__(self) -> int:
        """Return how many items the list holds."""


class ConnectorContext(Protocol):
    """What the runtime offers a connector between ``start`` and ``stop``."""

    @property
    def name(self) -> str:
        """The connector's name."""

    @property
    def schemas(self) -> SchemaMemory:
        """The schemas stored for this connector's streams."""

    def position(self) -> Position:
        """Return the stored positions of all tasks of this connector, merged.

        Trap: where several tasks have had the same partition, any one's offset is given, and
        not the newest.
        """

    def positions(self) -> Mapping[int, Position]:
        """Return the stored position of each task of this connector, by its number.

        Tasks are there that do not run any more. While ``task_configs`` is called, no task
        runs whose configuration is to change: the positions of those are final.
        """

    def request_task_reconfiguration(self) -> None:
        """Ask the runtime to call ``task_configs`` again soon. Any thread may call it."""

    def raise_error(self, error: Exception) -> None:
        """Fail the connector. Any thread may call it."""


class TaskContext(Protocol):
    """What the runtime offers a task between ``start`` and ``stop``."""

    @property
    def connector(self) -> str:
        """The connector's name.

        For a run of a job it is ``job@run.generation``: a retry of the run has the same one,
        and a run that begins again from its beginning the next generation.
        """

    @property
    def task(self) -> int:
        """The task's number within its connector, from 0."""

    @property
    def application(self) -> str:
        """What the task is called in marks, as ``connector-id-number``.

        The id is the connector's own: one that is made again under its name has another. All
        generations of a run have one.
        """

    @property
    def schemas(self) -> SchemaMemory:
        """The schemas stored for this connector's streams."""

    @property
    def ledger(self) -> Ledger:
        """This task's durable list of discovered things."""

    @property
    def scratch(self) -> Path:
        """A folder for this task's temporary files, emptied at each start."""

    def position(self) -> Position:
        """Return where the task stood when it was started."""

    def check_file(self, path: str) -> None:
        """Check a file that data name, and no key of the configuration, before it is read.

        Raises ConfigError: configurations may not use that path on this machine.
        """

    def stopping(self) -> bool:
        """Return whether the task was asked to stop; long work looks at it often."""


class Verdict(StrEnum):
    """How a requirement is met."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not as well, or not always."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement that ``headrace doctor`` has looked at.

    Args:
        requirement: What is required, in a few words, such as `right to read public.orders`.
        verdict: Whether it is met.
        found: What there is.
        fix: What mends it: the exact statement or setting where there is one.
    """

    requirement: str
    verdict: Verdict
    found: str = ""
    fix: str = ""


class Connector(Configured, ABC):
    """A kind of copy between one system and topics.

    What the class methods answer depends on the configuration alone, and not on a connector
    that was started.
    """

    version: ClassVar[str] = "0"
    """Version of the plugin, shown in lists."""
    delivery: ClassVar[DeliveryGuarantee] = DeliveryGuarantee.AT_LEAST_ONCE
    """The strongest promise the connector keeps."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names that a configuration may use for this connector."""

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        """Yield what is wrong with values that are each valid but do not fit together.

        Called by validation, only after every single key is valid. It may look at
        the outside system, briefly, and must not change it.
        """
        return ()

    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        """Yield what ``headrace doctor`` finds: each requirement of the outside system.

        It connects, looks at everything that the connector will need, and changes nothing. What
        cannot be looked at, as an earlier requirement is not met, is left out. By default what
        ``check`` finds.
        """
        for error in cls.check(config):
            yield Finding(
                error.field or "configuration", Verdict.FAILED, error.problem, error.fix
            )

    @classmethod
    def left_behind(cls, config: Config) -> Iterable[str]:
        """Yield what stays at the outside system when the connector is deleted.

        Each is a line with what it is, where, and the statement that drops it, without secrets.
        Called once, as the connector is deleted; it must not connect. By default nothing.
        """
        return ()

    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        """Check offsets given by a person before they are stored.

        ``position`` holds what the person changes: a source's own partitions, or for a sink
        ``{"topic": name} -> {"version": n}``, the last version that counts as written.
        Raises ConfigError with the reason for one that the connector could not go on from, or
        must not; nothing is changed then.
        """


class Task(Configured, ABC):
    """A running part of a source or a sink.

    Call order: ``start``, any number of calls of its gear, ``stop``; by one thread at a time.
    To make one takes nothing: ``start`` connects.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings = self.settings_class().from_config(config)

    def start(self, context: TaskContext) -> None:
        """Connect to what is read or written. May block briefly.

        Raises ConfigError when it cannot be read or written as configured.
        """
        self.context = context

    @override
    def __getstate__(self) -> dict[str, object]:
        """Leave the context behind: it holds the runtime's store, and stays on the driver."""
        return {name: value for name, value in self.__dict__.items() if name != "context"}

    def stop(self) -> None:
        """Let go of everything, promptly. Called once, also after a failed start."""
