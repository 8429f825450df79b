"""The client of a server."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.http import DEFAULT_URL, Address, Http, NotThereError, RefusedError
from headrace.client.jobs import JobsApi
from headrace.client.types import (
    ConnectorInfo,
    ConnectorStatus,
    LoggerLevel,
    OffsetInfo,
    PluginSummary,
    Validation,
)
from headrace.client.v1 import V1Api
from headrace.sdk.errors import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self


class Client(V1Api):
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


def _errors_in(found: Iterable[Mapping[str, Any]]) -> list[ConfigError]:
    return [
        ConfigError(each["problem"], field=each["field"], fix=each["fix"]) for each in found
    ]
