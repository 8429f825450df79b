"""Turns changes into rows: the state that each change leads to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Schema, Transform, Type, UnfitRecordError
from headrace.sdk.config import Importance, Settings, ValidString, setting
from headrace.sdk.sqltext import literal, quote, sql_null
from headrace_plugins.kafka_compat.headers import header_sql, with_headers

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.config import Config
    from headrace.sdk.struct_exprs import Column

_MODES = ("delete-to-tombstone", "drop", "tombstone", "rewrite", "rewrite-with-tombstone")
_REWRITING = _MODES[3:]
_KEEPING = ("tombstone", "rewrite-with-tombstone")


# What a change without a row before has in its place.
_NOTHING = ("NULL", Schema.string())


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

    It takes Headrace's contract ``change`` and Debezium's envelope, and lets all else pass:
    records that are not changes, and tombstones, but where they are dropped. ``op`` is c, r, u,
    d or t, or a word that begins so, such as insert, update or delete; a truncation (t) has
    no row and is dropped.
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
        if not {"op", "after"} <= set(found) or found["after"][1].type is not Type.STRUCT:
            return shape
        after = value.columns().get("after")
        if after is not None and after != found["after"]:
            text = literal("The field after is a text, not a row")
            shape = self.rejecting(shape, f"{after[0]} IS NOT NULL", text)
        mode = self.settings.delete_tombstone_handling_mode
        op = f"lower(left({found['op'][0]}, 1))"
        tombstone, delete = value.is_null(), f"coalesce({op} = 'd', false)"
        headers = self._headers(shape, found)
        row = self._row(value, found, delete, mode)
        gone = [f"coalesce({op} = 't', false)"]
        if mode not in _KEEPING:
            gone.append(tombstone)
        if mode in {"drop", "tombstone"}:
            gone.append(delete)
        shape = shape.dropping(" OR ".join(gone), self.alias)
        if self.routes:
            shape = self._routed(shape, found, delete)
        return replace(shape, value=row, headers=headers)

    def _routed(self, shape: RecordExpr, found: dict[str, Column], delete: str) -> RecordExpr:
        """Send records to the topic that a field of their row names; tombstones stay."""
        name = self.settings.route_by_field
        after, before = (
            f"CAST({sql}.{quote(name)} AS STRING)" if _has(schema, name) else "NULL"
            for sql, schema in (found["after"], found.get("before", _NOTHING))
        )
        if not _has(found["after"][1], name):
            raise UnfitRecordError(message=f"{name} is not a valid field name")
        topic = f"IF({delete}, {before}, {after})"
        missing = f"NOT {shape.value.is_null()} AND {topic} IS NULL"
        message = literal(f"The field {name}, which names the topic, is null")
        shape = self.rejecting(shape, missing, message)
        return replace(shape, topic=f"coalesce({topic}, {shape.topic})")

    def _row(
        self, value: ValueExpr, found: dict[str, Column], delete: str, mode: str
    ) -> ValueExpr:
        after, schema = found["after"]
        before, of_before = found.get("before", _NOTHING)
        columns: dict[str, Column] = {}
        for field in schema.fields:
            sql, kind = f"{after}.{quote(field.name)}", field.schema
            if mode in _REWRITING:
                there = _has(of_before, field.name)
                old = f"{before}.{quote(field.name)}" if there else "NULL"
                sql, kind = f"IF({delete}, {old}, {sql})", kind.replaced(optional=True)
            columns[field.name] = sql, kind
        if mode in _REWRITING:
            deleted = f"IF({delete}, 'true', 'false')"
            columns[self.settings.deleted_field] = deleted, Schema.string()
        prefix = self.settings.add_fields_prefix
        for text in self.settings.add_fields:
            name, (sql, kind) = self._metadata(text, found)
            columns[prefix + name] = sql, kind.replaced(optional=True)
        missing = value.is_null()
        if mode not in _REWRITING:
            missing = f"({missing} OR {after} IS NULL)"
        plain = replace(value, schema=schema.replaced(optional=True), missing=missing)
        return plain.with_fields(columns)

    def _headers(self, shape: RecordExpr, found: dict[str, Column]) -> str:
        prefix = self.settings.add_headers_prefix
        added = []
        for text in self.settings.add_headers:
            name, (sql, kind) = self._metadata(text, found)
            value = f"to_json({sql})" if kind.type is Type.STRUCT else sql
            added.append(header_sql(prefix + name, value, "string"))
        return with_headers(shape.headers, added) if added else shape.headers

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


def _completed(value: ValueExpr) -> dict[str, Column]:
    """Return the fields of a change, with the row after it also where none was seen.

    Plain JSON says nothing of what is null in all records so far, as after deletions alone.
    """
    found = value.columns()
    before, after = found.get("before", _NOTHING), found.get("after", _NOTHING)
    unknown = value.schemaless and after[1] in (_NOTHING[1], Schema.string(optional=True))
    if not unknown or before[1].type is not Type.STRUCT:
        return found
    row = before[1].replaced(optional=True)
    return {**found, "after": (sql_null(row), row)}


def _has(schema: Schema, name: str) -> bool:
    return schema.type is Type.STRUCT and schema.field(name) is not None
