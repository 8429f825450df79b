"""The catalog of a MySQL server, and the schemas of its types."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from headrace.sdk import Schema
from headrace.sdk.schema import MAX_PRECISION
from headrace_plugins.databases.catalog import Column, Table, TableName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace_plugins.databases.database import Session

COLLATE = " COLLATE "
"""Separates a column's type from a collation that differs from the database's."""
_SCHEMAS: Mapping[str, Schema] = {
    "tinyint": Schema.int8(),
    "smallint": Schema.int16(),
    "mediumint": Schema.int32(),
    "int": Schema.int32(),
    "bigint": Schema.int64(),
    "tinyint unsigned": Schema.int16(),
    "smallint unsigned": Schema.int32(),
    "mediumint unsigned": Schema.int32(),
    "int unsigned": Schema.int64(),
    "bigint unsigned": Schema.decimal(0, precision=20),
    "year": Schema.int16(),
    "float": Schema.float32(),
    "double": Schema.float64(),
    "date": Schema.date(),
    "time": Schema.time(),
    "datetime": Schema.local_timestamp(),
    "timestamp": Schema.timestamp(),
    **dict.fromkeys(
        (
            *("bit", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
            *("vector", "geometry", "point", "linestring", "polygon", "multipoint"),
            *("multilinestring", "multipolygon", "geometrycollection", "geomcollection"),
        ),
        Schema.bytes(),
    ),
}
"""Schemas by type name; all other types are read as the server's text."""
_FIELD_TYPES: Mapping[int, str] = dict(
    [
        *((0, "decimal"), (246, "decimal"), (4, "float"), (5, "double"), (16, "bit")),
        *((1, "tinyint"), (2, "smallint"), (3, "int"), (8, "bigint"), (9, "mediumint")),
        *((10, "date"), (14, "date"), (11, "time"), (7, "timestamp"), (12, "datetime")),
        *((13, "year"), (245, "json"), (255, "geometry")),
    ]
)
"""The types of result columns by protocol number; all others are text or bytes."""
_UNSIGNED, _NOT_NULL = 32, 1
_BINARY_CHARSET, _BYTES_OF_A_SIGN, _LONGEST_VARCHAR = 63, 4, 16_383

_NOT_FIXED = 31
"""The scale of a float without a fixed number of digits."""
_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?( unsigned)?")

_NAMES_OF = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
  AND table_name NOT LIKE 'headrace!_%%' ESCAPE '!'
ORDER BY 1, 2"""
_SIZES_OF = """
SELECT t.table_name, t.table_rows, t.data_length,
  CASE WHEN e.transactions = 'YES' THEN '' ELSE coalesce(t.engine, '') END
FROM information_schema.tables t
LEFT JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_schema = %s AND t.table_name IN ({marks})"""
_COLUMNS_OF = """
SELECT c.table_name, c.column_name, c.column_type, c.is_nullable = 'YES', c.column_default,
  c.extra, c.generation_expression, c.collation_name, s.default_collation_name
FROM information_schema.columns c
JOIN information_schema.schemata s ON s.schema_name = c.table_schema
WHERE c.table_schema = %s AND c.table_name IN ({marks})
ORDER BY c.table_name, c.ordinal_position"""
_KEYS_OF = """
SELECT table_name, index_name, column_name, nullable = 'YES' OR sub_part IS NOT NULL
FROM information_schema.statistics
WHERE non_unique = 0 AND table_schema = %s AND table_name IN ({marks})
ORDER BY table_name, index_name, seq_in_index"""
_PARENTS_OF = """
SELECT table_name, unique_constraint_schema, referenced_table_name
FROM information_schema.referential_constraints
WHERE constraint_schema = %s AND table_name IN ({marks})"""

# MariaDB's type of a compressed column: `text /*M!100301 COMPRESSED*/`.
_COMMENT = re.compile(r"\s*/\*M?!\d+ [^*]*\*/\Z")


def tables_of(session: Session, database: str) -> list[TableName]:
    """Return the tables of a database without the sink's own."""
    return sorted(TableName(*row) for row in session.rows(_NAMES_OF, [database]))


def describe_tables(session: Session, database: str, names: Sequence[str]) -> list[Table]:
    """Return the catalog's description of tables; names match case-insensitively."""

    def rows(query: str) -> list[tuple[Any, ...]]:
        marks = ", ".join(["%s"] * len(names))
        return session.rows(query.format(marks=marks), [database, *names])

    columns = defaultdict[str, list[Column]](list)
    for table, name, text, is_optional, default, extra, made_by, collation, usual in rows(
        _COLUMNS_OF
    ):
        # The catalog writes ? for a character of an ENUM that its character set lacks.
        type_ = "longtext" if "?" in text else _COMMENT.sub("", text)
        # A join with a table of another collation fails, or uses no index.
        suffix = "" if collation in {None, usual} else f"{COLLATE}{collation}"
        columns[table].append(
            column_of(
                name,
                f"{type_}{suffix}",
                is_optional=bool(is_optional),
                # MariaDB writes NULL as the default of a column without a default.
                has_default=default not in {None, "NULL"} or "auto_increment" in extra,
                generated=bool(made_by),
            )
        )
    indexes = defaultdict[str, dict[str, list[str]]](dict)
    partial = set[tuple[str, str]]()
    for table, index, name, is_partial in rows(_KEYS_OF):
        indexes[table].setdefault(index, []).append(name)
        if is_partial or name is None:  # a part of a value, or an expression
            partial.add((table, index))
    parents = defaultdict[str, list[TableName]](list)
    for table, *parent in rows(_PARENTS_OF):
        parents[table].append(TableName(*parent))
    sizes = {table: facts for table, *facts in rows(_SIZES_OF)}
    return [
        Table(
            name=TableName(database, table),
            columns=tuple(found),
            key=tuple(indexes[table].get("PRIMARY", ())),
            unique=tuple(
                tuple(parts)
                for index, parts in indexes[table].items()
                if (table, index) not in partial
            ),
            rows=sizes[table][0],
            size_bytes=sizes[table][1],
            parents=tuple(parents[table]),
            untransactional=sizes[table][2],
        )
        for table, found in columns.items()
    ]


def column_of(name: str, type_: str, *, is_optional: bool, **flags: bool) -> Column:
    """Return a column from the catalog's text of its type; ``flags`` are those of Column."""
    schema = _schema(type_).replaced(optional=is_optional)
    return Column(name=name, type=type_, schema=schema, **flags)


def result_column(field: Any) -> Column:
    """Return a result column from PyMySQL's field descriptor packet."""
    is_optional = not field.flags & _NOT_NULL
    return column_of(field.name, _field_type(field), is_optional=is_optional)


def _schema(type_: str) -> Schema:
    found = _TYPE.match(type_)
    if found is None:
        return Schema.string()
    base, size, scale, unsigned = found.groups()
    if base == "decimal":
        if int(size) > MAX_PRECISION:
            return Schema.string()
        return Schema.decimal(int(scale or 0), precision=int(size))
    if base == "bit" and int(size) == 1:
        return Schema.boolean()
    plain = _SCHEMAS.get(base, Schema.string())
    return _SCHEMAS.get(f"{base}{unsigned or ''}", plain)


def _field_type(field: Any) -> str:
    """Return the type of a result column in the catalog's format."""
    name, size, scale = _FIELD_TYPES.get(field.type_code), field.length, field.scale
    unsigned = " unsigned" if field.flags & _UNSIGNED else ""
    if name is None:
        is_binary = field.charsetnr == _BINARY_CHARSET
        size = size if is_binary else size // _BYTES_OF_A_SIGN
        if size > _LONGEST_VARCHAR:
            return "longblob" if is_binary else "longtext"
        return f"varbinary({size})" if is_binary else f"varchar({size})"
    if name == "decimal":
        digits = size - (scale > 0) - (not unsigned)
        return f"decimal({digits},{scale}){unsigned}"
    if name == "bit":
        return f"bit({size})"
    if name in {"float", "double"}:
        return f"{name}({size},{scale})" if scale < _NOT_FIXED else name
    if name in {"time", "datetime", "timestamp"}:
        return f"{name}({scale})" if 0 < scale <= 6 else name  # noqa: PLR2004 - microseconds
    return f"{name}{unsigned}" if name != "year" else name
