"""Fits the rows of a batch to the table they go to, and the table to the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling
from headrace_plugins.connectors.delta.types import Json, ddl, nullable, same, widens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Fit", "fit"]

# Delta's own readers take the smaller types' files for the larger ones without a feature.
_FREE = ("byte", "short", "integer")
_FOLLOWED = {Handling.EVOLVE, Handling.LENIENT}


@dataclass(frozen=True, slots=True)
class Fit:
    """How a batch goes into a table.

    Args:
        fields: The table's fields once it can hold the batch, as Spark's JSON.
        names: The batch's columns that are written, by the name that the table has for each.
        added: Paths of the columns that the table lacks.
        widened: Paths of the columns whose type has to grow.
    """

    fields: tuple[Mapping[str, Any], ...]
    names: Mapping[str, str]
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """The table's schema once it can hold the batch, as Spark's JSON."""
        return {"type": "struct", "fields": [dict(f) for f in self.fields]}

    def type_of(self, name: str) -> Json:
        """Return the type of a table's column."""
        kind: Json = next(f["type"] for f in self.fields if f["name"] == name)
        return kind


@dataclass(slots=True)
class _Changes:
    policy: EvolutionPolicy
    may_widen: bool
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)


def fit(
    table: Sequence[Mapping[str, Any]] | None,
    batch: Sequence[Mapping[str, Any]],
    *,
    policy: EvolutionPolicy,
    may_widen: bool = False,
) -> Fit:
    """Say how a batch goes into a table, whose columns are matched whatever their case.

    Args:
        table: The table's fields, as Spark's JSON; None for a table to be made, in which
            everything may be null.
        batch: The batch's fields.
        policy: What happens to columns, also inside structs, that the table lacks, and to
            wider types.
        may_widen: Whether the table has Delta's type widening turned on. Without it only
            TINYINT and SMALLINT may become INT.

    Raises:
        ConfigError: A type does not fit, or the policy rejects a column; `field` is its path.
    """
    if table is None:
        made = nullable({"type": "struct", "fields": batch})
        assert not isinstance(made, str)
        return Fit(tuple(made["fields"]), {f["name"]: f["name"] for f in batch})
    changes = _Changes(policy, may_widen)
    fields, names = _fields(table, batch, "", changes)
    return Fit(tuple(fields), names, tuple(changes.added), tuple(changes.widened))


def _fields(
    table: Sequence[Mapping[str, Any]],
    batch: Sequence[Mapping[str, Any]],
    path: str,
    changes: _Changes,
) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    fields = {f["name"].lower(): f for f in table}
    names: dict[str, str] = {}
    for given in batch:
        name, where = given["name"], f"{path}.{given['name']}".strip(".")
        known = fields.get(name.lower())
        adding = changes.policy.of(ChangeKind.ADD)
        if known is not None:
            kind = _grown(known["type"], given["type"], where, changes)
            fields[name.lower()] = {**known, "type": kind}
        elif adding in _FOLLOWED:
            changes.added.append(where)
            kind = nullable(given["type"])
            added = {"name": name, "type": kind, "nullable": True, "metadata": {}}
            fields[name.lower()] = added
        elif adding is Handling.REJECT:
            raise _unknown(where)
        if name.lower() in fields:
            names[name] = fields[name.lower()]["name"]
    return list(fields.values()), names


def _grown(table: Json, batch: Json, path: str, changes: _Changes) -> Json:
    """Return the table's type once it can hold the batch's."""
    if same(table, batch):
        return table
    if isinstance(table, str) or isinstance(batch, str):
        return _scalar(table, batch, path, changes)
    if table["type"] != batch["type"]:
        raise _apart(table, batch, path)
    match table["type"]:
        case "struct":
            fields, _ = _fields(table["fields"], batch["fields"], path, changes)
            return {**table, "fields": fields}
        case "array":
            parts = ["elementType"]
        case _:
            parts = ["keyType", "valueType"]
    inner = {
        part: _grown(table[part], batch[part], f"{path}.{part}", changes) for part in parts
    }
    return {**table, **inner}


def _scalar(table: Json, batch: Json, path: str, changes: _Changes) -> Json:
    if widens(batch, table):
        return table
    free = table in _FREE and batch in _FREE
    if not widens(table, batch) or not (free or changes.may_widen):
        raise _apart(table, batch, path)
    if changes.policy.of(ChangeKind.WIDEN) not in _FOLLOWED:
        raise _apart(table, batch, path)
    changes.widened.append(path)
    return batch


def _apart(table: Json, batch: Json, path: str) -> ConfigError:
    fix = "Cast the field with a transform"
    if widens(table, batch):
        fix += ", or set delta.enableTypeWidening=true in the table's properties"
    return ConfigError(
        problem=f"The table's column is {ddl(table)}, which cannot hold {ddl(batch)}.",
        fix=f"{fix}.",
        field=path,
    )


def _unknown(path: str) -> ConfigError:
    return ConfigError(
        problem="The table has no such column, and schema.evolution.add is reject.",
        fix="Drop the field with a transform, add the column, or set schema.evolution.add.",
        field=path,
    )
