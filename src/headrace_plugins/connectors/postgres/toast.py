"""Values missing from the log, as they are stored out of line (TOAST) and unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.sdk import Type
from headrace_plugins.connectors.postgres.pgoutput import patched
from headrace_plugins.databases.catalog import TableName
from headrace_plugins.databases.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace_plugins.changes.log import Shape
    from headrace_plugins.connectors.postgres.pgoutput import DecodedRows, Relation
    from headrace_plugins.databases.catalog import Column
    from headrace_plugins.databases.database import Session
    from headrace_plugins.databases.postgresql import Postgresql

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for a missing value; used in columns that are not nullable."""
_NOW = """
SELECT n.nspname, c.relname, a.attname, a.attnotnull OR t.typnotnull,
  t.typtype IN ('d', 'e') OR t.typnamespace = 'pg_catalog'::regnamespace::oid
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped"""


@dataclass(frozen=True)
class Toast:
    """Fills in values that the log does not send, from the current rows of the table.

    If a value was changed meanwhile, a later change contains it and corrects the row.

    Args:
        database: The database of the table.
        session: A session of the database.
        relation: The table, as the log describes it.
        shape: The shape of the table.
    """

    database: Postgresql
    session: Session
    relation: Relation
    shape: Shape

    def complete(self, rows: DecodedRows) -> None:
        """Fill in unchanged values: from the row before the update, or the current row."""
        left = dict[int, np.ndarray]()
        for number, unchanged in rows.unchanged.items():
            unsent, places = unchanged, np.nonzero(unchanged)[0]
            if rows.before is not None:
                # The whole row, or a key column that is itself stored out of line.
                known = rows.before[number].take(pa.array(places))
                rows.after[number] = patched(rows.after[number], places, known.to_pylist())
                unsent = unsent & rows.after[number].is_null().to_numpy(zero_copy_only=False)
            if unsent.any():
                left[number] = unsent
        if left:
            self._ask(rows, left)

    def _ask(self, rows: DecodedRows, left: Mapping[int, np.ndarray]) -> None:
        lacking = np.nonzero(np.logical_or.reduce(list(left.values())))[0]
        names = [each.name for each in self.relation.columns]
        keys = [names.index(name) for name in self.shape.key]
        texts = [rows.after[k].take(pa.array(lacking)).to_pylist() for k in keys]
        required, found = self._found(keys, list(left), texts)
        none = (None,) * len(left)
        for position, (number, unsent) in enumerate(left.items()):
            column = self.shape.columns[number]
            other = _unavailable(column) if column.name in required else None
            values = [
                found.get(place, none)[position]
                for place, row in enumerate(lacking)
                if unsent[row]
            ]
            shown = [other if value is None else value for value in values]
            rows.after[number] = patched(rows.after[number], np.nonzero(unsent)[0], shown)

    def _found(
        self, keys: Sequence[int], wanted: Sequence[int], texts: Sequence[Sequence[str]]
    ) -> tuple[frozenset[str], Mapping[int, tuple[str | None, ...]]]:
        """Return the required columns, and the current values by the index of the key."""
        described = self.session.rows(_NOW, [self.relation.oid])
        required = frozenset(name for _, _, name, is_required, _ in described if is_required)
        columns = {name for _, _, name, _, _ in described}
        if not keys or not columns.issuperset(self.shape.key):
            return required, {}
        quote = self.database.quote
        names = [quote(each.name).replace("%", "%%") for each in self.shape.columns]
        types = [each.type.replace("%", "%%") for each in self.shape.columns]
        # Casts to text would format some values differently from the log.
        values = [
            f"CASE WHEN t.{names[w]} IS NOT NULL THEN pg_catalog.concat(t.{names[w]}) END"
            if self.shape.columns[w].name in columns
            else "NULL"
            for w in wanted
        ]
        given = ", ".join("pg_catalog.unnest(%s::text[])" for _ in keys)
        aliases = ", ".join(f"k{n}" for n in range(len(keys)))
        # Otherwise a user-defined operator for varchar might be a better match.
        own = {name for _, _, name, _, is_own in described if is_own}
        equals = [
            "OPERATOR(pg_catalog.=)" if self.shape.columns[k].name in own else "=" for k in keys
        ]
        matches = " AND ".join(
            f"t.{names[k]} {equals[n]} CAST(q.k{n} AS {types[k]})" for n, k in enumerate(keys)
        )
        table = self.database.path(TableName(*described[0][:2])).replace("%", "%%")
        try:
            found = self.session.rows(
                f"SELECT q.place, {', '.join(values)} FROM ROWS FROM ({given}) "  # noqa: S608 - quoted
                f"WITH ORDINALITY AS q({aliases}, place) JOIN {table} t ON {matches}",
                [list(each) for each in texts],
            )
        except DatabaseError:
            return required, {}  # the key's type was changed since; the log has that later
        return required, {int(place) - 1: tuple(rest) for place, *rest in found}


def _unavailable(column: Column) -> str:
    """Return the placeholder as a valid text of the column's type."""
    if column.schema.type is Type.BYTES:
        return f"\\x{UNAVAILABLE.encode().hex()}"
    if column.type.endswith("[]"):
        return "{}"
    if column.type.startswith("json"):
        return f'"{UNAVAILABLE}"'
    return "0" if column.type.startswith("numeric") else UNAVAILABLE
