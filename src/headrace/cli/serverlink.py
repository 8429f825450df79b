"""Opens the server that the settings name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.client import Client
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from headrace.cli.terminal import Terminal
    from headrace.settings import Settings

TIMEOUT = timedelta(seconds=30)


def client_of(settings: Settings, terminal: Terminal, timeout: timedelta | None) -> Client:
    """Return a client of the server; nothing is opened yet."""
    made = Client(
        settings.server,
        token=_token(settings),
        ca=settings.server_ca,
        timeout=timeout or TIMEOUT,
    )
    if made.http.address.shows_token:
        terminal.note("warning: the token goes over the network in plain text; use https://")
    return made


def _token(settings: Settings) -> str | None:
    """Return the token; that of a named file wins over the environment's."""
    if settings.token_file is None:
        return None if settings.token is None else settings.token.get_secret_value()
    try:
        found = settings.token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        problem = f"{settings.token_file} cannot be read: {error.strerror}."
        raise ConfigError(problem, field="token_file", fix="Check the path.") from error
    if not found or len(found.split()) > 1:
        problem = f"{settings.token_file} should hold one token."
        raise ConfigError(problem, field="token_file", fix="Write it there, and nothing else.")
    return found
