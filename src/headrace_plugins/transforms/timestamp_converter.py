"""Converts timestamps between texts, numbers and the logical types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform, Type, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    ValidString,
    setting,
)
from headrace.sdk.schema import DATE, TIME, TIMESTAMP
from headrace.sdk.sqltext import FieldSyntax, literal, sql_null
from headrace.sdk.struct_exprs import defaulted, java_class
from headrace_plugins.kafka.date_format import DatePattern, reading_fault, unreadable_sql
from headrace_plugins.transforms.instants import (
    UNIX_PRECISIONS,
    Instant,
    of_text,
    of_timestamp,
    of_unix,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.struct_exprs import Column

_SCHEMAS: Mapping[str, Callable[..., Schema]] = {
    "string": Schema.string,
    "unix": Schema.int64,
    "Date": Schema.date,
    "Time": Schema.time,
    "Timestamp": Schema.timestamp,
}
_NO_FORMAT = "A timestamp cannot be read from a text, as no format is set"
# What texts are without a format to read them by.
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
            problem=f"Timestamps cannot be read by {text}: {fault}.",
            field="format",
            fix="Leave these letters out; only target.type string writes them.",
        )


class TimestampConverterSettings(FieldSyntax):
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
    replace_null_with_default: bool = setting(
        "Whether fields that are null and have a default get their default.",
        default=True,
        importance=Importance.MEDIUM,
    )

    rules = (_check_format,)


class TimestampConverter(Transform):
    """Converts a field, or the whole key or value, from one form of timestamp to another.

    What comes in is told by its type: a text is read by `format`, a 64-bit number counts from
    1970 in `unix.precision`, the logical types are what they are. All is UTC.
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
                # As Kafka Connect: what has no such field gets one, and it is null.
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
        wanted = self.settings.replace_null_with_default and not part.schemaless
        return defaulted(column) if wanted else column

    def _schema(self, before: Schema) -> Schema:
        return _SCHEMAS[self.settings.target_type](optional=before.optional)

    def _converted(self, part: ValueExpr, column: Column) -> Column:
        instant = self._instant(part, column)
        target = self.settings.target_type
        schema = self._schema(column[1])
        if schema.name == column[1].name == TIMESTAMP:
            return column[0], schema
        match target:
            case "string":
                return instant.as_text(DatePattern.of(self._format)), schema
            case "unix":
                return instant.as_unix(self.settings.unix_precision), schema
            case "Date":
                return instant.as_date(), schema
            case "Time":
                return instant.as_time(), schema
            case _:
                return instant.as_timestamp(), schema

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
            return of_text(sql, self._readable()) if self._format else _NEVER
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

    def _readable(self) -> DatePattern:
        """Return the pattern by which texts are read."""
        pattern = DatePattern.of(self._format)
        if fault := reading_fault(pattern):
            raise ConfigError(
                problem=f"Timestamps cannot be read by {self._format}: {fault}.",
                field=f"transforms.{self.alias}.format",
                fix="Leave these letters out, or read the text with a transform of SQL.",
            )
        return pattern

    def _failing(self, shape: RecordExpr, part: ValueExpr, column: Column) -> RecordExpr:
        """Reject texts that do not fit the pattern, and moments beyond Spark's reach."""
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
