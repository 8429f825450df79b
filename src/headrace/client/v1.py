"""The part of the client for Headrace servers only: the API under /v1/, and metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.http import NotThereError, RefusedError
from headrace.sdk.errors import ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from headrace.client.http import Http


_FIELDS = {
    "headrace_task_records_read_total": "read",
    "headrace_task_records_written_total": "written",
    "headrace_task_records_rejected_total": "rejected",
    "headrace_task_bytes_total": "size_bytes",
    "headrace_task_batch_seconds_count": "batches",
    "headrace_task_batch_seconds_sum": "batch_seconds",
    "headrace_task_batch_records": "batch_records",
    "headrace_task_lag_records": "lag_records",
    "headrace_task_lag_bytes": "lag_bytes",
    "headrace_task_retries_total": "retries",
    "headrace_task_failures_total": "failures",
}
_STATE = "headrace_task_state"


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The state of a task, and its counts since the server started.

    Args:
        connector: The name of its connector.
        number: Its number, from 0.
        state: RUNNING, PAUSED, FAILED, ...
        read: Records read.
        written: Records that are durable in its targets.
        rejected: Records that failed and were skipped.
        size_bytes: Bytes read or written.
        batches: The number of finished batches.
        batch_seconds: Their total duration.
        batch_records: The number of records that the newest batch read.
        lag_records: The lag in records at the start of that batch; None if unknown.
        lag_bytes: The same lag in bytes.
        retries: The number of steps that failed and were retried.
        failures: How often it became FAILED.
    """

    connector: str
    number: int
    state: str = ""
    read: float = 0
    written: float = 0
    rejected: float = 0
    size_bytes: float = 0
    batches: float = 0
    batch_seconds: float = 0
    batch_records: float = 0
    lag_records: float | None = None
    lag_bytes: float | None = None
    retries: float = 0
    failures: float = 0

    @property
    def name(self) -> str:
        return f"{self.connector}-{self.number}"


def task_figures(text: str) -> list[TaskFigures]:
    """Return the figures of each task, by name, from a text in Prometheus format."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - as httpx2 is

    found: dict[tuple[str, int], TaskFigures] = {}
    families: Iterable[Any] = text_string_to_metric_families(text)
    for sample in (sample for family in families for sample in family.samples):
        labels = sample.labels
        if "task" not in labels or "connector" not in labels:
            continue
        key = labels["connector"], int(labels["task"])
        before = found.get(key) or TaskFigures(*key)
        if sample.name == _STATE and sample.value == 1:
            found[key] = replace(before, state=labels["state"])
        elif sample.name in _FIELDS:
            found[key] = replace(before, **{_FIELDS[sample.name]: sample.value})
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """A filter of dead letters; None matches any.

    Args:
        connector: The connector that rejected them.
        stage: The stage, by its Kafka Connect name.
        exception: The class of the error, with or without its package.
        since: Rejected by batches begun at or after this time; aware.
        until: Rejected by batches begun before this time; aware.
        ids: The ids of the letters; empty for any.
    """

    connector: str | None = None
    stage: str | None = None
    exception: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the filter as the query or body of a request."""
        return _not_none(
            since=self.since and self.since.isoformat(),
            until=self.until and self.until.isoformat(),
            connector=self.connector,
            stage=self.stage,
            exception=self.exception,
            id=list(self.ids) or None,
        )


_REPAIRED = ("id", "key", "value", "headers")
"""The fields of a repaired letter that are sent to the server."""
_PAGE = "1000"


def _repaired(letter: Mapping[str, Any], connector: str) -> dict[str, Any]:
    """Return what is sent of a letter; the id of another connector's is that of none."""
    found = {part: letter[part] for part in _REPAIRED if part in letter}
    of = letter.get("connector")
    is_own = of is None or of == connector
    return found if is_own else {**found, "id": f"{of}/{letter['id']}"}


_SHOWN = 10


class V1Api:
    """The requests of a client that only a Headrace server supports."""

    http: Http

    def names(self) -> list[str]:
        """Return the names of all connectors, sorted."""
        return sorted(self.http.send("GET", "/connectors"))

    def not_there(self, name: str) -> NotThereError:
        """Return the error for a name that the server does not know."""
        known = self.names()
        close = get_close_matches(name, known, n=3, cutoff=0.5)
        fix = "There is no connector yet; create one with: headrace connector create."
        if close:
            fix = f"Did you mean {' or '.join(close)}?"
        elif known:
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            fix = f"Use one of: {', '.join(known[:_SHOWN])}{more}."
        return NotThereError(f"There is no connector {name!r}.", field="name", fix=fix)

    def of_connector(
        self,
        name: str,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
        *,
        root: str = "",
        header: str = "",
    ) -> Any:
        """Send a request about a connector; an unknown name raises ``not_there``."""
        address = f"{root}/connectors/{quote(name, safe='')}{path}"
        try:
            return self.http.send(method, address, body=body, query=query, header=header)
        except NotThereError:
            if name in self.names():
                raise
            raise self.not_there(name) from None

    def targets(self) -> dict[str, str]:
        """Return the target state of each connector: RUNNING, PAUSED or STOPPED."""
        found: dict[str, str] = {}
        query = {"limit": _PAGE}
        while True:
            page = self.http.send("GET", "/v1/connectors", query=query)
            found |= {each["name"]: each["target"] for each in page["items"]}
            if page["next"] is None:
                return found
            query = {"limit": _PAGE, "after": page["next"]}

    def figures(self) -> list[TaskFigures]:
        """Return the state of each task, and its counts since the server started."""
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
        """Return events, oldest first, and the ``after`` for the next page.

        Args:
            after: Only events after this id.
            connector: Only of this connector or job, which may have been deleted.
            kinds: Only of these kinds: ``created``, ``configured``, ``target``, ``restart``,
                ``offsets``, ``deleted``, ``discarded``, ``backup``, ``logger``, ``state``, or
                kinds of jobs such as ``job.created``; all kinds if empty.
            changes: Only changes that callers made, not state changes.
            limit: The maximum number of events.
        """
        changed = "true" if changes else None
        query = {"after": str(after), "limit": str(limit)}
        query |= _not_none(connector=connector, changes=changed, kind=list(kinds) or None)
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
        """Return lines of the server's log, oldest first, and the ``after`` for the next page.

        Without ``after``, return the newest lines.
        """
        number = None if task is None else str(task)
        query = {"level": level, "limit": str(limit)}
        query |= _not_none(after=after, connector=connector, task=number)
        page = self.http.send("GET", "/v1/logs", query=query)
        return list(page["items"]), str(page["next"])

    def versions(self, name: str) -> list[dict[str, Any]]:
        """Return the configuration versions of a connector, newest first."""
        return list(self._v1(name, "GET", "/versions"))

    def version(self, name: str, number: int) -> dict[str, str]:
        """Return one configuration version of a connector."""
        return dict(self._v1(name, "GET", f"/versions/{number}")["config"])

    def differences(self, name: str, before: int, after: int) -> list[dict[str, Any]]:
        """Return the keys that differ between two configurations, by name."""
        query = {"before": str(before), "after": str(after)}
        return list(self._v1(name, "GET", "/versions/diff", query=query)["changes"])

    def restore(self, name: str, number: int) -> int:
        """Restore an earlier configuration as a new version; return the new version."""
        return int(self._v1(name, "POST", f"/versions/{number}/restore")["version"])

    def counts(self, name: str, since: datetime | None = None) -> dict[str, Any]:
        """Return the record counts of a connector, in total and by task.

        With ``since``, which must be aware, count only batches begun at or after that time.
        """
        query = _not_none(since=since and since.isoformat())
        return dict(self._v1(name, "GET", "/counts", query=query))

    def every_count(self) -> list[dict[str, Any]]:
        """Return the record counts of all connectors, by name."""
        return list(self.http.send("GET", "/v1/counts"))

    def batches(self, name: str, task: int, *, limit: int = 100) -> list[dict[str, Any]]:
        """Return the batches of a task with their positions and counts, newest first."""
        query = {"limit": str(limit)}
        return list(self._v1(name, "GET", f"/tasks/{task}/batches", query=query))

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

        Its records are read again in a new batch, as far as they still exist; with ``skip`` the
        task continues after the batch. Without ``force``, rejected if a target contains the
        batch or cannot be reached. Returns what was done, or with ``dry_run`` would be done.
        """
        body = {"skip": skip, "force": force, "dry_run": dry_run}
        path = f"/tasks/{task}/batches/{batch}/give-up"
        return dict(self._v1(name, "POST", path, body))

    def stream_schemas(self, name: str) -> list[dict[str, Any]]:
        """Return the schemas of a connector's streams, if it stores them."""
        return list(self._v1(name, "GET", "/schemas"))

    def topic_schemas(self, topic: str) -> list[dict[str, Any]]:
        """Return all schemas of a topic, past and present, oldest first."""
        return list(self.http.send("GET", f"/v1/topics/{quote(topic, safe='')}/schemas"))

    def preview(self, config: Mapping[str, str], rows: int) -> list[dict[str, Any]]:
        """Return the first records at a configuration's source and after each transform.

        The items are stages with ``name``, ``fields`` and ``records``; a record that was
        dropped or rejected at a stage has the key ``dropped`` or ``error`` there. Raises
        ConfigErrors with all errors of the configuration.
        """
        body = {"config": dict(config), "rows": rows}
        try:
            stages = self.http.send("POST", "/v1/preview", body=body)["stages"]
        except RefusedError as error:
            if not error.faults:
                raise
            raise ConfigErrors(error.faults) from None
        for stage in stages:
            for record in stage["records"]:
                for fate in ("dropped", "error"):
                    if record.get(fate) is None:
                        record.pop(fate, None)
        return list(stages)

    def back_up(self) -> dict[str, Any]:
        """Back up the server's store to a file on its machine; return its path and size."""
        return dict(self.http.send("POST", "/v1/store/backups"))

    def backups(self) -> list[dict[str, Any]]:
        """Return the backups of the server's store, newest first."""
        return list(self.http.send("GET", "/v1/store/backups"))

    def rewind_offsets(self, name: str, to: datetime) -> list[dict[str, Any]]:
        """Rewind a stopped connector to a time; return the changed offsets.

        Records from ``to`` on, which must be aware, are read again.
        """
        return list(
            self._v1(name, "POST", "/offsets/rewind", {"to": to.isoformat()})["changes"]
        )

    def undo_offsets(self, name: str, *, force: bool = False) -> list[dict[str, Any]]:
        """Undo the last change of a stopped connector's offsets; return the changed offsets.

        Without ``force``, rejected if data was copied since the change.
        """
        return list(self._v1(name, "POST", "/offsets/undo", {"force": force})["changes"])

    def offset_history(self, name: str) -> list[dict[str, Any]]:
        """Return the changes of a connector's offsets, who made them and when, newest first."""
        return list(self._v1(name, "GET", "/offsets/history"))

    def letter_groups(
        self, chosen: LetterChoice, topic: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the numbers of open letters by topic, connector and cause."""
        found = self.http.send("GET", "/v1/dead-letters", query=chosen.to_json())
        return [group for group in found if topic in {None, group["topic"]}]

    def letters(
        self, topic: str, chosen: LetterChoice, *, limit: int = 20
    ) -> list[dict[str, Any]]:
        """Return the open letters of a topic, oldest first; ``limit`` is at most 1000."""
        query = {**chosen.to_json(), "limit": str(limit)}
        found = self.http.send("GET", _letters_of(topic), query=query)
        # Without nulls: if sent back, the server would treat them as repairs.
        return [_not_none(**letter) for letter in found]

    def discard_letters(self, topic: str, chosen: LetterChoice, *, every: bool = False) -> int:
        """Close letters, which stay in the topic, and return how many.

        An empty filter means all letters, and requires ``every``.
        """
        body = {**chosen.to_json(), **({"all": True} if every else {})}
        done = self.http.send("POST", f"{_letters_of(topic)}/discard", body=body)
        return int(done["discarded"])

    def replay_letters(
        self,
        name: str,
        chosen: LetterChoice,
        repaired: Sequence[Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Send letters through their connector's transforms to its sinks again, each once.

        Returns when that is done, with the numbers of letters by outcome, and the ``error``
        that ended it early. With ``repaired``, replay only these letters with their changes:
        the id is required, and an omitted key, value or headers stay unchanged.
        """
        body = chosen.to_json()
        if repaired is not None:
            body["repaired"] = [_repaired(each, name) for each in repaired]
        return dict(self._v1(name, "POST", "/dead-letters/replay", body))

    def _v1(
        self,
        name: str,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> Any:
        return self.of_connector(name, method, path, body, query, root="/v1")


def _not_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _letters_of(topic: str) -> str:
    return f"/v1/dead-letters/{quote(topic, safe='')}"
