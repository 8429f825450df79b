"""What commands that serve share: their TLS, and serving until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.cli.terminal import Terminal
    from headrace.rest import Serving, Tls
    from headrace.settings import Settings


def serve(
    serving: Serving,
    terminal: Terminal,
    name: str,
    *,
    as_json: bool,
    rocketmq: Serving | None = None,
) -> None:
    """Say where something is served, and serve it until Ctrl-C or SIGTERM.

    Of RocketMQ Connect's API, if it is given too, is only said where it is.
    """

    def say() -> None:
        if as_json:
            beside = {} if rocketmq is None else {"rocketmq_url": rocketmq.url}
            terminal.print_json({"event": "serving", "url": serving.url, **beside})
            return
        terminal.print(f"{name} is at {serving.url}")
        if rocketmq is not None:
            terminal.print(f"RocketMQ Connect's API is at {rocketmq.url}")

    serving.run(say)


def tls_of(settings: Settings, prefix: str) -> Tls | None:
    """Return the TLS of a server from the settings that begin with its name.

    Raises ConfigError where only half of it is there.
    """
    from headrace.rest import Tls
    from headrace.sdk import ConfigError

    def file(name: str) -> Path | None:
        found: Path | None = getattr(settings, f"{prefix}_ssl_{name}")
        return found

    certificate, key, client_ca = file("certificate"), file("key"), file("client_ca")
    secret = getattr(settings, f"{prefix}_ssl_key_password")
    if certificate is not None:
        password = None if secret is None else secret.get_secret_value()
        return Tls(certificate, key, password, client_ca, prefix)
    if key is not None or client_ca is not None:
        # Serving in plain text to someone who asked for TLS would be worse than not at all.
        raise ConfigError(
            problem="There is a key or clients' certificates for TLS, but no certificate.",
            fix=f"Set HEADRACE_{prefix.upper()}_SSL_CERTIFICATE too.",
            field=f"{prefix}_ssl_certificate",
        )
    return None
