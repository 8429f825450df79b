"""The columns of a batch: their types, how they fit the table, and broken constraints."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.sdk import ConfigError, Refusal, Schema, SinkError, Type
from headrace.sdk.keyed_rows import DELETED
from headrace.sdk.schema import primary_key
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling
from headrace.sdk.sqltext import literal, quote, selected
from headrace_plugins.transforms.sql import foreign

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk import SinkBatch
    from headrace_plugins.target_table import TableSelection, TargetTable


Json: TypeAlias = "str | Mapping[str, Any]"

_WHOLE_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_WHOLE = list(_WHOLE_DIGITS)
# A time without a zone is taken as UTC everywhere in Headrace.
_KEPT_AS = {"void": "string", "timestamp_ntz": "timestamp"}
# Lossless casts, besides those to larger integers and decimals.
_UPCASTS = {
    ("float", "double"),
    *((whole, "double") for whole in _WHOLE[:3]),
    *((whole, "float") for whole in _WHOLE[:2]),
    ("timestamp_ntz", "timestamp"),
    ("void", "string"),
}


def widens(narrow: Json, wide: Json) -> bool:
    """Return whether ``wide`` can represent every value of the scalar type ``narrow``."""
    if not isinstance(narrow, str) or not isinstance(wide, str):
        return False
    if narrow in (wide, "void") or (narrow, wide) in _UPCASTS:
        return True
    if narrow in _WHOLE and wide in _WHOLE:
        return _WHOLE.index(narrow) <= _WHOLE.index(wide)
    before, after = _digits(narrow), _DECIMAL.fullmatch(wide)
    if before is None or after is None:
        return False
    precision, scale = int(after[1]), int(after[2])
    return before[0] <= precision - scale and before[1] <= scale


def same(one: Json, other: Json) -> bool:
    """Return whether two types are the same, ignoring nullability and comments."""
    return ddl(one) == ddl(other)


def nullable(kind: Json) -> Json:
    """Return the type with all its parts nullable, and only comments as metadata."""
    if isinstance(kind, str):
        return _KEPT_AS.get(kind, kind)
    match kind["type"]:
        case "struct":
            fields = []
            for each in kind["fields"]:
                facts = each.get("metadata") or {}
                comment = {"comment": facts["comment"]} if facts.get("comment") else {}
                fields.append(as_field(each["name"], nullable(each["type"]), comment))
            return {"type": "struct", "fields": fields}
        case "array":
            return {**kind, "elementType": nullable(kind["elementType"]), "containsNull": True}
        case "map":
            keys, values = nullable(kind["keyType"]), nullable(kind["valueType"])
            return {**kind, "keyType": keys, "valueType": values, "valueContainsNull": True}
        case _:
            return kind


def as_field(
    name: str, kind: Json, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a nullable field, as Spark's JSON."""
    return {"name": name, "type": kind, "nullable": True, "metadata": dict(metadata or {})}


def required(kind: Json) -> bool:
    """Return whether any part inside the type is not nullable, apart from map keys."""
    if isinstance(kind, str):
        return False
    match kind["type"]:
        case "struct":
            return any(not f["nullable"] or required(f["type"]) for f in kind["fields"])
        case "array":
            return not kind["containsNull"] or required(kind["elementType"])
        case "map":
            return not kind["valueContainsNull"] or required(kind["valueType"])
        case _:
            return False


def ddl(kind: Json) -> str:
    """Return the type as SQL."""
    if isinstance(kind, str):
        return _NAMES.get(kind, kind.upper())
    match kind["type"]:
        case "struct":
            fields = (f"{quote(f['name'])}: {ddl(f['type'])}" for f in kind["fields"])
            return f"STRUCT<{', '.join(fields)}>"
        case "array":
            return f"ARRAY<{ddl(kind['elementType'])}>"
        case "map":
            return f"MAP<{ddl(kind['keyType'])}, {ddl(kind['valueType'])}>"
        case other:
            return str(other).upper()


def moved(sql: str, source: Json, target: Json, depth: int = 0) -> str:
    """Return the SQL that converts a value from one type to the other.

    Struct fields match by name: fields missing from the source become null, fields missing from
    the target are dropped. ``depth`` makes the variable names of nested lambdas unique.
    """
    if same(source, target):
        return sql
    if isinstance(source, str) or isinstance(target, str):
        return f"CAST({sql} AS {ddl(target)})"
    item = f"x{depth}"
    match target["type"]:
        case "struct":
            pairs = ", ".join(_member(sql, source, field, depth) for field in target["fields"])
            return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"
        case "array":
            inner = moved(item, source["elementType"], target["elementType"], depth + 1)
            return f"transform({sql}, {item} -> {inner})"
        case _:
            keys = moved(item, source["keyType"], target["keyType"], depth + 1)
            values = moved(item, source["valueType"], target["valueType"], depth + 1)
            return (
                f"map_from_arrays(transform(map_keys({sql}), {item} -> {keys}), "
                f"transform(map_values({sql}), {item} -> {values}))"
            )


def _member(sql: str, source: Mapping[str, Any], field: Mapping[str, Any], depth: int) -> str:
    name = field["name"]
    sources = [f for f in source["fields"] if f["name"].lower() == name.lower()]
    if not sources:
        return f"{literal(name)}, CAST(NULL AS {ddl(field['type'])})"
    inner = f"{sql}.{quote(sources[0]['name'])}"
    return f"{literal(name)}, {moved(inner, sources[0]['type'], field['type'], depth)}"


def _digits(kind: str) -> tuple[int, int] | None:
    """Return the number of digits before and after the decimal point."""
    if kind in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else (int(found[1]) - int(found[2]), int(found[2]))


# Delta's readers accept files with the smaller types without the type widening feature.
_FREE = ("byte", "short", "integer")
_FOLLOWED = {Handling.EVOLVE, Handling.LENIENT}


@dataclass(frozen=True)
class Fit:
    """How the columns of a batch map to those of a table.

    Args:
        fields: The table's fields after the required schema changes, as Spark's JSON.
        names: Maps each of the batch's written columns to its name in the table.
        added: Paths of the columns to add to the table.
        widened: Paths of the columns whose type has to be widened.
    """

    fields: tuple[Mapping[str, Any], ...]
    names: Mapping[str, str]
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """The table's schema after the required changes, as Spark's JSON."""
        return {"type": "struct", "fields": [dict(f) for f in self.fields]}

    def type_of(self, name: str) -> Json:
        """Return the type of a table's column."""
        return self._types[name]

    @cached_property
    def _types(self) -> dict[str, Json]:
        return {f["name"]: f["type"] for f in self.fields}


@dataclass(slots=True)
class _Changes:
    policy: EvolutionPolicy
    may_widen: bool
    title: str = ""
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)


def fit(
    table: Sequence[Mapping[str, Any]] | None,
    batch: Sequence[Mapping[str, Any]],
    *,
    policy: EvolutionPolicy,
    may_widen: bool = False,
    title: str = "",
) -> Fit:
    """Return how a batch's columns map to a table's, matching names regardless of case.

    Fields are in Spark's JSON. For a new table pass None as its fields; all its columns are
    nullable. The policy decides on missing columns, also inside structs, and on wider types.
    Without Delta's type widening (``may_widen``) only TINYINT and SMALLINT may become INT.
    Errors name the table by its ``title``, its location.

    Raises:
        ConfigError: A type does not fit, or the policy rejects a column; `field` is its path.
    """
    if table is None:
        made = nullable({"type": "struct", "fields": batch})
        assert not isinstance(made, str)
        return Fit(tuple(made["fields"]), {f["name"]: f["name"] for f in batch})
    changes = _Changes(policy, may_widen, title)
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
    for column in batch:
        name, where = column["name"], f"{path}.{column['name']}".strip(".")
        known = fields.get(name.lower())
        adding = changes.policy.of(ChangeKind.ADD)
        if known is not None:
            kind = _grown(known["type"], column["type"], where, changes)
            fields[name.lower()] = {**known, "type": kind}
        elif adding in _FOLLOWED:
            changes.added.append(where)
            fields[name.lower()] = as_field(name, nullable(column["type"]))
        elif adding is Handling.REJECT:
            raise ConfigError(
                problem="The table lacks the column, and schema.evolution.add is reject.",
                fix="Drop the field with a transform, add the column, or set "
                "schema.evolution.add.",
                field=where,
            )
        if name.lower() in fields:
            names[name] = fields[name.lower()]["name"]
    return list(fields.values()), names


def _grown(table: Json, batch: Json, path: str, changes: _Changes) -> Json:
    """Return the table's type, widened where the batch's type requires it."""
    if same(table, batch):
        return table
    if isinstance(table, str) or isinstance(batch, str):
        return _scalar(table, batch, path, changes)
    if table["type"] != batch["type"]:
        raise _apart(table, batch, path, changes)
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
        raise _apart(table, batch, path, changes)
    if changes.policy.of(ChangeKind.WIDEN) not in _FOLLOWED:
        raise _apart(table, batch, path, changes)
    changes.widened.append(path)
    return batch


def _apart(table: Json, batch: Json, path: str, changes: _Changes) -> ConfigError:
    fix = "Cast the field with a transform."
    if widens(table, batch) and not changes.may_widen:
        fix = (
            "Cast the field with a transform, or enable type widening with Spark: ALTER "
            f"TABLE delta.`{changes.title}` SET TBLPROPERTIES ('delta.enableTypeWidening' = "
            "'true'). The sink's table.properties apply to new tables only."
        )
    return ConfigError(
        problem=f"The column {path} of the table {changes.title} is {ddl(table)}, which cannot "
        f"hold {ddl(batch)}.",
        fix=fix,
        field=path,
    )


_POSITION = "__headrace_position"
_LAST = "__headrace_last"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a batch, before they are fitted to the table.

    Maps each name to its SQL over the record columns, and to its type as Spark's JSON.
    """

    sources: Mapping[str, str]
    kinds: Mapping[str, Json]

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as the fields of a StructType in Spark's JSON."""
        return [as_field(name, kind) for name, kind in self.kinds.items()]

    def select(self, fit: Fit) -> list[str]:
        """Return the SQL of the written columns, with the table's types and names."""
        return [
            f"{moved(self.sources[name], self.kinds[name], fit.type_of(to))} AS {quote(to)}"
            for name, to in fit.names.items()
        ]


def columns_of(
    frame: DataFrame,
    batch: SinkBatch,
    keys: Mapping[str, str],
    selection: TableSelection | None = None,
) -> Columns:
    """Return the columns of a frame of records: those of the value and those of the key.

    A value that is not a struct is one column, ``value``. ``keys`` maps each key column to its
    source field. ``selection`` contains the columns that mapping rules select; None for the
    value's fields unchanged.
    """
    kinds = _kinds(frame)
    if selection is not None:
        named = [f"{each.sql} AS {quote(each.name)}" for each in selection.columns]
        made = _kinds(selected(frame, named))
        of_value = {each.name: (each.sql, made[each.name]) for each in selection.columns}
    else:
        of_value = _members("value", kinds["value"], batch.schema)
        if batch.columns:
            of_value = {n: (batch.field_sql(n), kind) for n, (_, kind) in of_value.items()}
    of_key = {
        name: _key_sql(name, source, batch, kinds, of_value) for name, source in keys.items()
    }
    plain = [name for name, (sql, _) in of_key.items() if sql == "key"]
    if len(plain) > 1:
        raise ConfigError(
            problem=f"The record's key is a single value and cannot be {', '.join(plain)}.",
            fix="Name fields of the value, and at most one name for the record's key.",
            field="key.fields",
        )
    for column in selection.columns if selection is not None else ():
        if column.cast is not None and column.name in of_key:
            sql, kind = of_key[column.name][0], of_value[column.name][1]
            if sql != of_value[column.name][0]:
                of_key[column.name] = f"CAST({sql} AS {column.cast})", kind
    only_key = {name: source for name, source in of_key.items() if name not in of_value}
    # A tombstone has its key in the record's key only.
    sources = {**only_key, **of_value, **of_key}
    return Columns(
        {name: sql for name, (sql, _) in sources.items()},
        {name: kind for name, (_, kind) in sources.items()},
    )


def _kinds(frame: DataFrame) -> dict[str, Json]:
    return {f["name"]: f["type"] for f in frame.schema.jsonValue()["fields"]}


def check_names(schema: Schema) -> None:
    """Raise SinkError if fields of a struct differ only in case: Delta ignores the case."""
    if schema.type is Type.STRUCT and schema.field(DELETED) is not None:
        raise SinkError(
            problem=f"The field name {DELETED} is reserved for an internal column of Headrace.",
            fix="Rename it with the transform ReplaceField.",
        )
    for struct in schema.walk():
        known: dict[str, str] = {}
        for name in (each.name for each in struct.fields):
            other = known.setdefault(name.lower(), name)
            if other != name:
                raise SinkError(
                    problem=f"The fields {other} and {name} differ in case only, and Delta "
                    "ignores the case of names.",
                    fix="Rename one of them with the transform ReplaceField.",
                )


NO_KEY = (
    "Set key.fields for the table in a rule of table.mapping, exclude it by table.exclude.list "
    "of the source, or set mode to append. The sink's key.fields apply to all tables."
)
"""The fix for a table without a known key."""


def key_sources(
    batch: SinkBatch, configured: Sequence[str], target: TargetTable
) -> dict[str, str]:
    """Return the key's columns in the table, each with its source field.

    If neither the rules nor the settings name key columns, the fields of the record's key are
    used, else the primary key of the source table.

    Raises ConfigError if there is no key at all.
    """
    if named := target.key_fields or configured:
        return {name: target.source_of(name) for name in named}
    names: Sequence[str] = primary_key(batch.schema)
    if batch.key_schema is not None and batch.key_schema.type is Type.STRUCT:
        names = [member.name for member in batch.key_schema.fields]
    if not names:
        raise ConfigError(
            problem=f"The records of {batch.topic} have no key fields to identify the rows to "
            "update.",
            fix=NO_KEY,
            field="key.fields",
        )
    return {target.columns.rename.get(name, name): name for name in names}


def last_of_each_key(
    frame: DataFrame, columns: Sequence[str], keys: Sequence[str]
) -> DataFrame:
    """Return the last record of each key, by position, as rows with the column ``DELETED``.

    ``columns`` is the SQL of the table's columns, named; ``keys`` are names among these.
    """
    rows = frame.selectExpr(*columns, f"value IS NULL AS {DELETED}", f"position AS {_POSITION}")
    quoted = [quote(name) for name in keys]
    rest = [quote(name) for name in rows.columns if name not in {*keys, _POSITION}]
    newest = f"max_by(struct({', '.join(rest)}), {_POSITION}) AS {_LAST}"
    return rows.groupBy(*quoted).agg(F.expr(newest)).selectExpr(*quoted, f"{_LAST}.*")


def _key_sql(
    name: str,
    source: str,
    batch: SinkBatch,
    kinds: Mapping[str, Json],
    of_value: Mapping[str, tuple[str, Json]],
) -> tuple[str, Json]:
    """Return the SQL and type of a key column, from the record's key or else its value."""
    if batch.key_schema is not None:
        in_key = _members("key", kinds["key"], batch.key_schema)
        if source in in_key:
            return in_key[source]
        if batch.key_schema.type is not Type.STRUCT and name not in of_value:
            return "key", kinds["key"]
    if name in of_value:
        return of_value[name]
    raise ConfigError(
        problem=f"Neither the key nor the value of the records has a field {name}.",
        fix=f"The value has: {', '.join(of_value) or 'no fields'}.",
        field="key.fields",
    )


def _members(column: str, kind: Json, schema: Schema) -> dict[str, tuple[str, Json]]:
    if schema.type is not Type.STRUCT or isinstance(kind, str):
        return {column: (column, kind)}
    return {f["name"]: (f"{column}.{quote(f['name'])}", f["type"]) for f in kind["fields"]}


_PREFIX = "delta.constraints."
_INVARIANTS = "delta.invariants"
_COLUMN_SQL = {"delta.generationExpression", "CURRENT_DEFAULT"}
# Strings, quoted names, words, numbers, and any other character.
_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|[A-Za-z_]\w*|\d[\w.]*|.""",
    re.DOTALL,
)
_NOT_A_COLUMN = re.compile(r"\s*[('\"]")
"""After a word: the word is a function, or the type of a literal."""


def broken_constraints(
    frame: DataFrame,
    columns: Columns,
    fit: Fit,
    properties: Mapping[str, str],
    *,
    merges: bool,
) -> Iterator[Refusal]:
    """Yield conditions for records that violate a constraint of the table. Runs no job.

    A constraint that cannot be evaluated on the records is left to Delta, which then refuses
    the whole batch. With ``merges``, columns that are not written may already have values.
    Raises ConfigError if the table's SQL accesses data outside its records.
    """
    for place, sql in _sql_of(fit.fields, properties):
        if problem := foreign(sql):
            raise ConfigError(
                problem=f"{place} of the table: {problem}",
                fix="Remove it from the table, or write to another table.",
                field="path",
            )
    sources = {
        to.lower(): f"({moved(columns.sources[name], columns.kinds[name], fit.type_of(to))})"
        for name, to in fit.names.items()
    }
    for column in fit.fields if not merges else ():
        sources.setdefault(column["name"].lower(), f"CAST(NULL AS {ddl(column['type'])})")
    for name, check in properties.items():
        if not name.startswith(_PREFIX):
            continue
        # Delta treats a constraint that evaluates to null as violated.
        broken = f"(value IS NOT NULL AND NOT coalesce({_over(check, sources)}, false))"
        try:
            frame.selectExpr(broken)
        except AnalysisException:
            continue
        constraint = name.removeprefix(_PREFIX)
        yield Refusal(
            condition=broken,
            problem=f"A record violates the table's constraint {constraint}: {check}.",
            fix="Fix or filter such records with a transform, or drop the constraint.",
        )


def _sql_of(
    fields: Sequence[Mapping[str, Any]], properties: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the name and the SQL of each expression that Delta runs on writes to the table."""
    for each in (properties, *_metadata(list(fields))):
        for name, value in each.items():
            if name == _INVARIANTS:
                yield name, str(json.loads(value)["expression"]["expression"])
            elif name.startswith(_PREFIX) or name in _COLUMN_SQL:
                yield name, str(value)


def _metadata(part: object) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of columns at any depth of a schema, as Spark's JSON has it."""
    if isinstance(part, dict):
        yield part.get("metadata") or {}
        yield from _metadata([value for key, value in part.items() if key != "metadata"])
    elif isinstance(part, list):
        for each in part:
            yield from _metadata(each)


def _over(check: str, sources: Mapping[str, str]) -> str:
    """Return a constraint with each column name replaced by the column's SQL."""
    found, before = [], ""
    for token in _TOKEN.finditer(check):
        text = token.group()
        name = text[1:-1].replace("``", "`") if text.startswith("`") else text
        source = sources.get(name.lower()) if text[0].isalpha() or text[0] in "_`" else None
        is_column = before != "." and not _NOT_A_COLUMN.match(check, token.end())
        found.append(source if source is not None and is_column else text)
        before = text.strip() or before
    return f"({''.join(found)})"
