"""Plans the tasks of a definition: which plugin objects do what, on which topics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.control.converting import ConverterPlan, plan_converters
from headrace.control.evolution_keys import evolution_of, plugin_keys
from headrace.control.runtime_keys import CommonConfig, parse_common
from headrace.model import TaskId
from headrace.sdk import (
    ConfigError,
    ConfigErrors,
    EvolutionPolicy,
    SinkConnector,
    SourceConnector,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.model import Definition, PluginSpec, StepSpec
    from headrace.plugins import Registry
    from headrace.sdk import Connector, ConnectorContext, Predicate, Transform
    from headrace.sdk.config import Config


REPLAYS = -1
"""The number of the task that replays dead letters."""


@dataclass(frozen=True)
class SourcePlan:
    """The source of one task: its connector's class and the task's configuration."""

    connector: type[SourceConnector]
    config: Mapping[str, str]


@dataclass(frozen=True)
class SinkPlan:
    """A sink of one task, and what it does when the schema of its records changes."""

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
    """All that is needed to run a task.

    Args:
        id: The task.
        source: The plugin it reads; None reads ``from_topic``.
        sinks: The plugins it writes; empty writes ``to_topic``.
        stream: The topic that its records carry.
        from_topic: The topic it reads, if any.
        to_topic: The topic it writes, if any.
        steps: The chain.
        common: The runtime's keys.
        evolution: What is done in ``to_topic`` when the schema of the records changes.
        converters: What makes bytes of the parts of records on the topic, and back.
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

    @property
    def policies(self) -> list[EvolutionPolicy]:
        """Return what each target does when the schema of the records changes."""
        return [sink.evolution for sink in self.sinks] or [self.evolution]

    @property
    def routes(self) -> bool:
        """Return whether its records may go to other topics than ``to_topic``."""
        return self.to_topic is not None and any(s.transform.routes for s in self.steps)

    def behind_capture(self, captures: int) -> tuple[TaskPlan, TaskPlan]:
        """Divide a task whose source can be read only once: a capture, and the rest.

        The capture feeds a topic of its own, and a second task, numbered after all
        ``captures``, runs the chain from there. Where nothing changes the records on the
        way, that topic does with changes of schemas what all the targets do, as it has one
        schema for all its rows, which would hide some changes from them.
        """
        between = f"{self.id.connector}.capture"
        policy = EvolutionPolicy() if self.steps else EvolutionPolicy.agreed(self.policies)
        capture = replace(
            self, sinks=(), steps=(), converters=(), to_topic=between, evolution=policy
        )
        number = TaskId(self.id.connector, captures)
        return capture, replace(self, id=number, source=None, from_topic=between)


def replay_plan(plan: TaskPlan) -> TaskPlan:
    """Return the task that sends a connector's dead letters through its chain again.

    Its number keeps its positions and its marks apart from those of the other tasks.
    """
    return replace(plan, id=TaskId(plan.id.connector, REPLAYS), source=None, from_topic=None)


def plan_tasks(
    definition: Definition,
    registry: Registry,
    context: ConnectorContext,
    topics_matching: Callable[[str], Sequence[str]],
) -> list[TaskPlan]:
    """Return the tasks of a checked definition.

    Args:
        definition: What to run.
        registry: Where its plugins are.
        context: What the connectors may ask of the runtime while they plan.
        topics_matching: Gives the existing topics that match a regular expression.
    """
    common = parse_common(definition)
    if definition.source is not None:
        return _source_tasks(definition, definition.source, registry, context, common)
    topics = definition.topics or tuple(topics_matching(common.topics_regex or ""))
    if not topics:
        problem = f"No topic matches {common.topics_regex!r}."
        raise ConfigError(problem, field="topics.regex", fix="Run the source first.")
    sinks = _sinks(definition, registry)
    return [
        TaskPlan(
            id=TaskId(definition.name, number),
            source=None,
            sinks=sinks,
            stream=topic,
            from_topic=topic,
            common=common,
            steps=plan_steps(definition.steps, registry),
            converters=plan_converters(definition, registry),
        )
        for number, topic in enumerate(topics)
    ]


def _source_tasks(
    definition: Definition,
    spec: PluginSpec,
    registry: Registry,
    context: ConnectorContext,
    common: CommonConfig,
) -> list[TaskPlan]:
    plugin = registry.source(spec.plugin)
    connector = plugin()
    try:
        connector.start(_parsed(connector, spec), context)
        configs = connector.task_configs(common.tasks_max)
    finally:
        connector.stop()
    return [
        TaskPlan(
            id=TaskId(definition.name, number),
            source=SourcePlan(plugin, config),
            sinks=_sinks(definition, registry),
            stream=definition.topics[0] if definition.topics else definition.name,
            to_topic=None if definition.sinks else definition.topics[0],
            common=common,
            steps=plan_steps(definition.steps, registry),
            evolution=evolution_of(definition, spec),
            # A direct copy has no bytes in between.
            converters=() if definition.sinks else plan_converters(definition, registry),
        )
        for number, config in enumerate(configs)
    ]


def _sinks(definition: Definition, registry: Registry) -> list[SinkPlan]:
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
        raise ConfigErrors(
            ConfigError(error.problem, fix=error.fix, field=spec.field(error.field))
            for error in several.errors
        ) from several


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
