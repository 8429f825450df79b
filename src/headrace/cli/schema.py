"""``headrace schema``: shows and compares the schemas of topics, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json
from headrace.cli.topic import existing_topic, iso, show_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.evolution import SchemaChange
    from headrace.sdk import Schema
    from headrace.topics import SchemaVersion

app = typer.Typer(help="Show and compare the schemas of topics. Does not start Spark.")

Topic = Annotated[str, typer.Argument(help="The topic.")]
Stream = Annotated[str | None, typer.Option(help="The stream, if the topic contains several.")]


@app.command("list")
def list_schemas(
    context: typer.Context, topic: Topic, stream: Stream = None, as_json: Json = False
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


@app.command()
def show(
    context: typer.Context,
    topic: Topic,
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


@app.command()
def diff(
    context: typer.Context,
    topic: Topic,
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
