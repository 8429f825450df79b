"""What a table holds in the end: by its changes, and by its database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.adapt import Loader
from tests.debezium.events import UNCHANGED, Kind, canonical_row
from typing_extensions import override

Row = dict[str, Any]


class _Text(Loader):
    """Leaves a value as PostgreSQL writes it."""

    @override
    def load(self, data: Any) -> str:
        return bytes(data).decode()


_AS_TEXT = (
    *("json", "jsonb", "date", "timestamp", "timestamptz", "interval", "inet", "uuid"),
    *("int4range", "numrange", "daterange"),
)


def table_rows(url: str, table: str, kinds: Mapping[str, Kind]) -> list[Row]:
    """Return the rows of a table as `normalised` has them.

    Args:
        url: Where the database is.
        table: Its name as SQL has it.
        kinds: Of its columns.
    """
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET IntervalStyle = 'postgres'")
        for name in _AS_TEXT:
            connection.adapters.register_loader(name, _Text)
        cursor = connection.execute(f"SELECT * FROM {table}".encode())  # noqa: S608 - SQL itself
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return [canonical_row(kinds, row) or {} for row in rows]


def column_kinds(changes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Kind]]:
    """Return the kinds of the columns that the changes of each topic have had."""
    found: dict[str, dict[str, Kind]] = defaultdict(dict)
    for change in changes:
        found[change["topic"]].update(change["kinds"])
    return found


def replayed(changes: Iterable[Mapping[str, Any]]) -> dict[str, list[Row]]:
    """Return the rows of each topic once its changes have been made, in their order.

    A row has the columns that it had when it changed last; `UNCHANGED` is what no change had
    by the name that a column has then.
    """
    tables: dict[str, list[tuple[Row | None, Row]]] = defaultdict(list)
    deleted: dict[str, Row] = {}
    for change in changes:
        topic, key, before, after = (
            change[name] for name in ("topic", "key", "before", "after")
        )
        rows = tables[topic]
        if change["op"] == "t":
            rows.clear()
            continue
        if change["op"] in {"u", "d"}:
            deleted[topic] = rows.pop(_place(rows, key, before))[1]
        if after is not None:
            # A row whose key changes is deleted and created, without what the log has not got.
            old = deleted.get(topic, {})
            merged = {
                name: old.get(name, value) if value is UNCHANGED else value
                for name, value in after.items()
            }
            rows.append((key, merged))
    return {topic: [row for _, row in rows] for topic, rows in tables.items()}


def _place(rows: Sequence[tuple[Row | None, Row]], key: Row | None, before: Row | None) -> int:
    for place, (its_key, row) in enumerate(rows):
        if its_key == key if key is not None else agree(row, before or {}):
            return place
    message = f"no row is changed by {key or before}"
    raise AssertionError(message)


def agree(one: Row, other: Row) -> bool:
    """Say whether two rows have the same values in the columns that both have and know."""
    pairs = [(one[name], other[name]) for name in one.keys() & other.keys()]
    return all(UNCHANGED in pair or pair[0] == pair[1] for pair in pairs)


def unmatched(found: Sequence[Row], expected: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of either side to which none of the other agrees."""
    left, missing = list(found), []
    for row in expected:
        place = next((at for at, each in enumerate(left) if agree(each, row)), None)
        if place is None:
            missing.append(row)
        else:
            del left[place]
    return left, missing


def topic_of(prefix: str, table: str) -> str:
    """Return the topic of a table of the schema public, whose name is as SQL has it."""
    # github.com/debezium/debezium: whatever a topic cannot have in its name becomes `_`.
    plain = table.strip('"')
    name = "".join(each if each.isalnum() or each in "._-" else "_" for each in plain)
    return f"{prefix}.public.{name}"
