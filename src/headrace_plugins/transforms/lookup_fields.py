"""What both ways to look fields up share: their name, and the schema of what they give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, Type, UnfitRecordError
from headrace.sdk.sparktypes import parse_ddl

if TYPE_CHECKING:
    from headrace.sdk.config import Config


class LookupPart(Transform):
    """A gear that ``Lookup`` runs on."""

    @property
    @override
    def title(self) -> str:
        return "Lookup"


def widened(value: Schema, config: Config) -> Schema:
    """Return the schema of a value with the fields that a lookup adds."""
    if value.type is not Type.STRUCT:
        raise UnfitRecordError(message="Only values with fields can be looked up for.")
    added = parse_ddl(config.get_str("fields"), field="fields")
    prefix = config.get_str("prefix")
    fields = {field.name: field.schema for field in value.fields}
    fields |= {prefix + f.name: f.schema.replaced(optional=True) for f in added.fields}
    return value.with_fields(fields)
