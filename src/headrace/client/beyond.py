"""What only a server of Headrace can be asked: its API under /v1/, and its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.asking import Asking, path_of
from headrace.client.errors import RefusedError
from headrace.client.figures import task_figures
from headrace.sdk.errors import ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from headrace.client.figures import TaskFigures

__all__ = ["Beyond"]

_PAGE = "1000"


class Beyond(Asking):
    """The part of a client that a server of Kafka Connect has no answer to."""

    def targets(self) -> dict[str, str]:
        """Return what is wanted of each connector: RUNNING, PAUSED or STOPPED."""
        found: dict[str, str] = {}
        query = {"limit": _PAGE}
        while True:
            page = self.http.send("GET", "/v1/connectors", query=query)
            found |= {each["name"]: each["target"] for each in page["items"]}
            if page["next"] is None:
                return found
            query = {"limit": _PAGE, "after": page["next"]}

    def figures(self) -> list[TaskFigures]:
        """Return what each task has done since the server began."""
        return task_figures(str(self.http.send("GET", "/metrics", text=True)))

    def events(
        self,
        *,
        after: int = 0,
        connector: str | None = None,
        kinds: Collection[str] = (),
        changes: bool = False,
        limit: int = 100,
    ) -> tuple[list[dict[str, Any]], int]:
        """Return what happened, oldest first, and the ``after`` of what follows.

        Args:
            after: Only what came after the event of this number.
            connector: Only of this connector, which may have been deleted.
            kinds: Only of these: ``created``, ``configured``, ``target``, ``restart``,
                ``offsets``, ``deleted``, ``discarded``, ``backup``, ``logger``, ``state``; all
                of them when empty.
            changes: Only what somebody changed: no states.
            limit: How many at most.
        """
        query: dict[str, str | list[str]] = {"after": str(after), "limit": str(limit)}
        query |= _given(connector=connector, changes="true" if changes else None)
        if kinds:
            query["kind"] = list(kinds)
        page = self.http.send("GET", "/v1/events", query=query)
        return list(page["items"]), int(page["next"])

    def logs(
        self,
        *,
        after: str | None = None,
        connector: str | None = None,
        task: int | None = None,
        level: str = "info",
        limit: int = 100,
    ) -> tuple[list[dict[str, Any]], str]:
        """Return lines of the server's log, oldest first, and the ``after`` of what follows.

        Without ``after`` they are the newest.
        """
        number = None if task is None else str(task)
        query = {"level": level, "limit": str(limit)}
        query |= _given(after=after, connector=connector, task=number)
        page = self.http.send("GET", "/v1/logs", query=query)
        return list(page["items"]), str(page["next"])

    def versions(self, name: str) -> list[dict[str, Any]]:
        """Return when a connector was given which configuration, newest first."""
        return list(self._one(name, "GET", "/versions"))

    def version(self, name: str, number: int) -> dict[str, str]:
        """Return a configuration that a connector has had."""
        return dict(self._one(name, "GET", f"/versions/{number}")["config"])

    def differences(self, name: str, before: int, after: int) -> list[dict[str, Any]]:
        """Return the keys that differ between two configurations, by name."""
        query = {"before": str(before), "after": str(after)}
        return list(self._one(name, "GET", "/versions/diff", query=query)["changes"])

    def restore(self, name: str, number: int) -> int:
        """Give a connector a configuration that it has had; return the number of the new."""
        return int(self._one(name, "POST", f"/versions/{number}/restore")["version"])

    def counts(self, name: str, since: datetime | None = None) -> dict[str, Any]:
        """Return what became of a connector's records, in all and by task.

        With ``since``, which is aware, only batches count that began then or later.
        """
        query = _given(since=None if since is None else since.isoformat())
        return dict(self._one(name, "GET", "/counts", query=query))

    def every_count(self) -> list[dict[str, Any]]:
        """Return what became of the records of all connectors, by name."""
        return list(self.http.send("GET", "/v1/counts"))

    def batches(self, name: str, task: int, *, limit: int = 100) -> list[dict[str, Any]]:
        """Return the batches of a task, the newest first, with their positions and counts."""
        query = {"limit": str(limit)}
        return list(self._one(name, "GET", f"/tasks/{task}/batches", query=query))

    def give_up(
        self,
        name: str,
        task: int,
        batch: int,
        *,
        skip: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Give up the unfinished batch of a task of a stopped connector.

        Its records are read again in a new batch, as far as they are there; to ``skip`` them,
        the task goes on from the batch's end. It is refused when a target holds the batch or
        cannot be asked, unless it is forced. Returns what was done, or would be.
        """
        body = {"skip": skip, "force": force, "dry_run": dry_run}
        path = f"/tasks/{task}/batches/{batch}/give-up"
        return dict(self._one(name, "POST", path, body=body))

    def stream_schemas(self, name: str) -> list[dict[str, Any]]:
        """Return the schemas of a connector's streams, as far as it keeps them."""
        return list(self._one(name, "GET", "/schemas"))

    def topic_schemas(self, topic: str) -> list[dict[str, Any]]:
        """Return the schemas that a topic has had, the oldest first."""
        path = f"/v1/topics/{quote(topic, safe='')}/schemas"
        return list(self.http.send("GET", path))

    def preview(self, config: Mapping[str, str], rows: int) -> list[dict[str, Any]]:
        """Return the first records at a configuration's source and after each transform.

        Raises ConfigErrors with everything that is wrong with the configuration.
        """
        body = {"config": dict(config), "rows": rows}
        try:
            return list(self.http.send("POST", "/v1/preview", body=body)["stages"])
        except RefusedError as error:
            if not error.faults:
                raise
            raise ConfigErrors(error.faults) from None

    def back_up(self) -> dict[str, Any]:
        """Copy the server's store to a file of its machine; return which, and its size."""
        return dict(self.http.send("POST", "/v1/store/backups"))

    def backups(self) -> list[dict[str, Any]]:
        """Return the copies of the server's store, the newest first."""
        return list(self.http.send("GET", "/v1/store/backups"))

    def rewind_offsets(self, name: str, to: datetime) -> list[dict[str, Any]]:
        """Let a stopped connector read again what came then or later; return what changed.

        The time is aware.
        """
        body = {"to": to.isoformat()}
        return self._steps(name, "/offsets/rewind", body)

    def undo_offsets(self, name: str, *, force: bool = False) -> list[dict[str, Any]]:
        """Undo the last change of a stopped connector's offsets; return what changed.

        It is refused when data has moved since, unless it is forced.
        """
        return self._steps(name, "/offsets/undo", {"force": force})

    def offset_history(self, name: str) -> list[dict[str, Any]]:
        """Return who changed a connector's offsets, when and how, newest first."""
        return list(self._one(name, "GET", "/offsets/history"))

    def _steps(self, name: str, path: str, body: object) -> list[dict[str, Any]]:
        return list(self._one(name, "POST", path, body=body)["changes"])

    def _one(
        self,
        name: str,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> Any:
        """Ask for something of a connector; names near one that is not there are told."""
        return self.of_connector(name, method, f"/v1{path_of(name)}{path}", body, query)


def _given(**values: str | None) -> Mapping[str, str]:
    return {key: value for key, value in values.items() if value is not None}
