"""Compares what connectors copy with what they have copied, and repairs it."""

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
from headrace.sdk import CodeTransform, ConfigError, StateError, TransformBatch
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
    from headrace.sdk.table_rows import TableRows


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a comparison of one connector's copies has found.

    Args:
        skipped: Sinks whose targets cannot be read, with the reason.
        dead_letters: How many records of the connector wait in its dead-letter topic.
    """

    connector: str
    tables: Sequence[TableResult]
    skipped: Sequence[str] = ()
    dead_letters: int = 0

    @property
    def equal(self) -> bool:
        """Whether all targets that can be read hold what the sources have."""
        return all(each.equal for each in self.tables)


@dataclass(frozen=True, kw_only=True)
class RepairOptions:
    """What is done about rows that differ.

    Args:
        delete_extra: Whether rows are deleted that the source does not have.
    """

    delete_extra: bool = False


@dataclass
class _Sink:
    """A sink of a copy with what is compared of it."""

    plan: SinkPlan
    name: str
    comparisons: list[TableComparison] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """Compares copies on a session, and repairs them through a store. One thread uses it.

    Args:
        plans: Plans the tasks of a connector that is repaired.
        owner: Who holds the lease of its repairs.
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
        """Compare a copy, table by table; repair what differs and compare that again.

        Args:
            copy: What is compared.
            options: How.
            streams: Only the tables of these streams; all if empty.
            repair: What is done about rows that differ; None for nothing.

        Raises:
            ConfigError: The source is not a set of tables, no target can be read, or a target
                cannot be repaired.
            StateError: The connector runs, or another repair of it.
        """
        if repair is not None:
            self._require_stopped(copy.name)
            self._finish_repairs(copy)
        with ExitStack() as opened, translated(f"comparing {copy.name}"):
            plan = copy.plan(self.registry)
            sinks, skipped = self._sinks(plan, options, streams, opened)
            if repair is not None:
                _require_repairable(sinks, repair)
            tables = []
            for sink in sinks:
                compared = [(each, each.run()) for each in sink.comparisons]
                if repair is not None:
                    compared = self._repaired(copy, sink, compared, repair)
                tables += [result for _, result in compared]
            letters = self._dead_letters(copy.name, plan, tables)
            return VerifyReport(
                connector=copy.name, tables=tables, skipped=skipped, dead_letters=letters
            )
        raise AssertionError  # an ExitStack lets nothing pass in silence

    # What is compared

    def _sinks(
        self,
        plan: CopyPlan,
        options: VerifyOptions,
        streams: Sequence[str],
        opened: ExitStack,
    ) -> tuple[list[_Sink], list[str]]:
        expected = self._expected(plan, streams, opened)
        sinks, skipped = [], []
        for each, name in zip(plan.sinks, sink_names(plan.sinks), strict=True):
            found = _Sink(each, name)
            readable = True
            for of_topic, tables in self._shared(each, expected):
                if tables is None:
                    readable = False
                    break
                ignores = each.evolution.of(ChangeKind.ADD) is Handling.IGNORE
                comparison = TableComparison(
                    self.spark, of_topic, tables, options, ignores_added=ignores
                )
                opened.callback(comparison.close)
                found.comparisons.append(comparison)
            if readable:
                sinks.append(found)
            else:
                kind = each.connector.__name__
                skipped.append(f"{kind}: what it has written cannot be read back as rows")
        if not sinks:
            problem = f"No target can be compared. {'; '.join(skipped)}."
            raise ConfigError(
                problem,
                field="sinks",
                fix="Verify compares targets that keep tables, such as Delta or a database.",
            )
        return sinks, skipped

    def _expected(
        self, plan: CopyPlan, streams: Sequence[str], opened: ExitStack
    ) -> list[Expected]:
        tables = plan.source.connector.table_rows(plan.source.parsed)
        if tables is None:
            problem = (
                f"{plan.source.connector.__name__} reads no tables that could be compared."
            )
            raise ConfigError(
                problem,
                field="source.connector",
                fix="Verify reads sources that keep their rows, such as files or a database.",
            )
        named = {t.stream if plan.has_streams else plan.stream: t for t in tables}
        if unknown := sorted(set(streams) - set(named)):
            problem = f"There is no stream {unknown[0]}."
            fix = f"There are: {', '.join(sorted(named))}."
            raise ConfigError(problem, field="--stream", fix=fix)
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="headrace-verify-")))
        task = TaskId("verify", 0)
        chains = [
            started_steps(steps, task, folder / str(number), opened)
            for number, steps in enumerate((plan.steps, plan.later_steps))
        ]
        found = []
        for stream, table in named.items():
            if streams and stream not in streams:
                continue
            read = partial(_chained, table=table, stream=stream, plan=plan, chains=chains)
            whole = replace(table, read=table.read_at_once or table.read)
            at_once = partial(read, table=whole)
            topics, divided = topics_of(self.spark, read(self.spark))
            found += [
                Expected(stream, topic, read, at_once, divided)
                for topic in topics
                if plan.arrives(topic)
            ]
        return found

    def _shared(
        self, sink: SinkPlan, expected: Sequence[Expected]
    ) -> Iterator[tuple[list[Expected], list[TableRows] | None]]:
        """Yield what each of a sink's tables is compared with; None for what cannot be read.

        Streams whose rows go into one table are compared with it together.
        """
        config = sink.connector.config_def().parse(sink.config)
        groups: list[tuple[list[Expected], dict[str, TableRows]]] = []
        for each in expected:
            schema = each.read(self.spark).shape.value.schema
            assert schema is not None
            tables = sink.connector.table_rows(config, each.topic, schema)
            if tables is None:
                yield [each], None
                return
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
        groups = DeadLetterQueue(self.spark, topic, self.topics_dir).groups(
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
    ) -> list[tuple[TableComparison, TableResult]]:
        repairs = Repairs.of(copy.name, self.topics_dir)
        reader = RepairReader(copy.name, repairs)
        sent: dict[int, int] = {}
        with self._holding(copy.name):
            after = reader.number(self.assembler.store.position(TaskId(copy.name, REPLAYS)))
            for number, (comparison, result) in enumerate(compared):
                figures = result.figures
                extra = figures.extra if repair.delete_extra else 0
                if figures.missing + figures.different + extra:
                    sent[number] = repairs.stage(
                        comparison.to_send(delete_extra=repair.delete_extra),
                        after=after,
                        topic=comparison.topic,
                        sink=sink.name,
                    )
        if not sent:
            return list(compared)
        self._require_stopped(copy.name)
        self._send(copy)
        return [
            (c, replace(c.again(result), repaired=sent[n]) if n in sent else result)
            for n, (c, result) in enumerate(compared)
        ]

    def _require_stopped(self, connector: str) -> None:
        """Raise StateError if the connector that writes the target runs."""
        now = self.assembler.store.now()
        for lease in self.assembler.store.leases(connector):
            if lease.task.number != REPLAYS and lease.expires > now:
                problem = (
                    f"{connector} runs: a repair could put older rows over those it writes."
                )
                fix = (
                    f"Pause it (headrace connector pause {connector} --wait), or end its run, "
                    "until the repair is done."
                )
                raise StateError(problem, field="--repair", fix=fix)

    def _finish_repairs(self, copy: Copy) -> None:
        """Send what an earlier repair, which was killed, has kept and not sent yet."""
        task = TaskId(copy.name, REPLAYS)
        require_own_replays(self.assembler.store, task, RepairReader.PARTITION)
        reader = RepairReader(copy.name, Repairs.of(copy.name, self.topics_dir))
        if reader.has_more(self.assembler.store.position(task)):
            self._send(copy)

    def _send(self, copy: Copy) -> None:
        plan = replay_plan(self.plans(copy)[0])
        # What is sent has been through the chain.
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
        """Keep other repairs of the connector away."""
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
    """Return the rows of a table behind the transforms, as a batch would have them."""
    batch = TransformBatch(1, stream, datetime.now(UTC))
    for step in (step for chain in chains for step in chain):
        if isinstance(step.transform, CodeTransform):
            step.transform.running.begin(batch.id, 0)
    # Guarantee 7: the same function lays the chain over the records of a batch.
    records = apply_chain(table_records(spark, table, stream), chains[0], batch)
    if plan.topic is None:
        return records
    shape = records.shape
    if stream != plan.topic:
        own = f"IF({shape.topic} = {literal(stream)}, {literal(plan.topic)}, {shape.topic})"
        shape = replace(shape, topic=own)
    return apply_chain(replace(records, shape=shape), chains[1], batch)


def _require_repairable(sinks: Sequence[_Sink], repair: RepairOptions) -> None:
    for comparison in (each for sink in sinks for each in sink.comparisons):
        if not comparison.is_there:
            problem = f"The target of {comparison.stream} is not there yet."
            fix = "Run the connector: there is nothing that could be repaired."
            raise ConfigError(problem, field="--repair", fix=fix)
        if not comparison.replaces:
            problem = (
                f"{comparison.title} takes rows only as new ones: what is sent again would be "
                "there twice."
            )
            raise ConfigError(
                problem,
                field="--repair",
                fix="Let the sink replace rows by key (mode: upsert with key.fields does), or "
                "empty the target, reset the connector's offsets and run it again.",
            )
        if repair.delete_extra and not comparison.deletes:
            problem = f"{comparison.title} deletes no rows as it is configured."
            raise ConfigError(
                problem,
                field="--delete-extra",
                fix="Let the sink delete (as delete.enabled: true does), or delete them there.",
            )
