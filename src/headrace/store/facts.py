"""What is known of a store as a whole, as JSON values by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from headrace.store.tables import facts

if TYPE_CHECKING:
    from sqlalchemy import Connection

JsonValue = bool | int | float | str | list[object] | dict[str, object] | None


def fact(db: Connection, name: str) -> JsonValue:
    """Return what is known under a name; None when nothing is."""
    text = db.execute(select(facts.c.value).where(facts.c.name == name)).scalar()
    found: JsonValue = None if text is None else json.loads(text)
    return found


def put_fact(db: Connection, name: str, value: JsonValue) -> None:
    """Keep a value under a name, in place of what was there."""
    db.execute(delete(facts).where(facts.c.name == name))
    db.execute(insert(facts).values(name=name, value=json.dumps(value)))
