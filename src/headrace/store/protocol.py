"""What the runtime asks of durable control state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from headrace.model import (
        Batch,
        ConfigVersion,
        Connector,
        ConnectorKind,
        ConnectorStatus,
        Counts,
        Event,
        Lease,
        Retention,
        Stamp,
        TargetState,
        TaskConfig,
        TaskId,
        TaskStatus,
    )
    from headrace.sdk import Position, Schema


class Store(Protocol):
    """Positions, batches, leases, schemas and status. Every write is durable on return.

    Any thread may call it. Writes about a task name the epoch of its lease and raise
    StaleEpochError when a newer one exists (Guarantee 3).
    """

    def now(self) -> datetime:
        """Return the time by which leases run out, aware; who takes or renews one passes it.

        It is the same for all who share the store, however their own clocks are set: that of
        the server in PostgreSQL, that of this machine, whose time of day may be set, in SQLite.
        """

    def register(self, connector: str) -> str:
        """Return the connector's identity, made at the first call.

        A connector that is removed and made again gets a new one, so that its marks
        in targets are never mistaken for the old one's.
        """

    def remove(self, connector: str) -> None:
        """Forget a connector: its identity, tasks, positions, batches and schemas.

        Epochs are not used again, so that whoever still runs one of the tasks is refused,
        also when the connector is made again.
        """

    def lease(
        self,
        task: TaskId,
        owner: str,
        now: datetime,
        duration: timedelta,
        status: TaskStatus | None = None,
        *,
        identity: str | None = None,
    ) -> Lease:
        """Take the task's lease with the next epoch, and store the task's state if given.

        With the identity of its connector, a task is refused whose connector was removed: it
        raises StaleEpochError then. Raises StateError while another owner's lease has not
        expired.
        """

    def renew(
        self, leases: Collection[Lease], now: datetime, duration: timedelta
    ) -> Mapping[TaskId, Lease]:
        """Extend leases in one transaction; return those that were still held, extended.

        One that was given up, or taken by another, is left as it is.
        """

    def release(self, lease: Lease) -> None:
        """Give the lease up at once; nothing happens when it is no longer held."""

    def show(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        """Store the state of a task that runs on under its lease."""

    def end(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        """Store the state that the task ends in, and give its lease up."""

    def fence(self, lease: Lease, status: TaskStatus, now: datetime) -> None:
        """Take a task from whoever holds the lease and does not stop, and store its state.

        The epoch is used up: what the holder still writes is refused (Guarantee 3).
        """

    def leases(self, connector: str | None = None) -> Sequence[Lease]:
        """Return the leases that were taken and not released, expired ones too.

        Those of one connector, if it is named.
        """

    def position(self, task: TaskId) -> Position:
        """Return where the task stands; ``Position()`` when it never moved."""

    def positions(self, connector: str) -> Mapping[TaskId, Position]:
        """Return where the tasks of a connector stand; none for one that never ran."""

    def set_position(self, task: TaskId, epoch: int, position: Position) -> None:
        """Alter the position by hand. Raises StateError while a batch is unfinished."""

    def unfinished_batch(self, task: TaskId, epoch: int | None = None) -> Batch | None:
        """Return the batch whose intent is stored and which was not finished.

        With an epoch, for whoever is to decide the batch: raises StaleEpochError when a newer
        one exists.
        """

    def begin_batch(
        self,
        task: TaskId,
        epoch: int,
        start: Position,
        end: Position,
        now: datetime,
        *,
        routing: str | None = None,
    ) -> Batch:
        """Store the intent of the next batch, with the next id.

        Raises StateError when one is unfinished or ``start`` is not the position.
        """

    def finish_batch(
        self,
        task: TaskId,
        epoch: int,
        batch_id: int,
        counts: Counts,
        now: datetime,
        *,
        keep_since: datetime | None = None,
    ) -> Batch:
        """Store the counts and move the position to the batch's end, in one transaction.

        Finishing the newest finished batch again changes nothing. Raises StateError
        for any other id than the unfinished batch's. Old batches are forgotten, but for
        those begun at ``keep_since`` or later, and for one of each hour of the last 30 days.
        """

    def abandon_batch(self, task: TaskId, epoch: int, batch_id: int) -> None:
        """Forget an intent whose data is known not to be in the target.

        The id stays used. Only captures need it, as they cannot read a range again.
        """

    def batches(self, task: TaskId, limit: int = 100) -> Sequence[Batch]:
        """Return the newest batches, newest first."""

    def batch_at(self, task: TaskId, time: datetime) -> Batch | None:
        """Return the last batch before the first that began after a time, if one is known."""

    def oldest_batch(self, task: TaskId) -> Batch | None:
        """Return the oldest batch that is known."""

    def totals(self, task: TaskId) -> Counts:
        """Return the sum of the counts of all finished batches."""

    def counts_since(self, task: TaskId, since: datetime) -> Counts:
        """Return the sum of the counts of the finished batches begun at ``since`` or later.

        It is exact as far back as ``finish_batch`` was told to keep batches.
        """

    def all_totals(self, connector: str | None = None) -> Mapping[TaskId, Counts]:
        """Return the totals of all tasks; those of one connector, if it is named."""

    def statuses(self, connector: str | None = None) -> Mapping[TaskId, TaskStatus]:
        """Return the states of all tasks; those of one connector, if it is named."""

    def schema(self, connector: str, stream: str) -> Schema | None:
        """Return the newest schema stored for a stream."""

    def schemas(self, connector: str) -> Mapping[str, Sequence[Schema]]:
        """Return all schemas stored for a connector's streams, oldest first, by stream."""

    def put_schema(
        self, connector: str, stream: str, schema: Schema, *, identity: str | None = None
    ) -> int:
        """Store a schema and return its version, from 1; the newest again gives its own.

        With an identity, raises StaleEpochError when the connector has another or none.
        """

    def ledger_append(
        self,
        task: TaskId,
        epoch: int,
        items: Sequence[Mapping[str, str | int]],
        after: int | None = None,
    ) -> int:
        """Add to the task's ledger and return its new length.

        With ``after``, its length before is checked: items that are there already, as the
        answer to a call was lost, are not added again. Raises StateError if it is neither.
        """

    def ledger_slice(self, task: TaskId, start: int, end: int) -> list[dict[str, str | int]]:
        """Return ledger items in ``[start, end)``."""

    def ledger_length(self, task: TaskId) -> int:
        """Return the length of the task's ledger."""

    def close(self) -> None:
        """Let go of files and connections."""


class ConnectorStore(Protocol):
    """Connectors as rows: the control plane writes what is wanted, workers what is.

    Any thread may call it; every write is durable on return, together with the event that
    tells of it. A method that names a connector that is not there raises
    ConnectorNotFoundError, unless it says otherwise.
    """

    def create(
        self,
        name: str,
        kind: ConnectorKind,
        config: Mapping[str, str],
        target: TargetState,
        stamp: Stamp,
    ) -> Connector:
        """Add a connector. Raises ConnectorExistsError where the name is taken."""

    def connector(self, name: str) -> Connector | None:
        """Return a connector; None when it is not there."""

    def connectors(self) -> Sequence[Connector]:
        """Return all connectors, by name."""

    def configure(
        self,
        name: str,
        kind: ConnectorKind,
        config: Mapping[str, str],
        stamp: Stamp,
        seen: Connector | None = None,
    ) -> Connector:
        """Give a connector another configuration, with the next version.

        The configuration that it has already changes nothing. Raises ConnectorChangedError if
        ``seen`` is given, and another connector or another version of it is there by now.
        """

    def versions(self, name: str) -> Sequence[ConfigVersion]:
        """Return the configurations of a connector, newest first; none if it is not there."""

    def set_target(self, name: str, target: TargetState, stamp: Stamp) -> Connector:
        """Say what is wanted of a connector; what is wanted already changes nothing."""

    def request_restart(
        self, name: str, tasks: Collection[int], stamp: Stamp, *, connector: bool
    ) -> Connector:
        """Ask for a new start of some tasks and, if told so, of the connector itself.

        Raises TaskNotFoundError for a task that it does not have; nothing is asked then.
        """

    def delete(self, name: str, stamp: Stamp) -> None:
        """Forget a connector with all that was kept for it, but for its events."""

    def plan(
        self, connector: Connector, configs: Mapping[int, Mapping[str, str]], now: datetime
    ) -> bool:
        """Store the tasks that a connector planned, by number, unless it has changed since.

        Tasks that it had before keep their restarts, and those beyond are forgotten.
        Returns whether the connector is still the one of that identity and version.
        """

    def tasks(self, name: str) -> Sequence[TaskConfig]:
        """Return the planned tasks of a connector, by number; none if it is not there."""

    def all_tasks(self) -> Mapping[str, Sequence[TaskConfig]]:
        """Return the planned tasks of all connectors, by name and number."""

    def set_status(self, connector: Connector, status: ConnectorStatus, now: datetime) -> bool:
        """Store how a connector is. Returns False, and does nothing, if it is another now."""

    def set_positions(
        self,
        name: str,
        positions: Mapping[TaskId, Position],
        stamp: Stamp,
        action: str = "alter",
        seen: Mapping[TaskId, Position] | None = None,
    ) -> None:
        """Set where tasks of a connector stand, all of them or none.

        The event ``offsets`` tells where they stood and stand, and by what ``action``. Raises
        StateError while one of them has a lease or an unfinished batch; whoever had a lease
        before is refused. Raises ConnectorChangedError if ``seen`` is given, and one of them
        stands elsewhere by now.
        """

    def give_up(self, task: TaskId, batch_id: int, stamp: Stamp, *, skip: bool) -> Batch:
        """Forget the unfinished batch of a task of a stopped connector, and return it.

        The task then stands at the batch's start or, to ``skip`` its records, at its end. The
        batch's id stays used. The event ``offsets`` tells of it as of a move, by the action
        ``give-up``. Raises StateError while the connector is not to be stopped or somebody has
        the task's lease, and for any other id than the unfinished batch's.
        """

    def add_topics(self, connector: Connector, topics: Collection[str]) -> None:
        """Remember that a connector uses topics. Nothing happens if it was removed."""

    def topics(self, name: str) -> Sequence[str]:
        """Return the topics that a connector has used, sorted; none if it is not there."""

    def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used."""

    def add_event(
        self, kind: str, stamp: Stamp, detail: Mapping[str, object], connector: str = ""
    ) -> None:
        """Add an event of what was done that changes no row of a connector.

        Args:
            kind: What, see EventKind.
            stamp: When, and by whom.
            detail: Further details.
            connector: The connector, which need not be there; empty for the whole server.
        """

    def events(
        self,
        after: int = 0,
        limit: int = 100,
        connector: str | None = None,
        kinds: Collection[str] | None = None,
    ) -> Sequence[Event]:
        """Return the events after one, oldest first: of a connector, of some kinds, or all."""

    def last_event(self) -> int:
        """Return the id of the newest event; 0 when there is none."""

    def prune(self, keep: Retention, now: datetime) -> int:
        """Forget old events, but for the newest of all; return how many.

        Changes that people made are kept for as long as they are to be, however many states
        came after them.
        """

    def close(self) -> None:
        """Let go of files and connections."""
