"""The specification that a host receives to start a capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.model import TopicRetention
from headrace.sdk.durability import Durability
from headrace.sdk.schema_evolution import EvolutionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a capture collects polled records into batches.

    Args:
        linger_ms: The minimum time between appends while data keeps arriving; longer if many
            captures are busy, see ``Tempo``. Data after a longer pause is appended at once.
            50 costs about a quarter of a core for a steady trickle, and sinks do not poll
            more often anyway.
        max_rows: The number of rows that triggers an append.
        max_bytes: The number of bytes that triggers an append, if known (Arrow batches).
        poll_interval_ms: The maximum wait between two empty polls.
    """

    linger_ms: int = 50
    max_rows: int = 100_000
    max_bytes: int = 64 * 1024 * 1024
    poll_interval_ms: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSpec:
    """The specification of one capture.

    It is sent to the host over a pipe and must never be shown: the configuration contains
    secrets in plain text.

    Args:
        config: The task's configuration, with resolved secrets.
        application: The task's permanent name in marks.
        topic: The connector's own topic, for records that do not name another.
        stream: An alias of ``topic`` in records. If set, a chain reads that topic, and records
            may not name any other; empty allows any topic.
        dead_letters: The dead-letter topic, if any.
        tolerant: Whether records may be rejected without a dead-letter topic.
        evolution: The policy for changes of the records' schema.
        once: Whether the capture ends after two consecutive empty polls.
        retention: The retention of topics that it creates; None for the default.
        allowed_paths: The paths at or below which it may read files; None for any.
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
        """Return whether the task continues after a rejected record."""
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
