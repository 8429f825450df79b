"""One invocation of the command line: global options, and the objects built from them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import typer

    from headrace.client import Client
    from headrace.plugins import Secrets
    from headrace.runtime.app import Runtime
    from headrace.runtime.plugins import Checker
    from headrace.settings import Settings

JAVA_IDLE = timedelta(minutes=5)
"""How long an idle Java process is kept for the user's next command."""
TIMEOUT = timedelta(seconds=30)


@dataclass
class Invocation:
    """The global options; the application's callback sets them before the command runs.

    ``server`` contains the settings for the connection to the server.
    """

    as_json: bool = False
    config: Path | None = None
    home: Path | None = None
    verbose: bool = False
    quiet: bool = False
    color: bool = True
    server: Mapping[str, object] = field(default_factory=dict)
    _secrets: Secrets | None = None

    @cached_property
    def terminal(self) -> Terminal:
        return Terminal(as_json=self.as_json, quiet=self.quiet, color=self.color)

    @cached_property
    def settings(self) -> Settings:
        """The settings; the first access reads them and opens the log."""
        from headrace.cli.logs import LOGS, configure_logs

        settings = self._load()
        configure_logs(
            settings.home / LOGS,
            self.terminal,
            verbose=self.verbose,
            redact=lambda text: self._secrets.redacted(text) if self._secrets else text,
            max_bytes=settings.log_max_bytes,
            backups=settings.log_kept_files,
        )
        return settings

    def _load(self) -> Settings:
        from headrace.settings import load_settings

        values = {} if self.home is None else {"home": self.home}
        return load_settings(self.config, **values, **self.server)

    def client(self, timeout: timedelta | None = None) -> Client:
        """Return a client of the server, to be used in a ``with``; nothing is opened yet.

        It does not touch the home folder, which belongs to a server on this machine.
        """
        from headrace.client import Client

        settings = self._load()
        token, ca = _token(settings), settings.server_ca
        made = Client(settings.server, token=token, ca=ca, timeout=timeout or TIMEOUT)
        if made.http.address.shows_token:
            note = "warning: the token is sent over the network in plain text; use https://"
            self.terminal.note(note)
        return made

    def redacted_error(self, error: Exception) -> Exception:
        """Return the error with the secrets of configurations redacted."""
        return error if self._secrets is None else self._secrets.redacted_error(error)

    def checker(self) -> Checker:
        """Return a checker of definitions; only the log is opened."""
        settings = self.settings
        from headrace.plugins import Secrets
        from headrace.runtime.plugins import Checker, open_registry

        self._secrets = Secrets()
        return Checker(open_registry(settings, self._secrets, serving=False))

    def runtime(
        self,
        *,
        short_lived: bool = False,
        copies: bool = False,
        serving: bool = False,
        shared: bool = False,
    ) -> Runtime:
        """Return the runtime, to be used in a ``with``; nothing is started yet.

        Args:
            short_lived: Whether the process ends by itself.
            copies: Whether it copies data, possibly much.
            serving: Whether configurations come from clients.
            shared: Whether clients other than this process's own user are possible.
        """
        settings = self.settings
        if settings.java_idle is None and sys.stderr.isatty():
            settings = settings.model_copy(update={"java_idle": JAVA_IDLE})
        from headrace.runtime.app import Runtime

        found = Runtime(
            settings, short_lived=short_lived, copies=copies, serving=serving, shared=shared
        )
        self._secrets = found.secrets  # redacted in the log and in errors
        return found


def invocation_of(context: typer.Context) -> Invocation:
    """Return the invocation of a command."""
    return context.ensure_object(Invocation)


def _token(settings: Settings) -> str | None:
    """Return the token; the token file takes precedence over the environment."""
    from headrace.cli.inputs import read_text
    from headrace.sdk import ConfigError

    if settings.token_file is None:
        return None if settings.token is None else settings.token.get_secret_value()
    found = read_text(settings.token_file, "token_file").strip()
    if not found or len(found.split()) > 1:
        problem = f"{settings.token_file} must contain one token."
        raise ConfigError(problem, field="token_file", fix="Write only the token to it.")
    return found
