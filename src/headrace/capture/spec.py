"""What a host gets to start a capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.model import TopicRetention
from headrace.sdk.durability import Durability
from headrace.sdk.schema_evolution import EvolutionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a capture gathers what it polls into batches.

    Args:
        linger_ms: The shortest time from one append to the next while data keeps
            coming; longer where many captures are busy, see ``Tempo``. What comes after a
            longer silence is appended at once. 50 costs a steady trickle about a quarter
            of a core, and sinks poll no faster anyway.
        max_rows: How many rows are gathered before they are appended.
        max_bytes: The same for bytes, where they are known (Arrow batches).
        poll_interval_ms: The longest wait between two polls that find nothing.
    """

    linger_ms: int = 50
    max_rows: int = 100_000
    max_bytes: int = 64 * 1024 * 1024
    poll_interval_ms: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSpec:
    """One capture.

    It travels to the host over a pipe and is never shown: the configuration holds
    secrets in plain text.

    Args:
        config: The task's configuration, secrets resolved.
        application: Names the task in marks, for ever.
        topic: The connector's own topic, for records that name no other.
        stream: What records may call that topic too, where a chain reads it and nothing else
            of theirs; empty lets them name any.
        tolerant: Whether records may be rejected when there is no such topic.
        evolution: What its topics do when the schema of the records changes.
        once: Whether the capture ends when two polls in a row find nothing.
        retention: How long topics that it makes keep their rows; None: as all do.
        allowed_paths: At or below which it may read files; None for any.
    """

    connector: str
    task: int
    class_path: str
    config: Mapping[str, str] = field(repr=False)
    application: str
    topics_dir: str
    topic: str
    stream: str = ""
    dead_letters: str | None = None
    tolerant: bool = False
    context_headers: bool = False
    log_errors: bool = False
    log_messages: bool = False
    scratch: str
    pace: Pace = Pace()
    evolution: EvolutionPolicy = field(default_factory=EvolutionPolicy)
    once: bool = False
    durability: Durability = Durability.FSYNC
    retention: TopicRetention | None = None
    allowed_paths: tuple[str, ...] | None = None

    @property
    def tolerates(self) -> bool:
        """Return whether a rejected record leaves the task running."""
        return self.tolerant or self.dead_letters is not None

    def to_json(self) -> dict[str, Any]:
        plain = {
            "config": dict(self.config),
            "evolution": self.evolution.to_json(),
            "durability": self.durability.value,
            "retention": self.retention and self.retention.to_properties(),
        }
        return {**asdict(self), **plain}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> CaptureSpec:
        retention, allowed = values["retention"], values["allowed_paths"]
        plain = {
            "pace": Pace(**values["pace"]),
            "evolution": EvolutionPolicy.from_json(values["evolution"]),
            "durability": Durability(values["durability"]),
            "retention": retention and TopicRetention.from_properties(retention),
            "allowed_paths": None if allowed is None else tuple(allowed),
        }
        return cls(**{**values, **plain})
