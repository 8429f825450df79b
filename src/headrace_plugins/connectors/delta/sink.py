"""The Delta sink: stages and commits batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    DeliveryGuarantee,
    FrameSink,
    RecordError,
    Refusal,
    SinkConnector,
)
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.delta import (
    discard_staged,
    find_receipt,
    stage_parquet,
    staged_parts,
    staging_folder,
)
from headrace.sdk.deltalog import flush_commits
from headrace.sdk.folders import (
    folder_findings,
    require_writable,
    unstorable_value,
    write_part,
)
from headrace.sdk.location import Location
from headrace.sdk.mark import receipt_of_all
from headrace.sdk.schema import primary_key
from headrace.sdk.sink import ArrowWrite, Counting
from headrace.sdk.sparktypes import from_spark_json, to_spark_json
from headrace.sdk.sqltext import quote, selected
from headrace.sdk.tables import MappedTable, TableRows
from headrace_plugins.connectors.delta.columns import (
    Fit,
    as_field,
    broken_constraints,
    check_names,
    columns_of,
    ddl,
    fit,
    key_sources,
    last_of_each_key,
)
from headrace_plugins.connectors.delta.commit import Destination, HiddenRows, StagedAppend
from headrace_plugins.connectors.delta.replacement import Replacement
from headrace_plugins.connectors.delta.settings import PLACEHOLDER, TABLE, TOPIC, DeltaSettings
from headrace_plugins.connectors.delta.table import (
    HIDDEN,
    OWN_VALUES,
    WIDENING,
    Upkeep,
    append_obstacle,
    check_partition_columns,
    definition_of,
    fields_of,
    merge_obstacle,
    open_table,
    properties_of,
    schemas_of,
    size_of,
    table_findings,
    turns_on_features,
)
from headrace_plugins.mapped_records import StagedTables, TableWrite, renamed, selection_of
from headrace_plugins.table_mapping import TableRules
from headrace_plugins.window import WindowedRecords, with_window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Boundaries, Mark, Schema, SinkBatch, TaskContext
    from headrace.sdk.config import Config
    from headrace.sdk.delta import AddedFile
    from headrace.sdk.sink import StagedWrite
    from headrace_plugins.connectors.delta.columns import Columns
    from headrace_plugins.target_table import TableSelection, TargetTable
    from headrace_plugins.window import RunWindow


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a batch that goes into one table.

    Args:
        batch: The batch, with the schema that the mapping produces for the table.
        selection: None if the table gets all records unchanged.
    """

    path: Location
    target: TargetTable
    batch: SinkBatch
    selection: TableSelection | None = None

    @property
    def condition(self) -> str | None:
        """The SQL condition for the table's records; None for all."""
        return None if self.selection is None else self.selection.condition


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a part of a batch is written to its table, determined before a Spark job runs."""

    part: _Part
    table: DeltaTable | None
    columns: Columns
    fit: Fit
    keys: Sequence[str]
    required: Sequence[str]
    checks: Sequence[Refusal]
    windowed: WindowedRecords | None = None


class DeltaTask(FrameSink):
    """Writes the records of one task; see DeltaSink."""

    ordered = True
    counting = Counting.MEASURED
    takes_columns = True

    settings: DeltaSettings

    @override
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._rules = TableRules.of(self.settings)
        self._upkeep = Upkeep(
            self.settings.optimize_interval_commits, self.settings.vacuum_tables
        )
        self._window: RunWindow | None = None

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        run = context.application.removesuffix(f"-{context.task}")
        self._window = self.settings.replaced_window(run)
        require_writable(self.settings.fixed_folder)

    @override
    def finish(self, spark: SparkSession, topic: str) -> None:
        for _, path in self._tables(topic):
            replacement = self._replacement(spark, path)
            if replacement is not None and open_table(path) is not None:
                replacement.settle()

    def _replacement(self, spark: SparkSession, path: Location) -> Replacement | None:
        if self._window is None:
            return None
        return Replacement(spark=spark, path=path, window=self._window)

    @override
    def priority(self, topic: str) -> int:
        # Resolves every table name before the first table of a batch is written.
        return min((target.priority for target, _ in self._tables(topic)), default=0)

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        # Guarantee 2: each table stores the mark; a batch is committed once all tables have it.
        receipts = [table_receipt(path, mark) for _, path in self._tables(topic)]
        return receipt_of_all(receipts)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        parts = self._parts(frame, batch)
        if [part.condition for part in parts] == [None]:
            return self._written(frame, parts[0])
        tables = [
            TableWrite(
                part.target.name,
                part.condition,
                table_receipt(part.path, batch.mark) if len(parts) > 1 else None,
                partial(self._written, part=part),
            )
            for part in parts
        ]
        return StagedTables.of(frame, batch, tables)

    def _tables(self, topic: str) -> list[tuple[TargetTable, Location]]:
        """Return the tables of a topic's records, each with its folder."""
        targets = self._rules.targets(topic)
        if len(targets) > 1 and TABLE not in self.settings.path:
            raise ConfigError(
                problem=f"{topic} goes to several tables, but path is the same for all.",
                fix=f"Put {TABLE} into the path, such as lake/{TABLE}.",
                field="path",
            )
        return [(each, self.settings.folder(topic, each.name)) for each in targets]

    def _parts(self, frame: DataFrame, batch: SinkBatch) -> list[_Part]:
        found = []
        for target, path in self._tables(batch.topic):
            if target.is_plain:
                found.append(_Part(path, target, batch))
                continue
            selection = selection_of(target, frame, batch)
            to = replace(batch, schema=selection.schema(batch.schema), columns={})
            found.append(_Part(path, target, to, selection))
        return found

    def _written(self, frame: DataFrame, part: _Part) -> StagedWrite:
        plan = self._plan(frame, part)
        to = self._destination(frame.sparkSession, part.path, plan.table, plan.fit)
        if self.settings.upsert:
            return self._upserted(frame, plan, to)
        return self._appended(frame, plan, to)

    @override
    def arrow_write(self, frame: DataFrame, batch: SinkBatch) -> ArrowWrite | None:
        parts = self._parts(frame, batch)
        if self.settings.upsert or len(parts) != 1:
            return None
        [part] = parts
        renames = None if part.selection is None else part.selection.renames
        if renames is None and part.selection is not None:
            return None
        plan = self._plan(frame, part)
        if self._refusals(replace(plan, windowed=None)) or not self._takes_as_is(plan):
            return None
        to = self._destination(frame.sparkSession, part.path, plan.table, plan.fit)
        mark = batch.mark
        write = partial(write_part, to.path / staging_folder(mark), "snappy")
        if plan.windowed is not None:
            write = partial(plan.windowed.written, write)

        def staged(names: Sequence[str]) -> StagedWrite:
            return StagedAppend(to=to, mark=mark, files=staged_parts(to.path, mark, names))

        return ArrowWrite(
            write=write if renames is None else partial(_write_renamed, write, renames),
            staged=staged,
            abort=partial(discard_staged, to.path, mark),
        )

    @override
    def keyed_write(self, spark: SparkSession, batch: SinkBatch) -> ArrowWrite | None:
        tables = self._tables(batch.topic)
        if not (self.settings.upsert and self.settings.delete_enabled) or len(tables) != 1:
            return None
        [(target, path)] = tables
        table = open_table(path) if target.is_plain else None
        if table is None or merge_obstacle(table) is not None or self._needs_spark(table):
            return None
        check_names(batch.schema)
        own, kinds = fields_of(table), to_spark_json(batch.schema)["fields"]
        keys = key_sources(batch, self.settings.key_fields, target)
        plan = fit(own, kinds, policy=batch.evolution)
        as_they_are = all(
            plan.names.get(kind["name"]) == kind["name"]
            and plan.type_of(kind["name"]) == kind["type"]
            for kind in kinds
        )
        # NOT NULL and partition columns need the checks of values of the general path.
        if not as_they_are or plan.added or plan.widened or _required(own, plan):
            return None
        if table.metadata().partition_columns:
            return None
        if batch.key_schema is None or list(keys) != [f.name for f in batch.key_schema.fields]:
            return None
        to, mark = self._destination(spark, path, table, plan), batch.mark

        def staged(names: Sequence[str]) -> StagedWrite:
            files = staged_parts(path, mark, names, folder=HIDDEN, stats=False)
            rows = sum(file.rows for file in files)
            return self._staged_rows(to, mark, files=files, rows=rows, keys=list(keys))

        return ArrowWrite(
            write=partial(write_part, path / staging_folder(mark, HIDDEN), "snappy"),
            staged=staged,
            abort=partial(discard_staged, path, mark, folder=HIDDEN),
        )

    def _needs_spark(self, table: DeltaTable) -> bool:
        """Return whether the table is so large that Spark has to merge into it."""
        return size_of(table) >= self.settings.merge_spark_threshold_bytes

    def _takes_as_is(self, plan: _Plan) -> bool:
        """Return whether the records' values can be written to data files unchanged."""
        return (
            not self._partition_by(plan)
            and self._is_plain(plan)
            and all(
                plan.fit.names.get(field["name"]) == field["name"]
                and plan.fit.type_of(field["name"]) == field["type"]
                for field in plan.columns.fields
            )
        )

    def _is_plain(self, plan: _Plan) -> bool:
        """Return whether Headrace can commit the files itself, without delta-spark."""
        if plan.table is None:
            return not turns_on_features(self.settings.properties)
        return not plan.fit.widened and append_obstacle(plan.table) is None

    def _partition_by(self, plan: _Plan) -> Sequence[str]:
        if plan.table is None:
            return self.settings.partition_by
        return plan.table.metadata().partition_columns

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        paths = [path for _, path in self._tables(topic)]
        parts = [part for path in paths if (part := self._marked(spark, mark, path))]
        return StagedTables(parts=parts, rows=0) if len(parts) > 1 else next(iter(parts), None)

    def _marked(self, spark: SparkSession, mark: Mark, path: Location) -> StagedWrite | None:
        table = open_table(path)
        if table is None or (self._rules.rules and find_receipt(table, mark) is not None):
            return None
        fields = fields_of(table)
        as_it_is = Fit(tuple(fields), {str(f["name"]): str(f["name"]) for f in fields})
        to = self._destination(spark, path, table, as_it_is)
        if append_obstacle(table) is None:
            return StagedAppend(to=to, mark=mark, files=())
        return self._staged_rows(to, mark, files=(), rows=0)

    def _destination(
        self, spark: SparkSession, path: Location, planned: DeltaTable | None, fit: Fit
    ) -> Destination:
        return Destination(
            spark=spark,
            path=path,
            planned=definition_of(planned),
            fit=fit,
            partition_by=self.settings.partition_by,
            properties=self.settings.properties,
            upkeep=self._upkeep,
            replacement=self._replacement(spark, path),
        )

    def _staged_rows(
        self,
        to: Destination,
        mark: Mark,
        *,
        files: Sequence[AddedFile],
        rows: int,
        keys: Sequence[str] = (),
    ) -> HiddenRows:
        size = self.settings.merge_spark_threshold_bytes
        return HiddenRows(to=to, mark=mark, files=files, rows=rows, keys=keys, merge_bytes=size)

    @override
    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        found: list[Refusal] = []
        for part in self._parts(frame, batch):
            own = self._refusals(self._plan(frame, part))
            if part.condition is not None:
                # A table can refuse only records that are routed to it.
                own = [
                    replace(r, condition=f"({part.condition} AND {r.condition})") for r in own
                ]
            found += own
        return found

    def _plan(self, frame: DataFrame, part: _Part) -> _Plan:
        settings, batch = self.settings, part.batch
        check_names(batch.schema)
        table = open_table(part.path)
        sources = {}
        if settings.upsert:
            sources = key_sources(batch, settings.key_fields, part.target)
        keys = list(sources)
        columns = columns_of(frame, batch, sources, part.selection)
        fields = None if table is None else fields_of(table)
        properties = settings.properties if table is None else properties_of(table)
        widening = table is not None and properties.get(WIDENING) == "true"
        plan = fit(
            fields,
            columns.fields,
            policy=batch.evolution,
            may_widen=widening,
            title=str(part.path),
        )
        if table is None:
            check_partition_columns(plan, settings.partition_by)
        elif settings.partition_by and (
            list(settings.partition_by) != (found := table.metadata().partition_columns)
        ):
            raise ConfigError(
                problem=f"The table is partitioned by {', '.join(found) or 'no column'}.",
                fix="Remove partition.by: an existing table keeps its partitioning.",
                field="partition.by",
            )
        missing = [key for key in keys if key not in plan.names]
        if missing:
            raise ConfigError(
                problem=f"The table has no column {missing[0]}, which is part of the key.",
                fix="Add the column, or set schema.evolution.add=evolve.",
                field="key.fields",
            )
        checks = broken_constraints(frame, columns, plan, properties, merges=settings.upsert)
        required = _required(fields or (), plan)
        windowed = None
        if self._window is not None:
            kinds = [as_field(each, plan.type_of(to)) for each, to in plan.names.items()]
            window = self._window.of(schemas_of(kinds), f"The stream {batch.topic}")
            windowed = WindowedRecords(columns.sources[window.column], window)
        return _Plan(part, table, columns, plan, keys, required, list(checks), windowed)

    def _appended(self, frame: DataFrame, plan: _Plan, to: Destination) -> StagedWrite:
        batch, refusals = plan.part.batch, self._refusals(plan)
        frame, seen = _observed(frame, refusals) if refusals else (frame, None)
        plain = self._is_plain(plan)
        partition_by = self._partition_by(plan) if plain else ()
        if partition_by and refusals:  # a folder that cannot be made would hide the cause
            frame = frame.where(f"NOT ({' OR '.join(each.condition for each in refusals)})")
        rows = selected(frame, plan.columns.select(plan.fit))
        for name in partition_by:
            if name not in rows.columns:
                kind = ddl(plan.fit.type_of(name))
                rows = rows.selectExpr("*", f"CAST(NULL AS {kind}) AS {quote(name)}")
        folder = "data" if plain else HIDDEN
        files = stage_parquet(
            rows, to.path, batch.mark, folder=folder, partition_by=partition_by, stats=plain
        )
        if seen is not None:
            _settle(refusals, seen, to, batch, folder)
        if plain:
            return StagedAppend(to=to, mark=batch.mark, files=files)
        staged = sum(file.rows for file in files)
        return self._staged_rows(to, batch.mark, files=files, rows=staged)

    def _upserted(self, frame: DataFrame, plan: _Plan, to: Destination) -> StagedWrite:
        batch, refusals = plan.part.batch, self._refusals(plan)
        frame, seen = _observed(frame, refusals)
        keys = [plan.fit.names[key] for key in plan.keys]
        rows = last_of_each_key(frame, plan.columns.select(plan.fit), keys)
        files = stage_parquet(rows, to.path, batch.mark, folder=HIDDEN)
        records = _settle(refusals, seen, to, batch, HIDDEN)
        return self._staged_rows(to, batch.mark, files=files, rows=records, keys=keys)

    def _refusals(self, plan: _Plan) -> list[Refusal]:
        """Return conditions for the records that the table cannot store."""
        batch, selection = plan.part.batch, plan.part.selection
        found = [] if selection is None else list(selection.refusals)
        if plan.keys:
            sources = [plan.columns.sources[key] for key in plan.keys]
            found.append(
                Refusal(
                    condition=" OR ".join(f"{sql} IS NULL" for sql in sources),
                    problem="A record has a null in its key, so its row cannot be identified.",
                    fix="Filter such records with a transform, or set other key.fields.",
                    field=", ".join(plan.part.target.key_fields or self.settings.key_fields)
                    or "key",
                )
            )
        if batch.schema.optional and not self.settings.delete_enabled:
            found.append(
                Refusal(
                    condition="value IS NULL",
                    problem="A record is a tombstone, and this sink does not delete rows.",
                    fix="Filter tombstones with a transform, or set mode=upsert and "
                    "delete.enabled=true.",
                    field="value",
                )
            )
        nulls = (
            Refusal(
                condition=f"(value IS NOT NULL AND {plan.columns.sources[name]} IS NULL)",
                problem="A record has a null where the table's column is NOT NULL.",
                fix="Fill the field with a transform, or drop NOT NULL from the column.",
                field=name,
            )
            for name in plan.required
        )
        if plan.windowed is not None:
            found.append(plan.windowed.refusal)
        to, divided = plan.fit.names, self._partition_by(plan)
        folders = (
            unstorable_value(to[name], sql, encoded=self.settings.upsert)
            for name, sql in plan.columns.sources.items()
            if to.get(name) in divided and plan.columns.kinds[name] == "string"
        )
        return [*found, *nulls, *folders, *plan.checks]


def table_receipt(path: Location, mark: Mark) -> str | None:
    """Return the receipt of a batch if the table in a folder contains the batch."""
    table = open_table(path)
    receipt = None if table is None else find_receipt(table, mark)
    if receipt is not None:
        mark.require_range(receipt)
        # The attempt that committed may have been killed before the commit was durable.
        flush_commits(path, mark)
    return receipt


def _write_renamed(
    write: Callable[[int, Iterator[pa.RecordBatch]], str | None],
    renames: Mapping[str, str],
    number: int,
    rows: Iterator[pa.RecordBatch],
) -> str | None:
    return write(number, renamed(rows, renames))


def _required(fields: Sequence[Mapping[str, Any]], plan: Fit) -> list[str]:
    """Return the batch's columns that are NOT NULL in the table."""
    required = {f["name"]: f["metadata"] or {} for f in fields if not f["nullable"]}
    missing = {
        name
        for name, metadata in required.items()
        if not any(key.startswith(OWN_VALUES) for key in metadata)
    }
    missing -= set(plan.names.values())
    if missing:
        raise ConfigError(
            problem="The table's column is NOT NULL, but the records do not have the field.",
            fix="Add the field with a transform, or drop NOT NULL from the column.",
            field=min(missing),
        )
    return [name for name, to in plan.names.items() if to in required]


def _observed(frame: DataFrame, refusals: Sequence[Refusal]) -> tuple[DataFrame, Observation]:
    """Count all records, and the refused ones, while the frame is processed."""
    seen = Observation()
    counts = [
        F.expr(f"count_if({each.condition})").alias(f"refused{n}")
        for n, each in enumerate(refusals)
    ]
    return frame.observe(seen, F.expr("count(1)").alias("records"), *counts), seen


def _settle(
    refusals: Sequence[Refusal],
    seen: Observation,
    to: Destination,
    batch: SinkBatch,
    folder: str,
) -> int:
    """Return the number of records; discard the staged files and raise if any is refused."""
    counts = seen.get
    for number, each in enumerate(refusals):
        count = int(counts[f"refused{number}"] or 0)
        if count:
            discard_staged(to.path, batch.mark, folder=folder)
            problem = f"{each.problem.removesuffix('.')} ({count} of the batch)."
            raise RecordError(problem=problem, fix=each.fix, field=each.field)
    return int(counts["records"])


def _rows_now(folder: Location, names: Mapping[str, str], spark: SparkSession) -> DataFrame:
    return spark.read.format("delta").load(folder.spark_path).withColumnsRenamed(dict(names))


class DeltaSink(SinkConnector):
    """Writes records to Delta tables, exactly once.

    Each batch is one transaction with the rows, the batch's mark and its receipt, so a retry
    of the batch changes nothing. The first batch creates the table; all its columns are
    nullable, so that the table can follow schema changes of the source. Column names match
    regardless of case. `table.mapping` selects the tables and columns for a topic's records:
    if there are several tables, each stores the batch's mark, and the retry of a batch that
    was committed to some of them writes only to the others.

    In mode `append` each record is a row; a tombstone is an error. In mode `upsert` a record
    updates the row with its key or inserts it, only the last record of each key in a batch
    is used, columns missing from the record keep their values, and a tombstone deletes the
    row if `delete.enabled` is true.

    With `replace.window.column` the first commit of an offline job's run replaces the table's
    rows in the run's window: in one transaction if the table allows commits without
    delta-spark, else in two.

    The sink commits without delta-spark if the table allows it, which takes a fraction of the
    time. It needs delta-spark for constraints, generated columns, column mapping, type
    widening, and merges into large tables.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.EXACTLY_ONCE

    settings: DeltaSettings

    @override
    @classmethod
    def target(cls, config: Config) -> str:
        # Guarantee 2: each table has its own marks. The target stays the same if a
        # placeholder of the path is spelled differently while a batch is in doubt.
        path = PLACEHOLDER.split(config.get_str("path"))[0]
        # Marks store this value: a plain path must stay as configured.
        return str(Location.of(path)) if path.lower().startswith("file:") else path

    @override
    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        return with_window(config, boundaries)

    @override
    @classmethod
    def repeatable(cls, config: Config) -> bool:
        settings = DeltaSettings.from_config(config)
        return settings.upsert or bool(settings.replace_window_column)

    @override
    @classmethod
    def takes_overlaps(cls, config: Config) -> bool:
        # A retry would append rows that another run, which replaced the window, has written.
        return not config.find_str("replace.window.column") and cls.repeatable(config)

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        if config["delete.enabled"] and config.get_str("mode") == "append":
            yield ConfigError(
                problem="delete.enabled requires mode upsert: append does not delete rows.",
                fix="Set mode to upsert, or remove delete.enabled.",
                field="delete.enabled",
            )

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        yield from super().examine(config)
        settings = DeltaSettings.from_config(config)
        found = list(folder_findings(settings.fixed_folder))
        yield from found
        writable = all(each.verdict is not Verdict.FAILED for each in found)
        if writable and not PLACEHOLDER.search(settings.path):
            yield from table_findings(settings)

    @override
    @classmethod
    def table_rows(
        cls, config: Config, topic: str, schema: Schema
    ) -> Sequence[TableRows] | None:
        settings = DeltaSettings.from_config(config)
        targets = TableRules.of(settings).targets(topic)
        selections = [target.select(schema) for target in targets]
        names = None if len(selections) != 1 else selections[0].whole(schema)
        if names is None:
            return None  # cannot tell fields that rules drop or compute from lost ones
        folder = settings.folder(topic, targets[0].name)
        table = open_table(folder)
        if table is None:
            return ()
        fields = [
            {**each, "name": names.get(each["name"], each["name"])} for each in fields_of(table)
        ]
        key = [names.get(name, name) for name in targets[0].key_fields or settings.key_fields]
        rows = TableRows(
            stream=topic,
            title=str(folder),
            schema=from_spark_json({"type": "struct", "fields": fields}),
            key=tuple(key) or primary_key(schema),
            read=partial(_rows_now, folder, names),
            replaces=settings.upsert,
            deletes=settings.upsert and settings.delete_enabled,
        )
        return [rows]

    @override
    @classmethod
    def table_rules(cls, config: Config) -> Sequence[str]:
        return TableRules.of(DeltaSettings.from_config(config)).titles

    @override
    @classmethod
    def mapped_tables(
        cls, config: Config, topic: str, schema: Schema | None
    ) -> Sequence[MappedTable]:
        settings = DeltaSettings.from_config(config)
        found = TableRules.of(settings).mapped(topic, schema)
        path = settings.path.replace(TOPIC, topic)
        return [replace(each, table=path.replace(TABLE, each.table)) for each in found]

    @override
    @classmethod
    def task(cls, config: Config) -> DeltaTask:
        return DeltaTask(config)
