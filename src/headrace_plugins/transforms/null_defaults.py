"""The key by which transforms of fields replace nulls with the defaults of schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.config import ConfigType

if TYPE_CHECKING:
    from headrace.sdk.config import ConfigDef

__all__ = ["NULL_DEFAULTS", "with_null_defaults"]

NULL_DEFAULTS = "replace.null.with.default"


def with_null_defaults(definition: ConfigDef) -> ConfigDef:
    """Add the key ``replace.null.with.default`` to a transform's keys."""
    return definition.define(
        NULL_DEFAULTS,
        ConfigType.BOOLEAN,
        "true",
        doc="Whether a field that is null gets the default of its schema, if it has one.",
    )
