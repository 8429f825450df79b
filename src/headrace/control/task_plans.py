"""Plans the tasks of a definition, and the copies that definitions describe."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from headrace.control.connector_settings import CommonConfig, parse_common
from headrace.control.definition_forms import flat, kafka_steps, section_steps
from headrace.control.validation import (
    ConverterPlan,
    check_access,
    check_steps,
    errors_at,
    plan_converters,
    resolved,
)
from headrace.evolution import evolution_of, plugin_keys
from headrace.model import Definition, PluginSpec, StepSpec, TaskId
from headrace.sdk import (
    CaptureSource,
    ConfigError,
    ConfigErrors,
    Connector,
    ConnectorContext,
    Predicate,
    SinkConnector,
    SourceConnector,
    StreamFrameSource,
    StreamSplitSource,
    Transform,
)
from headrace.sdk.schema_evolution import EvolutionPolicy

if TYPE_CHECKING:
    from headrace.plugins import Registry
    from headrace.sdk.config import Config


REPLAYS = -1
"""The number of the task that replays dead letters."""


@dataclass(frozen=True)
class SourcePlan:
    """The source of one task: its connector's class and the task's configuration."""

    connector: type[SourceConnector]
    config: Mapping[str, str]

    @property
    def parsed(self) -> Config:
        return self.connector.config_def().parse(self.config)

    @property
    def row_keys(self) -> Mapping[str, str] | None:
        """Return digests of the non-default values of the keys that decide the source's rows.

        None if the connector declares no such keys.
        """
        if not self.connector.row_keys:
            return None
        defined, parsed = self.connector.config_def().keys, self.parsed
        values = {key: parsed[key] for key in self.connector.row_keys}
        return {
            key: _digest(value)[:8]
            for key, value in values.items()
            if value != defined[key].default
        }

    @property
    def has_streams(self) -> bool:
        """Whether the source itself names its streams; else the connector's topic is used."""
        gear = self.connector.task_class(self.parsed)
        return issubclass(gear, StreamFrameSource | StreamSplitSource)

    @property
    def is_capture(self) -> bool:
        return issubclass(self.connector.task_class(self.parsed), CaptureSource)


@dataclass(frozen=True)
class SinkPlan:
    """A sink of one task, with its schema evolution policy."""

    connector: type[SinkConnector]
    config: Mapping[str, str]
    evolution: EvolutionPolicy = field(default_factory=EvolutionPolicy)


@dataclass(frozen=True)
class StepPlan:
    """A configured transform with its predicate."""

    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """Everything needed to run a task.

    Args:
        source: The source plugin; None to read ``from_topic``.
        sinks: The sink plugins; empty to write ``to_topic``.
        stream: The topic of the task's records.
        to_topic: The topic to write, if any.
        evolution: The schema evolution policy of ``to_topic``.
        chain: A digest of the configuration of the transforms and converters.
        identity: The connector's uid in the store, if it may be removed while the task runs.
        memory: The name under which schemas are stored; None for the connector's name.
    """

    id: TaskId
    source: SourcePlan | None
    sinks: Sequence[SinkPlan]
    stream: str
    common: CommonConfig
    from_topic: str | None = None
    to_topic: str | None = None
    steps: Sequence[StepPlan] = field(default=())
    converters: Sequence[ConverterPlan] = field(default=())
    evolution: EvolutionPolicy = field(default_factory=EvolutionPolicy)
    chain: str = ""
    identity: str | None = None
    memory: str | None = None

    @property
    def is_capture(self) -> bool:
        """Return whether the task polls a source that cannot be read again."""
        return self.source is not None and self.source.is_capture

    @property
    def policies(self) -> list[EvolutionPolicy]:
        """Return the schema evolution policy of each target."""
        return [sink.evolution for sink in self.sinks] or [self.evolution]

    @property
    def source_keys(self) -> Mapping[str, str] | None:
        """Return digests of the keys that decide the source's rows; None if not known."""
        return None if self.source is None else self.source.row_keys

    @property
    def routes(self) -> bool:
        """Return whether records may go to other topics than ``to_topic``."""
        return self.to_topic is not None and any(s.transform.routes for s in self.steps)

    def behind_capture(self, number: int) -> tuple[TaskPlan, TaskPlan]:
        """Split a task whose source can be read only once into a capture and its chain.

        The capture feeds a topic of its own, and a second task with the given ``number`` runs
        the chain from there. Without transforms the topic gets the schema evolution policy that
        the targets agree on: the topic has one schema for all its rows, so it would hide some
        schema changes from them.
        """
        between = f"{self.id.connector}.capture"
        policy = EvolutionPolicy() if self.steps else EvolutionPolicy.agreed(self.policies)
        capture = replace(
            self, sinks=(), steps=(), converters=(), to_topic=between, evolution=policy
        )
        chain = TaskId(self.id.connector, number)
        if self.id.number >= number:
            # The chain keeps its number, and so its position, when captures are added.
            capture = replace(capture, id=TaskId(self.id.connector, self.id.number + 1))
        return capture, replace(self, id=chain, source=None, from_topic=between)


def replay_plan(plan: TaskPlan) -> TaskPlan:
    """Return the task that replays a connector's dead letters through its chain.

    Its reserved number keeps its positions and marks apart from those of other tasks.
    """
    return replace(plan, id=TaskId(plan.id.connector, REPLAYS), source=None, from_topic=None)


@dataclass
class OpenPlan:
    """Plans the tasks of a checked definition repeatedly. Used by one thread.

    Each plan resolves the definition's references again. The first plan starts the source
    connector; a later plan restarts it if its resolved configuration has changed. It runs until
    ``close``, and may request a new plan from its context, e.g. when it finds a new table.

    Args:
        topics_matching: Returns the existing topics that match a regular expression.
    """

    definition: Definition
    registry: Registry
    context: ConnectorContext
    topics_matching: Callable[[str], Sequence[str]]
    _source: SourceConnector | None = None
    _started_with: PluginSpec | None = None
    _resolved: Definition | None = None

    def plans(self, readers: Mapping[str, int] | None = None) -> list[TaskPlan]:
        """Return the tasks to run now.

        ``readers`` maps topics to the numbers of the sink tasks that have read them before.
        """
        definition = self._resolved = resolved(self.definition, self.registry.references)
        check_access(definition, self.registry)
        common = parse_common(definition)
        if definition.source is not None:
            return self._source_tasks(definition, definition.source, common)
        sinks = plan_sinks(definition, self.registry)
        return [
            TaskPlan(
                id=TaskId(definition.name, number),
                source=None,
                sinks=sinks,
                stream=topic,
                from_topic=topic,
                common=common,
                steps=plan_steps(definition.steps, self.registry),
                converters=plan_converters(definition, self.registry),
                chain=_chain_of(self.definition),
            )
            for number, topic in _numbered(self.topics(), readers or {})
        ]

    def topics(self) -> Sequence[str]:
        """Return the topics that a sink should read now."""
        definition = self._resolved or resolved(self.definition, self.registry.references)
        if definition.topics:
            return definition.topics
        return self.topics_matching(parse_common(definition).topics_regex or "")

    def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.stop()

    def _source_tasks(
        self, definition: Definition, spec: PluginSpec, common: CommonConfig
    ) -> list[TaskPlan]:
        registry = self.registry
        connector = self._started(spec)
        return [
            TaskPlan(
                id=TaskId(definition.name, number),
                source=SourcePlan(type(connector), config),
                sinks=plan_sinks(definition, registry),
                stream=definition.topics[0] if definition.topics else definition.name,
                to_topic=None if definition.sinks else definition.topics[0],
                common=common,
                steps=plan_steps(definition.steps, registry),
                evolution=evolution_of(definition, spec),
                # A direct copy has no topic in between, so nothing to convert to bytes.
                converters=() if definition.sinks else plan_converters(definition, registry),
                chain=_chain_of(self.definition),
            )
            for number, config in enumerate(connector.task_configs(common.tasks_max))
        ]

    def _started(self, spec: PluginSpec) -> SourceConnector:
        if self._started_with != spec:
            self.close()
        if self._source is None:
            self._started_with = spec
            made = self._source = self.registry.source(spec.plugin)()
            made.start(_parsed(made, spec), self.context)
        return self._source


def plan_tasks(
    definition: Definition,
    registry: Registry,
    context: ConnectorContext,
    topics_matching: Callable[[str], Sequence[str]],
    readers: Mapping[str, int] | None = None,
) -> list[TaskPlan]:
    """Return the tasks of a checked definition for one run; see ``OpenPlan``."""
    with closing(OpenPlan(definition, registry, context, topics_matching)) as plan:
        plans = plan.plans(readers)
    if not plans and definition.source is None:
        problem = f"No topic matches {definition.common.get('topics.regex')!r}."
        raise ConfigError(problem, field="topics.regex", fix="Run the source first.")
    return plans


def _numbered(topics: Iterable[str], readers: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return the topics with the numbers of the tasks that read them.

    A topic stays with the task that has read it, even if the list of topics changes, because
    its position and the marks in the targets belong to that task (Guarantee 2). A new topic
    gets a number that no task has had.
    """
    free = (number for number in count() if number not in readers.values())
    return sorted((readers[t] if t in readers else next(free), t) for t in topics)


def _chain_of(definition: Definition) -> str:
    """Return a digest of the chain's configuration, with references unresolved."""
    steps = [asdict(step) | {"place": ""} for step in definition.steps]
    keys = {key: value for key, value in definition.common.items() if ".converter" in key}
    return _digest([steps, keys])[:16]


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def plan_sinks(definition: Definition, registry: Registry) -> list[SinkPlan]:
    """Return the sinks of a checked definition with resolved references."""
    return [
        SinkPlan(
            registry.sink(spec.plugin),
            plugin_keys(spec.config),
            evolution_of(definition, spec),
        )
        for spec in definition.sinks
    ]


def _parsed(connector: Connector, spec: PluginSpec) -> Config:
    try:
        return connector.config_def().parse(plugin_keys(spec.config))
    except ConfigErrors as several:
        raise errors_at(several.errors, spec.place) from several


def plan_steps(steps: Sequence[StepSpec], registry: Registry) -> list[StepPlan]:
    """Return the configured transforms of a checked chain."""
    return [_step(step, registry) for step in steps]


def _step(step: StepSpec, registry: Registry) -> StepPlan:
    name, _, part = step.transform.partition("$")
    transform = registry.transform(name)
    config = transform.config_def().parse(step.config)
    made = transform(step.alias, config, of_key=part == "Key")
    if step.predicate is None:
        return StepPlan(made, negate=step.negate)
    predicate = registry.predicate(step.predicate)
    of_predicate = predicate.config_def().parse(step.predicate_config)
    return StepPlan(made, predicate(step.predicate_alias, of_predicate), step.negate)


Engine = Callable[[Sequence[StepPlan], Sequence[object]], list[dict[str, Any]]]
"""Runs a chain over records, and returns the result of each step for each record."""


def try_transforms(
    request: Mapping[str, Any], registry: Registry, engine: Engine
) -> dict[str, Any]:
    """Run a chain over sample records, without a connector.

    Args:
        request: ``{"config": {...}, "records": [...]}``. The config contains ``transforms`` as
            a connector's config does, in Kafka Connect's form or as a list of sections; other
            keys are ignored, so a complete connector config works too.
        registry: The plugin registry.
        engine: Runs the chain.

    Returns:
        ``{"results": [...]}``, one for each record, see `headrace.dataplane.trial`.

    Raises:
        ConfigErrors: The request or the chain is not valid; contains all errors.
    """
    config, records = _request(request)
    chain = resolved(Definition("chain", steps=_steps(config)), registry.references)
    steps = chain.steps
    if errors := check_steps(steps, registry).errors:
        raise errors_at(errors)
    return {"results": engine(plan_steps(steps, registry), records)}


def _request(request: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[object]]:
    config, records = request.get("config"), request.get("records")
    errors = []
    if not isinstance(config, dict):
        fix = "Pass the keys of the chain, starting with transforms."
        errors.append(ConfigError("Expected an object.", field="config", fix=fix))
    if not isinstance(records, list):
        fix = 'Pass objects such as {"value": ...}.'
        errors.append(ConfigError("Expected a list.", field="records", fix=fix))
    if errors:
        raise ConfigErrors(errors)
    assert isinstance(config, dict)
    assert isinstance(records, list)
    return config, records


def _steps(config: Mapping[str, Any]) -> tuple[StepSpec, ...]:
    inner = config.get("config")
    keys = inner if isinstance(inner, dict) and "transforms" not in config else config
    if not keys.get("transforms"):
        fix = "Name the transforms, as in transforms=a and transforms.a.type=Cast."
        raise ConfigErrors([ConfigError("No transforms are set.", field="transforms", fix=fix)])
    if isinstance(keys["transforms"], list) and not all(
        isinstance(name, str) and f"transforms.{name}.type" in flat(keys)
        for name in keys["transforms"]
    ):
        return section_steps(keys["transforms"])
    return kafka_steps(flat(keys))


@dataclass(frozen=True)
class Copy:
    """The definition that reads tables and the one that writes them; the same if direct."""

    source: Definition
    sink: Definition

    @property
    def name(self) -> str:
        """The name of the connector whose sinks write."""
        return self.sink.name

    def plan(self, registry: Registry) -> CopyPlan:
        """Return the parts of the copy, with references resolved."""
        source = resolved(self.source, registry.references)
        sink = source if self.is_direct else resolved(self.sink, registry.references)
        for each in (source, sink):
            check_access(each, registry)
        assert source.source is not None
        spec = source.source
        topic = None if self.is_direct else source.topics[0]
        return CopyPlan(
            source=SourcePlan(registry.source(spec.plugin), plugin_keys(spec.config)),
            steps=plan_steps(source.steps, registry),
            later_steps=[] if self.is_direct else plan_steps(sink.steps, registry),
            sinks=plan_sinks(sink, registry),
            stream=source.topics[0] if source.topics else source.name,
            topic=topic,
            reads=() if self.is_direct else sink.topics,
            pattern=parse_common(sink).topics_regex,
            common=parse_common(sink),
        )

    @property
    def is_direct(self) -> bool:
        """Whether there is no topic between source and sink."""
        return self.source is self.sink


@dataclass(frozen=True, kw_only=True)
class CopyPlan:
    """The parts of a copy.

    Args:
        steps: The transforms before the topic, or all transforms of a direct copy.
        later_steps: The transforms of the sink, after the topic.
        stream: The topic of the source's records, if the source has only one stream.
        topic: The topic between source and sink; None for a direct copy.
        reads, pattern: The topics that the sink reads, unless the copy is direct.
        common: The runtime keys of the sink's definition.
    """

    source: SourcePlan
    steps: Sequence[StepPlan]
    later_steps: Sequence[StepPlan]
    sinks: Sequence[SinkPlan]
    stream: str
    topic: str | None
    reads: Sequence[str]
    pattern: str | None
    common: CommonConfig

    @property
    def has_streams(self) -> bool:
        """Whether the source itself names the streams of its tables."""
        return self.source.has_streams

    def arrives(self, topic: str) -> bool:
        """Return whether the sink reads a topic."""
        if self.topic is None:
            return True
        return topic in self.reads or bool(self.pattern and re.fullmatch(self.pattern, topic))


def copies_of(definitions: Sequence[Definition], connector: str | None = None) -> list[Copy]:
    """Return the copies that definitions describe, or only those of a connector.

    Raises ConfigError if there is none.
    """
    found = []
    for each in definitions:
        if each.sinks and each.source is not None:
            found.append(Copy(each, each))
        elif each.sinks:
            feeding = (other for other in definitions if _feeds(other, each))
            found += [Copy(other, each) for other in feeding]
    chosen = [c for c in found if connector in (None, c.source.name, c.sink.name)]
    if chosen:
        return chosen
    names = [each.name for each in definitions]
    if connector is not None and connector not in names:
        problem = f"There is no connector {connector!r}."
        raise ConfigError(problem, field="--connector", fix=f"Use one of: {', '.join(names)}.")
    alone = next((d for d in definitions if connector in (None, d.name)), definitions[0])
    if alone.sinks:
        problem = (
            f"{alone.name} reads only from topics. A topic may hold several records per row, "
            "so it cannot be compared with the target."
        )
        fix = "Add the connector that feeds the topic to the same file, or use a direct copy."
    else:
        problem = f"{alone.name} only feeds a topic, which cannot be compared with a table."
        fix = "Add the connector that writes the topic's records to a target to the same file."
    raise ConfigError(problem, field="connector", fix=fix)


def _feeds(source: Definition, sink: Definition) -> bool:
    if source.source is None or source.sinks or sink.source is not None:
        return False
    pattern = parse_common(sink).topics_regex
    topics = source.topics
    named = bool(set(topics) & set(sink.topics))
    return named or bool(pattern and any(re.fullmatch(pattern, each) for each in topics))
