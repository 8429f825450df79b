"""The root command: all subcommands, global options, error handling and exit codes."""

from __future__ import annotations

import sys
from copy import copy
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from headrace.cli import (
    backup,
    connector,
    dlq,
    installation,
    job,
    monitoring,
    plugins,
    run,
    server,
    top,
    topic,
    trials,
    validate,
    verify,
)
from headrace.cli.connector import offsets
from headrace.cli.gitops import apply, export
from headrace.cli.invocation import Invocation, invocation_of

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="headrace",
    help="Move data between any systems with one engine, Apache Spark.",
    epilog="Global options can be placed before or after the command. Exit codes: 0 success, "
    "1 failure, 2 wrong usage or configuration, 3 the machine lacks something or no server "
    "responds, 4 a dry run found changes or Spark's JVM ended too often, 5 verify found "
    "differences.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("validate")(validate.validate)
app.command("doctor")(installation.doctor)
app.command("preview")(trials.preview)
app.command("verify")(verify.verify)
app.command("mapping")(trials.mapping)
app.command("server")(server.server)
app.command("health")(monitoring.health)
app.add_typer(backup.app, name="backup")
app.add_typer(server.tokens, name="token")
app.add_typer(connector.app, name="connector")
app.add_typer(job.app, name="job")
app.command("logs")(monitoring.logs)
app.command("events")(monitoring.events)
app.command("top")(top.top)
app.command("export")(export)
app.command("apply")(apply)
app.add_typer(topic.app, name="topic")
app.add_typer(dlq.local, name="dlq")
app.add_typer(offsets.local, name="offsets")
app.add_typer(trials.transforms, name="transform")
app.add_typer(topic.schemas, name="schema")
app.add_typer(plugins.app, name="plugins")
app.command("setup")(installation.setup)
app.command("demo")(installation.demo)
app.command("version")(installation.version)

_FLAGS = {"--verbose", "-v", "--quiet", "-q", "--no-color"}
_WITH_VALUE = {"--config", "--home", "--server", "--server-ca", "--token-file"}
_OWN = {"transform try": "--config"}
"""Commands whose own option has the name of a global one, which must precede the command."""


@app.callback()
def global_options(  # noqa: PLR0917 - Typer passes them by name
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="Settings file (default: headrace.toml here).")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Folder of state, topics and logs (~/.headrace).")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The server to connect to (HEADRACE_SERVER, http://127.0.0.1:8083).",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the server's token (else HEADRACE_TOKEN).")
    ] = None,
    server_ca: Annotated[
        Path | None, typer.Option(help="PEM file of the CA certificates to trust.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show tracebacks and more of the log.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only errors and requested output.")
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Disable colours, as the variable NO_COLOR does.")
    ] = False,
) -> None:
    """Store the global options in the invocation."""
    invocation = invocation_of(context)
    invocation.config, invocation.home = config, home
    invocation.verbose, invocation.quiet, invocation.color = verbose, quiet, not no_color
    values = {"server": server, "token_file": token_file, "server_ca": server_ca}
    invocation.server = {key: value for key, value in values.items() if value is not None}


@cache
def whole_app() -> typer.Typer:
    """Return the application with the commands that other packages add.

    A package adds a Typer application through the entry-point group ``headrace.commands``. Its
    module is imported at every start, so command functions should import what they need.
    """
    for added in entry_points(group="headrace.commands"):
        try:
            app.add_typer(added.load(), name=added.name)
        except Exception as error:  # noqa: BLE001 - another package may raise anything
            typer.echo(f"warning: command {added.name} cannot be loaded: {error!r}", err=True)
    return app


def command_for(words: Sequence[str]) -> Any:
    """Return the root command; groups that are not in ``words`` have only their help.

    Building the commands of all groups takes a tenth of the time of ``headrace --help``. With
    no words, as in shell completion, all groups are complete.
    """
    root = copy(whole_app())
    root.registered_groups = list(root.registered_groups)
    for number, group in enumerate(root.registered_groups):
        if words and group.name not in words:
            assert group.typer_instance is not None
            bare, root.registered_groups[number] = copy(group.typer_instance), copy(group)
            bare.registered_commands, bare.registered_groups = [], []
            root.registered_groups[number].typer_instance = bare
    return get_command(root)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: the entry point of ``headrace``."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        words = ["version"]
    invocation = Invocation(as_json="--json" in words)
    try:
        code = command_for(words).main(
            args=hoisted(words) or ["--help"],
            prog_name="headrace",
            standalone_mode=False,
            obj=invocation,
        )
    except Exception as error:  # noqa: BLE001 - the last place where an error can be shown
        from headrace.cli.failures import report

        return report(error, invocation)
    return int(code or 0)


def hoisted(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the global options first, wherever the user put them."""
    first: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            rest += [argument, *left]
        elif argument.partition("=")[0] == _OWN.get(" ".join(rest[:2])):
            rest.append(argument)
        elif argument in _FLAGS or argument.partition("=")[0] in _WITH_VALUE - {argument}:
            first.append(argument)
        elif argument in _WITH_VALUE:
            value = next(left, None)
            if value is None:
                return [argument]  # the parser reports the missing value
            first += [argument, value]
        else:
            rest.append(argument)
    return [*first, *rest]
