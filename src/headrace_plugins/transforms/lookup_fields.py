"""The schema of values with looked-up fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import Schema, Type, UnfitRecordError, parse_ddl

if TYPE_CHECKING:
    from headrace.sdk.config import Config


def widened(value: Schema, config: Config) -> Schema:
    """Return the schema of a value with the fields that a lookup adds."""
    if value.type is not Type.STRUCT:
        raise UnfitRecordError(message="Only values with fields can be looked up for.")
    added = parse_ddl(config.get_str("fields"), field="fields")
    prefix = config.get_str("prefix")
    fields = {field.name: field.schema for field in value.fields}
    fields |= {prefix + f.name: f.schema.replaced(optional=True) for f in added.fields}
    return value.with_fields(fields)
