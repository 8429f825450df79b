"""Python values as Arrow arrays, with a schema or with the one that they show."""

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

    It is ``known``, grown to take them, as a field that a value lacks is not
    gone. What the policy has to decide is left as the values show it: a field that has been
    renamed, and, unless topics are to follow that, one of another type. Raises RecordError: the
    values share no shape, with each other or with what is known.
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
        named = [pa.field(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(named) if named else None
    if pa.types.is_list(arrow):
        items = _pruned(arrow.value_type)
        return None if items is None else pa.list_(items)
    return arrow
