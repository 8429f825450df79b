"""The commands below ``headrace connector``."""

from __future__ import annotations

import typer

from headrace.cli.connector import (
    counting,
    defining,
    giving_up,
    letters,
    looking,
    offsets,
    serverside,
    shapes,
    steering,
    trying,
    versions,
    ways_back,
)

app = typer.Typer(
    help="Work with the connectors of a server: --server URL, else HEADRACE_SERVER, else "
    "http://127.0.0.1:8083. Its token comes from HEADRACE_TOKEN or --token-file."
)
app.command("list")(looking.list_connectors)
app.command("create")(defining.create)
app.command("apply")(defining.apply)
app.command("get")(looking.get)
app.command("config")(defining.config)
app.command("validate")(defining.validate)
app.command("preview")(trying.preview)
app.command("status")(looking.status)
app.command("tasks")(looking.tasks)
app.command("pause")(steering.pause)
app.command("resume")(steering.resume)
app.command("stop")(steering.stop)
app.command("restart")(steering.restart)
app.command("delete")(steering.delete)
app.command("topics")(looking.topics)
app.command("schemas")(shapes.schemas)
app.command("counts")(counting.counts)
app.command("batches")(counting.batches)
app.add_typer(letters.app, name="dlq")
offsets.app.command("rewind")(ways_back.rewind)
offsets.app.command("undo")(ways_back.undo)
offsets.app.command("history")(ways_back.history)
offsets.app.command("give-up")(giving_up.give_up)
app.add_typer(offsets.app, name="offsets")
app.command("versions")(versions.versions)
app.command("diff")(versions.diff)
app.command("rollback")(versions.rollback)
app.command("plugins")(serverside.plugins)
app.command("loggers")(serverside.loggers)
