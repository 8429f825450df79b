"""The schemas that records have had on a server, by connector or by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.options import Json, known_names
from headrace.cli.figures import moment
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def schemas(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A source that keeps schemas.", autocompletion=known_names
        ),
    ] = None,
    *,
    topic: Annotated[str | None, typer.Option(help="Those of a topic instead.")] = None,
    as_json: Json = False,
) -> None:
    """Show the schemas that the streams of a connector, or a topic, have had."""
    from headrace.cli.terminal import table
    from headrace.sdk import ConfigError

    if (name is None) == (topic is None):
        problem = "Schemas are those of a connector or of a topic."
        raise ConfigError(problem, field="NAME", fix="Name a connector, or add --topic TOPIC.")
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.topic_schemas(topic) if topic else client.stream_schemas(name or "")
    if as_json:
        invocation.terminal.print_json(found)
        return
    shown = table("stream", "version", "at", "schema", right=("version",))
    for each in found:
        for version in each.get("versions", (each,)):
            at = moment(str(version.get("at", "")))
            text = _text(version["value"])
            shown.add_row(each["stream"], str(version["version"]), at, text)
    if shown.row_count:
        invocation.terminal.print(shown)
    else:
        invocation.terminal.note(f"{topic or name} keeps no schema")


def _text(field: Mapping[str, Any]) -> str:
    """Return a schema in a few words: ``id long not null, name string``."""
    from headrace.cli.topicview import fields_of

    if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
        fields = fields_of(field["type"])
    else:
        fields = fields_of({"fields": [{**field, "name": "value"}]})
    return ", ".join(
        f"{name} {kind}{'' if nullable else ' not null'}" for name, kind, nullable in fields
    )
