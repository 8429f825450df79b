"""Infers and extends schemas of plain JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.evolution.diff import is_retyped
from headrace.sdk import ConfigError, RecordError, Schema, Type
from headrace.sdk.arrow import from_arrow
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling, evolve

if TYPE_CHECKING:
    from collections.abc import Sequence


def infer(values: Sequence[Any]) -> Schema | None:
    """Return the inferred schema of plain JSON values; None if all are null.

    Omits fields that are always null until their type is known. Raises RecordError if the
    values have no common schema.
    """
    try:
        found = pa.array(values).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"The values have no common schema: {error}"
        raise RecordError(problem) from error
    pruned = _pruned(found)
    return None if pruned is None else from_arrow(pruned).replaced(optional=True)


def widen(known: Schema | None, values: Sequence[Any]) -> Schema | None:
    """Return ``known`` extended for ``values``. Raises RecordError if that is impossible."""
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
    """Return the schema to assume for plain JSON values; None if all are null.

    The schema is ``known`` extended for the values, since a missing field is not a dropped
    field. Changes that the policy must decide keep the inferred form: renamed fields and,
    unless the policy for them is evolve, fields of another type. Raises RecordError: the values
    have no common schema, with each other or with ``known``.
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
    """Return whether a field's values have another name: renamed, or of another type."""
    renamed = policy.renames.get(where, "").rpartition(".")[2]
    base = name.rpartition("__")[0]
    lenient = policy.of(ChangeKind.RETYPE) is Handling.LENIENT
    aside = lenient and bool(base) and known.field(base) is not None
    return shown.field(renamed) is not None or aside


def _pruned(arrow: pa.DataType) -> pa.DataType | None:
    """Return the type without the parts that are always null."""
    if pa.types.is_null(arrow):
        return None
    if pa.types.is_struct(arrow):
        fields = [(field.name, _pruned(field.type)) for field in arrow]
        named = [pa.field(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(named) if named else None
    if pa.types.is_list(arrow):
        items = _pruned(arrow.value_type)
        return None if items is None else pa.list_(items)
    return arrow
