"""Compares the data of sources and targets of connectors, and repairs the targets."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from headrace.control import REPLAYS, Copy, CopyPlan, TaskPlan, replay_plan
from headrace.dataplane import (
    DeadLetterFilter,
    DeadLetterQueue,
    Expected,
    RepairReader,
    Repairs,
    Step,
    TableComparison,
    TableResult,
    VerifyOptions,
    apply_chain,
    table_records,
    topics_of,
    translated,
)
from headrace.model import TaskId
from headrace.runtime.preview import require_own_replays, resend
from headrace.runtime.tasks import Assembler, sink_names, started_steps
from headrace.sdk import CodeTransform, ConfigError, HeadraceError, StateError, TransformBatch
from headrace.sdk.schema_evolution import ChangeKind, Handling
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from headrace.control import SinkPlan
    from headrace.dataplane.records import RecordFrame
    from headrace.plugins import Registry
    from headrace.sdk.location import Location
    from headrace.sdk.tables import TableRows


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of the comparison of one connector.

    Args:
        skipped: Sinks whose targets cannot be read, with the reason.
        dead_letters: The number of the connector's records in its dead-letter topic.
    """

    connector: str
    tables: Sequence[TableResult]
    skipped: Sequence[str] = ()
    dead_letters: int = 0

    @property
    def equal(self) -> bool:
        """Whether all readable targets have the same data as the sources."""
        return all(each.equal for each in self.tables)


@dataclass(frozen=True, kw_only=True)
class RepairOptions:
    """How rows that differ are repaired.

    Args:
        delete_extra: Whether to delete rows that the source does not have.
    """

    delete_extra: bool = False


@dataclass
class _Sink:
    """A sink of a copy with its comparisons, and its tables that cannot be compared.

    It is readable if its target has tables at all.
    """

    plan: SinkPlan
    name: str
    comparisons: list[TableComparison] = field(default_factory=list)
    failed: list[TableResult] = field(default_factory=list)
    readable: bool = False


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """Compares copies on a session, and repairs them through a store. Not thread-safe.

    Args:
        plans: Plans the tasks of a connector that is repaired.
        owner: The owner of the lease of its repairs.
    """

    registry: Registry
    spark: SparkSession
    assembler: Assembler
    topics_dir: Location
    plans: Callable[[Copy], Sequence[TaskPlan]]
    owner: str
    lease: timedelta

    def run(
        self,
        copy: Copy,
        options: VerifyOptions,
        streams: Sequence[str] = (),
        repair: RepairOptions | None = None,
    ) -> VerifyReport:
        """Compare a copy, table by table; repair tables that differ and compare them again.

        Args:
            copy: The copy to compare.
            options: The options of the comparison.
            streams: Only the tables of these streams; all if empty.
            repair: How to repair rows that differ; None for no repair.

        Raises:
            ConfigError: The source is not a set of tables, no target can be read, or a target
                cannot be repaired.
            StateError: The connector, or another repair of it, is running.
        """
        if repair is not None:
            self._require_stopped(copy.name)
            self._finish_repairs(copy)
        with ExitStack() as opened, translated(f"comparing {copy.name}"):
            plan = copy.plan(self.registry)
            expected, tables = self._expected(plan, streams, opened)
            sinks, skipped = self._sinks(plan, options, expected, opened)
            if repair is not None:
                _require_repairable(sinks, repair)
            for sink in sinks:
                compared = [(each, _run(each)) for each in sink.comparisons]
                tables += sink.failed
                if repair is None:
                    tables += [result for _, result in compared]
                else:
                    tables += self._repaired(copy, sink, compared, repair)
            letters = self._dead_letters(copy.name, plan, tables)
            return VerifyReport(
                connector=copy.name, tables=tables, skipped=skipped, dead_letters=letters
            )
        raise AssertionError  # an ExitStack lets nothing pass in silence

    # Comparison

    def _sinks(
        self,
        plan: CopyPlan,
        options: VerifyOptions,
        expected: Sequence[Expected],
        opened: ExitStack,
    ) -> tuple[list[_Sink], list[str]]:
        sinks, skipped = [], []
        for each, name in zip(plan.sinks, sink_names(plan.sinks), strict=True):
            found = _Sink(each, name)
            for of_topic, tables in self._shared(found, expected):
                ignores = each.evolution.of(ChangeKind.ADD) is Handling.IGNORE
                comparison = TableComparison(
                    self.spark, of_topic, tables, options, ignores_added=ignores
                )
                opened.callback(comparison.close)
                found.comparisons.append(comparison)
            if found.readable or not expected:
                sinks.append(found)
            else:
                skipped.append(f"{each.connector.__name__}: {_UNREADABLE}")
        if not sinks:
            problem = f"No target can be compared. {' '.join(skipped)}"
            raise ConfigError(
                problem,
                field="sinks",
                fix="Verify needs targets with tables, such as Delta or a database.",
            )
        return sinks, skipped

    def _expected(
        self, plan: CopyPlan, streams: Sequence[str], opened: ExitStack
    ) -> tuple[list[Expected], list[TableResult]]:
        """Return the rows of the streams, and the streams whose rows cannot be read."""
        tables = plan.source.connector.table_rows(plan.source.parsed)
        if tables is None:
            problem = (
                f"{plan.source.connector.__name__} does not read tables that can be compared, "
                "with these keys."
            )
            raise ConfigError(
                problem,
                field="source.connector",
                fix="Verify needs sources whose rows can be read again: files in mode set with "
                "another format than text, Delta tables without change feed, or databases.",
            )
        named = {t.stream if plan.has_streams else plan.stream: t for t in tables}
        unknown = [each for each in dict.fromkeys(streams) if each not in named]
        there = f"Existing streams: {', '.join(sorted(named))}."
        if unknown and len(unknown) == len(set(streams)):
            problem = f"There is no stream {unknown[0]}."
            raise ConfigError(problem, field="--stream", fix=there)
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="headrace-verify-")))
        task = TaskId("verify", 0)
        chains = [
            started_steps(steps, task, folder / str(number), opened)
            for number, steps in enumerate((plan.steps, plan.later_steps))
        ]
        found = []
        failed = [_failed(each, "", f"The stream does not exist. {there}") for each in unknown]
        for stream, table in named.items():
            if streams and stream not in streams:
                continue
            read = partial(_chained, table=table, stream=stream, plan=plan, chains=chains)
            whole = replace(table, read=table.read_at_once or table.read)
            at_once = partial(read, table=whole)
            try:
                with translated(f"reading {stream}"):
                    topics, divided = topics_of(self.spark, read(self.spark))
            except HeadraceError as error:
                failed.append(_failed(stream, table.title, str(error)))
                continue
            found += [
                Expected(stream, topic, read, at_once, divided)
                for topic in topics
                if plan.arrives(topic)
            ]
        return found, failed

    def _shared(
        self, sink: _Sink, expected: Sequence[Expected]
    ) -> Iterator[tuple[list[Expected], list[TableRows]]]:
        """Yield the expected rows and the tables to compare; add failures to the sink.

        Streams whose rows go into the same table are compared together.
        """
        connector = sink.plan.connector
        config = connector.config_def().parse(sink.plan.config)
        groups: list[tuple[list[Expected], dict[str, TableRows]]] = []
        for each in expected:
            schema = each.read(self.spark).shape.value.schema
            assert schema is not None
            try:
                tables = connector.table_rows(config, each.topic, schema)
            except HeadraceError as error:
                sink.readable = True
                sink.failed.append(_failed(each.stream, connector.__name__, str(error)))
                continue
            if tables is None:
                sink.failed.append(_failed(each.stream, connector.__name__, _UNREADABLE))
                continue
            sink.readable = True
            own = ([each], {table.title: table for table in tables})
            for group in [g for g in groups if g[1].keys() & own[1].keys()]:
                groups.remove(group)
                own = ([*group[0], *own[0]], group[1] | own[1])
            groups.append(own)
        for members, found in groups:
            yield members, list(found.values())

    def _dead_letters(
        self, connector: str, plan: CopyPlan, tables: Sequence[TableResult]
    ) -> int:
        name = plan.common.errors.dead_letter_topic
        if name is None or all(each.equal and not each.rejected for each in tables):
            return 0
        topic = self.assembler.topics.get(name)
        if not topic.exists():
            return 0
        groups = DeadLetterQueue(lambda: self.spark, topic, self.topics_dir).groups(
            DeadLetterFilter(connector=connector)
        )
        return sum(int(group["letters"]) for group in groups)

    # Repairs

    def _repaired(
        self,
        copy: Copy,
        sink: _Sink,
        compared: Sequence[tuple[TableComparison, TableResult]],
        repair: RepairOptions,
    ) -> list[TableResult]:
        repairs = Repairs.of(copy.name, self.topics_dir)
        reader = RepairReader(copy.name, repairs)
        sent: dict[int, int] = {}
        with self._holding(copy.name):
            after = reader.number(self.assembler.store.position(TaskId(copy.name, REPLAYS)))
            for number, (comparison, result) in enumerate(compared):
                if result.error or _obstacle(comparison, repair) is not None:
                    continue
                figures = result.figures
                extra = figures.extra if repair.delete_extra else 0
                if figures.missing + figures.different + extra:
                    sent[number] = repairs.stage(
                        comparison.to_send(delete_extra=repair.delete_extra),
                        after=after,
                        topic=comparison.topic,
                        sink=sink.name,
                    )
        if sent:
            self._require_stopped(copy.name)
            self._send(copy)
        return [
            replace(each.again(result), repaired=sent[number])
            if number in sent
            else _unrepaired(result, _obstacle(each, repair))
            for number, (each, result) in enumerate(compared)
        ]

    def _require_stopped(self, connector: str) -> None:
        """Raise StateError if the connector that writes the target is running."""
        now = self.assembler.store.now()
        for lease in self.assembler.store.leases(connector):
            if lease.task.number != REPLAYS and lease.expires > now:
                problem = (
                    f"{connector} is running: a repair could overwrite newer rows with older."
                )
                fix = (
                    f"Pause it (headrace connector pause {connector} --wait), or stop its run, "
                    "until the repair is done."
                )
                raise StateError(problem, field="--repair", fix=fix)

    def _finish_repairs(self, copy: Copy) -> None:
        """Send the rows that an earlier, killed repair staged but has not sent."""
        task = TaskId(copy.name, REPLAYS)
        require_own_replays(self.assembler.store, task, RepairReader.PARTITION)
        reader = RepairReader(copy.name, Repairs.of(copy.name, self.topics_dir))
        if reader.has_more(self.assembler.store.position(task)):
            self._send(copy)

    def _send(self, copy: Copy) -> None:
        plan = replay_plan(self.plans(copy)[0])
        # The staged rows have already passed the chain.
        plan = replace(plan, steps=(), converters=(), chain="")
        reader = RepairReader(copy.name, Repairs.of(copy.name, self.topics_dir))
        outcome = resend(
            plan,
            reader,
            spark=self.spark,
            assembler=self.assembler,
            owner=self.owner,
            lease=self.lease,
        )
        for error in outcome.errors.values():
            raise error

    @contextmanager
    def _holding(self, connector: str) -> Iterator[None]:
        """Hold the lease that excludes other repairs of the connector."""
        store = self.assembler.store
        held = store.lease(TaskId(connector, REPLAYS), self.owner, store.now(), self.lease)
        try:
            yield
        finally:
            store.release(held)


def _chained(
    spark: SparkSession,
    *,
    table: TableRows,
    stream: str,
    plan: CopyPlan,
    chains: Sequence[Sequence[Step]],
) -> RecordFrame:
    """Return the rows of a table after the transforms, as in a batch."""
    batch = TransformBatch(1, stream, datetime.now(UTC))
    for step in (step for chain in chains for step in chain):
        if isinstance(step.transform, CodeTransform):
            step.transform.running.begin(batch.id, 0)
    # Guarantee 7: batches apply the chain with the same function.
    records = apply_chain(table_records(spark, table, stream), chains[0], batch)
    if plan.topic is None:
        return records
    shape = records.shape
    if stream != plan.topic:
        own = f"IF({shape.topic} = {literal(stream)}, {literal(plan.topic)}, {shape.topic})"
        shape = replace(shape, topic=own)
    return apply_chain(replace(records, shape=shape), chains[1], batch)


_UNREADABLE = "The target cannot be read back as rows."


def _failed(stream: str, target: str, error: str) -> TableResult:
    """Return the result of a table that cannot be compared."""
    return TableResult(
        stream=stream, target=target, key=(), source_rows=0, target_rows=0, error=error
    )


def _run(comparison: TableComparison) -> TableResult:
    """Compare a table; an error must not stop the comparison of other tables."""
    try:
        with translated(f"comparing {comparison.stream}"):
            return comparison.run()
    except HeadraceError as error:
        return _failed(comparison.stream, comparison.title, str(error))
    raise AssertionError  # nothing passes in silence


def _require_repairable(sinks: Sequence[_Sink], repair: RepairOptions) -> None:
    """Raise ConfigError if no table of any sink can be repaired."""
    every = [each for sink in sinks for each in sink.comparisons]
    obstacles = [error for each in every if (error := _obstacle(each, repair)) is not None]
    if obstacles and len(obstacles) == len(every):
        raise obstacles[0]


def _unrepaired(result: TableResult, obstacle: ConfigError | None) -> TableResult:
    if obstacle is None or result.equal or result.error:
        return result
    note = f"not repaired: {obstacle.problem} {obstacle.fix}"
    return replace(result, notes=[*result.notes, note])


def _obstacle(comparison: TableComparison, repair: RepairOptions) -> ConfigError | None:
    """Return why a table cannot be repaired with these options; None if it can."""
    if not comparison.is_there:
        return ConfigError(
            f"The target of {comparison.stream} does not exist yet.",
            field="--repair",
            fix="Run the connector: there is nothing to repair.",
        )
    try:
        replaces = comparison.replaces
    except ConfigError as error:  # it cannot be compared
        return error
    if not replaces:
        return ConfigError(
            f"{comparison.title} only appends rows: rows that are sent again would be "
            "duplicates.",
            field="--repair",
            fix="Set the sink to upsert by key (insert.mode: upsert of a database's sink, "
            "mode: upsert with key.fields of delta), or empty the target, reset the "
            "connector's offsets and run it again.",
        )
    if repair.delete_extra and not comparison.deletes:
        return ConfigError(
            f"The configuration of {comparison.title} does not allow deletes.",
            field="--delete-extra",
            fix="Enable deletes in the sink (such as delete.enabled: true), or delete the rows "
            "there.",
        )
    return None
