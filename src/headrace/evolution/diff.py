"""The differences between two schemas, by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import FLOATS, VARIANT, WHOLE_NUMBERS, Schema, Type
from headrace.sdk.schema_evolution import ChangeKind, evolve
from headrace.sdk.sqltext import sql_type

EXACT: Mapping[Type, frozenset[Type]] = {
    Type.FLOAT32: frozenset((Type.INT8, Type.INT16)),
    Type.FLOAT64: frozenset((Type.INT8, Type.INT16, Type.INT32)),
}
"""The integer types that a float type represents exactly."""
_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference between two schemas.

    Args:
        path: The path, as in ``address.zip`` or ``tags element``; empty for the value itself.
        old: The old type or name, as text; None if there was none.
        new: The new type or name; None if there is none.
    """

    kind: ChangeKind
    path: str
    old: str | None = None
    new: str | None = None

    @override
    def __str__(self) -> str:
        where = self.path or "the value"
        match self.kind:
            case ChangeKind.ADD:
                return f"add {where} {self.new}"
            case ChangeKind.DROP:
                return f"drop {where} {self.old}"
            case _:
                return f"{self.kind.value} {where}: {self.old} -> {self.new}"

    def to_json(self) -> dict[str, str | None]:
        return {
            "kind": self.kind.value,
            "path": self.path,
            "old": self.old,
            "new": self.new,
        }


def schema_changes(
    old: Schema, new: Schema, renames: Mapping[str, str] | None = None
) -> tuple[SchemaChange, ...]:
    """Return all changes from one schema to another, also nested, in the order of the fields.

    ``renames`` maps the old path of each field that is declared as renamed to the new path.
    """
    return () if old == new else tuple(_changes(old, new, "", renames or {}))


def relation(old: Schema, new: Schema) -> ChangeKind | None:
    """Return how the type itself has changed, ignoring nullability; None if not at all.

    Ignores the parts of structs, arrays and maps, except item and key types that have nothing
    in common with the old type.
    """
    if old.type is not new.type or old.is_logical or new.is_logical:
        return _scalar_relation(old, new)
    return ChangeKind.RETYPE if is_retyped(old, new) else None


def is_retyped(old: Schema, new: Schema) -> bool:
    """Return whether a type, or its item or key type, has nothing in common with the old one.

    Ignores the fields of structs, which have changes of their own.
    """
    if old.type is new.type is Type.STRUCT:
        return False
    pairs = [(old.key_schema, new.key_schema), (old.value_schema, new.value_schema)]
    if old.type is new.type and any(one is not None for one, _ in pairs):
        return any(
            one is not None and two is not None and is_retyped(one, two) for one, two in pairs
        )
    return _scalar_relation(old, new) is ChangeKind.RETYPE


def titled(schema: Schema) -> str:
    """Return a schema's type as SQL, shortened."""
    kind = sql_type(schema)
    shown = kind if len(kind) <= _SHOWN_CHARS else f"{kind[:_SHOWN_CHARS]}…"
    return shown if schema.optional else f"{shown} NOT NULL"


def _changes(
    old: Schema, new: Schema, path: str, renames: Mapping[str, str]
) -> Iterator[SchemaChange]:
    kind = relation(old, new)
    if kind is None and old.optional != new.optional:
        kind = ChangeKind.WIDEN if new.optional else ChangeKind.NARROW
    if kind is not None:
        yield SchemaChange(kind, path, titled(old), titled(new))
    if kind is ChangeKind.RETYPE:
        return
    yield from _annotations(old, new, path)
    if old.type is not new.type:
        return
    if old.type is Type.STRUCT:
        yield from _field_changes(old, new, path, renames)
    for part, one, two in (
        ("key", old.key_schema, new.key_schema),
        ("element" if old.type is Type.ARRAY else "value", old.value_schema, new.value_schema),
    ):
        if one is not None and two is not None:
            yield from _changes(one, two, f"{path} {part}".strip(), renames)


def _field_changes(
    old: Schema, new: Schema, path: str, renames: Mapping[str, str]
) -> Iterator[SchemaChange]:
    renamed: set[str] = set()
    for field in old.fields:
        where = f"{path}.{field.name}".strip(".")
        other = new.field(field.name)
        if other is not None:
            yield from _changes(field.schema, other.schema, where, renames)
            continue
        name = renames.get(where, "").rpartition(".")[2]
        other = new.field(name) if old.field(name) is None else None
        if other is None:
            yield SchemaChange(ChangeKind.DROP, where, old=titled(field.schema))
            continue
        renamed.add(name)
        yield SchemaChange(ChangeKind.RENAME, where, field.name, name)
        yield from _changes(field.schema, other.schema, where, renames)
    for field in new.fields:
        if old.field(field.name) is None and field.name not in renamed:
            where = f"{path}.{field.name}".strip(".")
            yield SchemaChange(ChangeKind.ADD, where, new=titled(field.schema))
    before = [f.name for f in old.fields if new.field(f.name) is not None]
    after = [f.name for f in new.fields if old.field(f.name) is not None]
    if before != after:
        yield SchemaChange(ChangeKind.REORDER, path, ", ".join(before), ", ".join(after))


def _annotations(old: Schema, new: Schema, path: str) -> Iterator[SchemaChange]:
    ignored = {"scale", "connect.decimal.precision"}
    for name, one, two in (
        ("name", old.name, new.name),
        ("version", old.version, new.version),
        ("doc", old.doc, new.doc),
        ("default", old.default, new.default),
        ("parameters", dict(old.parameters), dict(new.parameters)),
    ):
        if isinstance(one, dict) and isinstance(two, dict):
            one = {key: text for key, text in one.items() if key not in ignored}  # noqa: PLW2901
            two = {key: text for key, text in two.items() if key not in ignored}  # noqa: PLW2901
        if old.is_logical != new.is_logical and name in {"name", "version"}:
            continue  # already reported as a change of the type
        if repr(one) != repr(two):
            yield SchemaChange(ChangeKind.ANNOTATE, path, f"{name} {one}", f"{name} {two}")


def _scalar_relation(old: Schema, new: Schema) -> ChangeKind | None:
    if VARIANT in {old.name, new.name} and old.is_logical != new.is_logical:
        return ChangeKind.NARROW if old.name == VARIANT else ChangeKind.WIDEN
    one, two = _plain(old), _plain(new)
    if one == two:
        return None
    try:
        common = _plain(evolve(one, two))
    except ConfigError:
        return ChangeKind.RETYPE
    if not (_is_exact(one, common) and _is_exact(two, common)):
        return ChangeKind.RETYPE
    return ChangeKind.NARROW if common == one else ChangeKind.WIDEN


def _plain(schema: Schema) -> Schema:
    """Return the type without annotations that do not affect its values."""
    named = schema.name if schema.is_logical else None
    sizes = dict(schema.parameters) if schema.is_logical else {}
    return schema.bare().replaced(name=named, version=None, parameters=sizes)


def _is_exact(narrow: Schema, wide: Schema) -> bool:
    if narrow.type in WHOLE_NUMBERS and wide.type in FLOATS:
        return narrow.type in EXACT[wide.type]
    return True
