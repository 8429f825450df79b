"""``headrace server``, what other servers share with it, and the tokens of clients."""

from __future__ import annotations

import resource
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.inputs import check_one_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

if TYPE_CHECKING:
    from headrace.cli.terminal import Terminal
    from headrace.rest import Listener, Serving, Tls, TokenFile
    from headrace.settings import Settings


_PORT, _ROCKETMQ_PORT = 8083, 8082
_SWITCH_SECONDS = 0.0005
"""The interpreter's thread switch interval. A thread waits for the GIL after each call to the
store or Spark; with Python's default of 5 ms, busy tasks and requests delay each other."""
_FILES = 65_536
"""The limit on open files, including connections; the usual 1,024 are soon used up."""


def server(  # noqa: PLR0917 - Typer passes them by name
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free port.")] = _PORT,
    rocketmq_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="The port of RocketMQ Connect's REST API: 8082 if --port is 8083; with any "
            "other --port that API is served only if this is set.",
        ),
    ] = None,
    no_rocketmq: Annotated[
        bool, typer.Option("--no-rocketmq", help="Do not serve RocketMQ Connect's API.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="The address; any but a loopback address requires tokens.")
    ] = "127.0.0.1",
    allow_anonymous: Annotated[
        bool,
        typer.Option("--allow-anonymous", help="Accept all clients that reach the address."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as a JSON object.")
    ] = False,
) -> None:
    """Run connectors, and serve them with Kafka Connect's REST API, until Ctrl-C.

    Clients and tools of Kafka Connect and RocketMQ Connect work unchanged. All state is in the
    home folder, so a restarted server continues where it stopped.

    Once tokens exist (see `headrace token`), clients must send one, as a bearer token or as the
    password of any user. The settings server_ssl_certificate and server_ssl_key enable TLS;
    with server_ssl_client_ca clients must present a certificate too.
    """
    from headrace.rest import Opening, Serving, Workbench, rocketmq_app, server_app
    from headrace.runtime.measures import health_checks
    from headrace.worker.events import LoggedEvents

    invocation = invocation_of(context)
    sys.setswitchinterval(_SWITCH_SECONDS)
    open_more_files()
    listener = _listener(invocation.settings, host, port, anonymous=allow_anonymous)
    opening, beside, events = Opening(), Opening("errorCode"), LoggedEvents()
    rocketmq = None
    other = replace(listener, port=_ROCKETMQ_PORT if rocketmq_port is None else rocketmq_port)
    with ExitStack() as opened:
        # Bind the ports before Spark starts, which takes seconds.
        serving = opened.enter_context(Serving(opening, listener))
        serving.start()
        # A server with another --port must not compete for 8082 with others on the machine.
        if not no_rocketmq and (rocketmq_port is not None or port == _PORT):
            rocketmq = opened.enter_context(Serving(beside, other, "--rocketmq-port"))
            rocketmq.start()
        runtime = opened.enter_context(invocation.runtime(serving=True, shared=listener.shared))
        connectors = opened.enter_context(runtime.server(events))
        bench = Workbench(runtime, events, connectors.clock)
        health = health_checks(runtime, connectors.names)
        metrics = runtime.measuring.exposition
        apis = server_app(
            connectors, runtime.jobs, bench, listener, health=health, metrics=metrics
        )
        opened.enter_context(opening.opened(apis))
        opened.enter_context(beside.opened(rocketmq_app(connectors, other)))
        api = "Kafka Connect's API"
        serve(serving, invocation.terminal, api, rocketmq=rocketmq)


def open_more_files() -> None:
    """Raise the limit on open files to the hard limit, but at most to ``_FILES``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _listener(settings: Settings, host: str, port: int, *, anonymous: bool) -> Listener:
    from headrace.rest import Listener, RateLimit, TokenFile

    file = settings.server_tokens
    return Listener(
        host=host,
        port=port,
        # An existing token file stays in force, even when all tokens are deleted.
        keys=TokenFile(file) if file.exists() else None,
        anonymous=anonymous,
        advice="Create a token with `headrace token create NAME`, or listen on 127.0.0.1, or "
        "accept all clients with --allow-anonymous.",
        tls=tls_of(settings, "server"),
        body_bytes=settings.server_max_request_bytes,
        rate=RateLimit(settings.server_requests_per_minute),
    )


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
    from headrace.sdk import ConfigError

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


tokens = typer.Typer(
    name="token",
    help="Manage the tokens of clients. Changes take effect at once on a running server; only "
    "the first token requires a restart.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The client's name, as in the audit log.")]


@tokens.command()
def create(
    context: typer.Context,
    name: Name,
    role: Annotated[
        str,
        typer.Option(
            help="viewer: read only; operator: may also start, stop, change offsets and replay "
            "dead letters; admin: may do everything, as the server's own user."
        ),
    ] = "viewer",
    as_json: Json = False,
) -> None:
    """Create a token and print it. Only its hash is stored, so it cannot be shown again.

    An admin determines what the server runs as its own user: which files it reads and writes,
    which Python code and which JDBC drivers, within the settings allowed_paths,
    allow_python_code and allowed_drivers.
    """
    from headrace.rest import Role

    check_one_of(role, Role, "role", "--role")
    token = _file(context).add(name, Role(role))
    shown = {"name": name, "role": role, "token": token}
    invocation_of(context).terminal.show(shown, token)


@tokens.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the names and roles of the tokens."""
    found = _file(context).tokens()
    invocation_of(context).terminal.show_rows(
        ("name", "role"),
        json=[{"name": each.name, "role": each.role} for each in found],
        empty="no tokens",
    )


@tokens.command()
def delete(context: typer.Context, name: Name) -> None:
    """Delete a token; requests with it are rejected from now on."""
    _file(context).remove(name)
    invocation_of(context).terminal.print(f"{name}: deleted")


def _file(context: typer.Context) -> TokenFile:
    from headrace.rest import TokenFile

    return TokenFile(invocation_of(context).settings.server_tokens)
