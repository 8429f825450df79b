"""``headrace plugins`` and ``headrace connector plugins``: installed plugins and their keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.inputs import check_one_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.cli.terminal import Terminal
    from headrace.plugins import PluginInfo, PluginKind

app = typer.Typer(help="Show the installed plugins, or create a new one.")


@app.command("list")
def list_plugins(
    context: typer.Context,
    kind: Annotated[
        str | None,
        typer.Option(help="Only source, sink, transform, predicate, converter or provider."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the installed plugins."""
    from headrace.cli.failures import show
    from headrace.plugins import PluginKind, Registry
    from headrace.sdk.errors import SetupError

    terminal = invocation_of(context).terminal
    registry = Registry()
    found: list[PluginInfo] = []
    for each in PluginKind if kind is None else [_kind(kind)]:
        for name in registry.names(each):
            try:
                found.append(registry.load(each, name))
            except SetupError as error:  # a broken plugin must not hide the others
                show([error], terminal, kind="warning")
    shown = [
        {
            "class": info.class_path,
            "type": info.kind.value,
            "version": info.version,
            "name": info.name,
            "aliases": list(info.aliases),
            "delivery": _delivery(info),
            "summary": info.summary,
        }
        for info in found
    ]
    terminal.show_rows(
        ("kind", "name", "version", "delivery", "what it does"),
        (
            (
                each["type"],
                each["name"],
                each["version"],
                each["delivery"] or "",
                each["summary"],
            )
            for each in shown
        ),
        json=shown,
    )


@app.command()
def describe(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name, alias or class of a plugin.")],
    kind: Annotated[
        str | None, typer.Option(help="Which, if a source and a sink share the name.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the keys as Kafka Connect's REST API does.")
    ] = False,
) -> None:
    """Show a plugin and its configuration keys."""
    from headrace.plugins import PluginKind, Registry
    from headrace.sdk import ConfigError

    terminal = invocation_of(context).terminal
    registry = Registry()
    kinds = [each for each in PluginKind if name in registry.names(each)]
    found = [registry.load(each, name) for each in kinds] or registry.find(name)
    if kind is not None:
        found = [info for info in found if info.kind == _kind(kind)]
    if not found:
        problem = f"No {kind} is called {name!r}."
        raise ConfigError(problem, field="NAME", fix="Remove --kind.")
    if as_json and len(found) > 1:
        options = " or ".join(f"--kind {info.kind}" for info in found)
        problem = f"{name!r} is the name of several plugins."
        raise ConfigError(problem, field="NAME", fix=f"Add {options}.")
    for info in found:
        facts = {
            "name": f"{info.name} ({info.kind})",
            "class": info.class_path,
            "version": info.version,
            "aliases": ", ".join(info.aliases),
            "delivery": _delivery(info) or "",
            "": info.summary,
        }
        if not as_json:
            terminal.print(
                *(f"{label:<9} {text}".strip() for label, text in facts.items() if text)
            )
        keys = info.config_def().sorted_keys()
        show_keys(terminal, [key.to_kafka_json() for key in keys])


@app.command()
def new(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="source, capture, sink, record-sink, transform or predicate."
        ),
    ],
    name: Annotated[str, typer.Argument(help="Its short name, such as acme-events.")],
    folder: Annotated[
        Path | None, typer.Option(help="The folder to create; its name by default.")
    ] = None,
) -> None:
    """Write the package of a new, working plugin with passing tests."""
    from headrace.cli.new_plugin import Kind, write_package

    check_one_of(kind, Kind, "kind of plugin", "KIND")
    where = folder or Path(name)
    terminal = invocation_of(context).terminal
    for path in write_package(Kind(kind), name, where):
        terminal.print(f"wrote {path}")
    terminal.print("", f"Try it: cd {where} && python -m pytest")


def on_server(
    context: typer.Context,
    plugin: Annotated[
        str | None, typer.Argument(metavar="[CLASS]", help="Show the keys of this plugin.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also list transforms, predicates and converters.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the server's plugins, or the keys of one."""
    from headrace.cli.failures import unknown
    from headrace.client import NotThereError

    invocation = invocation_of(context)
    with invocation.client() as client:
        if plugin is None:
            found = client.plugins(only_connectors=not every)
            invocation.terminal.show_rows(
                ("type", "class", "version"), json=[each.to_json() for each in found]
            )
            return
        try:
            keys = client.plugin_keys(plugin)
        except NotThereError:
            known = [each.class_name for each in client.plugins(only_connectors=False)]
            raise unknown(plugin, known, noun="plugin", field="CLASS") from None
    show_keys(invocation.terminal, keys)


def show_keys(terminal: Terminal, keys: Sequence[Mapping[str, Any]]) -> None:
    """Print the keys of a plugin, in Kafka Connect's form."""

    def default(key: Mapping[str, Any]) -> str:
        if key["required"]:
            return "(required)"
        text = key["default_value"]
        return "(none)" if text is None else text or "(empty)"

    terminal.show_rows(
        ("key", "type", "default", "importance", "what it means"),
        (
            (
                key["name"],
                key["type"],
                default(key),
                key["importance"].lower(),
                " ".join(key["documentation"].split()),
            )
            for key in keys
        ),
        json=keys,
        empty="It has no keys.",
    )


def _kind(text: str) -> PluginKind:
    from headrace.plugins import PluginKind

    check_one_of(text, PluginKind, "kind of plugin", "--kind")
    return PluginKind(text)


def _delivery(info: PluginInfo) -> str | None:
    guarantee = getattr(info.plugin, "delivery", None)
    return None if guarantee is None else str(guarantee)
