"""``headrace topic`` and ``headrace schema``: topics and their schemas, without Spark."""

from __future__ import annotations

from dataclasses import asdict
from getpass import getuser
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import bytes_of, count, millis_of, size, span
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, JsonLines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.cli.terminal import Terminal
    from headrace.evolution import SchemaChange
    from headrace.model import TopicRetention
    from headrace.runtime.app import Runtime
    from headrace.sdk import Schema
    from headrace.topics import SchemaVersion, Topic


def existing_topic(runtime: Runtime, name: str) -> Topic:
    """Return a topic. Raises ConfigError, with similar names, if it does not exist."""
    from headrace.cli.failures import unknown

    topic = runtime.topics.get(name)
    if not topic.exists():
        known = [known.name for known in runtime.topics.list()]
        raise unknown(name, known, noun="topic", field="NAME")
    return topic


def fields_of(schema: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str, bool]]:
    """Return name, type and nullability of a Spark schema's fields, nested ones included."""
    found: list[tuple[str, str, bool]] = []
    for field in schema.get("fields", []):
        name, kind = f"{prefix}{field['name']}", field["type"]
        found.append((name, _type(kind), field["nullable"]))
        if isinstance(kind, dict) and kind["type"] == "struct":
            found += fields_of(kind, f"{name}.")
    return found


def _retention_text(retention: TopicRetention) -> str:
    text = "unlimited" if retention.age is None else span(retention.age.total_seconds())
    if retention.size_bytes is not None:
        text += f", up to {size(retention.size_bytes)}"
    return f"{text}, unread rows too" if retention.unread else f"{text}, unread rows are kept"


def _retention_json(retention: TopicRetention) -> dict[str, Any]:
    """Return the retention as JSON; null means no limit."""
    millis = None if retention.age is None else int(retention.age.total_seconds() * 1000)
    return {"ms": millis, "bytes": retention.size_bytes, "unread": retention.unread}


def show_fields(terminal: Terminal, schema: Mapping[str, Any], *, json: Any) -> None:
    """Print the fields of a Spark schema as a table, or the JSON instead."""
    terminal.show_rows(
        ("field", "type", "nullable"),
        ((name, kind, "yes" if null else "no") for name, kind, null in fields_of(schema)),
        json=json,
    )


def iso(time: datetime | None) -> str | None:
    """Return a time as text."""
    return None if time is None else time.isoformat(timespec="seconds")


def _type(kind: str | Mapping[str, Any]) -> str:
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{_type(kind['elementType'])}>"
        case "map":
            return f"map<{_type(kind['keyType'])}, {_type(kind['valueType'])}>"
        case other:
            return str(other)


Name = Annotated[str, typer.Argument(help="The topic.")]
app = typer.Typer(help="Show and configure topics. Does not start Spark.")


@app.command("list")
def list_topics(
    context: typer.Context,
    as_json: Json = False,
) -> None:
    """List the topics with their row counts, sizes and versions."""
    invocation = invocation_of(context)
    with invocation.runtime() as runtime:
        found = [topic.describe() for topic in runtime.topics.list()]
    invocation.terminal.show_rows(
        ("topic", "rows", "size", "version", "last append"),
        (
            (
                topic.name,
                count(topic.rows),
                size(topic.size_bytes),
                topic.version,
                iso(topic.last_append) or "",
            )
            for topic in found
        ),
        json=[
            {
                "name": topic.name,
                "rows": topic.rows,
                "size_bytes": topic.size_bytes,
                "version": topic.version,
                "last_append": iso(topic.last_append),
            }
            for topic in found
        ],
        right=("rows", "size", "version"),
        empty=f"no topics in {invocation.settings.topics_dir}",
    )


@app.command()
def describe(
    context: typer.Context,
    name: Name,
    as_json: Json = False,
) -> None:
    """Show a topic's statistics, readers and schema."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime() as runtime:
        topic = existing_topic(runtime, name).describe()
        readings = runtime.readings(name)
    figures = {
        "name": topic.name,
        "path": topic.path,
        "rows": topic.rows,
        "size_bytes": topic.size_bytes,
        "files": topic.files,
        "version": topic.version,
        "oldest_version": topic.oldest_version,
        "first_append": iso(topic.first_append),
        "last_append": iso(topic.last_append),
    }
    if not as_json:
        facts = [
            (key.replace("_", " "), count(value) if isinstance(value, int) else value or "")
            for key, value in figures.items()
        ]
        facts.append(("retention", _retention_text(topic.retention)))
        for each in readings:
            behind = topic.version - each.version
            where = f"{count(behind)} versions behind" if behind else "at the end"
            facts.append(("reader", f"{each.reader}, {where}"))
        terminal.print(*(f"{label:<15} {text}" for label, text in facts))
    more = {
        "retention": _retention_json(topic.retention),
        "readers": [asdict(each) for each in readings],
        "schema": dict(topic.schema),
    }
    show_fields(terminal, topic.schema, json={**figures, **more})


@app.command()
def configure(  # noqa: PLR0917 - options of a command
    context: typer.Context,
    name: Name,
    retention: Annotated[
        str | None,
        typer.Option(help="Remove rows older than this, such as 30d or 12h; none: no limit."),
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option(help="Remove the oldest rows above a size, such as 10GB; none: no limit."),
    ] = None,
    unread: Annotated[
        bool | None,
        typer.Option(
            "--remove-unread/--keep-unread",
            help="Whether to remove rows that a sink has not read yet, as Kafka does.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set a topic's retention, which is stored with the topic."""
    invocation = invocation_of(context)
    millis = None if retention is None else millis_of(retention, "--retention")
    size_bytes = (
        None if retention_bytes is None else bytes_of(retention_bytes, "--retention-bytes")
    )
    with invocation.runtime() as runtime:
        topic = existing_topic(runtime, name)
        changed = topic.retention().changed(millis, size_bytes, unread=unread)
        topic.configure(changed, by=getuser())
    shown = {"name": name, "retention": _retention_json(changed)}
    invocation.terminal.show(shown, f"{name}: {_retention_text(changed)}")


@app.command()
def peek(
    context: typer.Context,
    name: Name,
    rows: Annotated[int, typer.Option(min=1, help="How many records.")] = 20,
    newest: Annotated[
        bool, typer.Option("--newest/--oldest", help="Which end of the topic to show.")
    ] = True,
    as_json: JsonLines = False,
) -> None:
    """Show the newest or oldest records of a topic, in their order."""
    from headrace.cli.terminal import grid
    from headrace.topics import peek as read_ends

    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime() as runtime:
        records = read_ends(existing_topic(runtime, name), rows, oldest=not newest)
    if as_json:
        for record in records:
            terminal.print_json(record)
        return
    if not records:
        terminal.note(f"{name} is empty")
        return
    lines = [_line(record) for record in records]
    columns = list(dict.fromkeys(column for line in lines for column in line))
    values = [[line.get(column) for column in columns] for line in lines]
    terminal.print(grid(columns, values, width=terminal.width))


def _line(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's cells: the fields of its value, and its other parts that are set."""
    value = record.get("value")
    fields = value if isinstance(value, dict) else {"value": value}
    others = ("stream", "key", "timestamp", "headers")
    around = {name: record[name] for name in others if record.get(name) is not None}
    return {"version": record["version"], **around, **fields}


schemas = typer.Typer(help="Show and compare the schemas of topics. Does not start Spark.")

Stream = Annotated[str | None, typer.Option(help="The stream, if the topic contains several.")]


@schemas.command("list")
def list_schemas(
    context: typer.Context, topic: Name, stream: Stream = None, as_json: Json = False
) -> None:
    """List all schemas of a topic, past and present, with the first batch of each."""
    terminal = invocation_of(context).terminal
    found = _versions(context, topic, stream)
    listed = [(version, _since(found, version)) for version in found]
    terminal.show_rows(
        ("stream", "number", "version", "time", "batch", "changes"),
        (
            (
                version.stream,
                version.number,
                version.version,
                iso(version.time) or "",
                "" if version.batch is None else f"{version.application} {version.batch}",
                ", ".join(str(change) for change in changes),
            )
            for version, changes in listed
        ),
        json=[_to_json(version, changes) for version, changes in listed],
        right=("number",),
        empty=f"{topic} has no records yet",
    )


@schemas.command()
def show(
    context: typer.Context,
    topic: Name,
    version: Annotated[
        int | None, typer.Option(min=1, help="The number from list; the newest by default.")
    ] = None,
    stream: Stream = None,
    as_json: Json = False,
) -> None:
    """Show one schema of a topic."""
    terminal = invocation_of(context).terminal
    found = _one_stream(context, topic, stream)
    one = found[-1] if version is None else _numbered(found, version, "--version")
    if not as_json:
        terminal.print(f"{one.stream} {one.number}, from table version {one.version}")
    show_fields(terminal, _spark_json(one), json=_to_json(one, _since(found, one)))


@schemas.command()
def diff(
    context: typer.Context,
    topic: Name,
    old: Annotated[int, typer.Argument(min=1, help="The number of one schema.")],
    new: Annotated[int, typer.Argument(min=1, help="The number of the other.")],
    *,
    stream: Stream = None,
    as_json: Json = False,
) -> None:
    """List the changes between two schemas of a topic."""
    terminal = invocation_of(context).terminal
    found = _one_stream(context, topic, stream)
    one, other = _numbered(found, old, "OLD"), _numbered(found, new, "NEW")
    changes = _changes(one, other)
    shown = [change.to_json() for change in changes]
    terminal.show(shown, *map(str, changes), empty="no difference")


def _versions(context: typer.Context, topic: str, stream: str | None) -> list[SchemaVersion]:
    from headrace.cli.failures import unknown

    with invocation_of(context).runtime() as runtime:
        history = existing_topic(runtime, topic).history
        found = list(history.versions(stream))
        if stream is not None and not found:
            streams = list(dict.fromkeys(version.stream for version in history.versions()))
            raise unknown(stream, streams, noun="stream", field="--stream")
        return found


def _one_stream(
    context: typer.Context, topic: str, stream: str | None
) -> Sequence[SchemaVersion]:
    from headrace.sdk import ConfigError

    found = _versions(context, topic, stream)
    streams = list(dict.fromkeys(version.stream for version in found))
    if len(streams) == 1:
        return found
    problem = f"{topic} contains {len(streams)} streams." if streams else f"{topic} is empty."
    fix = f"Choose one with --stream: {', '.join(streams)}." if streams else ""
    raise ConfigError(problem, fix=fix, field="--stream")


def _numbered(found: Sequence[SchemaVersion], number: int, field: str) -> SchemaVersion:
    from headrace.sdk import ConfigError

    if number > len(found):
        problem = f"There is no schema {number}."
        raise ConfigError(problem, fix=f"Choose from 1 to {len(found)}.", field=field)
    return found[number - 1]


def _since(found: Sequence[SchemaVersion], version: SchemaVersion) -> Sequence[SchemaChange]:
    """Return the changes since the previous schema; none for the first."""
    earlier = [v for v in found if v.stream == version.stream and v.number < version.number]
    return _changes(earlier[-1], version) if earlier else ()


def _changes(old: SchemaVersion, new: SchemaVersion) -> Sequence[SchemaChange]:
    """Return the changes of the value, or of the whole record if the key changed too."""
    from headrace.evolution import schema_changes

    if old.key == new.key:
        return schema_changes(old.value, new.value)
    return schema_changes(_record(old), _record(new))


def _record(version: SchemaVersion) -> Schema:
    from headrace.sdk import Schema

    key = {} if version.key is None else {"key": version.key}
    return Schema.struct({**key, "value": version.value})


def _to_json(version: SchemaVersion, changes: Sequence[SchemaChange]) -> dict[str, Any]:
    return {
        "stream": version.stream,
        "number": version.number,
        "version": version.version,
        "time": iso(version.time),
        "application": version.application,
        "batch": version.batch,
        "changes": [change.to_json() for change in changes],
        "schema": _spark_json(version),
    }


def _spark_json(version: SchemaVersion) -> dict[str, Any]:
    """Return the row schema: the value's fields if there is no key, else key and value."""
    from headrace.sdk import Type
    from headrace.sdk.sparktypes import to_spark_json

    plain = version.key is None and version.value.type is Type.STRUCT
    return to_spark_json(version.value if plain else _record(version))
