"""Drops records whose key came a short while before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

from typing_extensions import override

from headrace.sdk import FrameTransform, UnfitRecordError
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Range,
    Settings,
    setting,
)
from headrace.sdk.sqltext import FieldPath, literal, quote
from headrace_plugins.transforms.deduplicate_state import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.sdk import TransformBatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class DeduplicateSettings(Settings):
    """The settings of ``Deduplicate``."""

    key_fields: tuple[str, ...] = setting(
        "The fields of the value that tell records apart; dots lead into structs. "
        "The record's key if empty.",
        default=(),
        importance=Importance.HIGH,
    )
    window_ms: int = setting(
        "How long after a record another with its key is a duplicate.",
        default=86_400_000,
        type=ConfigType.LONG,
        validator=Range(at_least=1),
        importance=Importance.HIGH,
    )


class Deduplicate(FrameTransform):
    """Drops a record when another with its key came within a window of time before it.

    Times are the records' own, so what is a duplicate does not depend on how records fall
    into batches, nor on when they are read; a record without a time has that of its batch. Of
    records of one time the first is kept, where the source tells their order.
    Each record of a key counts, also one that is dropped. One that comes late is compared with
    the newest of its key, and is known as a duplicate for as long as the window again.
    Records with a null in their key pass.

    The state is 40 bytes or so for each key within two windows, in files by batch id, which
    survive restarts: a batch that runs again sees exactly what the batches before it left.
    A batch reads the newest few batches, and of all others only the files in whose range of
    ids it has a key; what has expired is removed unread. The batch is sorted by key.
    """

    ordered = True
    repeatable = True

    settings: DeduplicateSettings

    @override
    def frame(self, records: DataFrame, batch: TransformBatch) -> DataFrame:
        begun = (batch.begun - _EPOCH) // _MICROSECOND
        keys = self._keys(records)
        there = " AND ".join(f"{sql} IS NOT NULL" for sql in keys)
        parts = ", ".join(f"{sql} AS k{number}" for number, sql in enumerate(keys))
        digest = f"unhex(sha2(to_json(struct({parts})), 256))"
        keyed = records.selectExpr(
            "*",
            f"IF(applies AND {there}, {digest}, NULL) AS __id",
            f"coalesce(unix_micros(timestamp), {begun}L) AS __at",
            # Equal times need an order that is the same when the batch runs again, and their
            # places may not be known.
            "xxhash64(to_json(struct(value))) AS __tie",
        )
        folder = self.context.state / f"stream-{url_quote(batch.stream, safe='')}"
        state = State(folder, records.sparkSession, self.settings.window_ms * 1000)
        state.put(batch.id, keyed)
        return self._dropping(keyed, state.before(batch.id), records.columns)

    def _dropping(
        self, keyed: DataFrame, seen: DataFrame | None, names: list[str]
    ) -> DataFrame:
        window = self.settings.window_ms * 1000
        # Rows without a key are spread by their content, or they would all be sorted in one.
        order = ["__at", *(["position"] if "position" in names else []), "__tie"]
        spread = f"PARTITION BY __id, IF(__id IS NULL, __tie, 0L) ORDER BY {', '.join(order)}"
        marked = keyed.selectExpr(
            "*", f"__at - lag(__at) OVER ({spread}) <= {window}L AS __near"
        )
        again = "coalesce(__near, false)"
        if seen is not None:
            marked = marked.join(seen, marked["__id"] == seen["__seen"], "left")
            again += f" OR coalesce(abs(__at - __last) <= {window}L, false)"
        gone = f"IF(__id IS NOT NULL AND ({again}), {literal(self.alias)}, dropped) AS dropped"
        return marked.selectExpr(*(gone if n == "dropped" else quote(n) for n in names))

    def _keys(self, records: DataFrame) -> list[str]:
        fields = self.settings.key_fields
        if fields:
            paths = [FieldPath.parse(text, "V2").steps for text in fields]
            return [".".join(["value", *map(quote, steps)]) for steps in paths]
        if "key" not in records.columns:
            raise UnfitRecordError(message="Records have no key to find duplicates by.")
        return ["key"]
