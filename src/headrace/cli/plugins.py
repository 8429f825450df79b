"""``headrace plugins``: what is installed, and which keys it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from headrace.cli.terminal import Terminal
    from headrace.plugins import PluginInfo, PluginKind, Registry
    from headrace.sdk.config import ConfigKey

app = typer.Typer(help="Look at the installed plugins, or begin one.")


@app.command("list")
def list_plugins(
    context: typer.Context,
    kind: Annotated[
        str | None,
        typer.Option(help="Only source, sink, transform, predicate, converter or provider."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the installed plugins."""
    from headrace.cli.failures import show
    from headrace.plugins import PluginKind, Registry
    from headrace.sdk import SetupError

    terminal = invocation_of(context).terminal
    registry = Registry()
    found = []
    for each in PluginKind if kind is None else [_kind(kind)]:
        for name in registry.names(each):
            try:
                found.append(_loaded(registry, each, name))
            except SetupError as error:  # one that is broken must not hide the others
                show([error], terminal, kind="warning")
    terminal.show_rows(
        ("kind", "name", "version", "delivery", "what it does"),
        (
            (info.kind, info.name, info.version, _delivery(info) or "", info.summary)
            for info in found
        ),
        json=[_plugin_json(info) for info in found] if as_json else [],
        as_json=as_json,
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
    """Show what a plugin is and the keys that it takes."""
    from headrace.plugins import PluginKind, Registry
    from headrace.sdk import ConfigError

    terminal = invocation_of(context).terminal
    registry = Registry()
    kinds = [each for each in PluginKind if name in registry.names(each)]
    found = [_loaded(registry, each, name) for each in kinds] or registry.find(name)
    if kind is not None:
        found = [info for info in found if info.kind == _kind(kind)]
    if not found:
        problem = f"No {kind} is called {name!r}."
        raise ConfigError(problem, field="NAME", fix="Leave --kind out.")
    if not as_json:
        for info in found:
            _show(info, terminal)
        return
    if len(found) > 1:
        options = " or ".join(f"--kind {info.kind}" for info in found)
        problem = f"{name!r} is the name of several plugins."
        raise ConfigError(problem, field="NAME", fix=f"Add {options}.")
    terminal.print_json([key.to_kafka_json() for key in found[0].config_def().sorted_keys()])


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
        Path | None, typer.Option(help="The folder to make; by default one of its name.")
    ] = None,
) -> None:
    """Write the package of a new plugin, which works, with tests that pass."""
    from headrace.cli.new_plugin import Kind, write_package
    from headrace.sdk import ConfigError

    if kind not in list(Kind):
        problem = f"Invalid kind of plugin {kind!r}."
        fix = f"Use one of: {', '.join(Kind)}."
        raise ConfigError(problem, field="KIND", fix=fix)
    where = folder or Path(name)
    terminal = invocation_of(context).terminal
    for path in write_package(Kind(kind), name, where):
        terminal.print(f"wrote {path}")
    terminal.print("", f"Try it: cd {where} && python -m pytest")


def _loaded(registry: Registry, kind: PluginKind, name: str) -> PluginInfo:
    from headrace.plugins import PluginInfo, PluginKind

    find = {
        PluginKind.SOURCE: registry.source,
        PluginKind.SINK: registry.sink,
        PluginKind.TRANSFORM: registry.transform,
        PluginKind.PREDICATE: registry.predicate,
        PluginKind.CONVERTER: registry.converter,
        PluginKind.PROVIDER: registry.provider,
        PluginKind.REPORTER: registry.reporter,
    }
    return PluginInfo(name, kind, find[kind](name))


def _kind(text: str) -> PluginKind:
    from headrace.plugins import PluginKind
    from headrace.sdk import ConfigError

    if text not in list(PluginKind):
        fix = f"Use one of: {', '.join(PluginKind)}."
        problem = f"{text!r} is not a kind of plugin."
        raise ConfigError(problem, field="--kind", fix=fix)
    return PluginKind(text)


def _plugin_json(info: PluginInfo) -> dict[str, object]:
    """Return Kafka Connect's PluginInfo, and what it lacks."""
    return {
        "class": info.class_path,
        "type": info.kind.value,
        "version": info.version,
        "name": info.name,
        "aliases": list(info.aliases),
        "delivery": _delivery(info),
        "summary": info.summary,
    }


def _delivery(info: PluginInfo) -> str | None:
    guarantee = getattr(info.plugin, "delivery", None)
    return None if guarantee is None else str(guarantee)


def _show(info: PluginInfo, terminal: Terminal) -> None:
    from headrace.cli.terminal import table

    facts = {
        "name": f"{info.name} ({info.kind})",
        "class": info.class_path,
        "version": info.version,
        "aliases": ", ".join(info.aliases),
        "delivery": _delivery(info) or "",
        "": info.summary,
    }
    for label, text in facts.items():
        if text:
            terminal.print(f"{label:<9} {text}".strip())
    keys = info.config_def().sorted_keys()
    if not keys:
        terminal.print("It takes no keys.", "")
        return
    shown = table("key", "type", "default", "importance", "what it means")
    for key in keys:
        cells = (
            key.type.value,
            _default(key),
            key.importance.lower(),
            " ".join(key.doc.split()),
        )
        shown.add_row(key.name, *cells)
    terminal.print(shown)


def _default(key: ConfigKey) -> str:
    if key.alternative is not None:
        return key.alternative
    if key.required:
        return "(required)"
    text = key.default_text
    return "(none)" if text is None else text or "(empty)"
