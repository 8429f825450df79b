"""The copies that definitions describe, used to compare source and target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.control.connector_settings import CommonConfig, parse_common
from headrace.control.planning import SinkPlan, SourcePlan, StepPlan, plan_sinks, plan_steps
from headrace.control.validation import check_access, resolved
from headrace.evolution import plugin_keys
from headrace.model import Definition
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.plugins import Registry


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
