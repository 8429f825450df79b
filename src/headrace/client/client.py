"""What can be asked of a server."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.http import DEFAULT_URL, Address, Http, NotThereError, RefusedError
from headrace.client.types import (
    ConnectorInfo,
    ConnectorStatus,
    LoggerLevel,
    OffsetInfo,
    PluginSummary,
    Validation,
)
from headrace.client.v1 import Letters, V1Api, path_of
from headrace.sdk.errors import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self


class Client(V1Api, Letters):
    """A server, to be used in a ``with``. Any thread may use it.

    A name that the server does not know raises NotThereError, with the names that are close to
    it; see ``headrace.client.http`` for what else may be raised.

    Args:
        url: Where it is: ``http://host:port``. It must not hold a user or a password.
        token: What it is shown, where it asks for one.
        ca: A PEM file of the certificates to trust; the system's by default.
        timeout: How long an answer may take.
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

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self.close()

    def close(self) -> None:
        """Close the connections; another request opens them again."""
        self.http.close()

    def about(self) -> dict[str, Any]:
        """Return what the server says of itself: its ``version`` among others."""
        return dict(self.http.send("GET", "/"))

    def health(self) -> dict[str, Any]:
        """Return how the server is: its ``status`` is ``healthy``, with a ``message``."""
        return dict(self.http.send("GET", "/health"))

    def infos(self) -> dict[str, ConnectorInfo]:
        """Return all connectors by name."""
        return {
            name: ConnectorInfo.of(each["info"])
            for name, each in self._expanded("info").items()
        }

    def statuses(self) -> dict[str, ConnectorStatus]:
        """Return how all connectors are, by name."""
        return {
            name: ConnectorStatus.of(each["status"])
            for name, each in self._expanded("status").items()
        }

    def overview(self) -> dict[str, tuple[ConnectorInfo, ConnectorStatus]]:
        """Return all connectors with how they are, by name, in one request."""
        return {
            name: (ConnectorInfo.of(each["info"]), ConnectorStatus.of(each["status"]))
            for name, each in self._expanded("info", "status").items()
        }

    def info(self, name: str) -> ConnectorInfo:
        """Return a connector."""
        return ConnectorInfo.of(self._of(name, "GET"))

    def status(self, name: str) -> ConnectorStatus:
        """Return how a connector and its tasks are."""
        return ConnectorStatus.of(self._of(name, "GET", "/status"))

    def config(self, name: str) -> dict[str, str]:
        """Return a connector's configuration."""
        return dict(self._of(name, "GET", "/config"))

    def create(
        self, name: str, config: Mapping[str, str], *, state: str | None = None
    ) -> ConnectorInfo:
        """Add a connector; with ``state`` it begins PAUSED or STOPPED.

        Raises ConflictError if there is one of that name, and ConfigErrors with everything that
        is wrong with the configuration.
        """
        body = {"name": name, "config": dict(config)}
        if state is not None:
            body["initial_state"] = state
        try:
            return ConnectorInfo.of(self.http.send("POST", "/connectors", body=body))
        except RefusedError as error:
            raise self._told({**config, "name": name}, error) from None

    def configure(self, name: str, config: Mapping[str, str]) -> ConnectorInfo:
        """Give a connector a whole configuration; add it if it is not there.

        Raises ConfigErrors with everything that is wrong with the configuration.
        """
        path = f"{path_of(name)}/config"
        try:
            return ConnectorInfo.of(self.http.send("PUT", path, body=dict(config)))
        except RefusedError as error:
            raise self._told({**config, "name": name}, error) from None

    def change(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        """Change some keys of a connector's configuration; None removes one.

        Raises ConfigErrors with everything that is wrong with the changed configuration.
        """
        try:
            return ConnectorInfo.of(self._of(name, "PATCH", "/config", body=dict(changes)))
        except RefusedError as error:
            merged = {**self.config(name), **changes}
            config = {key: value for key, value in merged.items() if value is not None}
            raise self._told(config, error) from None

    def pause(self, name: str) -> None:
        """End a connector's tasks for now; they stay assigned."""
        self._of(name, "PUT", "/pause")

    def resume(self, name: str) -> None:
        """Let a connector that was paused or stopped run."""
        self._of(name, "PUT", "/resume")

    def stop(self, name: str) -> None:
        """End a connector's tasks, so that its offsets may be changed."""
        self._of(name, "PUT", "/stop")

    def restart(self, name: str, *, tasks: bool = True, only_failed: bool = False) -> None:
        """Restart a connector, with its tasks unless told otherwise."""
        query = {"includeTasks": str(tasks).lower(), "onlyFailed": str(only_failed).lower()}
        self._of(name, "POST", "/restart", query=query)

    def restart_task(self, name: str, number: int) -> None:
        """Restart one task."""
        try:
            self._of(name, "POST", f"/tasks/{number}/restart")
        except NotThereError:
            known = ", ".join(str(each) for each in self.info(name).tasks)
            fix = f"It has: {known}." if known else "It has none now; see its status."
            problem = f"{name} has no task {number}."
            raise NotThereError(problem, field="task", fix=fix) from None

    def delete(self, name: str) -> None:
        """Remove a connector; what it has written stays."""
        self._of(name, "DELETE")

    def task_configs(self, name: str) -> dict[int, dict[str, str]]:
        """Return the configurations of a connector's tasks, by number."""
        tasks = self._of(name, "GET", "/tasks")
        return {int(task["id"]["task"]): dict(task["config"]) for task in tasks}

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector has used."""
        return sorted(self._of(name, "GET", "/topics")[name]["topics"])

    def reset_topics(self, name: str) -> None:
        """Forget which topics a connector has used; the topics stay."""
        self._of(name, "PUT", "/topics/reset")

    def offsets(self, name: str) -> list[OffsetInfo]:
        """Return where a connector stands."""
        told = self._of(name, "GET", "/offsets")["offsets"]
        return [OffsetInfo(each["partition"], each["offset"]) for each in told]

    def set_offsets(self, name: str, offsets: Iterable[OffsetInfo]) -> None:
        """Let a stopped connector go on from elsewhere; partitions not named stay."""
        body = {"offsets": [each.to_json() for each in offsets]}
        self._of(name, "PATCH", "/offsets", body=body)

    def reset_offsets(self, name: str) -> None:
        """Let a stopped connector begin anew."""
        self._of(name, "DELETE", "/offsets")

    def plugins(self, *, only_connectors: bool = True) -> list[PluginSummary]:
        """Return the plugins that the server has."""
        query = {"connectorsOnly": str(only_connectors).lower()}
        told = self.http.send("GET", "/connector-plugins", query=query)
        return [
            PluginSummary(each["class"], each["type"], each.get("version") or "")
            for each in told
        ]

    def plugin_keys(self, plugin: str) -> list[dict[str, Any]]:
        """Return the keys of a plugin's configuration, as Kafka Connect describes them."""
        path = f"/connector-plugins/{quote(plugin, safe='')}/config"
        return list(self.http.send("GET", path))

    def validate(self, config: Mapping[str, str]) -> Validation:
        """Return what the server says of a configuration; nothing is stored."""
        plugin = config.get("connector.class", "")
        if not plugin:
            problem, fix = "The configuration names no connector.", "Name the plugin."
            error = ConfigError(problem, field="connector.class", fix=fix)
            return Validation((error,), frozenset())
        path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
        told = self.http.send("PUT", path, body=dict(config))
        values = [each["value"] for each in told["configs"]]
        errors = [
            ConfigError(problem, field=value["name"])
            for value in values
            for problem in value["errors"]
        ]
        if "faults" in told:  # a server of ours tells the fixes too
            errors = [
                ConfigError(each["problem"], field=each["field"], fix=each["fix"])
                for each in told["faults"]
            ]
        known = [each["definition"] for each in told["configs"] if each["definition"]]
        kinds = {each["name"]: each["type"] for each in known}
        secrets = frozenset(key for key, kind in kinds.items() if kind == "PASSWORD")
        unknown = (key for key in config if key not in kinds and "." not in key)
        return Validation(tuple(errors), secrets, tuple(unknown))

    def loggers(self) -> list[LoggerLevel]:
        """Return the server's loggers with their levels, by name."""
        told = self.http.send("GET", "/admin/loggers")
        return [
            LoggerLevel(name, each["level"], each.get("last_modified"))
            for name, each in sorted(told.items())
        ]

    def set_logger(self, name: str, level: str) -> list[str]:
        """Set the level of a logger and of those below it; return their names."""
        path = f"/admin/loggers/{quote(name, safe='')}"
        return list(self.http.send("PUT", path, body={"level": level}))

    def _expanded(self, *what: str) -> dict[str, Any]:
        told = self.http.send("GET", "/connectors", query={"expand": list(what)})
        return dict(sorted(told.items()))

    def _of(
        self,
        name: str,
        method: str,
        path: str = "",
        *,
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> Any:
        """Ask for something of a connector; names near one that is not there are told."""
        return self.of_connector(name, method, f"{path_of(name)}{path}", body, query)

    def _told(
        self, config: Mapping[str, str], refused: RefusedError
    ) -> ConfigError | RefusedError:
        """Return why a configuration was refused, key by key where the server tells so."""
        if refused.faults:
            return ConfigErrors(refused.faults)
        if not config.get("connector.class"):
            return ConfigErrors(self.validate(config).errors)
        try:
            errors = self.validate(config).errors
        except RefusedError:
            return refused
        return ConfigErrors(errors) if errors else refused
