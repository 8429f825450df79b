"""Transforms of times: TimestampConverter and TimestampRouter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform, Type, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    Lambda,
    Meaning,
    Settings,
    ValidString,
    invalid,
    setting,
)
from headrace.sdk.schema import DATE, TIME, TIMESTAMP
from headrace.sdk.sqltext import FieldSyntax, literal, literal_text, sql_null
from headrace.sdk.struct_exprs import defaulted, java_class
from headrace_plugins.kafka_compat.date_format import (
    DatePattern,
    read_sql,
    reading_fault,
    unreadable_sql,
    write_sql,
)
from headrace_plugins.transforms.fields import NullDefaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.struct_exprs import Column


UNIX_PRECISIONS = ("nanoseconds", "microseconds", "milliseconds", "seconds")

_MAX = 2**63 - 1
# The limit of milliseconds in Spark's timestamps, which count microseconds.
_MAX_MILLIS = _MAX // 1_000
_DAY_MILLIS = 86_400_000
_MORE: Mapping[str, int] = {"microseconds": 1_000, "nanoseconds": 1_000_000}


@dataclass(frozen=True)
class Instant:
    """An instant in milliseconds since 1970, as in Kafka Connect; null stays null."""

    millis: str
    """SQL of a BIGINT."""
    timestamp: str | None = None
    """SQL of the TIMESTAMP that the instant comes from, if any: it may have microseconds."""
    bounded: bool = True
    """Whether every value is in the range of a TIMESTAMP."""

    def too_far(self) -> str | None:
        """Return the condition for values out of the range of a TIMESTAMP; None for never."""
        return None if self.bounded else f"NOT ({self._near()})"

    def _near(self) -> str:
        return f"{self.millis} BETWEEN {-_MAX_MILLIS}L AND {_MAX_MILLIS}L"

    def as_timestamp(self) -> str:
        """Return SQL of a TIMESTAMP; null if the instant is out of range."""
        if self.timestamp is not None:
            return self.timestamp
        made = f"timestamp_millis({self.millis})"
        return made if self.bounded else f"IF({self._near()}, {made}, NULL)"

    def as_time(self) -> str:
        """Return SQL of the microseconds since midnight in UTC."""
        if self.timestamp is not None:
            return f"pmod(unix_micros({self.timestamp}), {_DAY_MILLIS}000L)"
        return f"pmod({self.millis}, {_DAY_MILLIS}L) * 1000L"

    def as_unix(self, precision: str) -> str:
        """Return SQL of the time since 1970. As in Java, it saturates at 64 bits."""
        if precision == "seconds":
            return f"{self.millis} div 1000L"
        if precision == "milliseconds":
            return self.millis
        if self.timestamp is None:
            return _times(self.millis, _MORE[precision])
        return _times(f"unix_micros({self.timestamp})", _MORE[precision] // 1_000)


def of_timestamp(sql: str) -> Instant:
    """Return the instant of a TIMESTAMP."""
    return Instant(f"unix_millis({sql})", timestamp=sql)


def of_unix(sql: str, precision: str) -> Instant:
    """Return the instant of a number since 1970. Fractions of a millisecond are truncated."""
    if precision in _MORE:
        return Instant(f"({sql} div {_MORE[precision]}L)")
    return Instant(_times(sql, 1_000 if precision == "seconds" else 1), bounded=False)


def _times(sql: str, factor: int) -> str:
    if factor == 1:
        return sql
    most = _MAX // factor
    # SQL has no literal for the lowest BIGINT: the minus is applied to a number that overflows.
    return (
        f"CASE WHEN {sql} > {most}L THEN {_MAX}L WHEN {sql} < -{most}L "
        f"THEN -{_MAX}L - 1L ELSE {sql} * {factor}L END"
    )


_SCHEMAS: Mapping[str, Callable[..., Schema]] = {
    "string": Schema.string,
    "unix": Schema.int64,
    "Date": Schema.date,
    "Time": Schema.time,
    "Timestamp": Schema.timestamp,
}
_NO_FORMAT = "A string cannot be parsed as a timestamp, as format is not set"
# The instant of strings if no format is set.
_NEVER = Instant("CAST(NULL AS BIGINT)")
_PURPOSE = "converting timestamp formats"


def _check_format(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    text = str(props.get("format") or "").strip()
    target = props.get("target.type")
    if not text:
        if target == "string":
            yield ConfigError(
                problem="TimestampConverter requires format option to be specified when using "
                "string timestamps",
                field="format",
                fix="Set format, such as yyyy-MM-dd HH:mm:ss.",
            )
        return
    try:
        fault = reading_fault(DatePattern.of(text))
    except ConfigError as error:
        yield ConfigError(
            problem="TimestampConverter requires a SimpleDateFormat-compatible pattern for "
            f"string timestamps: {text}: {error.problem}",
            field="format",
            fix=error.fix,
        )
        return
    if fault is not None and target != "string":
        yield ConfigError(
            problem=f"Timestamps cannot be parsed with {text}: {fault}.",
            field="format",
            fix="Remove these letters; they can only be used with target.type=string.",
        )


class TimestampConverterSettings(NullDefaults, FieldSyntax):
    """The settings of ``TimestampConverter``."""

    field: str = setting(
        "The field containing the timestamp, or empty if the entire value is a timestamp.",
        default="",
        importance=Importance.HIGH,
    )
    target_type: str = setting(
        "The desired timestamp representation: string, unix, Date, Time, or Timestamp.",
        validator=ValidString(*_SCHEMAS),
        importance=Importance.HIGH,
    )
    format: str = setting(
        "A SimpleDateFormat-compatible format for the timestamp. Used to generate "
        "the output when target.type is string, and to parse the input if that is a "
        "string.",
        default="",
        importance=Importance.MEDIUM,
    )
    unix_precision: str = setting(
        "The unit of numbers: of the output when target.type is unix, and of the "
        "input if that is a number.",
        default="milliseconds",
        validator=ValidString(*UNIX_PRECISIONS),
        importance=Importance.LOW,
    )

    rules = (_check_format,)


class TimestampConverter(Transform):
    """Converts a field, or the whole key or value, from one timestamp format to another.

    The type of the input decides how it is parsed: a string with `format`, a 64-bit integer as
    the time since 1970 in `unix.precision`, the logical types as they are. All times are UTC.
    """

    aliases = ("org.apache.kafka.connect.transforms.TimestampConverter",)

    settings: TimestampConverterSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        if not self.settings.field:
            return self._whole(shape)
        part = self.struct(shape, _PURPOSE)
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        path = self.settings.field_path(self.settings.field)
        found = part.find(path)
        if found is None:
            if path.parent is None and part.schemaless and part.is_struct:
                # As in Kafka Connect, a missing field is added as null.
                schema = self._schema(Schema.string(optional=True))
                part = part.inserted(path, sql_null(schema), schema)
            return self.with_part(shape, part)
        shape = self._failing(shape, part, self._defaulted(part, found))
        changed = part.changed(
            {path: lambda *column: self._converted(part, self._defaulted(part, column))}
        )
        return self.with_part(shape, changed)

    def _whole(self, shape: RecordExpr) -> RecordExpr:
        part = self.part(shape)
        if part.schema is None:
            return shape
        column = (part.whole, part.schema)
        sql, schema = self._converted(part, column)
        return self.with_part(self._failing(shape, part, column), part.with_whole(sql, schema))

    def _defaulted(self, part: ValueExpr, column: Column) -> Column:
        fills = self.settings.replace_null_with_default and not part.schemaless
        return defaulted(column) if fills else column

    def _schema(self, before: Schema) -> Schema:
        return _SCHEMAS[self.settings.target_type](optional=before.optional)

    def _converted(self, part: ValueExpr, column: Column) -> Column:
        instant = self._instant(part, column)
        schema = self._schema(column[1])
        if schema.name == column[1].name == TIMESTAMP:
            return column[0], schema
        match self.settings.target_type:
            case "string":
                sql = write_sql(DatePattern.of(self._format), instant.as_timestamp())
            case "unix":
                sql = instant.as_unix(self.settings.unix_precision)
            case "Date":
                sql = f"CAST({instant.as_timestamp()} AS DATE)"
            case "Time":
                sql = instant.as_time()
            case _:
                sql = instant.as_timestamp()
        return sql, schema

    @property
    def _format(self) -> str:
        return self.settings.format.strip()

    def _instant(self, part: ValueExpr, column: Column) -> Instant:
        sql, schema = column
        name = schema.name if schema.is_logical else None
        if name == TIMESTAMP:
            return of_timestamp(sql)
        if name == DATE:
            return Instant(f"(unix_date({sql}) * 86400000L)")
        if name == TIME:
            return Instant(f"({sql} div 1000L)")
        if schema.type is Type.STRING:
            if not self._format:
                return _NEVER
            pattern = DatePattern.of(self._format)
            if fault := reading_fault(pattern):
                raise ConfigError(
                    problem=f"Timestamps cannot be parsed with {self._format}: {fault}.",
                    field=f"transforms.{self.alias}.format",
                    fix="Remove these letters, or parse the string with the Sql transform.",
                )
            return of_timestamp(read_sql(pattern, sql))
        if schema.type is Type.INT64:
            return of_unix(sql, self.settings.unix_precision)
        raise self._unknown(part, column)

    def _unknown(self, part: ValueExpr, column: Column) -> UnfitRecordError:
        sql, schema = column
        if not part.schemaless:
            named = f"{schema.name}:" if schema.name else ""
            return UnfitRecordError(
                message=f"Schema Schema{{{named}{schema.type.value}}} does not correspond to "
                "a known timestamp type format",
                exception="org.apache.kafka.connect.errors.ConnectException",
            )
        kind = java_class(schema, schemaless=True)
        where = f"NOT {part.is_null()}" if part.is_struct else f"{sql} IS NOT NULL"
        return UnfitRecordError(
            message=f"TimestampConverter does not support class {kind} objects as timestamps",
            where=where,
        )

    def _failing(self, shape: RecordExpr, part: ValueExpr, column: Column) -> RecordExpr:
        """Reject strings that do not match the pattern, and instants out of Spark's range."""
        sql, schema = column
        instant = self._instant(part, column)
        if instant is _NEVER:
            return self.rejecting(
                shape,
                f"{sql} IS NOT NULL",
                literal(_NO_FORMAT),
                exception="java.lang.NullPointerException",
            )
        if schema.type is Type.STRING:
            return self.rejecting(
                shape,
                unreadable_sql(DatePattern.of(self._format), sql),
                f"concat('Could not parse timestamp: value (', {sql}, "
                f"{literal(f') does not match pattern ({self._format})')})",
            )
        far = instant.too_far()
        if far is None or self.settings.target_type in {"unix", "Time"}:
            return shape
        message = f"concat('The timestamp ', CAST({sql} AS STRING), ' is out of range')"
        return self.rejecting(shape, f"{sql} IS NOT NULL AND {far}", message)


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
    """Sends records to a topic built from the old topic and the record's timestamp, in UTC."""

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
