"""Whether a schema fits the earlier ones of its subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.schemaregistry import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model import CompatibilityLevel
    from headrace.schemaregistry.languages import ParsedSchema


def misfits(
    level: CompatibilityLevel,
    schema: ParsedSchema,
    earlier: Sequence[tuple[int, ParsedSchema]],
) -> list[str]:
    """Return why the schema does not fit; empty if it does.

    Args:
        level: What is asked of it.
        schema: The schema.
        earlier: The versions it is held against, the newest first. Only the first of them
            counts where the level is not transitive.
    """
    counted = earlier if level.transitive else earlier[:1]
    for version, other in counted if level.backward or level.forward else ():
        found = _between(level, schema, other)
        if found:
            return [*found, f"{{oldSchemaVersion: {version}}}", f"{{compatibility: '{level}'}}"]
    return []


def _between(level: CompatibilityLevel, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    if type(new) is not type(old):
        return ["Incompatible because of different schema type"]
    found: list[str] = []
    try:
        if level.backward:
            why = new.unreadable(old)
            found += [f"the new schema cannot read old data: {each}" for each in why]
        if level.forward:
            why = old.unreadable(new)
            found += [f"the old schema cannot read new data: {each}" for each in why]
    except RecursionError:
        problem = "The schema is nested too deeply to be compared."
        raise InvalidSchemaError(problem) from None
    return found
