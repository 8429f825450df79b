"""Turns changes into rows: the state that each change leads to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, Type, UnfitRecordError, ValueExpr
from headrace.sdk.config import Importance, Settings, ValidString, setting
from headrace.sdk.schema import VARIANT, primary_key
from headrace.sdk.sqltext import literal, quote, sql_null, sql_type
from headrace_plugins.kafka_compat.headers import header_sql, with_headers

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sdk import RecordExpr
    from headrace.sdk.config import Config
    from headrace.sdk.keyed_rows import KeyedRows
    from headrace.sdk.struct_exprs import Column

_MODES = ("delete-to-tombstone", "drop", "tombstone", "rewrite", "rewrite-with-tombstone")
_REWRITING = _MODES[3:]
_KEEPING = ("tombstone", "rewrite-with-tombstone")


# What a change without a row before has in its place.
_NOTHING = ("NULL", Schema.string())
# The fields of Headrace's contract and of Debezium's envelope, but op.
_ENVELOPE = ("before", "after", "source", "ts", "ts_ms", "ts_us", "ts_ns", "transaction")
_DELETES = "('d', 'del', 'delete', 'deleted')"
_TRUNCATES = "('t', 'truncate', 'truncated')"


class UnwrapSettings(Settings):
    """The settings of ``Unwrap``."""

    delete_tombstone_handling_mode: str = setting(
        "What becomes of deletions. delete-to-tombstone: a record without value, "
        "and tombstones that come are dropped, as each deletion makes one. drop: both "
        "are dropped. tombstone: deletions are dropped, tombstones stay. rewrite: the "
        "row before stays, marked as deleted (a soft delete), and tombstones are "
        "dropped. rewrite-with-tombstone: the same, and tombstones stay.",
        default="delete-to-tombstone",
        validator=ValidString(*_MODES),
        importance=Importance.HIGH,
    )
    deleted_field: str = setting(
        "For both forms of rewrite: the field that says, as the text true or "
        "false, whether the row was deleted.",
        default="__deleted",
    )
    route_by_field: str = setting(
        "The field of the row whose value is the topic that the record goes to; of "
        "a deletion, the row before has it. Empty: the topic stays.",
        default="",
    )
    add_fields: tuple[str, ...] = setting(
        "Metadata to add to the row, such as op, ts, source.table or lsn; a name "
        "alone is looked for in the change, then in its source. name:new renames it.",
        default=(),
        importance=Importance.MEDIUM,
    )
    add_fields_prefix: str = setting("What the names of added fields begin with.", default="__")
    add_headers: tuple[str, ...] = setting(
        "Metadata to add as headers, named as in add.fields.", default=()
    )
    add_headers_prefix: str = setting(
        "What the names of added headers begin with.", default="__"
    )


class Unwrap(Transform):
    """Replaces a change (before, after, op, source, ts) by the row after it.

    It takes Headrace's contract ``change`` and Debezium's envelope. ``op`` is c, r, u, d or t,
    or a word such as insert, update, delete or truncate; a truncation has no row and is
    dropped. All else passes unchanged: tombstones, but where they are dropped, and records
    that are not changes, also beside changes in one stream. A record without a key gets the
    primary key that came with its rows, as deletions would else say nothing. A change has an
    ``op`` and one more of ``before``, ``after``, ``source``, ``ts``, ``ts_ms`` or
    ``transaction``; one that is not a deletion or a truncation and has no row after it is
    rejected.
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
            return self._rejecting(shape, some, "The field after is a row in some records only")
        if found["after"][1].type is not Type.STRUCT:
            return shape
        after = value.columns().get("after")
        if after is not None and after != found["after"]:
            text = "The field after is a text, not a row"
            shape = self._rejecting(shape, f"{after[0]} IS NOT NULL", text)
        change = _Change.of(value, found)
        shape = self._rejecting(
            shape,
            f"{change.sql} AND NOT {change.deletes} AND NOT {change.truncates} "
            f"AND {change.after[0]} IS NULL",
            "The change is not a deletion and has no row after it",
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
        from headrace.sdk.keyed_rows import KeyedRows  # noqa: PLC0415 - brings pyarrow

        keys = tuple(primary_key(members["after"]))
        return KeyedRows(keys, _rows_of_changes) if keys else None

    def _rejecting(self, shape: RecordExpr, condition: str, text: str) -> RecordExpr:
        return self.rejecting(shape, condition, literal(text))

    def _routed(self, shape: RecordExpr, change: _Change) -> RecordExpr:
        """Send rows to the topic that one of their fields names; all else stays."""
        name = self.settings.route_by_field
        after, before = (
            f"CAST({sql}.{quote(name)} AS STRING)" if _has(schema, name) else "NULL"
            for sql, schema in (change.after, change.before)
        )
        if not _has(change.after[1], name):
            where = f"({change.sql} OR {shape.value.is_null()})"
            raise UnfitRecordError(message=f"{name} is not a valid field name", where=where)
        topic = f"IF({change.deletes}, {before}, {after})"
        message = literal(f"The field {name}, which names the topic, is null")
        shape = self.rejecting(shape, f"{change.sql} AND {topic} IS NULL", message)
        return replace(shape, topic=f"IF({change.sql}, {topic}, {shape.topic})")

    def _row(
        self, value: ValueExpr, found: dict[str, Column], change: _Change
    ) -> dict[str, Column]:
        """Return the columns of the row that a change leads to, and what is added to it."""
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
        """Return the value after the step: rows of changes, and the other records as they are.

        The records of a stream share one schema: where there can be records that are not
        changes, the fields of these are beside those of the rows.
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
        # A struct has at least one field; where no row is known, all are null anyway.
        return shape, plain.with_fields(merged or value.columns())

    def _without_lost(
        self, shape: RecordExpr, lost: dict[str, Column], change: _Change
    ) -> RecordExpr:
        """Reject records that are not changes and hold what the rows have no place for."""
        names = [f"IF({sql} IS NULL, NULL, {literal(name)})" for name, (sql, _) in lost.items()]
        held = f"concat_ws(', ', {', '.join(names)})"
        alone = f"NOT {change.sql} AND NOT {shape.value.is_null()} AND {held} <> ''"
        message = (
            "concat('The record is not a change, but its stream has changes, whose rows have "
            f"no place for its ', {held})"
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
    """Which records are changes, as SQL conditions that are never null.

    Args:
        others: Fields that records which are not changes cannot keep; None where each record
            with a value is a change, as the schema says so.
    """

    sql: str
    deletes: str
    truncates: str
    before: Column
    after: Column
    others: frozenset[str] | None = None

    @classmethod
    def of(cls, value: ValueExpr, found: dict[str, Column]) -> _Change:
        """Tell changes from other records by what their fields hold."""
        op, schema = found["op"]
        others = None
        sql = f"(NOT {value.is_null()})"
        if schema.optional or value.schemaless:
            # Plain JSON has one schema for changes and for all else.
            others = frozenset(("op", *_ENVELOPE))
            rest = (f"{found[name][0]} IS NOT NULL" for name in _ENVELOPE if name in found)
            sql = f"({op} IS NOT NULL AND ({' OR '.join(rest)}))"
        word = f"lower({op})"
        deletes = f"coalesce({sql} AND {word} IN {_DELETES}, false)"
        truncates = f"coalesce({sql} AND {word} IN {_TRUNCATES}, false)"
        before = found.get("before", _NOTHING)
        return cls(sql, deletes, truncates, before, found["after"], others)


def _key(key: ValueExpr, change: _Change) -> ValueExpr:
    """Return the key of the row that changes; the record's own where it has one.

    Rows of a database say which of their fields it is. Without it nothing tells which row a
    deletion is of, whose value is dropped.
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
    import pyarrow as pa  # noqa: PLC0415 - what checks a definition does without
    import pyarrow.compute as pc  # noqa: PLC0415 - the same

    from headrace.sdk.keyed_rows import DELETED, NotKeyedError  # noqa: PLC0415 - the same

    op, before, after = (changes.column(name) for name in ("op", "before", "after"))
    ops = set(pc.unique(op).to_pylist())
    # Choosing copies all values, so it is done only where there is a choice.
    some = "d" in ops
    deleted = pc.equal(op, "d") if some else pa.repeat(pa.scalar(value=False), len(op))
    row = pc.if_else(deleted, before, after) if some else after
    if row.null_count or not ops <= {"c", "r", "u", "d"}:
        raise NotKeyedError
    return pa.RecordBatch.from_struct_array(row).append_column(DELETED, deleted)


def _completed(value: ValueExpr) -> dict[str, Column]:
    """Return the fields of a change, with the row after it also where none was seen.

    Plain JSON says nothing of what is null in all records so far, as after deletions alone.
    """
    found = value.columns()
    before, after = found.get("before", _NOTHING), found.get("after", _NOTHING)
    # A source that infers types once for its stream takes what is only null for a text.
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
