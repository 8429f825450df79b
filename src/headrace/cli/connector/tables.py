"""``headrace connector tables``: the tables of a connector that reads a database."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.connector.offsets import as_text, stopped
from headrace.cli.formats import time_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, Name, Seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.client import Client

app = typer.Typer(
    help="Add, drop, pause, read again and replay single tables of a connector that reads a "
    "database; its other tables stay where they are. It stops for a moment."
)
SomeTables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE...]", help="As table or schema.table. All if none."),
]
Tables = Annotated[
    list[str], typer.Argument(metavar="TABLE...", help="As offsets name them: schema.table.")
]
_INCLUDED, _EXCLUDED = "table.include.list", "table.exclude.list"
_PAUSED, _ALL = "snapshot.paused.list", "*.*"


@app.command("list")
def list_tables(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show which tables were read, are being read, replayed or held back."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = _offsets(client, name)
        paused = _listed(client.config(name), _PAUSED)
        replayed = {table for each in _replays(client, name).values() for table in each}
    rows = [
        (table, _state(table, offset, paused, replayed), as_text(offset))
        for table, offset in found.items()
    ]
    # Those that are not begun have no offset, and what is paused may be a pattern.
    rows += [(each, "paused", "") for each in paused if not any(_fits(each, t) for t in found)]
    shown = [{"table": table, "state": state} for table, state, _ in rows]
    invocation.terminal.show_rows(("table", "state", "offset"), rows, json=shown)


def _state(
    table: str, offset: Mapping[str, object], paused: Sequence[str], replayed: Collection[str]
) -> str:
    if "after" not in offset and offset.get("round") != 0:
        return "replayed" if table in replayed else "read"
    return "paused" if any(_fits(each, table) for each in paused) else "being read"


def _fits(pattern: str, table: str) -> bool:
    """Return whether a table, with its schema, is one of a name or pattern."""
    return fnmatchcase(table, pattern) or fnmatchcase(table, f"*.{pattern}")


@app.command()
def pause(
    context: typer.Context, name: Name, tables: SomeTables = None, as_json: Json = False
) -> None:
    """Hold the reading of tables back: they are added to snapshot.paused.list.

    Changes of those that were read go on. What was read of a table need not be read again.
    """
    wanted = tables or [_ALL]
    with invocation_of(context).client() as client:
        paused = _listed(client.config(name), _PAUSED)
        client.change(name, {_PAUSED: ", ".join(dict.fromkeys([*paused, *wanted]))})
    _tell(context, name, [f"{name}: pauses the reading of {each}" for each in wanted])


@app.command()
def resume(
    context: typer.Context, name: Name, tables: SomeTables = None, as_json: Json = False
) -> None:
    """Go on reading tables that were held back."""
    from headrace.sdk import ConfigError

    with invocation_of(context).client() as client:
        paused = _listed(client.config(name), _PAUSED)
        wanted = paused if tables is None else tables
        left = [each for each in paused if each not in wanted]
        for table in wanted:
            if table not in paused:
                raise ConfigError(
                    problem=f"{name} has not paused {table}.",
                    fix=f"It has paused: {', '.join(paused) or 'no table'}.",
                    field="TABLE",
                )
        client.change(name, {_PAUSED: ", ".join(left) if left else None})
    _tell(context, name, [f"{name}: goes on reading {each}" for each in wanted])


@app.command()
def add(context: typer.Context, name: Name, tables: Tables, as_json: Json = False) -> None:
    """Read more tables: they are added to table.include.list."""
    with invocation_of(context).client() as client:
        config = client.config(name)
        included, excluded = _listed(config, _INCLUDED), _listed(config, _EXCLUDED)
        changes: dict[str, str | None] = {}
        if included:
            changes[_INCLUDED] = ", ".join(dict.fromkeys([*included, *tables]))
        if set(excluded) & set(tables):
            left = [each for each in excluded if each not in tables]
            changes[_EXCLUDED] = ", ".join(left) if left else None
        if changes:
            client.change(name, changes)
    _tell(context, name, [f"{name}: reads {table}" for table in tables])


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    tables: Tables,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Read tables no longer. Added again, they are read from the beginning."""
    terminal = invocation_of(context).terminal
    with invocation_of(context).client() as client:
        config = client.config(name)
        included, excluded = _listed(config, _INCLUDED), _listed(config, _EXCLUDED)
        left = [each for each in included if each not in tables]
        changes: dict[str, str | None] = {}
        if len(left) < len(included) and left:
            changes[_INCLUDED] = ", ".join(left)
        # Those that a pattern has chosen, and the last one, have to be excluded.
        others = [each for each in tables if each not in included or not left]
        if others:
            changes[_EXCLUDED] = ", ".join(dict.fromkeys([*excluded, *others]))
        with stopped(client, terminal, name, timeout, stop=True):
            client.change(name, changes)
            _forget(client, name, tables)
    _tell(context, name, [f"{name}: no longer reads {table}" for table in tables])


@app.command()
def resync(
    context: typer.Context,
    name: Name,
    tables: Tables,
    *,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only the rows of a condition in SQL."),
    ] = None,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Read tables again, or some of their rows, while the others go on.

    A sink that upserts then has what the source has; rows that only the target has stay.
    """
    from headrace.client import OffsetInfo

    terminal = invocation_of(context).terminal
    with (
        invocation_of(context).client() as client,
        stopped(client, terminal, name, timeout, stop=True),
    ):
        names = _required(client, name, tables)
        more = {} if where is None else {"where": where}
        asked = [OffsetInfo({"table": each, **more}, {"round": 0}) for each in names]
        client.set_offsets(name, asked)
    _tell(context, name, [f"{name}: reads {table} again" for table in tables])


@app.command()
def replay(
    context: typer.Context,
    name: Name,
    tables: SomeTables = None,
    *,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="As in ISO 8601; of this machine's zone by default."),
    ],
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Send the changes of tables since a time again, while the others go on.

    MySQL and MariaDB only, as far as their binary logs go back. The tables get their changes in
    order: those of then first, and those of now when these are reached.
    """
    from datetime import UTC

    from headrace.client import OffsetInfo

    terminal = invocation_of(context).terminal
    partition = {"since": time_of(since, "--since").astimezone(UTC).isoformat()}
    with (
        invocation_of(context).client() as client,
        stopped(client, terminal, name, timeout, stop=True),
    ):
        names = _required(client, name, tables) if tables else list(_offsets(client, name))
        # Those that are on their way from this time on begin again too: else they would lose
        # what the main reader has passed over meanwhile.
        begun = _replays(client, name).get(partition["since"], [])
        offset = {"tables": list(dict.fromkeys([*begun, *names]))}
        client.set_offsets(name, [OffsetInfo(partition, offset)])
    _tell(context, name, [f"{name}: replays {table}" for table in names])


def _replays(client: Client, name: str) -> dict[str, list[str]]:
    """Return the tables that are replayed, by the times since which they are."""
    return {
        each.partition["since"]: (each.offset or {})["tables"]
        for each in client.offsets(name)
        if set(each.partition) == {"since"}
    }


def _offsets(client: Client, name: str) -> dict[str, dict[str, object]]:
    return {
        each.partition["table"]: dict(each.offset or {})
        for each in client.offsets(name)
        if set(each.partition) == {"table"}
    }


def _required(client: Client, name: str, tables: Sequence[str]) -> list[str]:
    """Return what offsets call tables. Raises ConfigError for one that was not read."""
    from headrace.sdk import ConfigError

    known = _offsets(client, name)
    found = {table: _known(known, table) for table in tables}
    for table, there in found.items():
        if there is None:
            raise ConfigError(
                problem=f"{name} has not read {table}.",
                fix=f"It has read: {', '.join(known) or 'no table'}.",
                field="TABLE",
            )
    return [each for each in found.values() if each is not None]


def _forget(client: Client, name: str, tables: Sequence[str]) -> None:
    """Let a stopped connector know nothing of tables."""
    from headrace.client import OffsetInfo

    known = _offsets(client, name)
    found = [_known(known, table) for table in tables]
    if gone := [OffsetInfo({"table": table}, None) for table in found if table is not None]:
        client.set_offsets(name, gone)


def _known(known: Iterable[str], table: str) -> str | None:
    """Return what offsets call a table, which have its schema."""
    return next((each for each in known if each == table or each.endswith(f".{table}")), None)


def _listed(config: Mapping[str, str], key: str) -> list[str]:
    """Return what a list of tables in a configuration has."""
    return [each.strip() for each in config.get(key, "").split(",") if each.strip()]


def _tell(context: typer.Context, name: str, lines: Sequence[str]) -> None:
    invocation_of(context).terminal.show({"name": name, "done": list(lines)}, *lines)
