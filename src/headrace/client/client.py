"""The client of a server."""

from __future__ import annotations

from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.http import DEFAULT_URL, Address, Http, NotThereError, RefusedError
from headrace.client.jobs import JobsApi
from headrace.client.types import (
    ConnectorInfo,
    ConnectorStatus,
    LetterChoice,
    LoggerLevel,
    OffsetInfo,
    PluginSummary,
    TaskFigures,
    Validation,
    not_none,
    task_figures,
)
from headrace.sdk.errors import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Self

_REPAIRED = ("id", "key", "value", "headers")
"""The fields of a repaired letter that are sent to the server."""
_PAGE = "1000"
_SHOWN = 10


class Client:
    """A client of a server, to be used in a ``with``. Thread-safe.

    An unknown name raises NotThereError, with similar names; see ``headrace.client.http`` for
    other errors.

    Args:
        url: ``http://host:port`` or ``https://host:port``, with a path prefix if needed, and
            without user and password.
        token: The bearer token, if the server requires one.
        ca: A PEM file of the CA certificates to trust; the system's by default.
        timeout: How long a response may take.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        ca: Path | None = None,
        timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        self.http = Http(Address(url, token, ca, timeout))
        self.jobs = JobsApi(self.http)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        self.http.close()

    def about(self) -> dict[str, Any]:
        """Return information about the server, such as its ``version``."""
        return dict(self.http.send("GET", "/"))

    def health(self) -> dict[str, Any]:
        """Return the server's health: a ``status``, such as ``healthy``, and a ``message``."""
        return dict(self.http.send("GET", "/health"))

    def infos(self) -> dict[str, ConnectorInfo]:
        """Return all connectors by name."""
        found = self._expanded("info")
        return {name: ConnectorInfo.of(each["info"]) for name, each in found.items()}

    def statuses(self) -> dict[str, ConnectorStatus]:
        """Return the statuses of all connectors, by name."""
        found = self._expanded("status")
        return {name: ConnectorStatus.of(each["status"]) for name, each in found.items()}

    def overview(self) -> dict[str, tuple[ConnectorInfo, ConnectorStatus]]:
        """Return all connectors with their statuses, by name, in one request."""
        return {
            name: (ConnectorInfo.of(each["info"]), ConnectorStatus.of(each["status"]))
            for name, each in self._expanded("info", "status").items()
        }

    def info(self, name: str) -> ConnectorInfo:
        """Return a connector."""
        return ConnectorInfo.of(self.of_connector(name, "GET", ""))

    def status(self, name: str) -> ConnectorStatus:
        """Return the status of a connector and its tasks."""
        return ConnectorStatus.of(self.of_connector(name, "GET", "/status"))

    def config(self, name: str) -> dict[str, str]:
        """Return a connector's configuration."""
        return dict(self.of_connector(name, "GET", "/config"))

    def create(
        self, name: str, config: Mapping[str, str], *, state: str | None = None
    ) -> ConnectorInfo:
        """Create a connector; ``state`` sets its initial state, PAUSED or STOPPED.

        Raises ConflictError if the name exists, and ConfigErrors with all errors of the
        configuration.
        """
        body = {"name": name, "config": dict(config)}
        if state is not None:
            body["initial_state"] = state
        try:
            return ConnectorInfo.of(self.http.send("POST", "/connectors", body=body))
        except RefusedError as error:
            raise self._refusal({**config, "name": name}, error) from None

    def configure(self, name: str, config: Mapping[str, str]) -> ConnectorInfo:
        """Replace the configuration of a connector, or create the connector.

        Raises ConfigErrors with all errors of the configuration.
        """
        path = f"/connectors/{quote(name, safe='')}/config"
        try:
            return ConnectorInfo.of(self.http.send("PUT", path, body=dict(config)))
        except RefusedError as error:
            raise self._refusal({**config, "name": name}, error) from None

    def change(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        """Change some keys of a connector's configuration; None removes a key.

        Raises ConfigErrors with all errors of the changed configuration.
        """
        try:
            return ConnectorInfo.of(
                self.of_connector(name, "PATCH", "/config", body=dict(changes))
            )
        except RefusedError as error:
            merged = {**self.config(name), **changes}
            config = {key: value for key, value in merged.items() if value is not None}
            raise self._refusal(config, error) from None

    def pause(self, name: str) -> None:
        """Pause a connector's tasks; they stay assigned."""
        self.of_connector(name, "PUT", "/pause")

    def resume(self, name: str) -> None:
        """Resume a paused or stopped connector."""
        self.of_connector(name, "PUT", "/resume")

    def stop(self, name: str) -> None:
        """Stop a connector's tasks, so that its offsets can be changed."""
        self.of_connector(name, "PUT", "/stop")

    def restart(self, name: str, *, tasks: bool = True, only_failed: bool = False) -> None:
        """Restart a connector, by default with all of its tasks."""
        query = {"includeTasks": str(tasks).lower(), "onlyFailed": str(only_failed).lower()}
        self.of_connector(name, "POST", "/restart", query=query)

    def restart_task(self, name: str, number: int) -> None:
        """Restart one task."""
        try:
            self.of_connector(name, "POST", f"/tasks/{number}/restart")
        except NotThereError:
            known = ", ".join(str(each) for each in self.info(name).tasks)
            fix = f"Its tasks are: {known}." if known else "It has no tasks; see its status."
            problem = f"{name} has no task {number}."
            raise NotThereError(problem, field="task", fix=fix) from None

    def delete(self, name: str) -> list[str]:
        """Delete a connector; written data is kept.

        Returns what it leaves at its source, such as a replication slot, and how to drop that.
        """
        left = self.of_connector(name, "DELETE", "", header="Headrace-Left-Behind")
        return list(left or ())

    def task_configs(self, name: str) -> dict[int, dict[str, str]]:
        """Return the configurations of a connector's tasks, by number."""
        tasks = self.of_connector(name, "GET", "/tasks")
        return {int(task["id"]["task"]): dict(task["config"]) for task in tasks}

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector has used."""
        return sorted(self.of_connector(name, "GET", "/topics")[name]["topics"])

    def reset_topics(self, name: str) -> None:
        """Clear the list of topics that a connector has used; the topics are kept."""
        self.of_connector(name, "PUT", "/topics/reset")

    def offsets(self, name: str) -> list[OffsetInfo]:
        """Return the offsets of a connector."""
        found = self.of_connector(name, "GET", "/offsets")["offsets"]
        return [OffsetInfo(each["partition"], each["offset"]) for each in found]

    def set_offsets(self, name: str, offsets: Iterable[OffsetInfo]) -> None:
        """Set offsets of a stopped connector; other partitions keep theirs."""
        body = {"offsets": [each.to_json() for each in offsets]}
        self.of_connector(name, "PATCH", "/offsets", body=body)

    def reset_offsets(self, name: str) -> None:
        """Reset a stopped connector to the beginning."""
        self.of_connector(name, "DELETE", "/offsets")

    def plugins(self, *, only_connectors: bool = True) -> list[PluginSummary]:
        """Return the plugins of the server."""
        query = {"connectorsOnly": str(only_connectors).lower()}
        found = self.http.send("GET", "/connector-plugins", query=query)
        return [
            PluginSummary(each["class"], each["type"], each.get("version") or "")
            for each in found
        ]

    def plugin_keys(self, plugin: str) -> list[dict[str, Any]]:
        """Return the keys of a plugin's configuration, as Kafka Connect describes them."""
        path = f"/connector-plugins/{quote(plugin, safe='')}/config"
        return list(self.http.send("GET", path))

    def validate(self, config: Mapping[str, str]) -> Validation:
        """Validate a configuration on the server; nothing is stored."""
        plugin = config.get("connector.class", "")
        if not plugin:
            problem, fix = "The key is required.", "Set it to the class of a plugin."
            error = ConfigError(problem, field="connector.class", fix=fix)
            return Validation((error,), frozenset())
        path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
        found = self.http.send("PUT", path, body=dict(config))
        values = [each["value"] for each in found["configs"]]
        errors = [
            ConfigError(problem, field=value["name"])
            for value in values
            for problem in value["errors"]
        ]
        if "faults" in found:  # a Headrace server also returns the fixes
            errors = _errors_in(found["faults"])
        keys = [each["definition"] for each in found["configs"] if each["definition"]]
        secrets = frozenset(key["name"] for key in keys if key["type"] == "PASSWORD")
        warnings = _errors_in(found.get("warnings", ()))
        return Validation(tuple(errors), secrets, tuple(warnings))

    def loggers(self) -> list[LoggerLevel]:
        """Return the server's loggers with their levels, by name."""
        found = self.http.send("GET", "/admin/loggers")
        return [
            LoggerLevel(name, each["level"], each.get("last_modified"))
            for name, each in sorted(found.items())
        ]

    def set_logger(self, name: str, level: str) -> list[str]:
        """Set the level of a logger and its children; return their names."""
        path = f"/admin/loggers/{quote(name, safe='')}"
        return list(self.http.send("PUT", path, body={"level": level}))

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
        query |= not_none(connector=connector, changes=changed, kind=list(kinds) or None)
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
        query |= not_none(after=after, connector=connector, task=number)
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
        query = not_none(since=since and since.isoformat())
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
        return [not_none(**letter) for letter in found]

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

    def _expanded(self, *what: str) -> dict[str, Any]:
        found = self.http.send("GET", "/connectors", query={"expand": list(what)})
        return dict(sorted(found.items()))

    def _refusal(
        self, config: Mapping[str, str], refused: RefusedError
    ) -> ConfigError | RefusedError:
        """Return the error for a rejected configuration, by key if the server names keys."""
        if refused.faults:
            return ConfigErrors(refused.faults)
        if not config.get("connector.class"):
            return ConfigErrors(self.validate(config).errors)
        try:
            errors = self.validate(config).errors
        except RefusedError:
            return refused
        return ConfigErrors(errors) if errors else refused

    def _v1(
        self,
        name: str,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> Any:
        return self.of_connector(name, method, path, body, query, root="/v1")


def _errors_in(found: Iterable[Mapping[str, Any]]) -> list[ConfigError]:
    return [
        ConfigError(each["problem"], field=each["field"], fix=each["fix"]) for each in found
    ]


def _repaired(letter: Mapping[str, Any], connector: str) -> dict[str, Any]:
    """Return what is sent of a letter; the id of another connector's is that of none."""
    found = {part: letter[part] for part in _REPAIRED if part in letter}
    of = letter.get("connector")
    is_own = of is None or of == connector
    return found if is_own else {**found, "id": f"{of}/{letter['id']}"}


def _letters_of(topic: str) -> str:
    return f"/v1/dead-letters/{quote(topic, safe='')}"
