"""Offsets as people see them: in a source's words, and in Kafka Connect's for topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import ConnectorKind, TaskId
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.model import Connector
    from headrace.sdk import Position

__all__ = ["Json", "Offset", "own_offset", "shown_offsets", "task_of"]

_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_WHOLE = f"Set {_OFFSET} to a whole number from 0, the next that is to be read."
Json: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True)
class Offset:
    """Where a connector stands in one partition of what it reads.

    Args:
        partition: The partition, in the source's own words; a topic's as Kafka Connect has it.
        offset: The offset; None stands for the beginning.
    """

    partition: Json
    offset: Json | None


def shown_offsets(connector: Connector, position: Position) -> Iterator[Offset]:
    """Yield where a task stands, partition by partition."""
    own = {"topic": f"{connector.name}.capture"}
    for partition, offset in position.items():
        if partition == own:
            continue  # how far its chain has read what it captured
        if connector.kind is ConnectorKind.SINK and "version" in offset:
            # Kafka's offset is the next to be read, ours the last version that was; one that
            # was read in part is the next still.
            whole = "index" not in offset
            yield Offset(
                {_TOPIC: partition["topic"], _PARTITION: 0},
                {_OFFSET: int(offset["version"]) + whole},
            )
        else:
            yield Offset(dict(partition), dict(offset))


def own_offset(connector: Connector, given: Offset) -> tuple[Json, Json | None]:
    """Return a partition and its offset in our own words."""
    if connector.kind is not ConnectorKind.SINK:
        return given.partition, given.offset
    if not {_TOPIC, _PARTITION} <= given.partition.keys():
        problem = (
            "The partition for a sink connector offset must contain the keys "
            f"'{_TOPIC}' and '{_PARTITION}'"
        )
        fix = f'Write it as {{"{_TOPIC}": "TOPIC", "{_PARTITION}": 0}}.'
        raise ConfigError(problem, field="partition", fix=fix)
    topic, number = given.partition[_TOPIC], given.partition[_PARTITION]
    if not isinstance(topic, str) or str(number) != "0":
        problem = f"{topic!r} has no partition {number!r}: every topic has one, of number 0."
        raise ConfigError(problem, field="partition", fix=f"Set {_PARTITION} to 0.")
    partition = {"topic": topic}
    if given.offset is None:
        return partition, None
    if _OFFSET not in given.offset:
        problem = (
            "The offset for a sink connector should either be null or contain the key "
            f"'{_OFFSET}'"
        )
        raise ConfigError(problem, field="offset", fix=_WHOLE)
    value = given.offset[_OFFSET]
    try:
        number = int(str(value))
    except ValueError:
        problem = (
            "Failed to parse the following Kafka offset value in the provided offsets: "
            f"'{value}'. Offset values for sink connectors need to be integers."
        )
        raise ConfigError(problem, field="offset", fix=_WHOLE) from None
    if number < 0:
        problem = f"An offset is a whole number from 0, not {number}."
        raise ConfigError(problem, field="offset", fix=_WHOLE)
    return partition, {"version": number - 1}


def task_of(name: str, positions: Mapping[TaskId, Position], partition: Json) -> TaskId:
    """Return the task that stands in a partition; the first for one that none has begun."""
    for task, position in sorted(positions.items()):
        if position.offset(partition) is not None:
            return task
    return min(positions, default=TaskId(name, 0))
