"""Variants in record frames, on their way to and from what is read by others than Spark.

Topics keep texts, as neither their upkeep nor plugin hosts nor most readers of Delta tables
know VARIANT; the schema in the table's metadata tells them from other texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dataplane.records import declared
from headrace.sdk.struct_exprs import has_variant, texts_of_variants, variants_of_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from headrace.sdk import Schema

__all__ = ["with_texts", "with_variants"]


def with_texts(frame: DataFrame, value: Schema, key: Schema | None = None) -> DataFrame:
    """Return the record frame with the variants of its values, and keys, as JSON texts."""
    return _replaced(frame, {"value": value, "key": key}, texts_of_variants)


def with_variants(
    frame: DataFrame, value: Schema | None = None, key: Schema | None = None
) -> DataFrame:
    """Return the record frame with the JSON texts of its variants as variants.

    Its schemas are those that are given: structs that were made anew have no names.
    """
    made = _replaced(frame, {"value": value, "key": key}, variants_of_texts)
    for name, schema in (("value", value), ("key", key)):
        if schema is not None and has_variant(schema):
            made = declared(made, name, schema)
    return made


def _replaced(
    frame: DataFrame,
    schemas: Mapping[str, Schema | None],
    change: Callable[[str, Schema], str],
) -> DataFrame:
    sql = {
        name: f"{change(name, schema)} AS {name}"
        for name, schema in schemas.items()
        if schema is not None and has_variant(schema)
    }
    # The record columns' names need no quotes; a hidden column such as _metadata is no name.
    return frame.selectExpr(*(sql.get(name, name) for name in frame.columns)) if sql else frame
