"""Writes docs/reference from what the code itself says.

Run it as ``.venv/bin/python scripts/reference.py`` after a change of keys, commands,
settings or errors; a test fails while the pages are out of date.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace
import headrace_plugins
import headrace_registry
from headrace.cli.app import command_for
from headrace.control import Connectors
from headrace.control.connector_settings import common_def
from headrace.control.job_definitions import AlertSettings, JobSettings, ScheduleSettings
from headrace.metrics import METRICS
from headrace.model import Definition, PluginSpec
from headrace.plugins import PluginInfo, PluginKind, Registry
from headrace.rest import Workbench, v1_api
from headrace.runtime.app import Runtime
from headrace.scheduler import ENGINES
from headrace.sdk import HeadraceError
from headrace.sdk.config import ConfigDef, ConfigKey
from headrace.sdk.config import Settings as PluginSettings
from headrace.sdk.worker_plugins import MetricKind
from headrace.settings import PREFIX, Settings
from headrace.store import ConnectorStore, Store, now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

PACKAGES = (headrace, headrace_plugins, headrace_registry)
FOLDER = Path(__file__).parent.parent / "docs" / "reference"
_NOTE = "<!-- Made by scripts/reference.py; do not edit. -->\n"
_DEFAULTS = {
    "topics_dir": "`<home>/topics`",
    "server_tokens": "`<home>/tokens.json`",
    "spark_conf": "none",
    "config_providers": "none",
    "reporters": "none",
    "alerts": "the log",
    "schedule_engines": "none",
}
_REST = (
    "The API of a server under `/v1/`, as it describes itself at `/v1/openapi.json`.\n"
    "[How to use it](../how-to/use-the-v1-api.md) has examples.\n"
    "Whatever is no success is answered with a `Problem`, whose `code` is one of "
    "[these](errors.md), or begins with `request.`."
)
_EXIT_CODES = {"run": 1, "config": 2, "environment": 3}


class Silent:
    """Is told what happens, and says nothing."""

    def batch_finished(self, *_: object) -> None:
        """See Events."""

    state_changed = retrying = batch_finished


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    made = {
        "plugins.md": plugins(),
        "connector-keys.md": connector_keys(),
        "job-keys.md": job_keys(),
        "errors.md": errors(),
        "cli.md": command_line(),
        "settings.md": settings(),
        "metrics.md": metrics(),
        "rest-v1.md": rest_v1(),
        # It takes servers to make: tests/database_tables/page.py does.
        "database-types.md": (FOLDER / "database-types.md").read_text(),
        # It takes packages of others to make: tests/differential/files_of_others.py does.
        "files-of-others.md": (FOLDER / "files-of-others.md").read_text(),
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
        parts.append(f"## {title}\n\n{_keys(common_def(definition))}")
    return _page("Keys of every connector", "\n\n".join(parts))


def job_keys() -> str:
    """Return the keys of an offline job beside those of its copy, and of what may wake it."""
    about = (
        "These keys stand at the top of a job's document, beside `source:`, `sinks:` and the "
        "keys of every connector."
    )
    sections: dict[str, type[PluginSettings]] = {
        "schedule": ScheduleSettings,
        "alerts": AlertSettings,
    }
    below = (
        f"## Below `{name}:`\n\n{_keys(each.config_def())}" for name, each in sections.items()
    )
    text = "\n\n".join([about, _keys(JobSettings.config_def()), *below])
    for kind, engine in ENGINES.items():
        title = f'## In the settings below `schedule_engines.NAME`, with `type = "{kind}"`'
        text += f"\n\n{title}\n\n{_keys(engine.config_def())}"
    return _page("Keys of offline jobs", text)


def errors() -> str:
    """Return every error with its code."""
    for package in PACKAGES:
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
    root = command_for(())
    parts = [_sentences(root.help or ""), _sentences(root.epilog or ""), _parameters(root)]
    parts += [_command(path, command) for path, command in _commands("headrace", root)]
    return _page("Command line", "\n\n".join(part for part in parts if part))


def metrics() -> str:
    """Return every metric, and every one of Kafka Connect with what stands for it."""
    about = (
        "A server shows these at `/metrics`, as "
        "[how to watch a server](../how-to/monitor-with-prometheus-and-grafana.md) tells.\n"
        "They are those of one worker since its process began.\n"
        "A counter's samples end in `_total`; those of a histogram and a summary in `_count` "
        "and `_sum`, and a histogram's buckets in `_bucket`."
    )
    rows = [
        (
            f"`{each.name}`",
            each.kind.value,
            ", ".join(f"`{label}`" for label in each.labels),
            each.help,
        )
        for each in METRICS
    ]
    ours = _table(("Metric", "Kind", "Labels", "Meaning"), rows)
    meant: dict[str, list[str]] = {}
    for each in METRICS:
        shown = each.name + ("_total" if each.kind is MetricKind.COUNTER else "")
        for kafka, value in each.kafka.items():
            told = f"`{shown}`" + (f": {value}" if value else "")
            meant.setdefault(kafka, []).append(told)
    theirs = _table(
        ("Kafka Connect's", "Here"),
        [(f"`{kafka}`", "; ".join(told)) for kafka, told in sorted(meant.items())],
    )
    kafka = (
        "## Kafka Connect's metrics\n\n"
        "The left column has the attributes of its MBeans `kafka.connect:type=...`, and the "
        "right one what tells the same here, in PromQL where it has to be computed; a selector "
        "alone stands for the metric with that selector.\n"
        "Times are in seconds here, and in milliseconds there."
    )
    return _page("Metrics", f"{about}\n\n{ours}\n\n{kafka}\n\n{theirs}")


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


def rest_v1() -> str:
    """Return every request of our own REST API, and the shapes of what they hold."""
    told = _description()
    parts = [_REST, "## Requests"]
    parts += [
        "\n\n".join(_operation(f"{method.upper()} {path}", operation))
        for path, operations in told["paths"].items()
        for method, operation in operations.items()
    ]
    parts.append("## Shapes")
    shapes = told["components"]["schemas"].items()
    parts += ["\n\n".join(_shape(name, shape)) for name, shape in sorted(shapes)]
    return _page("The API under /v1/", "\n\n".join(parts))


def _info(registry: Registry, kind: PluginKind, name: str) -> PluginInfo:
    return next(info for info in registry.find(name) if info.kind is kind)


def _plugin(info: PluginInfo) -> str:
    facts = [f"- Class: `{info.class_path}`"]
    facts += [f"- Also called: `{alias}`" for alias in info.aliases]
    if (delivery := getattr(info.plugin, "delivery", None)) is not None:
        facts.append(f"- Delivery: {delivery.value}")
    keys = _keys(info.config_def()) or "It has no keys.\n"
    about = _sentences(inspect.getdoc(info.plugin) or "")
    return f"## {info.name} ({info.kind})\n\n{about}\n\n" + "\n".join(facts) + f"\n\n{keys}"


def _keys(definition: ConfigDef) -> str:
    """Return a table for each group of keys."""
    columns = ("Key", "Type", "Default", "Valid values", "Importance", "Meaning")
    parts = []
    for group, members in groupby(definition.sorted_keys(), key=lambda key: key.group):
        rows = [
            (
                f"`{key.name}`",
                key.type,
                _key_default(key),
                "" if key.validator is None else key.validator,
                key.importance.lower(),
                key.doc,
            )
            for key in members
        ]
        title = "" if group is None else f"### {group}\n\n"
        parts.append(f"{title}{_table(columns, rows)}\n")
    return "\n".join(parts)


def _key_default(key: ConfigKey) -> str:
    if key.required:
        return "**required**"
    text = key.default_text
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


def _description() -> dict[str, Any]:
    """Return what the API says of itself; nothing is started for it."""
    state = Store()
    runtime = Runtime(Settings(), state)
    wanted = ConnectorStore(state.database)
    connectors = Connectors(
        store=wanted, task_store=state, registry=runtime.registry, clock=now
    )
    return v1_api(connectors, runtime.jobs, Workbench(runtime, Silent(), now)).openapi()


def _operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {title}"
    yield f"{operation['summary']}."
    if "description" in operation:
        yield _sentences(operation["description"])
    parameters = operation.get("parameters", ())
    if parameters:
        rows = (
            (
                f"`{each['name']}`",
                each["in"],
                _type(each["schema"]),
                each.get("description", ""),
            )
            for each in parameters
        )
        yield _table(("Parameter", "In", "Type", "Meaning"), [*rows])
    if "requestBody" in operation:
        yield f"Takes {_content(operation['requestBody'])}."
    status, answer = next(iter(operation["responses"].items()))
    refused = ", ".join(each for each in operation["responses"] if each != status)
    yield f"Answers {status} with {_content(answer)}, or a problem: {refused}."


def _shape(name: str, shape: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if "description" in shape:
        yield _sentences(shape["description"])
    if "enum" in shape:
        yield f"One of {', '.join(f'`{each}`' for each in shape['enum'])}."
        return
    required = shape.get("required", ())
    rows = (
        (
            f"`{field}`",
            _type(told),
            "yes" if field in required else "no",
            told.get("description", ""),
        )
        for field, told in shape.get("properties", {}).items()
    )
    yield _table(("Field", "Type", "Always there", "Meaning"), [*rows])


def _content(told: dict[str, Any]) -> str:
    [(kind, media)] = told["content"].items()
    return f"`{kind}`" if kind == "text/event-stream" else _type(media["schema"])


def _type(schema: dict[str, Any]) -> str:
    """Return a type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "const" in schema:
        return f"`{str(schema['const']).lower()}`"
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"map of {_type(schema['additionalProperties'])}"
        case None:
            return "any"
        case kind:
            return "time" if schema.get("format") == "date-time" else str(kind)


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
        if inner.__module__.partition(".")[0] in {each.__name__ for each in PACKAGES}:
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
    return next(line for line in page.splitlines() if line.startswith("# "))[2:]


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
