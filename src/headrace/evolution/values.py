"""Python values as Arrow arrays, with a schema or with the one that they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.evolution.diff import is_retyped
from headrace.sdk import ConfigError, HeadraceError, RecordError, Schema, Struct, Type
from headrace.sdk.arrow import from_arrow, to_arrow_type
from headrace.sdk.evolution_policy import ChangeKind, Handling
from headrace.sdk.logical import TIME
from headrace.sdk.schema_merge import evolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sdk.evolution_policy import EvolutionPolicy

_Plain = Callable[[Any], Any]


def to_array(values: Sequence[Any], schema: Schema) -> pa.Array:
    """Return values of one schema. Raises RecordError when one does not fit."""
    plain = _plain(schema)
    try:
        made = values if plain is None else [None if v is None else plain(v) for v in values]
        return pa.array(made, to_arrow_type(schema))
    except HeadraceError:
        raise
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"A value does not fit its schema {schema.type.value}: {error}"
        raise RecordError(problem) from error


def infer(values: Sequence[Any]) -> Schema | None:
    """Return the schema that plain JSON values show; None when they are all null.

    A field that is only ever null is left out until its type is known. Raises
    RecordError when the values have no common shape.
    """
    try:
        found = pa.array(values).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"The values share no shape: {error}"
        raise RecordError(problem) from error
    pruned = _pruned(found)
    return None if pruned is None else from_arrow(pruned).replaced(optional=True)


def widen(known: Schema | None, values: Sequence[Any]) -> Schema | None:
    """Return ``known`` grown to take ``values``. Raises RecordError when it cannot."""
    shown = infer(values)
    if known is None or shown is None:
        return shown if known is None else known
    try:
        return evolve(known, shown)
    except ConfigError as error:
        raise RecordError(error.problem, fix=error.fix, field=error.field) from error


def brought(
    known: Schema | None, values: Sequence[Any], policy: EvolutionPolicy
) -> Schema | None:
    """Return the schema that plain JSON values are taken to have; None when all are null.

    It is ``known``, grown to take them, as a field that a value lacks is no field that is
    gone. What the policy has to decide is left as the values show it: a field that has been
    renamed, and, unless topics are to follow that, one of another type.

    Raises:
        RecordError: The values share no shape, with each other or with what is known.
    """
    if not policy.renames and policy.of(ChangeKind.RETYPE) is Handling.EVOLVE:
        return widen(known, values)
    shown = infer(values)
    if known is None or shown is None:
        return shown if known is None else known
    return _completed(known, shown, policy, "")


def _completed(known: Schema, shown: Schema, policy: EvolutionPolicy, path: str) -> Schema:
    if known.type is Type.STRUCT and shown.type is Type.STRUCT:
        fields = {}
        for field in known.fields:
            where = f"{path}.{field.name}".strip(".")
            own = shown.field(field.name)
            if own is not None:
                fields[field.name] = _completed(field.schema, own.schema, policy, where)
            elif not _has_another_name(field.name, where, known, shown, policy):
                fields[field.name] = field.schema.replaced(optional=True)
        added = (field for field in shown.fields if known.field(field.name) is None)
        fields |= {field.name: field.schema.replaced(optional=True) for field in added}
        return known.with_fields(fields).replaced(optional=True)
    if is_retyped(known, shown) and policy.of(ChangeKind.RETYPE) is not Handling.EVOLVE:
        return shown
    try:
        return evolve(known, shown)
    except ConfigError as error:
        raise RecordError(error.problem, fix=error.fix, field=path or None) from error


def _has_another_name(
    name: str, where: str, known: Schema, shown: Schema, policy: EvolutionPolicy
) -> bool:
    """Return whether a field's values come under another name, renamed or of another type."""
    renamed = policy.renames.get(where, "").rpartition(".")[2]
    base = name.rpartition("__")[0]
    lenient = policy.of(ChangeKind.RETYPE) is Handling.LENIENT
    aside = lenient and bool(base) and known.field(base) is not None
    return shown.field(renamed) is not None or aside


def _pruned(arrow: pa.DataType) -> pa.DataType | None:
    """Return the type without the parts that were never seen with a value."""
    if pa.types.is_null(arrow):
        return None
    if pa.types.is_struct(arrow):
        fields = [(field.name, _pruned(field.type)) for field in arrow]
        kept = [pa.field(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(kept) if kept else None
    if pa.types.is_list(arrow):
        items = _pruned(arrow.value_type)
        return None if items is None else pa.list_(items)
    return arrow


def _plain(schema: Schema) -> _Plain | None:
    """Return what makes a value of ``schema`` one that Arrow takes; None: nothing to do."""
    if schema.is_logical:
        return _micros if schema.name == TIME else None
    if schema.type is Type.STRUCT:
        return _struct(schema)
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        item = _plain(schema.value_schema)
        return None if item is None else _list(item)
    if schema.type is Type.MAP and schema.value_schema and schema.key_schema:
        return _map(_plain(schema.key_schema), _plain(schema.value_schema))
    return None


def _micros(value: time) -> int:
    """Return a time of day as topics hold it."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _struct(schema: Schema) -> _Plain:
    plains = [(field.name, _plain(field.schema)) for field in schema.fields]

    def plain(value: Any) -> dict[str, Any]:
        if not isinstance(value, Struct | Mapping):
            problem = f"A value of type {type(value).__name__} does not fit a STRUCT."
            raise RecordError(problem)
        get = value.get
        fields = {name: get(name) for name, _ in plains}
        for name, change in plains:
            if change is not None and fields[name] is not None:
                fields[name] = change(fields[name])
        return fields

    return plain


def _list(item: _Plain) -> _Plain:
    return lambda value: [None if part is None else item(part) for part in value]


def _map(key: _Plain | None, item: _Plain | None) -> _Plain:
    def plain(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
        return [
            (k if key is None else key(k), v if item is None or v is None else item(v))
            for k, v in value.items()
        ]

    return plain
