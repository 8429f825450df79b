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
"""How long a thread may keep others from Python. After each call of the store or of Spark a
thread waits for its turn, so that Python's 5 ms make busy tasks and requests wait for each
other."""
_FILES = 65_536
"""As many as a server may have open: connections count too, and 1,024 are soon used up."""


def server(  # noqa: PLR0917 - Typer passes them by name
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = _PORT,
    rocketmq_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="The port of RocketMQ Connect's REST API: 8082 where --port is 8083; with "
            "another --port it is served only if this is set.",
        ),
    ] = None,
    no_rocketmq: Annotated[
        bool, typer.Option("--no-rocketmq", help="Leave RocketMQ Connect's API out.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="Another than this machine's own needs tokens of clients.")
    ] = "127.0.0.1",
    allow_anonymous: Annotated[
        bool,
        typer.Option("--allow-anonymous", help="Let everyone in who can reach the address."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as a JSON object.")
    ] = False,
) -> None:
    """Serve connectors with Kafka Connect's REST API, and run them, until Ctrl-C.

    Clients and tools of Kafka Connect and of RocketMQ Connect work with it as they are.
    Everything is kept in the home folder, so that a server that is started again goes on where
    it was.

    Once there are tokens, see `headrace token`, clients have to show one, as a bearer token or
    as the password of any user. The settings server_ssl_certificate and server_ssl_key make it
    speak TLS; with server_ssl_client_ca clients have to show a certificate too.
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
        # The ports are taken before Spark starts, which takes seconds.
        serving = opened.enter_context(Serving(opening, listener))
        serving.start()
        # Several servers on a machine have ports of their own; they do not fight for 8082.
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
    """Let this process have as many files open as its user may."""
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
        # Once it is there, it stays in force, whatever is taken out of it.
        keys=TokenFile(file) if file.exists() else None,
        anonymous=anonymous,
        advice="Make a token with `headrace token create NAME`, or listen on 127.0.0.1, or "
        "let everyone in with --allow-anonymous.",
        tls=tls_of(settings, "server"),
        body_bytes=settings.server_max_request_bytes,
        rate=RateLimit(settings.server_requests_per_minute),
    )
