"""What a definition's mapping rules match now, before anything runs."""

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
    from headrace.sdk.mapped_tables import MappedTable
    from headrace.topics import Topics


@dataclass(frozen=True, slots=True)
class MappedStream:
    """A stream that a sink gets now, and the tables that its records go to.

    Args:
        name: As the sink gets it, which transforms may have renamed.
        tables: None where that is an error.
    """

    name: str
    tables: Sequence[MappedTable] | None


@dataclass(slots=True)
class SinkMapping:
    """What the rules of one sink match.

    Args:
        place: Where the sink stands in the definition; empty in Kafka Connect's form.
        rules: What each of its rules is called.
    """

    connector: str
    plugin: str
    place: str
    rules: Sequence[str]
    streams: list[MappedStream] = field(default_factory=list)
    errors: list[HeadraceError] = field(default_factory=list)
    warnings: list[HeadraceError] = field(default_factory=list)

    def warn(self, problem: str, *, fix: str = "", rule: int | None = None) -> None:
        """Note something that may be meant, but perhaps is not."""
        key = "table.mapping" if rule is None else f"table.mapping[{rule}]"
        where = ".".join(part for part in (self.place, key) if part)
        self.warnings.append(ConfigError(problem, field=where, fix=fix))


_ONLY_THEN = "Which streams there are, the source or a transform tells only while it runs."


def mappings_of(
    definition: Definition, registry: Registry, topics: Topics
) -> list[SinkMapping]:
    """Return what each sink with tables does with the streams that are there now.

    Nothing is started but what reads the names of a source's tables. The definition has been
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
    """Yield the streams that a definition's sinks are to get, before its transforms.

    One that is None is not known.
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
            yield from of_streams.items()  # a database that is packed into one topic
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
    """Yield streams as transforms name them; what they make of a schema only Spark can tell."""
    plans = plan_steps(definition.steps, registry)
    steps = [Step(plan.transform, plan.predicate, plan.negate) for plan in plans]
    for name, schema in streams:
        yield (constant_topic(steps, name), None) if steps and name else (name, schema)


def _warn(mapping: SinkMapping, *, complete: bool) -> None:
    """Note what of a mapping may not be meant; ``complete`` if all streams are known."""
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
            fix = "Check its spelling; a record without it leaves the column out."
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
                fix="Give them one type with columns.types; what one of them lacks is null.",
                rule=table.rule,
            )
