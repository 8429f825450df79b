"""Schema evolution of a stream: merging of two schemas, and evolution policies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.sdk.errors import ConfigError
from headrace.sdk.metadata import default_from_json, default_to_json
from headrace.sdk.schema import (
    COLUMN_TYPE,
    DECIMAL,
    LOCAL,
    MAX_PRECISION,
    NUMBERS,
    PRECISION,
    SCALE,
    VARIANT,
    WHOLE_NUMBERS,
    Schema,
    Type,
    precision_of,
    scale_of,
)

# The maximum number of digits of each integer type.
_DIGITS = {Type.INT8: 3, Type.INT16: 5, Type.INT32: 10, Type.INT64: 19}

# The length of a string type, or the fractional digits of a time type; the larger fits both.
_SIZE = re.compile(r"(?<=\()\d+(?=\))")
_QUOTE = re.compile("['\"]")


def evolve(old: Schema, new: Schema) -> Schema:
    """Return the schema that accepts the values of both schemas.

    The order and the attributes of `old` are kept. Fields that `new` adds come last and are
    optional, and fields missing in `new` become optional. Types are widened: integers to larger
    integers, floats to FLOAT64, integers and floats to FLOAT64, integers and Decimals to a
    Decimal, Decimals to more digits, a Variant and any other type to a Variant. Structs, arrays
    and maps are merged recursively. `evolve(evolved, old)` and `evolve(evolved, new)` return
    `evolved`.

    Trap: an INT64 merged with a float becomes FLOAT64, which is exact only up to 2**53. Raises
    ConfigError: there is no common type; `field` is the path to the field.
    """
    return _merged(old, new, "")


def _merged(old: Schema, new: Schema, path: str) -> Schema:
    if old == new:
        return old
    merged = _common(old, new, path)
    versions = [version for version in (old.version, merged.version) if version is not None]
    if old.name == new.name and new.version is not None:
        versions.append(new.version)
    merged = merged.replaced(
        optional=old.optional or new.optional,
        doc=new.doc if old.doc is None else old.doc,
        version=max(versions) if merged.name == old.name and versions else merged.version,
        parameters=_parameters(merged, old, new),
    )
    return _with_default(merged, old, new)


def _parameters(merged: Schema, old: Schema, new: Schema) -> dict[str, str]:
    both = {**new.parameters, **old.parameters}
    if old.is_local != new.is_local:
        # Some values have a time zone; those without one are UTC.
        del both[LOCAL]
    if _is_decimal(merged):
        both = {k: v for k, v in both.items() if k not in {SCALE, PRECISION}} | dict(
            merged.parameters
        )
    # A column with the native type of one schema might not accept the values of the other.
    both.pop(COLUMN_TYPE, None)
    column_type = _column_type(merged, old, new)
    return both if column_type is None else {**both, COLUMN_TYPE: column_type}


def _column_type(merged: Schema, old: Schema, new: Schema) -> str | None:
    alike = [each for each in (old, new) if _kind(each) == _kind(merged)]
    types = {each.parameters.get(COLUMN_TYPE, "") for each in alike}
    # Ignore types with quotes: a number in quotes, such as an enum value, is not a size.
    if len({type_ if _QUOTE.search(type_) else _SIZE.sub("", type_) for type_ in types}) != 1:
        return None
    return max(types, key=lambda type_: [int(each) for each in _SIZE.findall(type_)]) or None


def _kind(schema: Schema) -> tuple[object, ...]:
    sizes = _digits(schema) if _is_decimal(schema) else None
    return schema.type, schema.name, schema.is_local, sizes


def _with_default(merged: Schema, old: Schema, new: Schema) -> Schema:
    origin = new if old.default is None else old
    if origin.default is None:
        return merged
    default = default_to_json(origin, origin.default)
    if merged.name == VARIANT and origin.name != VARIANT:
        default = json.dumps(default)
    return merged.replaced(default=default_from_json(merged, default))


def _common(old: Schema, new: Schema, path: str) -> Schema:
    """Return the common type, with the attributes of `old` if the type is that of `old`."""
    plain = replace(old, default=None)
    variant = next((s for s in (old, new) if s.is_logical and s.name == VARIANT), None)
    if variant is not None:
        return replace(variant, default=None)
    if _is_decimal(old) or _is_decimal(new):
        return _decimal(old, new, path)
    if old.is_logical or new.is_logical:
        if old.name != new.name or old.type is not new.type:
            raise _apart(old, new, path)
        return plain
    if old.type is not new.type:
        return replace(plain, type=_wider(old, new, path))
    if old.type is Type.STRUCT:
        return plain.with_fields(_fields(old, new, path))
    return _with_parts(plain, old, new, path)


def _with_parts(merged: Schema, old: Schema, new: Schema, path: str) -> Schema:
    if old.key_schema is not None and new.key_schema is not None:
        keys = _merged(old.key_schema, new.key_schema, f"{path} key")
        merged = replace(merged, key_schema=keys)
    if old.value_schema is not None and new.value_schema is not None:
        part = "element" if old.type is Type.ARRAY else "value"
        values = _merged(old.value_schema, new.value_schema, f"{path} {part}")
        merged = replace(merged, value_schema=values)
    return merged


def _fields(old: Schema, new: Schema, path: str) -> dict[str, Schema]:
    fields: dict[str, Schema] = {}
    for own in old.fields:
        other = new.field(own.name)
        fields[own.name] = (
            own.schema.replaced(optional=True)
            if other is None
            else _merged(own.schema, other.schema, f"{path}.{own.name}".strip("."))
        )
    added = (field for field in new.fields if field.name not in fields)
    return fields | {field.name: field.schema.replaced(optional=True) for field in added}


def _wider(old: Schema, new: Schema, path: str) -> Type:
    types = {old.type, new.type}
    if types <= set(WHOLE_NUMBERS):
        return max(types, key=WHOLE_NUMBERS.index)
    if types <= set(NUMBERS):
        return Type.FLOAT64
    raise _apart(old, new, path)


def _decimal(old: Schema, new: Schema, path: str) -> Schema:
    before, after = _digits(old), _digits(new)
    if before is None or after is None:
        raise _apart(old, new, path)
    scale = max(before[1], after[1])
    base = replace(old if _is_decimal(old) else new, default=None)
    parameters: dict[str, Any] = {**base.parameters, SCALE: str(scale)}
    parameters.pop(PRECISION, None)
    if before[0] is not None and after[0] is not None:
        precision = max(before[0], after[0]) + scale
        if precision > MAX_PRECISION:
            raise _apart(old, new, path)
        parameters[PRECISION] = str(precision)
    return base.replaced(parameters=parameters)


def _digits(schema: Schema) -> tuple[int | None, int] | None:
    """Return the digits before the point (None for any number) and after the point."""
    if _is_decimal(schema):
        scale, precision = scale_of(schema.parameters) or 0, precision_of(schema.parameters)
        return None if precision is None else precision - scale, scale
    if schema.type in _DIGITS and not schema.is_logical:
        return _DIGITS[schema.type], 0
    return None


def _is_decimal(schema: Schema) -> bool:
    return schema.is_logical and schema.name == DECIMAL


def _apart(old: Schema, new: Schema, path: str) -> ConfigError:
    return ConfigError(
        problem=f"The types {_title(old)} and {_title(new)} have no common type.",
        fix="Cast the field to one type with a transform, or send it to another stream.",
        field=path or None,
    )


def _title(schema: Schema) -> str:
    if not schema.is_logical:
        return schema.type.value
    sizes = ", ".join(f"{key} {value}" for key, value in schema.parameters.items())
    name = str(schema.name).rpartition(".")[2]
    return f"{name} ({sizes})" if sizes else name


class ChangeKind(StrEnum):
    """The kinds of change between an old schema and a new one."""

    ADD = "add"
    """A field was added."""
    WIDEN = "widen"
    """A field's type accepts all previous values and more; becoming nullable also widens."""
    NARROW = "narrow"
    """A field's type accepts only a subset of the previous values."""
    RETYPE = "retype"
    """A field has another type, which is neither wider nor narrower."""
    RENAME = "rename"
    """A field has another name; this cannot be detected, only declared."""
    DROP = "drop"
    """A field was removed."""
    REORDER = "reorder"
    """The existing fields are in another order."""
    ANNOTATE = "annotate"
    """The name, version, doc, default or a parameter changed; the values did not."""


EVOLUTION_KINDS = tuple(kind for kind in ChangeKind if kind is not ChangeKind.ANNOTATE)
"""The kinds of change that have a policy. Annotations change no values and always evolve."""


class Handling(StrEnum):
    """How a change is handled; docs/how-to/handle-schema-changes.md has the table."""

    EVOLVE = "evolve"
    """The target follows the change."""
    LENIENT = "lenient"
    """The target keeps the old form beside the new one; nothing is removed."""
    IGNORE = "ignore"
    """The target is unchanged, and accepts what fits."""
    REJECT = "reject"
    """The task stops; nothing of the batch is written."""


@dataclass(frozen=True, slots=True)
class EvolutionPolicy:
    """How a target handles each kind of change.

    Args:
        otherwise: The default handling.
        handlings: The handling of individual kinds.
        renames: The new path of each renamed field, by its old path.
    """

    otherwise: Handling = Handling.EVOLVE
    handlings: Mapping[ChangeKind, Handling] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def agreed(cls, policies: Sequence[EvolutionPolicy]) -> EvolutionPolicy:
        """Return the policy that all of these share; kinds on which they differ evolve."""
        first, *others = policies
        handlings: dict[ChangeKind, Handling] = {
            kind: first.of(kind)
            for kind in EVOLUTION_KINDS
            if all(other.of(kind) is first.of(kind) for other in others)
        }
        alike = all(other.renames == first.renames for other in others)
        return cls(handlings=handlings, renames=first.renames if alike else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EvolutionPolicy:
        """Parse the output of `to_json`."""
        handlings = {ChangeKind(k): Handling(h) for k, h in values["handlings"].items()}
        return cls(Handling(values["otherwise"]), handlings, values["renames"])

    def to_json(self) -> dict[str, Any]:
        """Return the policy as JSON values, for other processes."""
        return {
            "otherwise": self.otherwise.value,
            "handlings": {kind.value: h.value for kind, h in self.handlings.items()},
            "renames": dict(self.renames),
        }

    def of(self, kind: ChangeKind) -> Handling:
        """Return the handling of a kind of change."""
        if kind is ChangeKind.ANNOTATE:
            return Handling.EVOLVE
        return self.handlings.get(kind, self.otherwise)
