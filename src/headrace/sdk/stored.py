"""Schemas as text, for keeping them."""

from __future__ import annotations

import json

from headrace.sdk.schema import Schema
from headrace.sdk.sparktypes import from_spark_json, to_spark_json

__all__ = ["schema_from_json", "schema_to_json"]

_WRAP = "v"


def schema_to_json(schema: Schema) -> str:
    """Write a schema of any type; equal schemas give equal texts."""
    return json.dumps(to_spark_json(Schema.struct({_WRAP: schema})), sort_keys=True)


def schema_from_json(text: str) -> Schema:
    """Read what ``schema_to_json`` wrote."""
    return from_spark_json(json.loads(text)).fields[0].schema
