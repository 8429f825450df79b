"""What the control plane and the workers ask of the store about connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from headrace.model import (
        Batch,
        ConfigVersion,
        Connector,
        ConnectorKind,
        ConnectorStatus,
        Event,
        Retention,
        Stamp,
        TargetState,
        TaskConfig,
        TaskId,
    )
    from headrace.sdk import Position


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

    def aim(self, name: str, target: TargetState, stamp: Stamp) -> Connector:
        """Say what is wanted of a connector; what is wanted already changes nothing."""

    def ask_restart(
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

    def tell(self, connector: Connector, status: ConnectorStatus, now: datetime) -> bool:
        """Store how a connector is. Returns False, and does nothing, if it is another now."""

    def move(
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
            detail: What else is known.
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
