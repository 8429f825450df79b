"""Changes the types of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, RecordError, Schema, Transform, Type, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    Lambda,
    setting,
)
from headrace.sdk.sqltext import FieldSyntax, sql_null
from headrace_plugins.transforms.cast_sql import CAST_TARGETS, sql_cast, supported
from headrace_plugins.transforms.cast_values import cast_value
from headrace_plugins.transforms.null_defaults import NullDefaults

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.sqltext import FieldPath
    from headrace.sdk.struct_exprs import Column

_PURPOSE = "cast types"


def _check_spec(_: str, value: object) -> None:
    pairs = list(value) if isinstance(value, list | tuple) else []
    if not pairs:
        raise _wrong(problem="Must specify at least one field to cast.")
    kinds = [_check_pair(str(pair), pairs) for pair in pairs]
    if None in kinds and len(pairs) > 1:
        raise _wrong(
            problem="Cast transformations that specify a type to cast the entire value to may "
            "only specify a single cast in their spec"
        )


def _check_pair(pair: str, pairs: list[str]) -> str | None:
    """Return the field; None for the whole."""
    # As Java splits: nothing at the end counts as nothing.
    parts = pair.rstrip(":").split(":")
    if len(parts) > 2:  # noqa: PLR2004 - a field and a type
        raise _wrong(
            problem=f"Invalid value [{', '.join(pairs)}] for configuration renames: "
            f"Invalid rename mapping: {pair}"
        )
    kind = parts[-1].strip().upper()
    if kind not in Type.__members__:
        raise _wrong(problem=f"Invalid type found in casting spec: {parts[-1].strip()}")
    if Type(kind) not in CAST_TARGETS:
        raise _wrong(
            problem=f"Cast transformation does not support casting to {kind}; supported types "
            f"are {supported(CAST_TARGETS)}"
        )
    return parts[0] if len(parts) > 1 else None


def _wrong(*, problem: str) -> ConfigError:
    fix = "Give field:type pairs, or one type alone for the whole."
    return ConfigError(problem=problem, field="spec", fix=fix)


class CastSettings(NullDefaults, FieldSyntax):
    """The settings of ``Cast``."""

    spec: tuple[str, ...] = setting(
        "field:type pairs, or one type for the whole part. Types: "
        f"{', '.join(CAST_TARGETS).lower()}. Bytes can only be cast to string.",
        validator=Lambda(_check_spec, "list of colon-delimited pairs, e.g. foo:bar,abc:xyz"),
        importance=Importance.HIGH,
    )


class Cast(Transform):
    """Changes fields, or the whole key or value, to another type, as Java casts.

    Whole numbers that are too large wrap, floating point numbers lose their fraction and end
    at the bounds of the type, texts must be numbers to the letter. A value that cannot be cast
    rejects its record. Null stays null.
    """

    aliases = ("org.apache.kafka.connect.transforms.Cast",)

    settings: CastSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        spec = self.settings.spec
        if ":" not in spec[0]:
            return self._apply_whole(shape, Type(spec[0].upper()))
        part = self._struct(shape)
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        casts = self._casts(part, self._targets(spec))
        for path, new in casts.items():
            shape, part = self._cast_field(shape, part, path, new)
        return self.with_part(shape, part)

    def _struct(self, shape: RecordExpr) -> ValueExpr:
        part = self.part(shape)
        if part.schema is None or part.schemaless or part.is_struct:
            return self.struct(shape, _PURPOSE)
        # Kafka Connect's looks at the schema before the value.
        message = "Cannot list fields on non-struct type"
        raise UnfitRecordError(message=message, where=f"NOT {part.is_null()}")

    def _targets(self, spec: Sequence[str]) -> dict[FieldPath, Type]:
        pairs = [pair.split(":") for pair in spec]
        return {
            self.settings.field_path(name.strip()): Type(kind.strip().upper())
            for name, kind in pairs
        }

    def _casts(
        self, part: ValueExpr, targets: Mapping[FieldPath, Type]
    ) -> dict[FieldPath, Schema]:
        """Give the new schema of each field, in the record's order.

        The order decides which error a record has, and defaults come before values.
        """
        places = {name: number for number, name in enumerate(part.columns())}
        casts = {}
        for path in sorted(targets, key=lambda path: places.get(path.steps[0], len(places))):
            found = _found(part, path)
            bare = Schema(targets[path], optional=True)
            try:
                casts[path] = bare if found is None else self._schema(found[1], targets[path])
            except UnfitRecordError as error:
                where = f"NOT {part.is_null()}"
                raise UnfitRecordError(message=error.message, where=where) from error
        return casts

    def _cast_field(
        self, shape: RecordExpr, part: ValueExpr, path: FieldPath, new: Schema
    ) -> tuple[RecordExpr, ValueExpr]:
        found = _found(part, path)
        if found is None:
            return shape, self._absent(part, path, new)
        sql, schema = found
        cast = sql_cast(sql, schema, new.type, schemaless=part.schemaless)
        if cast.fault is not None:
            fault = f"NOT {part.is_null()} AND {cast.fault}"
            shape = self.rejecting(shape, fault, cast.message).sharing(cast.shared)

        def change(own: str, own_schema: Schema) -> Column:
            changed = sql_cast(own, own_schema, new.type, schemaless=part.schemaless)
            return changed.sql, new.replaced(optional=own_schema.optional)

        return shape, part.changed({path: change})

    def _absent(self, part: ValueExpr, path: FieldPath, new: Schema) -> ValueExpr:
        """As in Kafka Connect, no error; but a null field where there is no schema."""
        parent_missing = path.parent is not None and _found(part, path.parent) is None
        if not part.schemaless or parent_missing:
            return part
        return part.inserted(path, sql_null(new), new)

    def _schema(self, schema: Schema, target: Type) -> Schema:
        if schema.default is None:
            return Schema(target, optional=schema.optional)
        try:
            default = cast_value(schema, schema.default, target)
        except RecordError as error:
            raise UnfitRecordError(message=error.problem) from error
        return Schema(target, optional=schema.optional, default=default)

    def _apply_whole(self, shape: RecordExpr, target: Type) -> RecordExpr:
        part = self.part(shape)
        if part.schema is None:
            return shape
        cast = sql_cast(part.sql(), part.schema, target, schemaless=part.schemaless)
        if cast.fault is not None:
            shape = self.rejecting(shape, cast.fault, cast.message).sharing(cast.shared)
        try:
            schema = self._schema(part.schema, target)
        except UnfitRecordError as error:
            where = f"NOT {part.is_null()}"
            raise UnfitRecordError(message=error.message, where=where) from error
        if not part.schema.is_logical:
            # A Date that became a number must not be taken for a Date.
            schema = schema.replaced(
                name=part.schema.name,
                version=part.schema.version,
                doc=part.schema.doc,
                parameters=part.schema.parameters,
            )
        return self.with_part(shape, part.with_whole(cast.sql, schema))


def _found(part: ValueExpr, path: FieldPath) -> Column | None:
    """Find a field; beyond Kafka Connect, a path through what has no fields finds none."""
    try:
        return part.find(path)
    except UnfitRecordError:
        return None
