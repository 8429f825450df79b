"""What commands that look at topics share: finding one, and telling its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from headrace.model import TopicRetention
    from headrace.runtime.app import Runtime
    from headrace.topics import Topic


def existing_topic(runtime: Runtime, name: str) -> Topic:
    """Return a topic. Raises ConfigError, with names that are close, when there is none."""
    from headrace.cli.failures import unknown

    topic = runtime.topics.get(name)
    if not topic.exists():
        known = [known.name for known in runtime.topics.list()]
        raise unknown(name, known, noun="topic", field="NAME")
    return topic


def fields_of(schema: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str, bool]]:
    """Return name, type and nullability of a Spark schema's fields, with those inside."""
    found: list[tuple[str, str, bool]] = []
    for field in schema.get("fields", []):
        name, kind = f"{prefix}{field['name']}", field["type"]
        found.append((name, _type(kind), field["nullable"]))
        if isinstance(kind, dict) and kind["type"] == "struct":
            found += fields_of(kind, f"{name}.")
    return found


def retention_text(kept: TopicRetention) -> str:
    """Return how long a topic keeps its rows, in words."""
    from headrace.cli.figures import size, span

    text = "for ever" if kept.age is None else span(kept.age.total_seconds())
    if kept.size_bytes is not None:
        text += f", up to {size(kept.size_bytes)}"
    return f"{text}, unread rows too" if kept.unread else f"{text}, unread rows stay"


def retention_json(kept: TopicRetention) -> dict[str, Any]:
    """Return the same for programs; null is no limit."""
    millis = None if kept.age is None else int(kept.age.total_seconds() * 1000)
    return {"ms": millis, "bytes": kept.size_bytes, "unread": kept.unread}


def iso(time: datetime | None) -> str | None:
    """Return a time as text."""
    return None if time is None else time.isoformat(timespec="seconds")


def _type(kind: str | Mapping[str, Any]) -> str:
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{_type(kind['elementType'])}>"
        case "map":
            return f"map<{_type(kind['keyType'])}, {_type(kind['valueType'])}>"
        case other:
            return str(other)
