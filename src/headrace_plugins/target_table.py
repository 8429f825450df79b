"""A table that records go to: its columns, its key, and which of the records it gets."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.sdk import ConfigError, Refusal, Schema, Type
from headrace.sdk.schema import PRIMARY_KEY, WHOLE_NUMBERS, primary_key
from headrace.sdk.sqltext import quote, sql_type
from headrace.sdk.transform import Types
from headrace_plugins.transforms.sql import over_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a target's table.

    Args:
        name: In the table.
        source: The record's field that it is made of; None for one that a rule adds.
        uncast: SQL over the columns of the frame, before ``cast``.
        schema: None for one that is added, where nobody says its type.
        cast: The type in SQL that a rule asks for, where it has another.
    """

    name: str
    source: str | None
    uncast: str
    schema: Schema | None
    cast: str | None = None

    @property
    def sql(self) -> str:
        """Its SQL over the columns of the frame."""
        return self.uncast if self.cast is None else f"CAST({self.uncast} AS {self.cast})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSelection:
    """What of the records of a stream goes into a target's table.

    Args:
        key: The columns that identify a row: those that the rule names, else those of the
            records' primary key; none where neither is known.
        condition: SQL, never null, for the records that the table gets; None for all. A record
            without a value is among them unless its id is skipped: it deletes what may be
            there.
        refusals: Conditions for records whose values do not fit a type that the rule asks
            for. Where nothing is tolerated their cast fails the job.
        is_identity: Whether the columns are the fields of the value as they are.
    """

    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    condition: str | None
    refusals: tuple[Refusal, ...]
    is_identity: bool

    @property
    def renames(self) -> Mapping[str, str] | None:
        """The field that each column is, by the column's name, if nothing is computed.

        Arrow's columns can then be copied as they are. None where one is computed or cast, or
        where not all records are taken.
        """
        if self.condition is not None:
            return None
        sources = {c.name: c.source for c in self.columns if c.cast is None}
        found = {name: source for name, source in sources.items() if source is not None}
        return found if len(found) == len(self.columns) else None

    def whole(self, value: Schema) -> Mapping[str, str] | None:
        """Return the field of each column, if the table has all records and fields as they are.

        They may be renamed. Only then can it be compared with what the records are made of.
        """
        found = self.renames
        fields = {each.name for each in value.fields} or {"value"}
        return found if found is not None and set(found.values()) == fields else None

    def schema(self, value: Schema) -> Schema:
        """Return the schema of the table's rows, with their key as its PRIMARY_KEY.

        ``value`` is that of the records. The types of all columns must be known.
        """
        if self.is_identity and self.key == primary_key(value):
            return value
        fields = {c.name: c.schema for c in self.columns if c.schema is not None}
        others = {k: v for k, v in value.parameters.items() if k != PRIMARY_KEY}
        key = {PRIMARY_KEY: json.dumps(self.key)} if self.key else {}
        whole = value if value.type is Type.STRUCT else Schema.struct(optional=value.optional)
        return whole.with_fields(fields).replaced(parameters={**others, **key})


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRules:
    """Which columns a table has, of the fields of the records.

    ``types`` go by the names of columns, all others by the names of fields.
    """

    include: tuple[str, ...] | None = None
    exclude: frozenset[str] = frozenset()
    rename: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Schema] = field(default_factory=dict)
    add: Mapping[str, str] = field(default_factory=dict)

    def names(self, fields: Iterable[str]) -> dict[str, str]:
        """Return the names of columns by those of the fields that they are made of."""
        kept = [
            name
            for name in fields
            if name not in self.exclude and (self.include is None or name in self.include)
        ]
        return {name: self.rename.get(name, name) for name in kept}

    @property
    def named(self) -> set[str]:
        """The fields that the rules name."""
        return {*(self.include or ()), *self.exclude, *self.rename}


@dataclass(frozen=True, slots=True)
class SkippedIds:
    """Ids of rows to leave out: single ones and ranges, whose ends belong to them."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, text: str, *, field: str) -> SkippedIds:
        """Read ids such as ``1,2,[10-20]``. Raises ConfigError."""
        found = []
        for part in (part.strip() for part in text.split(",")):
            ends = re.fullmatch(r"(-?\d{1,18})|\[\s*(-?\d{1,18})\s*-\s*(-?\d{1,18})\s*\]", part)
            if ends is None:
                problem = f"Invalid ids {part!r}."
                raise ConfigError(problem, field=field, fix="Write them as in 1,2,[10-20].")
            low, high = (int(each) for each in (ends[1] or ends[2], ends[1] or ends[3]))
            if low > high:
                problem = f"The range {part} is descending."
                raise ConfigError(problem, field=field, fix=f"Write [{high}-{low}].")
            found.append((low, high))
        return cls(tuple(found))

    def condition(self, sql: str) -> str:
        """Return SQL for ids that are among them, never null."""
        single = [str(low) for low, high in self.ranges if low == high]
        parts = [f"{sql} IN ({', '.join(single)})"] if single else []
        parts += [f"{sql} BETWEEN {low} AND {high}" for low, high in self.ranges if low < high]
        return f"coalesce({' OR '.join(parts)}, false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A table that the records of a stream go to.

    Args:
        name: As the rule's template gives it.
        priority: Of the streams and tables of a batch, the smaller are written first.
        key_fields: The columns that identify a row, as the rule names them; may be empty.
        place: The rule's place in the configuration, for errors; empty for none.
        rule: Its number among the rules, from 0; None where none matches.
    """

    name: str
    priority: int = 0
    key_fields: tuple[str, ...] = ()
    columns: ColumnRules = field(default_factory=ColumnRules)
    where: str | None = None
    skipped: SkippedIds | None = None
    place: str = ""
    rule: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the table gets all records as they are."""
        whole = self.where is None and self.skipped is None
        return whole and not self.key_fields and self.columns == ColumnRules()

    def source_of(self, column: str) -> str:
        """Return the field that a column is made of, if any is."""
        back = {name: source for source, name in self.columns.rename.items()}
        return back.get(column, column)

    def select(
        self,
        value: Schema,
        *,
        key: Schema | None = None,
        field_sql: Callable[[str], str] = lambda name: f"value.{quote(name)}",
        types: Types | None = None,
    ) -> TableSelection:
        """Return what of records goes into the table; no job runs.

        Fields that a rule names and the records lack are left out, as a source may gain and
        lose fields while it is read, and the table keeps what it has; ``headrace mapping``
        warns of them. Expressions over missing fields are errors.

        Args:
            value: The schema of the records' values. One that is not a STRUCT is a field
                ``value``.
            key: The schema of their keys; None where they have none.
            field_sql: Gives the SQL of a field over the frame: ``SinkBatch.field_sql``.
            types: Gives the schema of SQL expressions over the frame, as Spark sees them. None
                leaves the schemas of added columns open.

        Raises:
            ConfigError: The key's columns are not among those of the table, two columns have
                one name, none is left, or an expression cannot be understood.
        """
        fields = {f.name: f.schema for f in value.fields}
        if value.type is not Type.STRUCT:
            fields, field_sql = {"value": value}, lambda _: "value"
        names = self.columns.names(fields)
        sources = {name: field_sql(name) for name in fields}
        columns = [
            self._column(names[name], name, fields[name], sources[name]) for name in names
        ]
        columns += [
            self._added(name, text, sources, types) for name, text in self.columns.add.items()
        ]
        self._check_columns([column.name for column in columns], fields)
        return TableSelection(
            columns=tuple(columns),
            key=self._key(primary_key(value), names, [column.name for column in columns]),
            condition=self._condition(value, key, sources, types),
            refusals=tuple(filter(None, map(self._refusal, columns))),
            is_identity=names == {name: name for name in fields}
            and not self.columns.add
            and not any(column.cast for column in columns),
        )

    def _column(self, name: str, source: str, schema: Schema, sql: str) -> TableColumn:
        wanted = self.columns.types.get(name)
        if wanted is None or sql_type(wanted) == sql_type(schema):
            return TableColumn(name=name, source=source, uncast=sql, schema=schema)
        return TableColumn(
            name=name,
            source=source,
            uncast=sql,
            schema=wanted.replaced(optional=schema.optional),
            cast=sql_type(wanted),
        )

    def _added(
        self, name: str, text: str, sources: Mapping[str, str], types: Types | None
    ) -> TableColumn:
        wanted, sql = self.columns.types.get(name), f"({over_fields(text, sources)})"
        schema = None
        if types is not None:
            schema = _typed(types, sql, f"{self.place}.columns.add.{name}", sources)
        cast = None if wanted is None else sql_type(wanted)
        if wanted is not None:
            schema = wanted.replaced(optional=True)
        return TableColumn(name=name, source=None, uncast=sql, schema=schema, cast=cast)

    def _check_columns(self, names: Sequence[str], fields: Iterable[str]) -> None:
        if not names:
            raise ConfigError(
                problem=f"The table {self.name} would have no columns.",
                fix=f"The records have: {', '.join(fields) or 'no fields'}.",
                field=f"{self.place}.columns",
            )
        doubled = [name for name, count in Counter(names).items() if count > 1]
        if doubled:
            raise ConfigError(
                problem=f"The table {self.name} would have two columns {doubled[0]}.",
                fix="Rename one of the fields, or exclude it.",
                field=f"{self.place}.columns",
            )

    def _key(
        self, primary: Sequence[str], names: Mapping[str, str], columns: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the key's columns in the table."""
        if self.key_fields:
            missing = [name for name in self.key_fields if name not in columns]
            # The record's own key may have it where the value does not.
            excluded = [n for n in missing if self.source_of(n) in self.columns.exclude]
            if not excluded:
                return self.key_fields
            where = f"{self.place}.key.fields"
        else:
            excluded = [name for name in primary if name not in names]
            if not excluded:
                return tuple(names[name] for name in primary)
            where = f"{self.place}.columns"
        raise ConfigError(
            problem=f"{excluded[0]} is part of the key, which must not be left out.",
            fix="Keep it, or name other columns in the rule's key.fields.",
            field=where,
        )

    def _condition(
        self,
        value: Schema,
        key: Schema | None,
        sources: Mapping[str, str],
        types: Types | None,
    ) -> str | None:
        parts = []
        if self.where is not None:
            where = over_fields(self.where, sources)
            if types is not None:
                place = f"{self.place}.where"
                _typed(types, f"({where}) AND true", place, sources)
            # A record without a value has no fields that say anything of it.
            gone = "value IS NULL OR " if value.optional else ""
            parts.append(f"({gone}coalesce({where}, false))")
        if self.skipped is not None:
            parts.append(f"NOT {self.skipped.condition(self._id(value, key, sources))}")
        return " AND ".join(parts) or None

    def _id(self, value: Schema, key: Schema | None, sources: Mapping[str, str]) -> str:
        """Return the SQL of the one field of the key, which must be a whole number."""
        of_key = {} if key is None else {f.name: f.schema for f in key.fields}
        names = [self.source_of(name) for name in self.key_fields]
        names = names or list(primary_key(value)) or list(of_key)
        [name] = names if len(names) == 1 else [None]
        of_value = {f.name: f.schema for f in value.fields}
        found: Schema | None = None
        sql = ""
        if name is not None and name in of_key:
            found, sql = of_key[name], f"key.{quote(name)}"
        elif name is not None and name in of_value:
            found, sql = of_value[name], sources[name]
        elif not of_key and key is not None:
            found, sql = key, "key"
        if found is None or found.is_logical or found.type not in WHOLE_NUMBERS:
            raise ConfigError(
                problem="Ids can only be skipped where the key is one whole number.",
                fix="Name that field in the rule's key.fields, or use where.",
                field=f"{self.place}.skip.ids",
            )
        return sql

    def _refusal(self, column: TableColumn) -> Refusal | None:
        """Return the condition for values that cannot be cast; None where all can."""
        if column.cast in {None, "STRING"}:
            return None
        sql, place = column.uncast, f"{self.place}.columns.types"
        return Refusal(
            condition=f"({sql} IS NOT NULL AND TRY_CAST({sql} AS {column.cast}) IS NULL)",
            problem=f"A record has a value that is no {column.cast}, as {place} asks for.",
            fix="Fix or filter such records with a transform, or choose another type.",
            field=column.source or column.name,
        )


def _typed(types: Types, sql: str, place: str, fields: Mapping[str, str]) -> Schema:
    """Return the schema of an expression. Raises ConfigError: Spark cannot understand it."""
    try:
        return types([f"{sql} AS found"]).fields[0].schema
    except ConfigError as error:
        raise ConfigError(
            problem=error.problem,
            fix=f"The fields here are: {', '.join(fields) or 'none'}.",
            field=place,
        ) from error
