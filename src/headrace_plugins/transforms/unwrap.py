"""Unwrap: replaces each change by the row that results from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, Type, UnfitRecordError, ValueExpr
from headrace.sdk.config import Importance, Settings, ValidString, setting
from headrace.sdk.schema import VARIANT, primary_key
from headrace.sdk.sqltext import literal, quote, sql_null, sql_type
from headrace_plugins.transforms.headers import header_sql, with_headers

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sdk import RecordExpr
    from headrace.sdk.config import Config
    from headrace.sdk.keyed_rows import KeyedRows
    from headrace.sdk.struct_exprs import Column

_MODES = ("delete-to-tombstone", "drop", "tombstone", "rewrite", "rewrite-with-tombstone")
_REWRITING = _MODES[3:]
_KEEPING = ("tombstone", "rewrite-with-tombstone")


# The column that stands for a missing before or after.
_NOTHING = ("NULL", Schema.string())
# The fields of Headrace's contract and of Debezium's envelope, except op.
_ENVELOPE = ("before", "after", "source", "ts", "ts_ms", "ts_us", "ts_ns", "transaction")
_DELETES = "('d', 'del', 'delete', 'deleted')"
_TRUNCATES = "('t', 'truncate', 'truncated')"


class UnwrapSettings(Settings):
    """The settings of ``Unwrap``."""

    delete_tombstone_handling_mode: str = setting(
        "How to handle deletions and tombstones. delete-to-tombstone: a deletion becomes a "
        "tombstone, and tombstones of the source are dropped. drop: both are dropped. "
        "tombstone: deletions are dropped, tombstones stay. rewrite: a deletion becomes its "
        "before row, marked as deleted (a soft delete), and tombstones are dropped. "
        "rewrite-with-tombstone: as rewrite, but tombstones stay.",
        default="delete-to-tombstone",
        validator=ValidString(*_MODES),
        importance=Importance.HIGH,
    )
    deleted_field: str = setting(
        "For rewrite and rewrite-with-tombstone: the name of the field that contains the "
        "string true or false: whether the row was deleted.",
        default="__deleted",
    )
    route_by_field: str = setting(
        "The field of the row that contains the new topic; for a deletion, the field of the "
        "before row. If empty, the topic stays.",
        default="",
    )
    add_fields: tuple[str, ...] = setting(
        "Metadata to add to the row, such as op, ts, source.table or lsn. A name without a "
        "dot is looked up in the change, then in its source. name:new renames the field.",
        default=(),
        importance=Importance.MEDIUM,
    )
    add_fields_prefix: str = setting("The prefix of the names of added fields.", default="__")
    add_headers: tuple[str, ...] = setting(
        "Metadata to add as headers, named as in add.fields.", default=()
    )
    add_headers_prefix: str = setting("The prefix of the names of added headers.", default="__")


class Unwrap(Transform):
    """Replaces a change (before, after, op, source, ts) by its after row.

    Supports Headrace's contract ``change`` and Debezium's envelope. ``op`` is c, r, u, d or t,
    or a word such as insert, update, delete or truncate. A truncation has no row and is
    dropped. Other records pass unchanged: tombstones, unless they are dropped, and records that
    are not changes, even if the stream also contains changes. A record without a key gets the
    primary key of its rows, as a deletion would otherwise not identify its row. A change has
    an ``op`` and at least one of ``before``, ``after``, ``source``, ``ts``, ``ts_ms``,
    ``ts_us``, ``ts_ns`` or ``transaction``. A change that is not a deletion or a truncation
    and has no after row is rejected.
    """

    aliases = ("io.debezium.transforms.ExtractNewRecordState",)
    parts = False

    settings: UnwrapSettings

    @override
    def __init__(self, alias: str, config: Config, *, of_key: bool = False) -> None:
        super().__init__(alias, config, of_key=of_key)
        self.routes = bool(config.get_str("route.by.field"))

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        value = shape.value
        found = _completed(value)
        if not {"op", "after"} <= set(found) or found["op"][1].type is not Type.STRING:
            return shape
        if found["after"][1].name == VARIANT:
            some = f"{found['op'][0]} IS NOT NULL AND {found['after'][0]} IS NOT NULL"
            return self._rejecting(shape, some, "The field after is a row only in some records")
        if found["after"][1].type is not Type.STRUCT:
            return shape
        after = value.columns().get("after")
        if after is not None and after != found["after"]:
            text = "The field after is a string, not a row"
            shape = self._rejecting(shape, f"{after[0]} IS NOT NULL", text)
        change = _Change.of(value, found)
        shape = self._rejecting(
            shape,
            f"{change.sql} AND NOT {change.deletes} AND NOT {change.truncates} "
            f"AND {change.after[0]} IS NULL",
            "The change has no after row, but is not a deletion",
        )
        mode = self.settings.delete_tombstone_handling_mode
        headers = self._headers(shape, found, change)
        shape, row = self._with_others(shape, self._row(value, found, change), change)
        gone = [change.truncates]
        if mode not in _KEEPING:
            gone.append(value.is_null())
        if mode in {"drop", "tombstone"}:
            gone.append(change.deletes)
        shape = shape.dropping(" OR ".join(gone), self.alias)
        if self.routes:
            shape = self._routed(shape, change)
        return replace(shape, value=row, headers=headers, key=_key(shape.key, change))

    @override
    def keyed_rows(self, value: Schema) -> KeyedRows | None:
        settings, members = self.settings, {field.name: field.schema for field in value.fields}
        if (
            settings.delete_tombstone_handling_mode != _MODES[0]
            or settings.add_fields
            or settings.add_headers
            or self.routes
            or not {"before", "after", "op"} <= set(members)
            or members["op"] != Schema.string()
            or members["before"] != members["after"]
            or any(schema.name == VARIANT for schema in value.walk())
        ):
            return None
        from headrace.sdk.keyed_rows import KeyedRows  # noqa: PLC0415 - imports pyarrow

        keys = tuple(primary_key(members["after"]))
        return KeyedRows(keys, _rows_of_changes) if keys else None

    def _rejecting(self, shape: RecordExpr, condition: str, text: str) -> RecordExpr:
        return self.rejecting(shape, condition, literal(text))

    def _routed(self, shape: RecordExpr, change: _Change) -> RecordExpr:
        """Set the topic of changes to a field of their row; other records keep theirs."""
        name = self.settings.route_by_field
        after, before = (
            f"CAST({sql}.{quote(name)} AS STRING)" if _has(schema, name) else "NULL"
            for sql, schema in (change.after, change.before)
        )
        if not _has(change.after[1], name):
            where = f"({change.sql} OR {shape.value.is_null()})"
            raise UnfitRecordError(message=f"{name} is not a valid field name", where=where)
        topic = f"IF({change.deletes}, {before}, {after})"
        message = literal(f"The field {name} of route.by.field is null")
        shape = self.rejecting(shape, f"{change.sql} AND {topic} IS NULL", message)
        return replace(shape, topic=f"IF({change.sql}, {topic}, {shape.topic})")

    def _row(
        self, value: ValueExpr, found: dict[str, Column], change: _Change
    ) -> dict[str, Column]:
        """Return the columns of the row that a change results in, and the added fields."""
        rewriting = self.settings.delete_tombstone_handling_mode in _REWRITING
        columns: dict[str, Column] = {}
        for field in change.after[1].fields:
            sql, kind = f"{change.after[0]}.{quote(field.name)}", field.schema
            if rewriting:
                there = _has(change.before[1], field.name)
                old = f"{change.before[0]}.{quote(field.name)}" if there else "NULL"
                sql = f"IF({change.deletes}, {old}, {sql})"
                kind = kind.replaced(optional=True)
            columns[field.name] = sql, kind
        if rewriting:
            deleted = f"IF({change.deletes}, 'true', 'false')"
            columns[self.settings.deleted_field] = deleted, Schema.string()
        prefix = self.settings.add_fields_prefix
        for text in self.settings.add_fields:
            name, (sql, kind) = self._metadata(text, found)
            columns[prefix + name] = sql, kind.replaced(optional=True)
        return columns

    def _with_others(
        self, shape: RecordExpr, row: dict[str, Column], change: _Change
    ) -> tuple[RecordExpr, ValueExpr]:
        """Return the value after the step: the rows of changes, and other records unchanged.

        The records of a stream share one schema: if the stream can have records that are not
        changes, the schema has the fields of the rows and of these records.
        """
        value = shape.value
        rewriting = self.settings.delete_tombstone_handling_mode in _REWRITING
        missing = value.is_null()
        if not rewriting:
            missing = f"({missing} OR ({change.sql} AND {change.after[0]} IS NULL))"
        if change.others is None:
            merged = row
        else:
            theirs = {n: c for n, c in value.columns().items() if n not in change.others}
            lost = {n: c for n, c in value.columns().items() if n in change.others}
            merged = {}
            for name, (sql, kind) in row.items():
                other = theirs.pop(name, None)
                if other is not None and sql_type(other[1]) != sql_type(kind):
                    lost[name], other = other, None
                chosen = f"IF({change.sql}, {sql}, {other[0] if other else 'NULL'})"
                merged[name] = chosen, kind.replaced(optional=True)
            for name, (sql, kind) in theirs.items():
                merged[name] = f"IF({change.sql}, NULL, {sql})", kind.replaced(optional=True)
            shape = self._without_lost(shape, lost, change)
        assert value.schema is not None
        plain = replace(
            value, schema=value.schema.replaced(optional=True), missing=missing, whole="NULL"
        )
        # A struct needs at least one field; if no row's fields are known, all rows are null.
        return shape, plain.with_fields(merged or value.columns())

    def _without_lost(
        self, shape: RecordExpr, lost: dict[str, Column], change: _Change
    ) -> RecordExpr:
        """Reject records that are not changes and have values in fields that get lost."""
        names = [f"IF({sql} IS NULL, NULL, {literal(name)})" for name, (sql, _) in lost.items()]
        held = f"concat_ws(', ', {', '.join(names)})"
        alone = f"NOT {change.sql} AND NOT {shape.value.is_null()} AND {held} <> ''"
        message = (
            "concat('The record is not a change, and the rows of the changes in its stream "
            f"have no place for its fields ', {held})"
        )
        return self.rejecting(shape, alone, message)

    def _headers(self, shape: RecordExpr, found: dict[str, Column], change: _Change) -> str:
        prefix = self.settings.add_headers_prefix
        added = []
        for text in self.settings.add_headers:
            name, (sql, kind) = self._metadata(text, found)
            value = f"to_json({sql})" if kind.type is Type.STRUCT else sql
            added.append(header_sql(prefix + name, value, "string"))
        if not added:
            return shape.headers
        headers = with_headers(shape.headers, added)
        if change.others is None:
            return headers
        return f"IF({change.sql} OR {shape.value.is_null()}, {headers}, {shape.headers})"

    def _metadata(self, text: str, found: dict[str, Column]) -> tuple[str, Column]:
        """Return the name and the column of an entry of add.fields or add.headers."""
        path, _, new = text.partition(":")
        outer, _, inner = path.rpartition(".")
        if not outer and path in found:
            return new or path, found[path]
        holder = found.get(outer or "source")
        member = holder and holder[1].field(inner)
        if holder is None or member is None:
            raise UnfitRecordError(message=f"Unable to find field: {path}")
        name = f"{outer}_{inner}" if outer else inner
        return new or name, (f"{holder[0]}.{quote(inner)}", member.schema)


@dataclass(frozen=True)
class _Change:
    """SQL conditions, never null, that select changes; and the rows of a change.

    Args:
        sql, deletes, truncates: Whether a record is a change, a deletion, a truncation.
        before, after: The columns of the two rows.
        others: Fields that records other than changes cannot keep; None if, according to the
            schema, every record with a value is a change.
    """

    sql: str
    deletes: str
    truncates: str
    before: Column
    after: Column
    others: frozenset[str] | None = None

    @classmethod
    def of(cls, value: ValueExpr, found: dict[str, Column]) -> _Change:
        """Derive the conditions from the fields of the value."""
        op, schema = found["op"]
        others = None
        sql = f"(NOT {value.is_null()})"
        if schema.optional or value.schemaless:
            # In plain JSON, changes and other records share one schema.
            others = frozenset(("op", *_ENVELOPE))
            rest = (f"{found[name][0]} IS NOT NULL" for name in _ENVELOPE if name in found)
            sql = f"({op} IS NOT NULL AND ({' OR '.join(rest)}))"
        word = f"lower({op})"
        deletes = f"coalesce({sql} AND {word} IN {_DELETES}, false)"
        truncates = f"coalesce({sql} AND {word} IN {_TRUNCATES}, false)"
        before = found.get("before", _NOTHING)
        return cls(sql, deletes, truncates, before, found["after"], others)


def _key(key: ValueExpr, change: _Change) -> ValueExpr:
    """Return the record's own key if it has one, else the primary key of the changed row.

    The schema of a database's rows names the fields of the key. A deletion loses its value,
    so without a key nothing would identify the deleted row.
    """
    names = primary_key(change.after[1])
    before = [field.name for field in change.before[1].fields]
    if key.schema is not None or not names or not set(names) <= set(before):
        return key
    columns: dict[str, Column] = {}
    for name in names:
        member = change.after[1].field(name)
        assert member is not None
        both = (f"{row[0]}.{quote(name)}" for row in (change.after, change.before))
        columns[name] = f"coalesce({', '.join(both)})", member.schema
    return ValueExpr.of_fields(columns)


def _rows_of_changes(changes: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - not needed to check a definition
    import pyarrow.compute as pc  # noqa: PLC0415 - the same

    from headrace.sdk.keyed_rows import DELETED, NotKeyedError  # noqa: PLC0415 - the same

    op, before, after = (changes.column(name) for name in ("op", "before", "after"))
    ops = set(pc.unique(op).to_pylist())
    # if_else copies all values, so skip it if there are no deletions.
    some = "d" in ops
    deleted = pc.equal(op, "d") if some else pa.repeat(pa.scalar(value=False), len(op))
    row = pc.if_else(deleted, before, after) if some else after
    if row.null_count or not ops <= {"c", "r", "u", "d"}:
        raise NotKeyedError
    return pa.RecordBatch.from_struct_array(row).append_column(DELETED, deleted)


def _completed(value: ValueExpr) -> dict[str, Column]:
    """Return the fields of a change, with an after row even if no record had one so far.

    In plain JSON, a field that is null in all records (after, if all are deletions) has no
    known type.
    """
    found = value.columns()
    before, after = found.get("before", _NOTHING), found.get("after", _NOTHING)
    # A source that infers types once for its stream infers string for a field with only nulls.
    inferred = value.schemaless or ("after" in found and after[1].optional)
    if not inferred or not _unknown(after[1]):
        return found
    if before[1].type is Type.STRUCT:
        row = before[1].replaced(optional=True)
        return {**found, "after": (sql_null(row), row)}
    if {"before", "after"} <= set(found) and _unknown(before[1]):
        return {**found, "after": (after[0], Schema.struct({}, optional=True))}
    return found


def _unknown(schema: Schema) -> bool:
    return schema.replaced(parameters={}) in (
        _NOTHING[1],
        Schema.string(optional=True),
    )


def _has(schema: Schema, name: str) -> bool:
    return schema.type is Type.STRUCT and schema.field(name) is not None
