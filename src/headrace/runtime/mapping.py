"""Shows which streams a definition's mapping rules match, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.control import SourcePlan, errors_at, parse_common, plan_steps, resolved
from headrace.dataplane import Step, constant_topic
from headrace.evolution import plugin_keys
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.model import Definition, PluginSpec
    from headrace.plugins import Registry
    from headrace.sdk import Schema
    from headrace.sdk.tables import MappedTable
    from headrace.topics import Topics


@dataclass(frozen=True, slots=True)
class MappedStream:
    """A stream that a sink currently receives, and the tables that its records go to.

    Args:
        name: The name at the sink, which transforms may have changed.
        tables: The tables; None if the mapping failed.
    """

    name: str
    tables: Sequence[MappedTable] | None


@dataclass(slots=True)
class SinkMapping:
    """The streams that the rules of one sink match.

    Args:
        place: The sink's path in the definition; empty in Kafka Connect's format.
        rules: The titles of its rules.
    """

    connector: str
    plugin: str
    place: str
    rules: Sequence[str]
    streams: list[MappedStream] = field(default_factory=list)
    errors: list[HeadraceError] = field(default_factory=list)
    warnings: list[HeadraceError] = field(default_factory=list)

    def warn(self, problem: str, *, fix: str = "", rule: int | None = None) -> None:
        """Add a warning about something that may be unintended."""
        key = "table.mapping" if rule is None else f"table.mapping[{rule}]"
        where = ".".join(part for part in (self.place, key) if part)
        self.warnings.append(ConfigError(problem, field=where, fix=fix))


_ONLY_THEN = "The streams are known only while the source or the transforms run."


def mappings_of(
    definition: Definition, registry: Registry, topics: Topics
) -> list[SinkMapping]:
    """Return what each sink with tables does with the existing streams.

    Nothing is started except what lists a source's tables. The definition must have been
    checked.
    """
    definition = resolved(definition, registry.references)
    found = []
    streams = list(_renamed(definition, registry, _streams(definition, registry, topics)))
    for spec in definition.sinks:
        sink = registry.sink(spec.plugin)
        config = sink.config_def().parse(plugin_keys(spec.config))
        mapping = SinkMapping(
            definition.name, spec.plugin, spec.place, sink.table_rules(config)
        )
        for stream, schema in streams:
            if stream is None:
                mapping.warn(_ONLY_THEN)
                continue
            try:
                tables = sink.mapped_tables(config, stream, schema)
            except (ConfigError, ConfigErrors) as error:
                several = error.errors if isinstance(error, ConfigErrors) else [error]
                mapping.errors += errors_at(several, spec.place).errors
                mapping.streams.append(MappedStream(stream, None))
                continue
            if tables is None:
                break  # a sink without tables
            mapping.streams.append(MappedStream(stream, tables))
        else:
            _warn(mapping, complete=all(stream is not None for stream, _ in streams))
            found.append(mapping)
    return found


def _streams(
    definition: Definition, registry: Registry, topics: Topics
) -> Iterator[tuple[str | None, Schema | None]]:
    """Yield the streams of a definition's sinks, before its transforms.

    A name of None means that the streams are unknown.
    """
    if definition.source is not None:
        yield from _streams_of(definition.source, definition.name, registry)
        return
    names = definition.topics
    if not names:
        pattern = parse_common(definition).topics_regex or ""
        names = tuple(topic.name for topic in topics.matching(pattern))
    for name in names:
        topic = topics.get(name)
        of_streams = {version.stream: version.value for version in topic.history.versions()}
        if of_streams.keys() - {name}:
            yield from of_streams.items()  # a whole database in one topic
        else:
            yield name, topic.value_schema()


def _streams_of(
    spec: PluginSpec, connector: str, registry: Registry
) -> Iterator[tuple[str | None, Schema | None]]:
    plan = SourcePlan(registry.source(spec.plugin), plugin_keys(spec.config))
    tables = plan.connector.table_rows(plan.parsed)
    if not plan.has_streams:
        yield connector, tables[0].schema if tables and len(tables) == 1 else None
    elif tables is None:
        yield None, None
    for table in tables or () if plan.has_streams else ():
        yield table.stream, table.schema


def _renamed(
    definition: Definition,
    registry: Registry,
    streams: Iterator[tuple[str | None, Schema | None]],
) -> Iterator[tuple[str | None, Schema | None]]:
    """Yield streams as transforms rename them; only Spark could compute their new schemas."""
    plans = plan_steps(definition.steps, registry)
    steps = [Step(plan.transform, plan.predicate, plan.negate) for plan in plans]
    for name, schema in streams:
        yield (constant_topic(steps, name), None) if steps and name else (name, schema)


def _warn(mapping: SinkMapping, *, complete: bool) -> None:
    """Add warnings about a mapping; ``complete`` if all streams are known."""
    tables = [
        (stream.name, table) for stream in mapping.streams for table in stream.tables or ()
    ]
    for number, title in enumerate(mapping.rules):
        if complete and all(table.rule != number for _, table in tables):
            mapping.warn(f"No stream matches {title} now.", rule=number)
    for stream in mapping.streams if mapping.rules else ():
        if stream.tables is not None and all(table.rule is None for table in stream.tables):
            to = [f"goes to {table.table}" for table in stream.tables] or ["is left out"]
            mapping.warn(f"No rule matches {stream.name}, which {to[0]}.")
    for stream_name, table in tables:
        for name in table.missing:
            fix = "Check the spelling; records without the field omit the column."
            mapping.warn(f"{stream_name} has no field {name}.", fix=fix, rule=table.rule)
    first: dict[str, tuple[str, MappedTable]] = {}
    for stream_name, table in tables:
        if table.columns is None:
            continue
        other, before = first.setdefault(table.table, (stream_name, table))
        assert before.columns is not None
        types = {column.name: column.type for column in before.columns}
        differing = sorted(
            types.items() ^ {column.name: column.type for column in table.columns}.items(),
            key=str,
        )
        if differing:
            names = ", ".join(dict.fromkeys(name for name, _ in differing))
            mapping.warn(
                f"{stream_name} and {other} go to {table.table} with different columns: "
                f"{names}.",
                fix="Set a common type with columns.types; missing columns are null.",
                rule=table.rule,
            )
