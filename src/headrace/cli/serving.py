"""Shared parts of commands that start a server or connect to one: TLS, serving, the client."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.cli.inputs import read_text
from headrace.client import Client
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from headrace.cli.terminal import Terminal
    from headrace.rest import Serving, Tls
    from headrace.settings import Settings


def serve(
    serving: Serving,
    terminal: Terminal,
    name: str,
    *,
    rocketmq: Serving | None = None,
) -> None:
    """Print the URL and serve until Ctrl-C or SIGTERM.

    ``rocketmq`` is already being served; only its URL is printed.
    """
    beside = {} if rocketmq is None else {"rocketmq_url": rocketmq.url}
    lines = [f"RocketMQ Connect's API is at {url}" for url in beside.values()]

    def say() -> None:
        shown = {"event": "serving", "url": serving.url, **beside}
        terminal.show(shown, f"{name} is at {serving.url}", *lines)

    serving.run(say)


def tls_of(settings: Settings, prefix: str) -> Tls | None:
    """Return the TLS configuration from the settings that begin with ``prefix``, or None.

    Raises ConfigError if a key or client CA is set without a certificate.
    """
    from headrace.rest import Tls

    names = ("certificate", "key", "client_ca", "key_password")
    certificate, key, client_ca, secret = (
        getattr(settings, f"{prefix}_ssl_{n}") for n in names
    )
    if certificate is not None:
        password = None if secret is None else secret.get_secret_value()
        return Tls(certificate, key, password, client_ca, prefix)
    if key is not None or client_ca is not None:
        # Serving plain text to a user who asked for TLS would be worse than not serving.
        raise ConfigError(
            problem="A TLS key or client CA is set, but no certificate.",
            fix=f"Set HEADRACE_{prefix.upper()}_SSL_CERTIFICATE too.",
            field=f"{prefix}_ssl_certificate",
        )
    return None


TIMEOUT = timedelta(seconds=30)


def client_of(settings: Settings, terminal: Terminal, timeout: timedelta | None) -> Client:
    """Return a client of the server; nothing is opened yet."""
    token, ca = _token(settings), settings.server_ca
    made = Client(settings.server, token=token, ca=ca, timeout=timeout or TIMEOUT)
    if made.http.address.shows_token:
        terminal.note("warning: the token is sent over the network in plain text; use https://")
    return made


def _token(settings: Settings) -> str | None:
    """Return the token; the token file takes precedence over the environment."""
    if settings.token_file is None:
        return None if settings.token is None else settings.token.get_secret_value()
    found = read_text(settings.token_file, "token_file").strip()
    if not found or len(found.split()) > 1:
        problem = f"{settings.token_file} must contain one token."
        raise ConfigError(problem, field="token_file", fix="Write only the token to it.")
    return found
