"""Small files of a table become larger ones, in a commit that no other one can double.

``deltalake`` takes two compactions that were planned with one version for compatible: the
second adds the rows of the same files once more. Here a file that another has removed meanwhile
makes the commit fail, as Delta's rules want it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.sdk import Mark, SinkError
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.delta import AddedFile, add_action, staging_folder
from headrace.sdk.deltalog import CommitConflictError, commit
from headrace.sdk.folders import write_part
from headrace.sdk.location import Location, sync
from headrace.sdk.schema import Schema
from headrace_plugins.connectors.delta.files import TableFile, added_file, schemas_of
from headrace_plugins.connectors.delta.table import fields_of, properties_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

_TARGET_BYTES = 100 * 1024 * 1024
"""The size of a joined file, unless the table's property says another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Joins small files of a table; runs on a worker.

    Args:
        application: Names the sink task in marks: what a crash leaves is among what it staged.
    """

    table: Location
    application: str

    def run(self, table: DeltaTable) -> tuple[int, int]:
        """Join files as of a loaded version; return how many were removed, and added.

        Raises SinkError: another writer has removed one of them meanwhile.
        """
        groups = list(self._groups(table))
        if not groups:
            return 0, 0
        schema = Schema.struct(schemas_of(fields_of(table)))
        # A number that no batch has: what is not committed goes with old attempts.
        folder = staging_folder(Mark(self.application, time.time_ns() // 1_000_000, 0))
        joined = (self._joined(group, schema, folder) for group in groups)
        added = [file for file in joined if file is not None]
        now = datetime.now(UTC)
        removed = [
            file.removal(int(now.timestamp() * 1000), change=False)
            for group in groups
            for file in group
        ]
        sync((self.table / file.path for file in added), up_to=self.table)
        try:
            commit(
                self.table,
                int(table.version()),
                [*removed, *(add_action(file, now, change=False) for file in added)],
                operation="OPTIMIZE",
                transactions={},
                details={},
                now=now,
            )
        except CommitConflictError as error:
            for file in added:
                (self.table / file.path).delete()
            problem = f"Another writer removed files that were being joined: {error}."
            raise SinkError(problem) from error
        return len(removed), len(added)

    def _groups(self, table: DeltaTable) -> Iterator[Sequence[TableFile]]:
        """Yield files to be joined: small ones of one partition, two or more."""
        target = int(properties_of(table).get("delta.targetFileSize") or _TARGET_BYTES)
        open_: dict[tuple[tuple[str, str | None], ...], list[TableFile]] = {}
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        for file in (TableFile(action) for action in actions):
            if file.size_bytes >= target:
                continue
            group = open_.setdefault(tuple(sorted(file.values.items())), [])
            if group and sum(each.size_bytes for each in group) + file.size_bytes > target:
                yield from [group] if len(group) > 1 else []
                group = open_[tuple(sorted(file.values.items()))] = []
            group.append(file)
        yield from (group for group in open_.values() if len(group) > 1)

    def _joined(
        self, group: Sequence[TableFile], schema: Schema, folder: str
    ) -> AddedFile | None:
        """Write the rows of files as one; None if they have none."""
        values: Mapping[str, str | None] = group[0].values
        types = pa.schema([each for each in to_arrow(schema) if each.name not in values])
        name = write_part(self.table / folder, "zstd", 0, self._rows(group, types))
        if name is None:
            return None
        return added_file(self.table / folder / name, self.table, values)

    def _rows(self, group: Sequence[TableFile], types: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file in group:
            with file.opened(self.table) as parquet:
                own = [name for name in types.names if name in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(columns=own):
                    yield conform(batch, types)
