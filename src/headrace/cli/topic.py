"""``headrace topic``: looks at topics, and says how long they keep rows, without Spark."""

from __future__ import annotations

from dataclasses import asdict
from getpass import getuser
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import bytes_of, count, millis_of, size
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from headrace.model import TopicRetention
    from headrace.runtime.app import Runtime
    from headrace.topics import Topic


def existing_topic(runtime: Runtime, name: str) -> Topic:
    """Return a topic. Raises ConfigError, with names that are close, when there is none."""
    from headrace.cli.failures import unknown

    topic = runtime.topics.get(name)
    if not topic.exists():
        known = [known.name for known in runtime.topics.list()]
        raise unknown(name, known, noun="topic", field="NAME")
    return topic


def fields_of(schema: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str, bool]]:
    """Return name, type and nullability of a Spark schema's fields, with those inside."""
    found: list[tuple[str, str, bool]] = []
    for field in schema.get("fields", []):
        name, kind = f"{prefix}{field['name']}", field["type"]
        found.append((name, _type(kind), field["nullable"]))
        if isinstance(kind, dict) and kind["type"] == "struct":
            found += fields_of(kind, f"{name}.")
    return found


def retention_text(kept: TopicRetention) -> str:
    """Return how long a topic keeps its rows, in words."""
    from headrace.cli.formats import size, span

    text = "for ever" if kept.age is None else span(kept.age.total_seconds())
    if kept.size_bytes is not None:
        text += f", up to {size(kept.size_bytes)}"
    return f"{text}, unread rows too" if kept.unread else f"{text}, unread rows stay"


def retention_json(kept: TopicRetention) -> dict[str, Any]:
    """Return the same for programs; null is no limit."""
    millis = None if kept.age is None else int(kept.age.total_seconds() * 1000)
    return {"ms": millis, "bytes": kept.size_bytes, "unread": kept.unread}


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


app = typer.Typer(help="Look at topics and configure them. Does not start Spark.")


@app.command("list")
def list_topics(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the topics with their figures."""
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
        as_json=as_json,
        right=("rows", "size", "version"),
        empty=f"no topics in {invocation.settings.topics_dir}",
    )


@app.command()
def describe(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The topic.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a topic's figures, who reads it, and its schema."""
    from headrace.cli.terminal import table

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
    if as_json:
        readers = [asdict(each) for each in readings]
        more = {"retention": retention_json(topic.retention), "readers": readers}
        terminal.print_json({**figures, **more, "schema": dict(topic.schema)})
        return
    for key, value in figures.items():
        text = count(value) if isinstance(value, int) else str(value or "")
        terminal.print(f"{key.replace('_', ' '):<15} {text}")
    terminal.print(f"{'retention':<15} {retention_text(topic.retention)}")
    for each in readings:
        behind = topic.version - each.version
        where = f"{count(behind)} versions behind" if behind else "at the end"
        terminal.print(f"{'reader':<15} {each.reader}, {where}")
    shown = table("field", "type", "nullable")
    for field, kind, nullable in fields_of(topic.schema):
        shown.add_row(field, kind, "yes" if nullable else "no")
    terminal.print(shown)


@app.command()
def configure(  # noqa: PLR0917 - options of a command
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The topic.")],
    retention: Annotated[
        str | None,
        typer.Option(help="Remove rows that are older, as in 30d or 12h; none for never."),
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option(help="Remove the oldest rows beyond a size, as in 10GB; none for any."),
    ] = None,
    unread: Annotated[
        bool | None,
        typer.Option(
            "--remove-unread/--keep-unread",
            help="Whether rows are removed, as in Kafka, that a sink has yet to read.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how long a topic keeps its rows. It is stored with the topic."""
    invocation = invocation_of(context)
    millis = None if retention is None else millis_of(retention, "--retention")
    size_bytes = (
        None if retention_bytes is None else bytes_of(retention_bytes, "--retention-bytes")
    )
    with invocation.runtime() as runtime:
        topic = existing_topic(runtime, name)
        kept = topic.retention().changed(millis, size_bytes, unread=unread)
        topic.configure(kept, by=getuser())
    if as_json:
        invocation.terminal.print_json({"name": name, "retention": retention_json(kept)})
    else:
        invocation.terminal.print(f"{name}: {retention_text(kept)}")


@app.command()
def peek(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The topic.")],
    rows: Annotated[int, typer.Option(min=1, help="How many records.")] = 20,
    newest: Annotated[
        bool, typer.Option("--newest/--oldest", help="From which end of the topic.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a record.")
    ] = False,
) -> None:
    """Show some records of a topic, the oldest of them first."""
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
    """Return a record's cells: its value's fields by their names, and what else it has."""
    value = record.get("value")
    fields = value if isinstance(value, dict) else {"value": value}
    around = {name: record.get(name) for name in ("stream", "key", "timestamp", "headers")}
    given = {name: cell for name, cell in around.items() if cell is not None}
    return {"version": record["version"], **given, **fields}
