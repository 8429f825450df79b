"""Variants in record frames, on their way to and from what is read by others than Spark.

Topics keep texts, as neither their upkeep nor plugin hosts nor most readers of Delta tables
know VARIANT; the schema in the table's metadata tells them from other texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import has_variant, texts_of_variants, variants_of_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.sdk import Schema

__all__ = ["with_texts", "with_variants"]


def with_texts(frame: DataFrame, value: Schema) -> DataFrame:
    """Return the record frame with the variants of its values as JSON texts."""
    return _replaced(frame, texts_of_variants("value", value)) if has_variant(value) else frame


def with_variants(frame: DataFrame, value: Schema) -> DataFrame:
    """Return the record frame with the JSON texts of its values' variants as variants."""
    return _replaced(frame, variants_of_texts("value", value)) if has_variant(value) else frame


def _replaced(frame: DataFrame, sql: str) -> DataFrame:
    # The record columns' names need no quotes; a hidden column such as _metadata is no name.
    columns = [f"{sql} AS value" if name == "value" else name for name in frame.columns]
    return frame.selectExpr(*columns)
