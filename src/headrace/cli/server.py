"""``headrace server``."""

from __future__ import annotations

import resource
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from headrace.rest import Listener
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
    from headrace.cli.serving import serve
    from headrace.rest import (
        Opening,
        Serving,
        Workbench,
        rocketmq_app,
        server_app,
    )
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
    from headrace.cli.serving import tls_of
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
