"""Transforms of a record's fields, compatible with Kafka Connect's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    Schema,
    Struct,
    Transform,
    Type,
    UnfitRecordError,
    ValueExpr,
)
from headrace.sdk.config import Importance, Lambda, NonEmptyList, Settings, setting
from headrace.sdk.sqltext import FieldPath, FieldSyntax, literal, quote, sql_null, sql_type
from headrace.sdk.struct_exprs import defaulted, duplicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.sdk import RecordExpr
    from headrace.sdk.struct_exprs import Column


class NullDefaults(Settings):
    """The setting of transforms whose fields may be null and have a default."""

    replace_null_with_default: bool = setting(
        "Whether a field that is null gets the default of its schema, if it has one.",
        default=True,
    )


_NULL = (sql_null(Schema.string()), Schema.string(optional=True))
"""The column of a field that is missing in a schemaless value."""
_EXTRACTION = "field extraction"
_UNKNOWN = "java.lang.IllegalArgumentException"


class ExtractFieldSettings(FieldSyntax, NullDefaults):
    """The settings of ``ExtractField``."""

    field: str = setting("The field that replaces the whole key or value.")


class ExtractField(Transform):
    """Replaces the whole key or value by one of its fields.

    A missing field becomes null in a value without a schema. With a schema, the record is
    rejected, also if its key or value is null. Other nulls stay null.
    """

    aliases = ("org.apache.kafka.connect.transforms.ExtractField",)

    settings: ExtractFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.part(shape)
        if part.schema is None:
            return shape
        if not part.schemaless and not part.is_struct:
            return self._unstructured(shape, part)
        part = self.struct(shape, _EXTRACTION)
        shape, found = self._find(shape, part)
        sql, schema = found or _NULL
        if part.missing is not None:
            sql = f"IF({part.missing}, NULL, {sql})"
        return self.with_part(shape, ValueExpr.of(sql, schema, schemaless=part.schemaless))

    def _unstructured(self, shape: RecordExpr, part: ValueExpr) -> RecordExpr:
        """Reject all records. For nulls, use the error of Kafka Connect's schema check."""
        nothing = part.is_null()
        null = UnfitRecordError(
            message="Cannot look up fields on non-struct type", where=nothing
        )
        other = self.unstructured(part, _EXTRACTION, where=f"NOT {nothing}")
        return replace(self.refusing(self.refusing(shape, null), other), unfit=True)

    def _find(self, shape: RecordExpr, part: ValueExpr) -> tuple[RecordExpr, Column | None]:
        path = self.settings.field_path(self.settings.field)
        try:
            found = part.find(path, defaults=self.settings.replace_null_with_default)
        except UnfitRecordError as error:
            if not part.schemaless:
                # The schema lacks the field, so a null is rejected too.
                raise UnfitRecordError(
                    message=error.message, exception=error.exception
                ) from error
            # A null on the path is not an error.
            return self.refusing(shape, error), None
        if found is None and not part.schemaless:
            raise UnfitRecordError(message=f"Unknown field: {path.text}", exception=_UNKNOWN)
        return shape, found


class HoistFieldSettings(FieldSyntax):
    """The settings of ``HoistField``."""

    field: str = setting("The name of the field to put the whole key or value into.")


class HoistField(Transform):
    """Puts the whole key or value, also if it is null, into a field of a new struct.

    A path of several names creates nested structs.
    """

    aliases = ("org.apache.kafka.connect.transforms.HoistField",)

    settings: HoistFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        whole = self.part(shape)
        # A key or value without a schema is a schemaless null.
        schemaless = whole.schemaless or whole.schema is None
        path = self.settings.field_path(self.settings.field)
        column = _NULL if whole.schema is None else (whole.sql(), whole.schema)
        inner, *around = reversed(path.steps)
        part = ValueExpr.of_fields({inner: column}, schemaless=schemaless)
        for name in around:
            assert part.schema is not None
            part = ValueExpr.of_fields({name: (part.sql(), part.schema)}, schemaless=schemaless)
        return self.with_part(shape, part)


_COPYING = "copying fields from value to key"


class ValueToKeySettings(NullDefaults, FieldSyntax):
    """The settings of ``ValueToKey``."""

    fields: tuple[str, ...] = setting(
        "The fields of the value that form the key, in this order.",
        validator=NonEmptyList(),
        importance=Importance.HIGH,
    )


class ValueToKey(Transform):
    """Replaces the key by a struct of some of the value's fields.

    A nested field keeps only its own name. A missing field becomes null in a value without a
    schema; with a schema, the record is rejected. A record with a null value is rejected.
    """

    aliases = ("org.apache.kafka.connect.transforms.ValueToKey",)
    parts = False

    settings: ValueToKeySettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        shape, value = self.whole_struct(shape, _COPYING)
        if value is None:
            return shape
        try:
            columns = self._columns(value)
        except UnfitRecordError as error:
            return replace(self.refusing(shape, error), unfit=True)
        return replace(shape, key=ValueExpr.of_fields(columns, schemaless=value.schemaless))

    def _columns(self, value: ValueExpr) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        for path in self.settings.field_paths(self.settings.fields):
            if path.name in columns and not value.schemaless:
                raise duplicate(path.name)
            found = value.find(path, defaults=self.settings.replace_null_with_default)
            if found is None and not value.schemaless:
                raise UnfitRecordError(message=f"Field does not exist: {path.text}")
            columns[path.name] = found or _NULL
        return columns


def _check_renames(name: str, value: object) -> None:
    pairs = [str(pair) for pair in value] if isinstance(value, list | tuple) else []
    for pair in pairs:
        # Java's split drops empty strings at the end.
        if len(pair.rstrip(":").split(":")) != 2:  # noqa: PLR2004 - old and new
            raise ConfigError(
                problem=f"Invalid value [{', '.join(pairs)}] for configuration {name}: "
                f"Invalid rename mapping: {pair}",
                field=name,
                fix="Write it as old:new.",
            )


class ReplaceFieldSettings(NullDefaults, FieldSyntax):
    """The settings of ``ReplaceField``."""

    exclude: tuple[str, ...] = setting(
        "Fields to remove. Takes precedence over include.", default=()
    )
    include: tuple[str, ...] = setting(
        "Fields to keep. If empty, all fields that are not excluded.", default=()
    )
    renames: tuple[str, ...] = setting(
        "Fields to rename, as old:new pairs.",
        default=(),
        validator=Lambda(_check_renames, "list of colon-delimited pairs, e.g. foo:bar,abc:xyz"),
        importance=Importance.MEDIUM,
    )


class ReplaceField(Transform):
    """Keeps only some fields, removes some, and renames some.

    In ``renames`` the old field may be a path; the new name is a plain name, and the field
    stays in the same struct.
    """

    aliases = ("org.apache.kafka.connect.transforms.ReplaceField",)

    settings: ReplaceFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, "field replacement")
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        include = self.settings.field_paths(self.settings.include)
        if include:
            part = part.kept(include)
        exclude = self.settings.field_paths(self.settings.exclude)
        pairs = (
            map(self.settings.field_path, pair.split(":")) for pair in self.settings.renames
        )
        renames = {old: new.name for old, new in pairs}
        return self.with_part(shape, part.removed(exclude).renamed(renames))


_FLATTENING = "flattening"


class FlattenSettings(Settings):
    """The settings of ``Flatten``."""

    delimiter: str = setting("The separator between the field names.", default=".")


class Flatten(Transform):
    """Moves the fields of nested structs to the top level, and joins the names on their paths.

    Arrays stay as they are. Maps are not flattened: with a schema, the record is rejected, as
    in Kafka Connect. A field is optional if any enclosing struct is. A field without a default
    takes it from the default of the enclosing struct.
    """

    aliases = ("org.apache.kafka.connect.transforms.Flatten",)

    settings: FlattenSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, _FLATTENING)
        if part.schema is None or part.is_map:
            return self._of_map(shape, part)
        where = f"NOT {part.is_null()}"
        columns: dict[str, Column] = {}
        for name, column in self._fields(part):
            if isinstance(column, UnfitRecordError):
                raise UnfitRecordError(message=column.message, where=where)
            if name in columns and not part.schemaless:
                error = duplicate(name)
                raise UnfitRecordError(
                    message=error.message, exception=error.exception, where=where
                )
            columns[name] = column
        return self.with_part(shape, part.with_fields(columns))

    def _of_map(self, shape: RecordExpr, part: ValueExpr) -> RecordExpr:
        values = part.schema.value_schema if part.schema else None
        if values is not None and values.type in (Type.MAP, Type.STRUCT):
            raise UnfitRecordError(
                message="Flatten transformation needs the names of all fields, but the keys of "
                "this map differ from record to record.",
                where=f"NOT {part.is_null()}",
            )
        return shape

    def _fields(self, part: ValueExpr) -> Iterator[tuple[str, Column | UnfitRecordError]]:
        assert part.schema is not None
        optional = part.schema.optional and not part.schemaless
        for name, (sql, schema) in part.columns().items():
            default = _default(schema, name, part.schema.default)
            yield from self._below(name, (sql, schema), default, optional=optional)

    def _below(
        self, name: str, column: Column, default: Any, *, optional: bool
    ) -> Iterator[tuple[str, Column | UnfitRecordError]]:
        sql, schema = column
        optional = optional or schema.optional
        if schema.type is Type.STRUCT:
            for field in schema.fields:
                below = (f"{sql}.{quote(field.name)}", field.schema)
                own = _default(field.schema, field.name, default)
                inner = f"{name}{self.settings.delimiter}{field.name}"
                column = _within(sql, schema, below)
                yield from self._below(inner, column, own, optional=optional)
        elif schema.type is Type.MAP:
            message = (
                f"Flatten transformation does not support {schema.type} for record with "
                f"schemas (for field {name})."
            )
            yield name, UnfitRecordError(message=message)
        else:
            new = schema.replaced(optional=optional, default=default)
            yield name, (defaulted(column)[0], new)


def _default(schema: Schema, name: str, around: object) -> object:
    """Return a field's own default, or its value in the default of the enclosing struct."""
    if schema.default is not None:
        return schema.default
    return around[name] if isinstance(around, Struct) else None


def _within(sql: str, schema: Schema, column: Column) -> Column:
    """Return a field of a struct. Where the struct is null, it is null and not its default."""
    if not schema.optional or column[1].default is None or column[1].type is Type.STRUCT:
        return column
    filled, own = defaulted(column)
    return f"IF({sql} IS NULL, NULL, {filled})", own.replaced(default=None)


_FIELDS = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field")
_SUFFIX = "! after the name makes the field required, ? optional (the default)."


def _check_insertion(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if all(props.get(key) is None for key in _FIELDS):
        fix = f"Set one of {', '.join(_FIELDS)}."
        yield ConfigError(
            problem="No field insertion configured", field="static.field", fix=fix
        )
    if props.get("static.field") is not None and props.get("static.value") is None:
        yield ConfigError(
            problem="Invalid value null for configuration static.value: No value specified for "
            f"static field: {props['static.field']}",
            field="static.value",
            fix="Set static.value.",
        )


class InsertFieldSettings(NullDefaults, FieldSyntax):
    """The settings of ``InsertField``: the names of the fields to add."""

    topic_field: str | None = setting(f"Name of a field for the topic. {_SUFFIX}", default=None)
    partition_field: str | None = setting(
        f"Name of a field for the partition. {_SUFFIX}", default=None
    )
    offset_field: str | None = setting(
        "Name of a field for the record's offset; null if the offset is not a single number, "
        f"as in a topic stored as a table. {_SUFFIX}",
        default=None,
    )
    timestamp_field: str | None = setting(
        f"Name of a field for the record's timestamp. {_SUFFIX}", default=None
    )
    static_field: str | None = setting(
        f"Name of a field for the constant static.value. {_SUFFIX}", default=None
    )
    static_value: str | None = setting("The constant, as text.", default=None)

    rules = (_check_insertion,)


class InsertField(Transform):
    """Adds the topic, the partition, the offset, the timestamp or a constant as a field.

    A null key or value stays null.
    """

    aliases = ("org.apache.kafka.connect.transforms.InsertField",)

    settings: InsertFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, "field insertion")
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        for name, column in self._columns(shape, part):
            if name is None:
                continue
            path = self.settings.field_path(name[:-1] if name.endswith(("!", "?")) else name)
            schema = column[1].replaced(optional=not name.endswith("!"))
            part = _inserted(part, path, (column[0], schema))
        return self.with_part(shape, part)

    def _columns(
        self, shape: RecordExpr, part: ValueExpr
    ) -> Iterable[tuple[str | None, Column]]:
        settings = self.settings
        timestamp = (shape.timestamp, Schema.timestamp())
        if part.schemaless:
            timestamp = (f"unix_millis({shape.timestamp})", Schema.int64())
        offset = shape.offset or "CAST(NULL AS BIGINT)"
        static = literal(settings.static_value or "")
        return [
            (settings.topic_field, (shape.topic, Schema.string())),
            (settings.partition_field, (shape.partition, Schema.int32())),
            (settings.offset_field, (offset, Schema.int64())),
            (settings.timestamp_field, timestamp),
            (settings.static_field, (static, Schema.string())),
        ]


def _inserted(part: ValueExpr, path: FieldPath, column: Column) -> ValueExpr:
    sql, schema = column
    before = part.find(path) if part.schemaless else None
    if before is not None and sql_type(before[1]) == sql_type(schema):
        # In a schemaless value, a null (such as no timestamp) does not replace the old field.
        sql = f"coalesce({sql}, {before[0]})"
    return part.inserted(path, sql, schema)


def _check_metadata(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if props.get("schema.name") is None and props.get("schema.version") is None:
        yield ConfigError(
            problem="Neither schema name nor version configured",
            field="schema.name",
            fix="Set schema.name, schema.version or both.",
        )


class SetSchemaMetadataSettings(NullDefaults):
    """The settings of ``SetSchemaMetadata``."""

    schema_name: str | None = setting(
        "Schema name to set.", default=None, importance=Importance.HIGH
    )
    schema_version: int | None = setting(
        "Schema version to set.", default=None, importance=Importance.HIGH
    )

    rules = (_check_metadata,)


class SetSchemaMetadata(Transform):
    """Sets the schema name, the schema version or both, of a key or value with fields."""

    aliases = ("org.apache.kafka.connect.transforms.SetSchemaMetadata",)

    settings: SetSchemaMetadataSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.part(shape)
        if part.schema is None:
            return shape
        if part.schemaless:
            raise UnfitRecordError(
                message="Schema required for [updating schema metadata]",
                where=f"NOT {part.is_null()}",
            )
        if not part.is_struct:
            # As in Kafka Connect, which asks any schema for its fields.
            raise UnfitRecordError(message="Cannot list fields on non-struct type")
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        assert part.schema is not None
        name, version = self.settings.schema_name, self.settings.schema_version
        schema = part.schema.replaced(
            name=part.schema.name if name is None else name,
            version=part.schema.version if version is None else version,
            # The old default is a struct with the old schema name, so it would not match.
            default=None,
        )
        return self.with_part(shape, replace(part, schema=schema))
