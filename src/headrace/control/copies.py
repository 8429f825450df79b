"""What a definition copies from where to where, for a comparison of the two."""

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
    """The definition that reads tables, and the one whose sinks write them; often the same."""

    source: Definition
    sink: Definition

    @property
    def name(self) -> str:
        """The name of the connector whose sinks write."""
        return self.sink.name

    def plan(self, registry: Registry) -> CopyPlan:
        """Return what it is made of, the values of references looked up."""
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
        """Whether no topic is in between."""
        return self.source is self.sink


@dataclass(frozen=True, kw_only=True)
class CopyPlan:
    """A copy's parts, made.

    Args:
        steps: The transforms before the topic, or all of a direct copy.
        later_steps: Those of the sink, behind the topic.
        stream: The topic that the source's records carry, where it has one stream only.
        topic: The topic in between; None for a direct copy.
        reads, pattern: Which topics the sink reads, if there is one in between.
        common: The keys of the sink's definition that the runtime reads.
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
        """Whether the source names the streams of its tables itself."""
        return self.source.has_streams

    def arrives(self, topic: str) -> bool:
        """Return whether the sink reads a topic."""
        if self.topic is None:
            return True
        return topic in self.reads or bool(self.pattern and re.fullmatch(self.pattern, topic))


def copies_of(definitions: Sequence[Definition], connector: str | None = None) -> list[Copy]:
    """Return the copies that definitions describe, or the one of a connector.

    Raises ConfigError: there is none, or none with that connector.
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
        problem = f"No connector is called {connector!r}."
        raise ConfigError(problem, field="--connector", fix=f"There are: {', '.join(names)}.")
    alone = next((d for d in definitions if connector in (None, d.name)), definitions[0])
    if alone.sinks:
        problem = (
            f"{alone.name} only writes what it reads from topics. A topic holds records, "
            "several of a row perhaps, and is no table that could be compared with the target."
        )
        fix = "Describe the connector that feeds the topic in the same file, or a direct copy."
    else:
        problem = f"{alone.name} only feeds a topic, which is no table that could be compared."
        fix = "Describe the connector that writes the topic's records in the same file."
    raise ConfigError(problem, field="connector", fix=fix)


def _feeds(source: Definition, sink: Definition) -> bool:
    if source.source is None or source.sinks or sink.source is not None:
        return False
    pattern = parse_common(sink).topics_regex
    topics = source.topics
    named = bool(set(topics) & set(sink.topics))
    return named or bool(pattern and any(re.fullmatch(pattern, each) for each in topics))
