"""A connector's definition: what to copy, through which steps, to where."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as default
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A connector plugin by name or class name, with its own configuration.

    ``place`` says where in the user's file it stands, for errors; empty for the top.
    """

    plugin: str
    config: Mapping[str, str] = default(default_factory=dict)
    place: str = ""

    def field(self, key: str | None) -> str:
        """Return the full name of one of its keys, as the user wrote it."""
        return ".".join(part for part in (self.place, key) if part)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A transform of the chain.

    Args:
        alias: Its name in the chain, unique there.
        transform: Plugin or class name, with ``$Key`` or ``$Value`` where it has both.
        config: The transform's own keys.
        predicate: The predicate's plugin or class name; None applies to all records.
        predicate_alias: The predicate's name in the definition.
        predicate_config: The predicate's keys.
        negate: Whether the step applies where the predicate is false.
        place: Where in the user's file it stands, for errors.
    """

    alias: str
    transform: str
    config: Mapping[str, str] = default(default_factory=dict)
    predicate: str | None = None
    predicate_alias: str = ""
    predicate_config: Mapping[str, str] = default(default_factory=dict)
    negate: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A connector: a source (to a topic), a sink (from topics), or both (direct).

    Args:
        name: Unique in the store.
        source: What is read; None for a sink connector, which reads ``topics``.
        sinks: What is written; empty for a source connector, which writes ``topics``.
        topics: The topics between; empty for a direct connector.
        steps: The transforms, in order.
        common: The keys that the runtime itself reads (``tasks.max``, ``errors.*``,
            ``batch.*``...).
        strict: Whether an unknown key is an error; Kafka's form allows any.
    """

    name: str
    source: PluginSpec | None = None
    sinks: tuple[PluginSpec, ...] = ()
    topics: tuple[str, ...] = ()
    steps: tuple[StepSpec, ...] = ()
    common: Mapping[str, str] = default(default_factory=dict)
    strict: bool = True

    @property
    def kind(self) -> str:
        """Return ``source``, ``sink`` or ``direct``."""
        if self.source is None:
            return "sink"
        return "direct" if self.sinks else "source"
