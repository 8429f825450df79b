"""``headrace connector``: manages the connectors of a server.

In it: a module for each kind of command; they only send requests to a server, but for those of
``headrace offsets``, which are beside the server's. Never: Spark, or the store.
"""

from __future__ import annotations

import typer

from headrace.cli import dlq, monitoring, plugins
from headrace.cli.connector import definitions, lifecycle, offsets, show, tables
from headrace.cli.trials import preview_on_server

__all__ = ["app"]

app = typer.Typer(
    help="Manage the connectors of a server: --server URL, else HEADRACE_SERVER, else "
    "http://127.0.0.1:8083. The token is read from HEADRACE_TOKEN or --token-file."
)
app.command("list")(show.list_connectors)
app.command("create")(definitions.create)
app.command("apply")(definitions.apply)
app.command("get")(show.get)
app.command("config")(definitions.config)
app.command("validate")(definitions.validate)
app.command("preview")(preview_on_server)
app.command("status")(show.status)
app.command("tasks")(show.tasks)
app.command("pause")(lifecycle.pause)
app.command("resume")(lifecycle.resume)
app.command("stop")(lifecycle.stop)
app.command("restart")(lifecycle.restart)
app.command("delete")(lifecycle.delete)
app.command("topics")(show.topics)
app.command("schemas")(show.schemas)
app.command("counts")(show.counts)
app.command("batches")(show.batches)
app.add_typer(dlq.remote, name="dlq")
app.add_typer(offsets.app, name="offsets")
app.add_typer(tables.app, name="tables")
app.command("versions")(definitions.versions)
app.command("diff")(definitions.diff)
app.command("rollback")(definitions.rollback)
app.command("plugins")(plugins.on_server)
app.command("loggers")(monitoring.loggers)
