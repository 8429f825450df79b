"""The task of a database sink: executors stage rows, one transaction applies them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.sdk import ConfigError, FrameSink, RecordError, Refusal, Schema
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.mark import receipt_of_all
from headrace.sdk.schema import primary_key
from headrace.sdk.sink import RECORD_ID, ArrowWrite, Counting, Refused, class_name
from headrace.sdk.sqltext import quote
from headrace_plugins.databases.catalog import Column, Table, TableName, check_cases
from headrace_plugins.databases.database import DatabaseError, database_of
from headrace_plugins.databases.merging import (
    Application,
    Clearance,
    MergedRows,
    publish,
    windowed_records,
)
from headrace_plugins.databases.plan import (
    Plan,
    TablePart,
    change_columns,
    changed_meanwhile,
    column_changes,
    lost_digits,
    require_new,
    require_same_rows,
)
from headrace_plugins.databases.rows import RecordRows, record_rows
from headrace_plugins.databases.sink_settings import (
    NO_KEY,
    Deletes,
    Mode,
    SchemaSaveMode,
    TableSinkSettings,
)
from headrace_plugins.databases.staging import (
    OP,
    OWN,
    PLACE,
    RECORD,
    Bookkeeping,
    Staging,
    Step,
    load_by_spark,
    rows_of,
)
from headrace_plugins.mapped_records import StagedTables, TableWrite, selection_of
from headrace_plugins.table_mapping import TableRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Mark, SinkBatch, TaskContext
    from headrace.sdk.config import Config
    from headrace.sdk.sink import StagedWrite
    from headrace_plugins.databases.database import Database, Session
    from headrace_plugins.target_table import TargetTable
    from headrace_plugins.window import RunWindow

_RECORD_ERROR = class_name(RecordError)
_PART = "result string, refused string"


class TableSinkTask(FrameSink):
    """Writes the records of one task; see TableSink.

    Executors load a batch into a new staging table, by COPY or LOAD DATA. Then one transaction
    on the driver applies the rows and finds those that the target's constraints refuse. The
    transaction stays open until the batch commits, and also stores the mark.
    """

    counting = Counting.CLAIMED
    takes_columns = True
    verifies = True

    settings: TableSinkSettings

    @override
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.database: Database = database_of(self.settings)
        self._rules = TableRules.of(self.settings)
        self._session: Session | None = None
        self._connector, self._task = "", 0
        self._window: RunWindow | None = None
        self._prepared: set[str] = set()
        self._targets: set[TableName] = set()
        self._not_widened: set[str] = set()
        # Rows of one key must be ordered, as the last one wins.
        self.ordered = self.settings.insert_mode.is_keyed  # type: ignore[misc]

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        # A deleted and re-created connector has a new application id, so its tables are new.
        self._connector = context.application.removesuffix(f"-{context.task}")
        self._task = context.task
        self._window = self.settings.replaced_window(self._connector)
        self._books(self.database.named("any"))

    @override
    def priority(self, topic: str) -> int:
        # Also checks every table name before the first table of a batch is written.
        return min((table.priority for table, _ in self._tables(topic)), default=0)

    @override
    def stop(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    @override
    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_session": None}

    def session(self) -> Session:
        """Return the connection for catalog queries and DDL, with no open transaction."""
        self._session = self.database.idle(self._session)
        return self._session

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        # Guarantee 2: each table has its own mark; a batch is committed if all tables have it.
        receipts = [self._receipt(target, own) for target, own in self._marks(mark, topic)]
        return receipt_of_all(receipts)

    def _receipt(self, target: TableName, mark: Mark) -> str | None:
        books, session = self._books(target), self.session()
        if books.pending(session, mark.application):
            publish(books, session, mark.application)
        receipt = books.held(session, mark)
        session.rollback()
        if receipt is not None:  # the committer may have crashed before its cleanup
            books.discard(session, mark)
        return receipt

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        parts = self._parts(frame, batch)
        if len(parts) == 1 and parts[0].condition is None:
            return self._written(frame, parts[0])
        # With several tables, refused records cannot be attributed to one table.
        plain = frame.drop(RECORD_ID)
        tables = [
            TableWrite(
                str(part.target),
                part.condition,
                self._receipt(part.target, part.batch.mark) if len(parts) > 1 else None,
                partial(self._written, part=part),
            )
            for part in parts
        ]
        return StagedTables.of(plain, batch, tables)

    def _written(self, frame: DataFrame, part: TablePart) -> MergedRows:
        tolerant, batch = RECORD_ID in frame.columns, part.batch
        plan = self._plan(part, tolerant=tolerant)
        merges = self.settings.insert_mode.is_keyed
        refusals = self._refusals(plan, batch)
        seen = Observation()
        counts = [
            F.expr(f"count_if({each.condition})").alias(f"refused{number}")
            for number, each in enumerate(refusals)
        ]
        frame = frame.observe(seen, F.expr("count(1)").alias("records"), *counts)
        rows = plan.rows.merged(frame) if merges else plan.rows.plain(frame)
        with ExitStack() as undo:
            staging = self._staged(plan, batch, has_ops=merges, tolerant=tolerant)
            undo.callback(self._discard, part)
            staging, refused = self._load(rows, plan, staging, tolerant=tolerant)
            found = seen.get
            for number, each in enumerate(refusals):
                if count := int(found[f"refused{number}"] or 0):
                    problem = f"{each.problem.removesuffix('.')} ({count} of the batch)."
                    raise RecordError(problem, fix=each.fix, field=each.field)
            records = int(found["records"] or 0) - len(refused)
            merged = self._applied(plan, batch, staging, records=records, tolerant=tolerant)
            undo.pop_all()
        merged.refusals = [*refused, *merged.refusals]
        merged.rows = records - (len(merged.refusals) - len(refused))
        return merged

    @override
    def arrow_write(self, frame: DataFrame, batch: SinkBatch) -> ArrowWrite | None:
        if self.database.by_spark:
            return None
        parts = self._parts(frame, batch)
        selection = parts[0].selection if parts else None
        renames = None if selection is None else selection.renames
        if len(parts) != 1 or (selection is not None and renames is None):
            return None
        [part] = parts
        batch = part.batch
        plan = self._plan(part, tolerant=False)
        keys, mode = plan.rows.keys, self.settings.insert_mode
        # The primary key of a source table is unique in the batch.
        is_unique = bool(keys) and keys == primary_key(batch.schema)
        if not plan.rows.is_flat or not (is_unique or not mode.is_keyed):
            return None
        if self._refusals(plan, batch, straight=renames is None):
            return None
        staging = self._staged(plan, batch, has_ops=False, tolerant=False)
        columns = [
            Column(name=name, type=plan.types[name], schema=schema)
            for name, schema in staging.columns.items()
        ]

        def staged(results: Sequence[str]) -> StagedWrite:
            return self._applied(plan, batch, staging, records=rows_of(results), tolerant=False)

        raw = {} if renames is not None or self._window else self.database.raw_load(columns)
        write = staging.load if renames is None else partial(staging.load_renamed, renames)
        if self._window is not None:
            write = partial(windowed_records(self._window, plan).written, write)
        return ArrowWrite(
            write=write,
            staged=staged,
            abort=partial(self._discard, part),
            raw={name: partial(staging.load_raw, load) for name, load in raw.items()},
        )

    @override
    def keyed_write(self, spark: SparkSession, batch: SinkBatch) -> ArrowWrite | None:
        settings, tables = self.settings, self._tables(batch.topic)
        if (
            self.database.by_spark
            or settings.insert_mode is not Mode.UPSERT
            or not settings.delete_enabled
            or len(tables) != 1
        ):
            return None
        [(target, name)] = tables
        [(_, mark)] = self._marks(batch.mark, batch.topic)
        if not target.is_plain or batch.key_schema is None:
            return None
        keys = target.key_fields or settings.keys
        part = TablePart(target=name, keys=keys, batch=replace(batch, mark=mark))
        plan = self._plan(part, tolerant=False)
        is_own = list(plan.rows.keys) == [field.name for field in batch.key_schema.fields]
        if plan.table is None or not plan.rows.is_flat or not is_own:
            return None
        if lost_digits(self.database, plan.rows, plan.columns):
            return None
        staging = self._staged(plan, part.batch, has_ops=True, tolerant=False)

        def staged(results: Sequence[str]) -> StagedWrite:
            records = rows_of(results)
            return self._applied(plan, part.batch, staging, records=records, tolerant=False)

        return ArrowWrite(
            write=staging.load_keyed,
            staged=staged,
            abort=partial(self._discard, part),
        )

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        parts = [
            self._marked(target, own)
            for target, own in self._marks(mark, topic)
            if self._receipt(target, own) is None
        ]
        return StagedTables(parts=parts, rows=0) if len(parts) > 1 else next(iter(parts), None)

    @override
    def finish(self, spark: SparkSession, topic: str) -> None:
        for _, name in self._tables(topic) if self._window is not None else ():
            table = self.database.table(self.session(), name)
            if table is not None:
                self._clearance(table.name).clear(table)

    def _clearance(self, target: TableName) -> Clearance:
        books = self._books(target)
        return Clearance(self.settings, books, self._connector, target, self._window)

    def _marked(self, target: TableName, mark: Mark) -> MergedRows:
        books = self._books(target)
        name = self.database.staging(target, "none")
        again = partial(self._locked, name, books, mark)
        return MergedRows(
            session=again() if self.database.keeps_open else None,
            again=again,
            books=books,
            mark=mark,
            target=target,
            staging=Staging(database=self.database, name=name, columns={}),
            rows=0,
        )

    @override
    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        found: list[Refusal] = []
        for part in self._parts(frame, batch):
            own = self._refusals(self._plan(part, tolerant=True), part.batch)
            own += part.selection.refusals if part.selection is not None else ()
            if part.condition is not None:
                # A table can only refuse records that it receives.
                own = [
                    replace(r, condition=f"({part.condition} AND {r.condition})") for r in own
                ]
            found += own
        return found

    # --- planning -------------------------------------------------------------------

    def _tables(self, topic: str) -> list[tuple[TargetTable, TableName]]:
        """Return the target tables of a topic, each with its name in the database.

        Raises ConfigError for a name with the sink's own prefix, or if two tables have the same
        name.
        """
        tables = [(each, self.database.named(each.name)) for each in self._rules.targets(topic)]
        names = [name for _, name in tables]
        for target, name in tables:
            problem = None
            if name.name.lower().startswith(OWN):
                problem = f"names that begin with {OWN} are reserved for the sink's own tables"
            elif names.count(name) > 1:
                problem = f"two rules map {topic} to it"
            if problem is not None:
                raise ConfigError(
                    problem=f"Records cannot be written to {target.name}: {problem}.",
                    fix="Set another table name in table.name.format or table.mapping.",
                    field="table.mapping" if self._rules.titles else "table.name.format",
                )
        return tables

    def _marks(self, mark: Mark, topic: str) -> list[tuple[TableName, Mark]]:
        """Return the target tables of a topic, each with its own mark."""
        # Guarantee 2: for a batch in doubt, a changed rule must not affect other tables.
        return [
            (name, replace(mark, application=f"{mark.application}#{name}"))
            for _, name in self._tables(topic)
        ]

    def _parts(self, frame: DataFrame, batch: SinkBatch) -> list[TablePart]:
        """Return the parts of a batch by table. Starts no Spark job."""
        found = []
        tables, marks = self._tables(batch.topic), self._marks(batch.mark, batch.topic)
        for (target, name), (_, mark) in zip(tables, marks, strict=True):
            own, keys = replace(batch, mark=mark), target.key_fields or self.settings.keys
            if target.is_plain:
                found.append(TablePart(target=name, keys=keys, batch=own))
                continue
            selection = selection_of(target, frame, batch)
            to = replace(
                own,
                schema=selection.schema(batch.schema),
                columns={column.name: column.sql for column in selection.columns},
            )
            found.append(TablePart(target=name, keys=keys, batch=to, selection=selection))
        return found

    def _books(self, target: TableName) -> Bookkeeping:
        books = Bookkeeping(self.database, target.schema)
        if target.schema not in self._prepared:
            books.prepare(self.session())
            self._prepared.add(target.schema)
        return books

    def _plan(self, part: TablePart, *, tolerant: bool) -> Plan:
        target, batch, settings = part.target, part.batch, self.settings
        session = self.session()
        table = self.database.table(session, target)
        if table is not None:
            self.database.require_transactions(table)
            target = table.name  # the configured name may be spelled differently
        books = self._books(target)
        if settings.insert_mode is Mode.REPLACE:
            owner = f"{batch.topic} of task {self._task}"
            books.require_owner(session, self._connector, target, owner)
        is_first = books.is_new(session, self._connector, target)
        if is_first:
            books.check_cases(session, self._connector, part.target, self._targets)
            self._targets.add(part.target)
        recreates = (
            is_first
            and settings.schema_save_mode is SchemaSaveMode.RECREATE
            and books.is_new(session, self._connector, target, Step.RECREATED)
        )
        if recreates:
            table = None
        if table is None and settings.schema_save_mode is SchemaSaveMode.REQUIRE:
            raise ConfigError(
                problem=f"The table {target} does not exist.",
                fix="Create it, or set schema.save.mode to create_when_not_exist.",
                field="schema.save.mode",
            )
        rows = record_rows(batch, part.keys, settings.contract, table)
        if rows.is_change and not settings.insert_mode.is_keyed:
            raise ConfigError(
                problem=f"The records of {batch.topic} are changes, which insert.mode "
                f"{settings.insert_mode.value} cannot apply to {target}.",
                fix="Set insert.mode=upsert, or convert them to rows by the transform Unwrap.",
                field="insert.mode",
            )
        if self.database.folds_columns:
            fix = "Rename one of them with the transform ReplaceField."
            check_cases("columns", rows.fields, str(target), fix)
        if table is not None:
            named = self.database.column_named
            rows = rows.renamed({name: named(table, name) for name in rows.fields})
        if settings.insert_mode.is_keyed and not rows.keys:
            raise ConfigError(
                problem=f"The key columns of {target} are not known.",
                fix=NO_KEY,
                field="key.fields",
            )
        staged = rows.staged_schema()
        types = {
            name: self.database.column_type(schema, in_key=name in rows.keys)
            for name, schema in staged.items()
        }
        if table is not None:
            table = self._fitted(session, table, rows, types, batch)
            types = {
                name: self.database.staged_type(column, in_key=name in rows.keys)
                for name in types
                if (column := table.column(name)) is not None and not column.generated
            }
            rows = rows.only(types)
        extra = settings.delete_mode is Deletes.SOFT or settings.insert_mode is Mode.SCD2
        deletes = rows.is_change or (settings.delete_enabled and batch.schema.optional)
        publishes = table is None and not (tolerant or extra or deletes)
        return Plan(
            target=target,
            table=table,
            rows=rows,
            types=types,
            is_first=is_first,
            recreates=recreates,
            publishes=publishes
            and self.database.publishes
            and not self.database.staging_is_apart,
        )

    def _fitted(
        self,
        session: Session,
        table: Table,
        rows: RecordRows,
        types: Mapping[str, str],
        batch: SinkBatch,
    ) -> Table:
        """Add missing columns and widen narrow ones, as far as the schema policy allows.

        This is not part of the batch's transaction: a column without values does no harm, and a
        retry of the batch finds it.
        """
        added, widened = column_changes(
            self.database, table, rows.schema, types, batch.evolution
        )
        missing = [
            column.name
            for column in table.columns
            if not column.schema.optional
            and not column.has_default
            and not column.generated
            and column.name not in types
        ]
        if missing and self.settings.insert_mode is not Mode.UPDATE:
            raise ConfigError(
                problem=f"The column {missing[0]} of {table.name} is NOT NULL, but the records "
                "do not have this field.",
                fix="Add the field with a transform, or set a default for the column.",
                field=missing[0],
            )
        if not added and not widened:
            return table
        change_columns(session, added, widened, self._not_widened)
        return self.database.table(session, table.name) or table

    def _refusals(
        self, plan: Plan, batch: SinkBatch, *, straight: bool = False
    ) -> list[Refusal]:
        """Return the refusals that Spark evaluates on the records."""
        found = lost_digits(self.database, plan.rows, plan.columns)
        if self._window is not None and not straight:
            found.append(windowed_records(self._window, plan).refusal)
        keyed = self.settings.insert_mode.is_keyed
        if plan.rows.is_change:
            return found
        if keyed:
            missing = " OR ".join(f"{sql} IS NULL" for sql in plan.rows.key_fields.values())
            if any(self._may_be_null(plan, batch, name) for name in plan.rows.keys):
                found.append(
                    Refusal(
                        condition=f"({missing})",
                        problem="A record has a null in its key.",
                        fix="Filter such records with a transform, or set other key.fields.",
                        field=", ".join(plan.rows.keys),
                    )
                )
        if batch.schema.optional and not self.settings.delete_enabled:
            found.append(
                Refusal(
                    condition="value IS NULL",
                    problem="A record is a tombstone, but deletes are disabled in this sink.",
                    fix="Filter tombstones with a transform, or set insert.mode=upsert and "
                    "delete.enabled=true.",
                    field="value",
                )
            )
        return found

    def _may_be_null(self, plan: Plan, batch: SinkBatch, name: str) -> bool:
        field = plan.rows.schema.field(name)
        return batch.schema.optional or field is None or field.schema.optional

    # --- writing --------------------------------------------------------------------

    def _staged(
        self, plan: Plan, batch: SinkBatch, *, has_ops: bool, tolerant: bool
    ) -> Staging:
        """Create the staging table of a batch."""
        books = self._books(plan.target)
        schemas = {n: s for n, s in plan.rows.staged_schema().items() if n in plan.types}
        types = dict(plan.types)
        if tolerant:
            schemas[RECORD] = number = Schema.int64()
            types[RECORD] = self.database.column_type(number)
        if has_ops and not plan.publishes:
            schemas[OP], types[OP] = Schema.string(), "CHAR(1)"
            if plan.rows.is_change:
                schemas[PLACE], types[PLACE] = Schema.string(), "VARCHAR(400)"
        name = books.stage(self.session(), batch.mark, plan.target)
        staging = Staging(database=self.database, name=name, columns=schemas)
        keys = plan.rows.keys if plan.publishes else ()
        staging.create(types, keys, plain=plan.publishes)
        return staging

    def _load(
        self, rows: DataFrame, plan: Plan, staging: Staging, *, tolerant: bool
    ) -> tuple[Staging, list[Refused]]:
        """Run the job that loads the staging table; return it and the refused records."""
        most = self.settings.connections_max
        rows = rows.select(*[F.col(quote(name)) for name in staging.columns])
        rows = rows.coalesce(most)
        if self.database.by_spark:
            return load_by_spark(rows, staging, plan.types, tolerant=tolerant)
        schema = to_arrow(Schema.struct(dict(staging.columns)))

        def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext as Running  # noqa: PLC0415 - on executors

            running = Running.get()
            number = 0 if running is None else running.partitionId()
            conformed = (conform(batch, schema) for batch in batches)
            refused: list[tuple[int, str, str]] = []
            if tolerant:
                result, refused = staging.load_tolerant(number, conformed)
            else:
                result = staging.load(number, conformed)
            yield pa.RecordBatch.from_pydict(
                {
                    "result": pa.array([result], pa.string()),
                    "refused": [json.dumps(refused)],
                }
            )

        found = rows.mapInArrow(loaded, _PART).collect()
        return staging, [
            Refused(record, _RECORD_ERROR, problem)
            for row in found
            for record, problem, _ in json.loads(row["refused"])
        ]

    def _applied(
        self,
        plan: Plan,
        batch: SinkBatch,
        staging: Staging,
        *,
        records: int,
        tolerant: bool,
    ) -> MergedRows:
        """Apply the staged rows in a transaction, and leave the transaction open."""
        books, settings = self._books(plan.target), self.settings
        if plan.table is None:
            self._create(plan)
        if plan.publishes:
            self._finish(plan, staging)
        at = datetime.now(UTC)
        refused: list[Refused] = []

        def insert(session: Session) -> None:
            application = Application(
                settings=settings,
                target=plan.target,
                columns=list(plan.types),
                keys=plan.rows.keys,
                unique=plan.unique,
                has_ops=OP in staging.columns,
                clears=self._clearance(plan.target).rows(session, plan, batch),
                at=at,
            )
            try:
                refused[:] = application.run(session, staging, tolerant=tolerant)
            except (DatabaseError, ConfigError):
                plan.require_same(self.database, self.session(), staging.name)
                raise
            staging.require_rows(session)
            # Only now: no one can change a table that an open transaction has written to.
            plan.require_same(self.database, session, staging.name)

        judged: list[list[int]] = []

        def applied() -> Session:
            session = self._locked(staging.name, books, batch.mark)
            try:
                held = books.held(session, batch.mark)
                if not judged:
                    require_new(held, plan.target)
                # Guarantee 2: after another attempt's commit the staging table may be gone.
                if not batch.mark.wrote(held):
                    if not plan.publishes:
                        insert(session)
                    judged.append([each.record for each in refused])
                    require_same_rows(judged, plan.target)
            except BaseException:
                session.close()
                raise
            return session

        session: Session | None = applied()
        if session is not None and not self.database.keeps_open:
            session.close()
            session = None
        return MergedRows(
            session=session,
            again=applied,
            books=books,
            mark=batch.mark,
            target=plan.target,
            staging=staging,
            rows=records,
            publishes=plan.publishes,
            keys=plan.rows.keys if settings.insert_mode.is_keyed else (),
            begin=self._clearance(plan.target).begin,
            insert=insert,
            refusals=refused,
        )

    def _locked(self, staging: TableName, books: Bookkeeping, mark: Mark) -> Session:
        """Open a transaction that holds the application's lock against other attempts."""
        session = self.database.merging_session(staging)
        try:
            self.database.take_over(session, mark.application)
            books.lock(session, mark)
        except BaseException:
            session.close()
            raise
        return session

    def _finish(self, plan: Plan, staging: Staging) -> None:
        """Add the primary key to a staging table that becomes the target."""
        if not plan.rows.keys:
            return
        keys = [self.database.quote(key) for key in plan.rows.keys]
        with self.database.staging_session(staging.name) as session:
            self.database.add_key(session, staging.name, plan.target, keys)
            session.commit()

    def _create(self, plan: Plan) -> None:
        """Create the empty target, unless the staging table becomes the target."""
        books, session = self._books(plan.target), self.session()
        if plan.recreates:
            books.recreate(session, self._connector, plan.target)
        if plan.publishes:
            return
        try:
            session.execute(plan.creation(self.database, self.settings))
        except (DatabaseError, RecordError) as error:
            session.rollback()
            if self.database.table(session, plan.target) is None:
                raise
            raise changed_meanwhile(plan.target) from error
        session.commit()

    def _discard(self, part: TablePart) -> None:
        self._books(part.target).discard(self.session(), part.batch.mark)
