"""Writes docs/reference from what the code itself says.

Run it as ``.venv/bin/python scripts/reference.py`` after a change of keys, commands,
settings or errors; a test fails while the pages are out of date.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main

import headrace
import headrace_plugins
from headrace.cli.app import app
from headrace.control.runtime_keys import common_def
from headrace.model import Definition, PluginSpec
from headrace.plugins import PluginInfo, PluginKind, Registry
from headrace.sdk import HeadraceError
from headrace.settings import PREFIX, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
_NOTE = "<!-- Made by scripts/reference.py; do not edit. -->\n"
_DEFAULTS = {"topics_dir": "`<home>/topics`", "spark_conf": "none"}
_EXIT_CODES = {"run": 1, "config": 2, "environment": 3}


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    made = {
        "plugins.md": plugins(),
        "connector-keys.md": connector_keys(),
        "errors.md": errors(),
        "cli.md": command_line(),
        "settings.md": settings(),
    }
    lines = [f"- [{_title(text)}]({name})" for name, text in sorted(made.items())]
    made["README.md"] = _page("Reference", "\n".join(lines))
    return made


def plugins() -> str:
    """Return the keys of every plugin of this distribution."""
    registry = Registry()
    parts = []
    for kind in PluginKind:
        for name in registry.names(kind):
            info = _info(registry, kind, name)
            if info.class_path.startswith("headrace_plugins."):
                parts.append(_plugin(info))
    return _page("Plugins", "\n\n".join(parts))


def connector_keys() -> str:
    """Return the keys that the runtime itself reads."""
    plugin = PluginSpec("any")
    forms = {
        "Sources and direct connectors": Definition("any", source=plugin),
        "Sinks": Definition("any", sinks=(plugin,), topics=("any",)),
    }
    about = (
        "These keys stand at the top of a definition, beside `source:` and `sinks:`.\n"
        "Names and defaults are Kafka Connect's where it has them; "
        "some of those have no effect here yet."
    )
    parts = [about]
    for title, definition in forms.items():
        parts.append(f"## {title}\n\n{common_def(definition).to_markdown()}")
    return _page("Keys of every connector", "\n\n".join(parts))


def errors() -> str:
    """Return every error with its code."""
    for package in (headrace, headrace_plugins):
        _import_all(package)
    named = (kind for kind in _subclasses(HeadraceError) if "code" in vars(kind))
    kinds = sorted({kind.code: kind for kind in named}.items())
    rows = [
        (f"`{code}`", kind.category, _EXIT_CODES[kind.category], _summary(kind))
        for code, kind in kinds
    ]
    head = (
        "An error reads `[code] field: problem Fix: what to do`.\n"
        "The code is stable; the category decides the exit code of the command line."
    )
    columns = ("Code", "Category", "Exit code", "Meaning")
    return _page("Errors", f"{head}\n\n{_table(columns, rows)}")


def command_line() -> str:
    """Return every command with its arguments and options."""
    root: Any = typer.main.get_command(app)
    parts = [_sentences(root.help or ""), _sentences(root.epilog or ""), _parameters(root)]
    parts += [_command(path, command) for path, command in _commands("headrace", root)]
    return _page("Command line", "\n\n".join(part for part in parts if part))


def settings() -> str:
    """Return the settings with their variables."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = f"`{_default(field.default)}`"
        if field.default_factory is not None:
            default = _DEFAULTS.get(name, "depends on the machine")
        variable = f"`{PREFIX}{name.upper()}`"
        rows.append((f"`{name}`", variable, default, field.description or ""))
    head = (
        "A setting comes from the command line, else from its variable, "
        "else from `headrace.toml`, else it has its default.\n"
        "`--config` or `HEADRACE_CONFIG` names another file."
    )
    columns = ("Setting", "Variable", "Default", "Meaning")
    return _page("Settings", f"{head}\n\n{_table(columns, rows)}")


def _info(registry: Registry, kind: PluginKind, name: str) -> PluginInfo:
    return next(info for info in registry.find(name) if info.kind is kind)


def _plugin(info: PluginInfo) -> str:
    facts = [f"- Class: `{info.class_path}`"]
    facts += [f"- Also called: `{alias}`" for alias in info.aliases]
    if (delivery := getattr(info.plugin, "delivery", None)) is not None:
        facts.append(f"- Delivery: {delivery.value}")
    keys = info.config_def().to_markdown() or "It takes no keys.\n"
    about = _sentences(inspect.getdoc(info.plugin) or "")
    return f"## {info.name} ({info.kind})\n\n{about}\n\n" + "\n".join(facts) + f"\n\n{keys}"


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from _commands(f"{path} {name}", inner)
        else:
            yield f"{path} {name}", inner


def _command(path: str, command: Any) -> str:
    return f"## {path}\n\n{_sentences(command.help or '')}\n\n{_parameters(command)}".rstrip()


def _parameters(command: Any) -> str:
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
        else:
            name = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if "completion" not in name:
            rows.append((f"`{name}`", parameter.help or ""))
    return _table(("Argument or option", "Meaning"), rows) if rows else ""


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _subclasses(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield kind
    for inner in kind.__subclasses__():
        if inner.__module__.partition(".")[0] in {"headrace", "headrace_plugins"}:
            yield from _subclasses(inner)


def _summary(kind: type[HeadraceError]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _default(value: object) -> str:
    seconds = getattr(value, "total_seconds", None)
    return f"{seconds():g} s" if seconds else str(value)


def _sentences(text: str) -> str:
    """Return the prose of a docstring, a sentence a line; what takes an argument ends it."""
    prose = re.split(r"\n(?:Args|Raises|Returns):\n", inspect.cleandoc(text))[0]
    paragraphs = [" ".join(part.split()) for part in prose.strip().split("\n\n")]
    lines = (re.sub(r"(?<=[.:]) (?=[A-Z`])", "\n", part) for part in paragraphs)
    return "\n\n".join(lines).replace("``", "`")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ([str(cell).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _page(title: str, text: str) -> str:
    return f"{_NOTE}# {title}\n\n{text.strip()}\n"


def _title(page: str) -> str:
    return page.splitlines()[1].removeprefix("# ")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
