"""Records as SQL expressions: their keys and values, and the record as a whole."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.sdk.errors import UnfitRecordError
from headrace.sdk.schema import Schema, Type
from headrace.sdk.sqltext import FieldPath, literal, quote
from headrace.sdk.struct_exprs import (
    Change,
    Column,
    Columns,
    Edit,
    defaulted,
    duplicate,
    edited,
    grown,
    kept,
    member,
    rebuilt,
    struct_sql,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


_MAP = Type.MAP
_NULL = "NULL"


@dataclass(frozen=True)
class ValueExpr:
    """The key or the value of a record (a part), as SQL expressions.

    The methods that take paths work at any depth: they rebuild structs, leave a null
    struct null, and ignore a path that does not exist. All return a new part.

    Args:
        schema: The part's schema; None if records have no such part.
        fields: For a STRUCT, the SQL expression of each field, in schema order.
        whole: For any other type, the SQL expression of the value; also for a STRUCT whose
            fields are all unchanged.
        missing: The SQL condition under which the whole part is null; None if it never is. The
            condition itself is never null.
        schemaless: Whether the value has no schema of its own, and ``schema`` was only
            inferred. Transforms then treat it like Kafka Connect's treat a Map. Values of a
            source that declares its schema, or infers it once for the stream, have a schema.
    """

    schema: Schema | None
    fields: Mapping[str, str] = field(default_factory=dict)
    whole: str = _NULL
    missing: str | None = None
    schemaless: bool = False

    @classmethod
    def of(cls, sql: str, schema: Schema, *, schemaless: bool = False) -> ValueExpr:
        """Create a part from one expression, which is repeated for each field of a STRUCT."""
        if schema.type is not Type.STRUCT:
            return cls(schema, whole=sql, schemaless=schemaless)
        fields = {f.name: f"{sql}.{quote(f.name)}" for f in schema.fields}
        missing = f"({sql} IS NULL)" if schema.optional else None
        return cls(schema, fields, sql, missing=missing, schemaless=schemaless)

    @classmethod
    def of_fields(cls, columns: Columns, *, schemaless: bool = False) -> ValueExpr:
        """Create a STRUCT part from these fields; it is never null and has no schema name."""
        schema = Schema.struct({name: column[1] for name, column in columns.items()})
        fields = {name: column[0] for name, column in columns.items()}
        return cls(schema, fields, schemaless=schemaless)

    @property
    def is_struct(self) -> bool:
        """Return whether the part has fields."""
        return self.schema is not None and self.schema.type is Type.STRUCT

    @property
    def is_map(self) -> bool:
        """Return whether the part is a schemaless MAP, whose entries are treated as fields."""
        return self.schemaless and self.schema is not None and self.schema.type is _MAP

    def is_null(self) -> str:
        """Return the SQL condition, never null, under which the whole part is null."""
        if self.schema is None:
            return "true"
        if self.is_struct:
            return self.missing or "false"
        return f"({self.sql()} IS NULL)"

    def with_fields(self, columns: Columns) -> ValueExpr:
        """Return a STRUCT part with the fields ``name -> (expression, schema)``.

        A struct keeps its name, version, doc and parameters, as in Kafka Connect; it loses
        its default, which would no longer fit.
        """
        schemas = {name: column[1] for name, column in columns.items()}
        if self.is_struct and self.schema is not None:
            schema = self.schema.with_fields(schemas)
        else:
            optional = self.schema.optional if self.schema else False
            schema = Schema.struct(schemas, optional=optional)
        fields = {name: column[0] for name, column in columns.items()}
        return replace(self, schema=schema, fields=fields, whole=_NULL)

    def with_expressions(self, fields: Mapping[str, str], missing: str | None) -> ValueExpr:
        """Return the same STRUCT with other expressions for its fields."""
        return replace(self, fields=fields, whole=_NULL, missing=missing)

    def with_whole(self, sql: str, schema: Schema) -> ValueExpr:
        """Return a part of a type other than STRUCT that is null where this part is."""
        optional = schema.optional or self.missing is not None
        return replace(self, schema=schema.replaced(optional=optional), fields={}, whole=sql)

    def columns(self) -> dict[str, Column]:
        """Return ``name -> (expression, schema)`` of a STRUCT part."""
        if not self.is_struct or self.schema is None:
            return {}
        return {f.name: (self.fields[f.name], f.schema) for f in self.schema.fields}

    def sql(self) -> str:
        """Return the whole part as one SQL expression."""
        if self.schema is None:
            return "NULL"
        # Spark would expand a rebuilt struct of n fields n times, and again for everything
        # built from it. So ValueExpr.of keeps the expression of an unchanged struct.
        is_new = self.is_struct and self.whole == _NULL
        whole = struct_sql(self.columns()) if is_new else self.whole
        if self.missing is None or self.missing == f"({whole} IS NULL)":
            return whole
        return f"IF({self.missing}, NULL, {whole})"

    def defaulted(self) -> ValueExpr:
        """Return a part in which null top-level fields are replaced by their defaults.

        This is ``replace.null.with.default``, and the behavior of Kafka Connect's
        ``Struct.get``. Values without a schema have no defaults.
        """
        if self.schemaless or not any(
            c[1].default is not None for c in self.columns().values()
        ):
            return self
        fields = {name: defaulted(column)[0] for name, column in self.columns().items()}
        return self.with_expressions(fields, self.missing)

    def find(self, path: FieldPath, *, defaults: bool = False) -> Column | None:
        """Return a field's expression and schema; None if there is no such field.

        The field is optional if any struct around it is. A null struct on the path is replaced
        by its default, as in Kafka Connect. With ``defaults``, a null field is replaced by its
        own default, unless its struct is null. Raises UnfitRecordError: a value on the path has
        no fields.
        """
        with self._present():
            around, column = self._at(path)
        if column is None or not defaults or self.schemaless or column[1].default is None:
            return column
        sql, schema = defaulted(column)
        if around is not None and around[1].optional:
            sql = f"IF({around[0]} IS NULL, NULL, {sql})"
        return sql, schema

    def _at(self, path: FieldPath) -> tuple[Column | None, Column | None]:
        """Return the column that contains a field (None at the top), and the field."""
        around: Column | None = None
        column = self._first(path.steps[0])
        for step in path.steps[1:]:
            if column is None:
                break
            around = column if self.schemaless else defaulted(column)
            column = member(around, step, schemaless=self.schemaless)
        return around, column

    def changed(self, changes: Mapping[FieldPath, Change]) -> ValueExpr:
        """Return a part with new expressions for some of its fields."""
        return self._edited((path, _changing(change)) for path, change in changes.items())

    def removed(self, paths: Iterable[FieldPath]) -> ValueExpr:
        """Return a part without some of its fields."""
        return self._edited((path, lambda _name, _column: None) for path in paths)

    def renamed(self, names: Mapping[FieldPath, str]) -> ValueExpr:
        """Return a part in which some fields are renamed in place.

        Raises UnfitRecordError: a name is taken, and the part has a schema.
        """
        return self._edited((path, _renaming(name)) for path, name in names.items())

    def kept(self, paths: Iterable[FieldPath]) -> ValueExpr:
        """Return a part with only some of its fields, within the structs that contain them."""
        steps = [path.steps for path in paths]
        if self.is_struct:
            return self.with_fields(kept(self.columns(), steps, schemaless=self.schemaless))
        if not self.is_map or self.schema is None:
            return self
        # Wrapped as the only field of a struct, so that the code for fields handles the map.
        column = {"": (self.whole, self.schema)}
        within = [("", *path) for path in steps]
        return self.with_whole(*kept(column, within, schemaless=True)[""])

    def inserted(self, path: FieldPath, sql: str, schema: Schema) -> ValueExpr:
        """Return a part with one more field, after its siblings.

        Raises UnfitRecordError: there is no struct at the path's parent; or the name is taken
        and the part has a schema. Without a schema the existing field is replaced.
        """
        with self._present():
            return self._inserted(path, (sql, schema))

    def _inserted(self, path: FieldPath, column: Column) -> ValueExpr:
        parent = path.parent
        edit = grown(path.name, column, schemaless=self.schemaless)
        if parent is not None:
            if self.find(parent) is None:
                text = ".".join(parent.steps)
                raise UnfitRecordError(message=f"Field does not exist: {text}")
            return self._edited([(parent, edit)])
        if not self.is_struct and self.schema is not None:
            return self.with_whole(*edit("", (self.whole, self.schema))[1])
        columns = self.columns()
        if path.name in columns and not self.schemaless:
            raise duplicate(path.name)
        return self.with_fields({**columns, path.name: column})

    @contextmanager
    def _present(self) -> Iterator[None]:
        nothing = self.is_null()
        try:
            yield
        except UnfitRecordError as error:
            if nothing == "false":
                raise
            raise UnfitRecordError(
                message=error.message,
                exception=error.exception,
                where=f"(NOT {nothing} AND {error.where})",
            ) from error

    def _first(self, step: str) -> Column | None:
        if self.schema is None:
            return None
        if not self.is_struct:
            return member((self.whole, self.schema), step, schemaless=self.schemaless)
        field = self.schema.field(step)
        if field is None:
            return None
        optional = field.schema.optional or self.missing is not None
        return self.fields[step], field.schema.replaced(optional=optional)

    def _edited(self, edits: Iterable[tuple[FieldPath, Edit]]) -> ValueExpr:
        steps = [(path.steps, edit) for path, edit in edits]
        if self.is_struct:
            with self._present():
                columns = edited(self.columns(), steps, schemaless=self.schemaless)
            return self.with_fields(columns)
        if not self.is_map or self.schema is None:
            return self
        return self.with_whole(*rebuilt((self.whole, self.schema), steps, schemaless=True))


def _changing(change: Change) -> Edit:
    def edit(name: str, column: Column) -> tuple[str, Column] | None:
        new = change(*column)
        return None if new is None else (name, new)

    return edit


def _renaming(new_name: str) -> Edit:
    return lambda _name, column: (new_name, column)


ERROR_TYPE = "struct<stage:string,plugin:string,exception:string,message:string,raw:string>"
"""Why a record was rejected: Kafka's stage name, the plugin's name, the class of the
error, its text, and the raw input if it could not be parsed into a record."""


class _Errors(str):
    """The SQL of a record's first error, with the cases that it consists of.

    A single CASE contains all errors, because its first true case wins. If each error had its
    own check for an earlier error, the text would double with each.
    """

    __slots__ = ("before", "cases")

    before: str | None
    """The column or SQL of an earlier error; None if there is none."""
    cases: str

    @classmethod
    def after(cls, before: str | None) -> _Errors:
        """Return the errors of records that may already have one."""
        return cls._of(before, "")

    @classmethod
    def _of(cls, before: str | None, cases: str) -> _Errors:
        made = cls(f"CASE{cases} ELSE {before or f'CAST(NULL AS {ERROR_TYPE})'} END")
        made.before, made.cases = before, cases
        return made

    def also(self, condition: str, error: str) -> _Errors:
        """Return these errors and one more, for records without an earlier error."""
        return self._of(self.before, f"{self.cases} WHEN {condition} THEN {error}")


@dataclass(frozen=True)
class RecordExpr:
    """The records of a stream as SQL expressions over the columns of the previous step.

    Args:
        key, value: The two parts.
        topic: STRING, never random. A literal, or an expression that Spark can compute without
            data, sends all records to one topic; otherwise each batch is divided by topic.
        partition: INT.
        headers: ``array<struct<key:string,value:string,type:string>>``.
        timestamp: TIMESTAMP.
        offset: BIGINT, the offset of the record in its topic or partition; None if there is no
            such number.
        dropped: STRING, the alias of the transform that dropped the record; None if no
            transform so far drops records.
        error: The error struct, see ``failing``; None if no step so far can fail.
        unfit: Whether an earlier step did not accept the shape and left it unchanged, so later
            steps may not accept it either.
        shared: Function calls that occur verbatim more than once in the other expressions and
            never raise: the runtime computes each once per record.
    """

    key: ValueExpr
    value: ValueExpr
    topic: str
    partition: str = "CAST(NULL AS INT)"
    headers: str = "CAST(NULL AS array<struct<key:string,value:string,type:string>>)"
    timestamp: str = "CAST(NULL AS TIMESTAMP)"
    offset: str | None = None
    dropped: str | None = None
    error: str | None = None
    unfit: bool = False
    shared: tuple[str, ...] = ()

    def dropping(self, condition: str, alias: str) -> RecordExpr:
        """Drop the records for which ``condition`` is true; ``alias`` names the transform."""
        before = self.dropped or "CAST(NULL AS STRING)"
        alive = self.alive(condition)
        return replace(
            self, dropped=f"CASE WHEN {alive} THEN {literal(alias)} ELSE {before} END"
        )

    def failing(
        self, condition: str, *, stage: str, plugin: str, exception: str, message: str
    ) -> RecordExpr:
        """Reject the records for which ``condition`` is true.

        ``message`` is an SQL expression of type STRING; the other texts are literals.
        A record keeps its first error.
        """
        struct = (
            f"named_struct('stage', {literal(stage)}, 'plugin', {literal(plugin)}, "
            f"'exception', {literal(exception)}, 'message', {message}, "
            "'raw', CAST(NULL AS STRING))"
        )
        errors = self.error if isinstance(self.error, _Errors) else _Errors.after(self.error)
        gone = [f"{column} IS NULL" for column in (self.dropped, errors.before) if column]
        return replace(self, error=errors.also(" AND ".join([*gone, f"({condition})"]), struct))

    def sharing(self, call: str | None) -> RecordExpr:
        """Compute a function call once per record, unless it is None; see ``shared``."""
        return self if call is None else replace(self, shared=(*self.shared, call))

    def alive(self, condition: str) -> str:
        """Return ``condition`` restricted to records neither dropped nor rejected."""
        gone = [f"{column} IS NULL" for column in (self.dropped, self.error) if column]
        return " AND ".join([*gone, f"({condition})"])
