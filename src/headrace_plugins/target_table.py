"""A target table of records: its columns, its key, and the records that it receives."""

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
        name: The name in the table.
        source: The record's field; None for a column that a rule adds.
        uncast: SQL over the columns of the frame, before ``cast``.
        schema: None for an added column of unknown type.
        cast: The SQL type that a rule sets, if it differs from the field's.
    """

    name: str
    source: str | None
    uncast: str
    schema: Schema | None
    cast: str | None = None

    @property
    def sql(self) -> str:
        """SQL over the columns of the frame."""
        return self.uncast if self.cast is None else f"CAST({self.uncast} AS {self.cast})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSelection:
    """The columns and records of a stream that go into a target table.

    Args:
        key: The columns that identify a row: those in the rule, else the records' primary
            key; empty if neither is known.
        condition: SQL, never null, for the records that the table receives; None for all.
            Tombstones are included unless their id is skipped, as they delete rows.
        refusals: Conditions for records whose values do not fit a type that the rule sets.
            Without error tolerance the cast fails the job.
        is_identity: Whether the columns are the unchanged fields of the value.
    """

    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    condition: str | None
    refusals: tuple[Refusal, ...]
    is_identity: bool

    @property
    def renames(self) -> Mapping[str, str] | None:
        """The field of each column, by column name, if nothing is computed.

        Arrow columns can then be copied unchanged. None if a column is computed or cast, or if
        there is a condition.
        """
        if self.condition is not None:
            return None
        sources = {c.name: c.source for c in self.columns if c.cast is None}
        found = {name: source for name, source in sources.items() if source is not None}
        return found if len(found) == len(self.columns) else None

    def whole(self, value: Schema) -> Mapping[str, str] | None:
        """Return the field of each column, if the table has all records and fields unchanged.

        Columns may be renamed. Only such a table can be compared with the source.
        """
        found = self.renames
        fields = {each.name for each in value.fields} or {"value"}
        return found if found is not None and set(found.values()) == fields else None

    def schema(self, value: Schema) -> Schema:
        """Return the schema of the table's rows, with the key as PRIMARY_KEY.

        ``value`` is the schema of the records. The types of all columns must be known.
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
    """Maps the fields of the records to the columns of a table.

    The keys of ``types`` and ``add`` are column names, all others are field names.
    """

    include: tuple[str, ...] | None = None
    exclude: frozenset[str] = frozenset()
    rename: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Schema] = field(default_factory=dict)
    add: Mapping[str, str] = field(default_factory=dict)

    def names(self, fields: Iterable[str]) -> dict[str, str]:
        """Return the column names by field name."""
        kept = [
            name
            for name in fields
            if name not in self.exclude and (self.include is None or name in self.include)
        ]
        return {name: self.rename.get(name, name) for name in kept}

    @property
    def named(self) -> set[str]:
        """The fields named in the rules."""
        return {*(self.include or ()), *self.exclude, *self.rename}


@dataclass(frozen=True, slots=True)
class SkippedIds:
    """Ids of rows to skip: single ids and inclusive ranges."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, text: str, *, field: str) -> SkippedIds:
        """Parse ids such as ``1,2,[10-20]``. Raises ConfigError."""
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
        """Return the SQL condition that an id is one of these; never null."""
        single = [str(low) for low, high in self.ranges if low == high]
        parts = [f"{sql} IN ({', '.join(single)})"] if single else []
        parts += [f"{sql} BETWEEN {low} AND {high}" for low, high in self.ranges if low < high]
        return f"coalesce({' OR '.join(parts)}, false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A target table of a stream.

    Args:
        name: The name, from the rule's template.
        priority: Streams and tables of a batch with a smaller priority are written first.
        key_fields: The rule's key.fields: columns that identify a row; may be empty.
        place: The path of the rule in the configuration, for errors; empty without a rule.
        rule: The index of the rule, from 0; None if no rule matches.
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
        """Whether the table receives all records unchanged."""
        whole = self.where is None and self.skipped is None
        return whole and not self.key_fields and self.columns == ColumnRules()

    def source_of(self, column: str) -> str:
        """Return the field that a column is renamed from; else the column's name."""
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
        """Return the columns and records that go into the table. Starts no Spark job.

        Fields that a rule names but the records lack are ignored, as a source may gain and lose
        fields over time; ``headrace mapping`` warns about them. Expressions over missing fields
        are errors.

        Args:
            value: The schema of the records' values. A value that is not a STRUCT is treated
                as a field ``value``.
            key: The schema of the records' keys; None without keys.
            field_sql: Returns the SQL of a field over the frame: ``SinkBatch.field_sql``.
            types: Returns Spark's schema of SQL expressions over the frame. With None the
                schemas of added columns are unknown.

        Raises:
            ConfigError: A key column is excluded, two columns have the same name, no column is
                left, or an expression is invalid.
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
            # A missing column may be in the record's key instead of the value.
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
            problem=f"{excluded[0]} is part of the key and cannot be excluded.",
            fix="Include it, or set other columns in the rule's key.fields.",
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
            # A tombstone has no fields to evaluate.
            gone = "value IS NULL OR " if value.optional else ""
            parts.append(f"({gone}coalesce({where}, false))")
        if self.skipped is not None:
            parts.append(f"NOT {self.skipped.condition(self._id(value, key, sources))}")
        return " AND ".join(parts) or None

    def _id(self, value: Schema, key: Schema | None, sources: Mapping[str, str]) -> str:
        """Return the SQL of the key's only field, which must be an integer."""
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
                problem="skip.ids requires a key of one integer field.",
                fix="Set that field in the rule's key.fields, or use where.",
                field=f"{self.place}.skip.ids",
            )
        return sql

    def _refusal(self, column: TableColumn) -> Refusal | None:
        """Return the refusal of values that cannot be cast; None if every cast succeeds."""
        if column.cast in {None, "STRING"}:
            return None
        sql, place = column.uncast, f"{self.place}.columns.types"
        return Refusal(
            condition=f"({sql} IS NOT NULL AND TRY_CAST({sql} AS {column.cast}) IS NULL)",
            problem=f"A record has a value that cannot be cast to {column.cast}, as set in "
            f"{place}.",
            fix="Fix or filter such records with a transform, or choose another type.",
            field=column.source or column.name,
        )


def _typed(types: Types, sql: str, place: str, fields: Mapping[str, str]) -> Schema:
    """Return the schema of an expression. Raises ConfigError if Spark cannot analyze it."""
    try:
        return types([f"{sql} AS found"]).fields[0].schema
    except ConfigError as error:
        raise ConfigError(
            problem=error.problem,
            fix=f"Available fields: {', '.join(fields) or 'none'}.",
            field=place,
        ) from error
