"""Base classes of connectors and tasks, and the runtime services that they use."""

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
    """A durable, ordered list of items that a source discovered, such as files.

    A source whose input has no natural order appends the items it finds and uses the
    length of the list as its position: a range of the list is then the same set of
    items each time it is read.
    """

    def append(self, items: Sequence[Mapping[str, str | int]], after: int | None = None) -> int:
        """Add ``items`` in order, durably; return the new length.

        Args:
            items: The items.
            after: The expected length of the list before the append. It makes a retry safe if
                the response was lost: items already added are not added again.

        Raises StateError: the list has another length, and other items: read it again.
        """

    def slice(self, start: int, end: int) -> list[dict[str, str | int]]:
        """Return the items in ``[start, end)``."""

    def __len__(self) -> int:
        """Return the number of items in the list."""


class ConnectorContext(Protocol):
    """The runtime services for a connector between ``start`` and ``stop``."""

    @property
    def name(self) -> str:
        """The connector's name."""

    @property
    def schemas(self) -> SchemaMemory:
        """The schemas stored for this connector's streams."""

    def position(self) -> Position:
        """Return the stored positions of all tasks of this connector, merged.

        Trap: if several tasks had the same partition, an arbitrary one of their offsets is
        returned, not the newest.
        """

    def positions(self) -> Mapping[int, Position]:
        """Return the stored position of each task of this connector, by task number.

        It includes tasks that no longer run. During ``task_configs``, no task runs whose
        configuration is about to change, so the positions of those tasks are final.
        """

    def request_task_reconfiguration(self) -> None:
        """Ask the runtime to call ``task_configs`` again soon. Any thread may call it."""

    def raise_error(self, error: Exception) -> None:
        """Fail the connector. Any thread may call it."""


class TaskContext(Protocol):
    """The runtime services for a task between ``start`` and ``stop``."""

    @property
    def connector(self) -> str:
        """The connector's name.

        For a run of a job it is ``job@run.generation``. A retry of the run has the same
        generation; a restart from the beginning has the next one.
        """

    @property
    def task(self) -> int:
        """The task's number within its connector, from 0."""

    @property
    def application(self) -> str:
        """The task's name in marks: ``connector-id-number``.

        A connector that is deleted and created again under the same name gets a new id. All
        generations of a run have the same name in marks.
        """

    @property
    def schemas(self) -> SchemaMemory:
        """The schemas stored for this connector's streams."""

    @property
    def ledger(self) -> Ledger:
        """This task's durable list of discovered items."""

    @property
    def scratch(self) -> Path:
        """A folder for this task's temporary files, emptied at each start."""

    def position(self) -> Position:
        """Return the task's position at its start."""

    def check_file(self, path: str) -> None:
        """Check a file named in the data, not in the configuration, before it is read.

        Raises ConfigError: configurations may not use that path on this machine.
        """

    def stopping(self) -> bool:
        """Return whether the task was asked to stop; long work must check it often."""


class Verdict(StrEnum):
    """The result of checking a requirement."""

    OK = "ok"
    WARNING = "warning"
    """It works, but with reduced performance or not in all cases."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement that ``headrace doctor`` has checked.

    Args:
        requirement: What is required, in a few words, such as `right to read public.orders`.
        verdict: Whether it is met.
        found: The current state.
        fix: How to fix it: the exact statement or setting if there is one.
    """

    requirement: str
    verdict: Verdict
    found: str = ""
    fix: str = ""

    @classmethod
    def of(
        cls,
        requirement: str,
        found: str,
        fix: str,
        *,
        met: bool,
        otherwise: Verdict = Verdict.FAILED,
    ) -> Finding:
        """Return a finding whose verdict is ``otherwise``, with the fix, if it is not met."""
        return cls(requirement, Verdict.OK if met else otherwise, found, "" if met else fix)


class Connector(Configured, ABC):
    """A plugin that copies data between an external system and topics.

    The results of the class methods depend only on the configuration, not on a started
    connector.
    """

    version: ClassVar[str] = "0"
    """The version of the plugin, shown in lists."""
    delivery: ClassVar[DeliveryGuarantee] = DeliveryGuarantee.AT_LEAST_ONCE
    """The strongest delivery guarantee of the connector."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names that a configuration may use for this connector."""

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        """Yield an error for each combination of values that are valid only on their own.

        Called by validation, after every single key is valid. It may query the external
        system, briefly, and must not change it.
        """
        return ()

    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        """Yield the findings of ``headrace doctor``: one per requirement to be met.

        It connects to the external system, checks everything that the connector needs, and
        changes nothing. Leave out requirements that cannot be checked because an earlier one is
        not met. By default it yields the errors of ``check``.
        """
        for error in cls.check(config):
            yield Finding(
                error.field or "configuration", Verdict.FAILED, error.problem, error.fix
            )

    @classmethod
    def left_behind(cls, config: Config) -> Iterable[str]:
        """Yield the objects that remain in the external system when the connector is deleted.

        Each is one line: the object, its location, and the statement that drops it, without
        secrets. Called once, when the connector is deleted; it must not connect. By default
        there are none.
        """
        return ()

    @classmethod
    def alter_offsets(cls, config: Config, position: Position) -> None:
        """Check the offsets that a user sets, before they are stored.

        ``position`` contains the changed offsets: a source's own partitions, or for a sink
        ``{"topic": name} -> {"version": n}``, the last version that counts as written.
        Raises ConfigError: the connector cannot, or must not, continue from an offset; nothing
        is then changed.
        """


class Task(Configured, ABC):
    """A running task of a source or a sink.

    Call order: ``start``, any number of calls of the gear's methods, ``stop``; by one thread at
    a time. Creating a task acquires nothing: ``start`` connects.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings = self.settings_class().from_config(config)

    def start(self, context: TaskContext) -> None:
        """Connect to the external system. May block briefly.

        Raises ConfigError: the system cannot be read or written as configured.
        """
        self.context = context

    @override
    def __getstate__(self) -> dict[str, object]:
        """Leave out the context: it contains the runtime's store and stays on the driver."""
        return {name: value for name, value in self.__dict__.items() if name != "context"}

    def stop(self) -> None:
        """Release all resources, promptly. Called once, also after a failed start."""
