"""SQL that reads Avro by Spark's ``from_avro``, once a value, and tells what is no such Avro.

Of what it cannot read, Spark makes null; or, where the value is a struct, one of nulls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.sdk import literal, quote
from headrace_plugins.confluent.avro_types import AvroType, engine_tree

if TYPE_CHECKING:
    from headrace_plugins.confluent.avro_framing import Written

_LOOKED_AT = 16  # so many fields are asked for one that is not null


@dataclass(frozen=True)
class Reading:
    """How values of one schema are read into a column.

    Most are read as they are. To have each in a field of a record makes ``from_avro`` take
    three times as long; so is read what would be null for a good value and a bad one.

    Args:
        written: The schema; no text that says what is wrong with it.
    """

    written: Written

    @property
    def sql(self) -> str:
        """What reads the values whose condition is true."""
        if self._is_within:
            return self._within()
        return _from_avro(self.written.body, engine_tree(self._type))

    def value(self, column: str) -> str:
        """Return SQL for the value in the column."""
        return f"{column}.v" if self._is_within else column

    def ok(self, column: str) -> str:
        """Return the condition under which the column has a value; it is never null."""
        if self._is_within:
            return f"({column}.ok IS NOT NULL)"
        for field in self._type.fields:
            if not field.type.is_nullable:
                return f"({column}.{quote(field.name)} IS NOT NULL)"
        if self._type.kind != "record":
            return f"({column} IS NOT NULL)"
        # All fields of a good value may be null. Only such are read again: Spark evaluates
        # what comes later in a coalesce when it has to.
        names = [quote(field.name) for field in self._type.fields[:_LOOKED_AT]]
        told = ", ".join(f"IF({column}.{name} IS NULL, NULL, true)" for name in names)
        return f"({column} IS NOT NULL AND coalesce({told}, {self._within()}.ok) IS NOT NULL)"

    @property
    def _type(self) -> AvroType:
        assert isinstance(self.written.type, AvroType)
        return self.written.type

    @property
    def _is_within(self) -> bool:
        # A union may hold null, and Spark cannot read one of records that has none around.
        is_empty = self._type.kind == "record" and not self._type.fields
        return any(self.written.around) or self._type.kind == "union" or is_empty

    def _within(self) -> str:
        """Return SQL for a struct of ``v`` and ``ok``, which is null for bad values.

        A record around the value is read as another, which has a field more, with a default.
        """
        value = {"name": "v", "type": engine_tree(self._type)}
        before, after = self.written.around
        ok = {"name": "ok", "type": "boolean", "default": True}
        own = {"type": "record", "name": "W", "fields": [*before, value, *after]}
        wanted = {"type": "record", "name": "W", "fields": [value, ok]}
        return _from_avro(self.written.body, own, wanted)


def _from_avro(body: str, own: Any, wanted: Any = None) -> str:
    options = "'mode', 'PERMISSIVE'"
    if wanted is not None:
        options += f", 'avroSchema', {literal(json.dumps(wanted))}"
    return f"from_avro({body}, {literal(json.dumps(own))}, map({options}))"
