"""Puts the record's time into its topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import (
    Importance,
    Lambda,
    Meaning,
    Settings,
    invalid,
    setting,
)
from headrace.sdk.sqltext import literal, literal_text
from headrace_plugins.kafka.date_format import DatePattern, write_sql

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr

_TOPIC, _TIMESTAMP = "${topic}", "${timestamp}"


def _check_pattern(name: str, value: object) -> None:
    try:
        DatePattern.of(str(value))
    except ConfigError as error:
        raise invalid(name, value, error.problem, fix=error.fix) from error


class TimestampRouterSettings(Settings):
    """The settings of ``TimestampRouter``."""

    topic_format: str = setting(
        "Format string which can contain ${topic} and ${timestamp} as placeholders "
        "for the topic and timestamp, respectively.",
        default=f"{_TOPIC}-{_TIMESTAMP}",
        importance=Importance.HIGH,
        meaning=Meaning.TOPIC,
    )
    timestamp_format: str = setting(
        "Format string for the timestamp that is compatible with java.text.SimpleDateFormat.",
        default="yyyyMMdd",
        validator=Lambda(_check_pattern, "a pattern of SimpleDateFormat"),
        importance=Importance.HIGH,
    )


class TimestampRouter(Transform):
    """Sends records to a topic made of the old topic and the record's timestamp, in UTC."""

    aliases = ("org.apache.kafka.connect.transforms.TimestampRouter",)
    parts = False
    routes = True

    settings: TimestampRouterSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        shape = self.rejecting(
            shape,
            f"{shape.timestamp} IS NULL",
            "concat('Timestamp missing on record: ConnectRecord{topic=\\'', "
            f"{shape.topic}, '\\'}}')",
        )
        written = self.settings.topic_format
        topic = literal_text(shape.topic)
        if topic is None:
            routed = f"replace({literal(written)}, {literal(_TOPIC)}, {shape.topic})"
        else:
            written = written.replace(_TOPIC, topic)
            routed = literal(written)
        if topic is not None and _TIMESTAMP not in written:
            return replace(shape, topic=routed)
        pattern = DatePattern.of(self.settings.timestamp_format)
        text = write_sql(pattern, shape.timestamp)
        return replace(shape, topic=f"replace({routed}, {literal(_TIMESTAMP)}, {text})")
