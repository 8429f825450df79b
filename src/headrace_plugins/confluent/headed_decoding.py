"""Decodes values whose first bytes name their schemas in a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import DATA_EXCEPTION, ArrowDecoder, Decoded, Group, RecordError
from headrace_plugins.confluent.schema_registry import InvalidSchemaError
from headrace_plugins.confluent.wireform import NO_HEAD, head_sql, heads, id_of, payloads

if TYPE_CHECKING:
    from headrace_plugins.confluent.remote_schemas import RemoteSchemas, WriterSchema

PayloadReader = Callable[[pa.Array], Decoded]
"""Decodes what follows the heads, of values of one schema, none of them null."""


class HeadedDecoder(ArrowDecoder):
    """Decodes with a reader for each schema that the batch names.

    The registry is asked on the driver; executors get the readers.
    """

    def __init__(
        self, schemas: RemoteSchemas, reader_of: Callable[[WriterSchema], PayloadReader]
    ) -> None:
        """Ask nothing yet.

        Args:
            schemas: The registry.
            reader_of: Makes a reader, which is pickled; raises RecordError or
                InvalidSchemaError where no record of the schema can be read.
        """
        self._schemas = schemas
        self._reader_of = reader_of
        self._readers: dict[bytes, PayloadReader] = {}
        self._problems: dict[bytes, str] = {}

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Leave the registry on the driver."""
        return {"_readers": self._readers, "_problems": self._problems}

    @override
    def tokens(self, raw: str) -> str:
        return head_sql(raw)

    @override
    def prepare(self, tokens: Sequence[Any]) -> None:
        known = self._schemas.known(tokens)
        self._problems = dict(known.unknown)
        for head, writer in known.found.items():
            try:
                self._readers[head] = self._reader_of(writer)
            except (RecordError, InvalidSchemaError) as error:
                where = f" at {error.field}" if error.field else ""
                told = f"The schema of id {writer.id} cannot be read"
                self._problems[head] = f"{told}: {error.problem}{where}"

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        first, bad = heads(raw)
        faults = dict.fromkeys(bad, (DATA_EXCEPTION, NO_HEAD))
        groups: list[Group] = []
        for head in first.drop_null().unique().to_pylist():
            places = pc.indices_nonzero(pc.equal(first, pa.scalar(head, pa.binary())))
            rows = places.to_pylist()
            if head not in self._readers:
                unknown = f"The schema of id {id_of(head)} was not asked for."
                fault = (DATA_EXCEPTION, self._problems.get(head, unknown))
                faults |= dict.fromkeys(rows, fault)
                continue
            texts = raw if len(rows) == len(raw) else raw.take(places)
            decoded = self._readers[head](payloads(texts))
            faults |= {rows[row]: fault for row, fault in decoded.faults.items()}
            groups += [_of_rows(group, rows, faults) for group in decoded.groups]
        return Decoded(groups, faults)


def _of_rows(group: Group, rows: Sequence[int], faults: Mapping[int, Any]) -> Group:
    """Return a group with the numbers of its rows in the batch, without bad ones."""
    own = rows if group.rows is None else [rows[number] for number in group.rows]
    good = [number for number, row in enumerate(own) if row not in faults]
    if len(good) == len(own):
        return replace(group, rows=own)
    values = group.values.take(pa.array(good, pa.int64()))
    return Group(group.schema, values, [own[number] for number in good])
