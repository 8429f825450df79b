"""``headrace connector tables``: manages single tables of a database source."""

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
    help="Add, drop, pause, read again or replay single tables of a database source. Its other "
    "tables keep their offsets. The connector stops for a moment."
)
SomeTables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE...]", help="As table or schema.table; all by default."),
]
Tables = Annotated[
    list[str], typer.Argument(metavar="TABLE...", help="As named in offsets: schema.table.")
]
_INCLUDED, _EXCLUDED = "table.include.list", "table.exclude.list"
_PAUSED, _ALL = "snapshot.paused.list", "*.*"


@app.command("list")
def list_tables(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show the tables and their states: read, being read, replayed or paused."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = _offsets(client, name)
        paused = _listed(client.config(name), _PAUSED)
        replayed = {table for each in _replays(client, name).values() for table in each}
    rows = [
        (table, _state(table, offset, paused, replayed), as_text(offset))
        for table, offset in found.items()
    ]
    # Paused tables that were not started have no offset, and an entry may be a pattern.
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
    """Return whether a table, with its schema, matches a name or pattern."""
    return fnmatchcase(table, pattern) or fnmatchcase(table, f"*.{pattern}")


@app.command()
def pause(
    context: typer.Context, name: Name, tables: SomeTables = None, as_json: Json = False
) -> None:
    """Pause the snapshots of tables by adding the tables to snapshot.paused.list.

    Changes of tables with a complete snapshot are still read. A paused snapshot keeps its
    progress.
    """
    wanted = tables or [_ALL]
    with invocation_of(context).client() as client:
        paused = _listed(client.config(name), _PAUSED)
        client.change(name, {_PAUSED: ", ".join(dict.fromkeys([*paused, *wanted]))})
    _tell(context, name, [f"{name}: pauses the snapshot of {each}" for each in wanted])


@app.command()
def resume(
    context: typer.Context, name: Name, tables: SomeTables = None, as_json: Json = False
) -> None:
    """Resume the snapshots of paused tables."""
    from headrace.sdk import ConfigError

    with invocation_of(context).client() as client:
        paused = _listed(client.config(name), _PAUSED)
        wanted = paused if tables is None else tables
        left = [each for each in paused if each not in wanted]
        for table in wanted:
            if table not in paused:
                raise ConfigError(
                    problem=f"Table {table} of {name} is not paused.",
                    fix=f"Paused tables: {', '.join(paused) or 'none'}.",
                    field="TABLE",
                )
        client.change(name, {_PAUSED: ", ".join(left) if left else None})
    _tell(context, name, [f"{name}: resumes the snapshot of {each}" for each in wanted])


@app.command()
def add(context: typer.Context, name: Name, tables: Tables, as_json: Json = False) -> None:
    """Read more tables by adding them to table.include.list."""
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
    """Stop reading tables. If added again, they are read from the beginning."""
    terminal = invocation_of(context).terminal
    with invocation_of(context).client() as client:
        config = client.config(name)
        included, excluded = _listed(config, _INCLUDED), _listed(config, _EXCLUDED)
        left = [each for each in included if each not in tables]
        changes: dict[str, str | None] = {}
        if len(left) < len(included) and left:
            changes[_INCLUDED] = ", ".join(left)
        # Tables included by a pattern, and the last included table, must be excluded.
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
        typer.Option(metavar="CONDITION", help="Only the rows that match an SQL condition."),
    ] = None,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Read tables or some of their rows again, while the other tables continue.

    An upsert target then equals the source, except that rows missing in the source stay.
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
        typer.Option(metavar="TIME", help="ISO 8601; in this machine's time zone by default."),
    ],
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Replay the changes of tables since a time, while the other tables continue.

    MySQL and MariaDB only, as far back as their binary logs reach. Changes of these tables stay
    in order: current changes follow once the replay has caught up.
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
        # Tables already being replayed from this time start over too: otherwise they would
        # lose the changes that the main reader has skipped for them in the meantime.
        begun = _replays(client, name).get(partition["since"], [])
        offset = {"tables": list(dict.fromkeys([*begun, *names]))}
        client.set_offsets(name, [OffsetInfo(partition, offset)])
    _tell(context, name, [f"{name}: replays {table}" for table in names])


def _replays(client: Client, name: str) -> dict[str, list[str]]:
    """Return the tables that are being replayed, by the start time of the replay."""
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
    """Return the tables' names in offsets. Raises ConfigError for a table without offset."""
    from headrace.sdk import ConfigError

    known = _offsets(client, name)
    found = {table: _known(known, table) for table in tables}
    for table, there in found.items():
        if there is None:
            raise ConfigError(
                problem=f"{name} has not read table {table}.",
                fix=f"Tables read: {', '.join(known) or 'none'}.",
                field="TABLE",
            )
    return [each for each in found.values() if each is not None]


def _forget(client: Client, name: str, tables: Sequence[str]) -> None:
    """Delete the offsets of tables of a stopped connector."""
    from headrace.client import OffsetInfo

    known = _offsets(client, name)
    found = [_known(known, table) for table in tables]
    if gone := [OffsetInfo({"table": table}, None) for table in found if table is not None]:
        client.set_offsets(name, gone)


def _known(known: Iterable[str], table: str) -> str | None:
    """Return the table's name in offsets, which includes its schema; None if absent."""
    return next((each for each in known if each == table or each.endswith(f".{table}")), None)


def _listed(config: Mapping[str, str], key: str) -> list[str]:
    """Return the entries of a comma-separated list in a configuration."""
    return [each.strip() for each in config.get(key, "").split(",") if each.strip()]


def _tell(context: typer.Context, name: str, lines: Sequence[str]) -> None:
    invocation_of(context).terminal.show({"name": name, "done": list(lines)}, *lines)
