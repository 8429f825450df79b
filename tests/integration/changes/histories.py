"""Histories of a PostgreSQL database: statements by chance, the same for the same seed.

    history = history_of(seed=1, transactions=40)
    run_statements(url, history.setup)
    ...  # whoever reads the changes begins
    run_statements(url, history.statements)  # ends with an insert into the table `the_end`

Tables have single and composite keys, or none and REPLICA IDENTITY FULL. Transactions insert,
update (keys too, and rows with TOASTed values that stay as they are), delete and truncate; they
have savepoints and are rolled back now and then, and columns are added, dropped and renamed
between their changes. A name of a column is never used twice.
"""

from __future__ import annotations

import copy
import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import psycopg

END = "the_end"
"""The table that the last statement inserts into."""

SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy', 'it''s')",
    "CREATE DOMAIN positive AS int4 CHECK (VALUE > 0)",
    "CREATE DOMAIN short_text AS varchar(20)",
    "CREATE DOMAIN price AS numeric(10,2)",
    f"CREATE TABLE {END} (id int4 PRIMARY KEY)",
)

_Draw = Callable[[random.Random], str]
_LETTERS = string.ascii_letters + "  äßé漢字🙂'\"\\\n\t,{}()"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _text(draw: random.Random, most: int = 20) -> str:
    return "".join(draw.choices(_LETTERS, k=draw.randrange(most + 1)))


def _number(draw: random.Random, digits: int, scale: int) -> str:
    places = draw.randrange(scale + 1)
    whole = draw.randrange(10 ** draw.randrange(1, digits - scale + 1))
    part = f".{draw.randrange(10**places):0{places}}" if places else ""
    return draw.choice(["", "-"]) + f"{whole}{part}"


def _moment(draw: random.Random) -> datetime:
    seconds = draw.randrange(-2_000_000_000, 4_000_000_000)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        seconds=seconds, microseconds=draw.choice([0, 500_000, draw.randrange(1_000_000)])
    )


def _json(draw: random.Random) -> str:
    number = draw.choice(["1", "-2.50", "0.1", "12345678901234567890"])
    text = "".join(draw.choices("abc äé漢", k=4))
    return draw.choice(
        [
            f'{{"b": {number}, "a": ["{text}", null, true]}}',
            f'[1, {{"{text}": {{}}}}, {number}]',
            f'"{text}"',
            number,
            "null",
        ]
    )


def _interval(draw: random.Random) -> str:
    parts = [
        f"{draw.randrange(-30, 31)} months",
        f"{draw.randrange(-400, 401)} days",
        f"{draw.randrange(-100_000, 100_001)} seconds",
        f"{draw.randrange(1_000_000)} microseconds",
    ]
    return _quoted(" ".join(draw.sample(parts, draw.randrange(1, 5))))


def _range(draw: random.Random, low: str, high: str) -> str:
    bounds = draw.choice(["[)", "[]", "()", "(]"])
    texts = [draw.choice([low, low, low, ""]), draw.choice([high, high, high, ""])]
    return draw.choice([_quoted(bounds[0] + ",".join(texts) + bounds[1])] * 5 + ["'empty'"])


def _list(draw: random.Random, item: _Draw, type_name: str) -> str:
    items = [
        draw.choice([item] * 5 + [lambda _: "NULL"])(draw) for _ in range(draw.randrange(5))
    ]
    return f"ARRAY[{', '.join(items)}]::{type_name}[]"


def _bits(draw: random.Random, count: int) -> str:
    return f"'\\x{draw.randbytes(count).hex()}'"


def _int4_range(draw: random.Random) -> str:
    low = draw.randrange(-1000, 1000)
    return _range(draw, str(low), str(low + draw.randrange(2, 50)))


def _number_range(draw: random.Random) -> str:
    return _range(draw, _number(draw, 6, 2).lstrip("-"), "12345678.9")


def _date_range(draw: random.Random) -> str:
    first = date(2000, 1, 1) + timedelta(days=draw.randrange(10_000))
    return _range(draw, str(first), str(first + timedelta(days=7)))


TYPES: dict[str, tuple[str, _Draw]] = {
    "int2": ("int2", lambda draw: str(draw.choice([-32768, 32767, draw.randrange(100)]))),
    "int4": ("int4", lambda draw: str(draw.randrange(-(2**31), 2**31))),
    "int8": ("int8", lambda draw: str(draw.choice([2**63 - 1, 1 - 2**63, draw.randrange(9)]))),
    "numeric": ("numeric", lambda draw: _number(draw, 45, 20)),
    "decimal": ("numeric(12,3)", lambda draw: _number(draw, 12, 3)),
    "whole": ("numeric(30,0)", lambda draw: _number(draw, 30, 0)),
    "float4": ("float4", lambda draw: f"'{draw.choice(['NaN', '-Infinity', draw.gauss()])}'"),
    "float8": ("float8", lambda draw: f"'{draw.choice(['NaN', 'Infinity', draw.gauss()])}'"),
    "bool": ("bool", lambda draw: draw.choice(["true", "false"])),
    "text": ("text", lambda draw: _quoted(_text(draw))),
    "varchar": ("varchar(30)", lambda draw: _quoted(_text(draw, 30))),
    "char": ("char(5)", lambda draw: _quoted("".join(draw.choices("abc ", k=3)))),
    "bytea": ("bytea", lambda draw: _bits(draw, draw.randrange(12))),
    "date": ("date", lambda draw: f"'{_moment(draw).date()}'"),
    "time": ("time", lambda draw: f"'{_moment(draw).time()}'"),
    "time3": ("time(3)", lambda draw: f"'{_moment(draw).time()}'"),
    "timestamp": ("timestamp", lambda draw: f"'{_moment(draw).replace(tzinfo=None)}'"),
    "timestamp3": ("timestamp(3)", lambda draw: f"'{_moment(draw).replace(tzinfo=None)}'"),
    "timestamptz": ("timestamptz", lambda draw: f"'{_moment(draw)}'"),
    "uuid": ("uuid", lambda draw: f"'{draw.randbytes(16).hex()}'"),
    "json": ("json", lambda draw: _quoted(_json(draw))),
    "jsonb": ("jsonb", lambda draw: _quoted(_json(draw))),
    "ints": ("int4[]", lambda draw: _list(draw, lambda d: str(d.randrange(99)), "int4")),
    "texts": ("text[]", lambda draw: _list(draw, lambda d: _quoted(_text(d)), "text")),
    "decimals": (
        "numeric(8,2)[]",
        lambda draw: _list(draw, lambda d: _number(d, 8, 2), "numeric"),
    ),
    "bools": (
        "bool[]",
        lambda draw: _list(draw, lambda d: d.choice(["true", "false"]), "bool"),
    ),
    "uuids": (
        "uuid[]",
        lambda draw: _list(draw, lambda d: f"'{d.randbytes(16).hex()}'", "uuid"),
    ),
    "days": ("date[]", lambda draw: _list(draw, lambda d: f"'{_moment(d).date()}'", "date")),
    "enum": ("mood", lambda draw: draw.choice(["'sad'", "'ok'", "'very happy'", "'it''s'"])),
    "positive": ("positive", lambda draw: str(draw.randrange(1, 99))),
    "short_text": ("short_text", lambda draw: _quoted(_text(draw))),
    "price": ("price", lambda draw: _number(draw, 10, 2)),
    "interval": ("interval", _interval),
    "int4range": ("int4range", _int4_range),
    "numrange": ("numrange", _number_range),
    "daterange": ("daterange", _date_range),
    "inet": ("inet", lambda draw: draw.choice(["'10.1.2.3'", "'10.0.0.0/8'", "'::1'"])),
    "long_text": ("text", lambda draw: _quoted("".join(draw.choices(_LETTERS, k=4000)))),
    "long_bytes": ("bytea", lambda draw: _bits(draw, 4000)),
    "long_json": ("jsonb", lambda draw: _quoted(f'{{"a": "{draw.randbytes(3000).hex()}"}}')),
}
"""What a column can be: its type, and what draws the SQL of a value of it."""

LONG = tuple(name for name in TYPES if name.startswith("long_"))
"""Those whose values are kept apart from their rows (TOAST)."""

_KEYS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("id", "int8"),),
    (("a", "int4"), ("b", "varchar(20)")),
    (("id", "uuid"),),
    (("at", "timestamptz"), ("n", "int2")),
    (("code", "text"),),
)


def _key_value(type_name: str, number: int) -> str:
    """Return the SQL of a value that no other number has."""
    match type_name:
        case "int8" | "int4" | "int2":
            return str(number)
        case "uuid":
            return f"'00000000-0000-4000-8000-{number:012}'"
        case "timestamptz":
            return f"'{datetime(2020, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)}'"
        case _:
            return f"'key ''{number}''é'"


@dataclass
class _Table:
    """What a table has, while its history is drawn."""

    name: str
    key: tuple[tuple[str, str], ...]
    identity: str
    columns: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    """The SQL of the keys of its rows; of the column n where there is no key."""

    @property
    def address(self) -> tuple[tuple[str, str], ...]:
        return self.key or (("n", "int4"),)

    def where(self, row: tuple[str, ...]) -> str:
        names = [name for name, _ in self.address]
        return " AND ".join(f"{name} = {value}" for name, value in zip(names, row, strict=True))

    def setup(self) -> list[str]:
        columns = [f"{name} {kind} NOT NULL" for name, kind in self.address]
        columns += [f"{name} {TYPES[kind][0]}" for name, kind in self.columns.items()]
        if self.key:
            columns.append(f"PRIMARY KEY ({', '.join(name for name, _ in self.key)})")
        made = [f"CREATE TABLE {self.name} ({', '.join(columns)})"]
        made += [
            f"ALTER TABLE {self.name} ALTER {name} SET STORAGE EXTERNAL"
            for name, kind in self.columns.items()
            if kind in LONG
        ]
        return [*made, f"ALTER TABLE {self.name} REPLICA IDENTITY {self.identity}"]


@dataclass(frozen=True)
class History:
    """What happens to a database.

    Args:
        tables: The names of the tables, as SQL has them.
        keyless: Those without a key.
        full: Those with REPLICA IDENTITY FULL, which have the whole row in ``before``.
        setup: Statements that make the types and the empty tables.
        transactions: Statements of one transaction after the other; the last inserts the end.
    """

    tables: tuple[str, ...]
    keyless: frozenset[str]
    full: frozenset[str]
    setup: tuple[str, ...]
    transactions: tuple[tuple[str, ...], ...]

    @property
    def statements(self) -> tuple[str, ...]:
        """Those of all transactions."""
        return tuple(statement for each in self.transactions for statement in each)


def history_of(
    seed: int,
    *,
    transactions: int = 40,
    tables: int = 6,
    types: Sequence[str] = tuple(TYPES),
    ddl: bool = True,
    truncate: bool = True,
) -> History:
    """Draw a history; each of the types is in one table at least.

    Args:
        seed: What the draw begins with.
        transactions: How many there are, those rolled back included.
        tables: How many tables there are.
        types: Names of `TYPES`.
        ddl: Whether columns are added, dropped and renamed.
        truncate: Whether tables are truncated.
    """
    drawing = _Drawing(random.Random(seed), types, ddl=ddl, truncate=truncate)
    drawing.make_tables(tables)
    setup = [statement for table in drawing.tables for statement in table.setup()]
    drawn = [drawing.transaction() for _ in range(transactions)]
    end = ("BEGIN", f"INSERT INTO {END} VALUES (1)", "COMMIT")
    return History(
        tables=tuple(table.name for table in drawing.tables),
        keyless=frozenset(table.name for table in drawing.tables if not table.key),
        full=frozenset(table.name for table in drawing.tables if table.identity == "FULL"),
        setup=(*SETUP, *setup),
        transactions=(*drawn, end),
    )


def run_statements(url: str, statements: Sequence[str]) -> None:
    """Run the statements in one session; its transactions are theirs."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


class _Drawing:
    """Draws statements that fit what the tables have by then."""

    def __init__(
        self, draw: random.Random, types: Sequence[str], *, ddl: bool, truncate: bool
    ) -> None:
        self.draw = draw
        self.types = types
        self.tables: list[_Table] = []
        self._numbers = 0
        self._kinds: list[tuple[Callable[[_Table], list[str]], int]] = [
            (self._insert, 40),
            (self._update, 30),
            (self._update_key, 4),
            (self._update_nothing, 2),
            (self._update_all, 1),
            (self._delete, 10),
            (self._upsert, 4),
        ]
        if truncate:
            self._kinds.append((self._truncate, 1))
        if ddl:
            self._kinds += [(self._add, 2), (self._drop, 1), (self._rename, 1)]

    def make_tables(self, count: int) -> None:
        dealt = self.draw.sample(list(self.types), len(self.types))
        for place in range(count):
            keyless = place % 3 == 2
            key = () if keyless else _KEYS[(place - place // 3) % len(_KEYS)]
            full = keyless or place % 5 == 3
            name = '"Mixed Case"' if place == 1 else f"table_{place}"
            table = _Table(name, key, "FULL" if full else "DEFAULT")
            for kind in [*dealt[place::count], *self.draw.sample(list(self.types), 2)]:
                table.columns[self._name(kind)] = kind
            self.tables.append(table)

    def transaction(self) -> tuple[str, ...]:
        before = copy.deepcopy(self.tables)
        statements = ["BEGIN"]
        for _ in range(self.draw.choice([1, 1, 2, 5, 10])):
            chance = self.draw.random()
            if chance < 0.1:
                statements += self._savepoint()
            else:
                statements += self._statements()
        if self.draw.random() < 0.1:
            self.tables = before
            return (*statements, "ROLLBACK")
        return (*statements, "COMMIT")

    def _savepoint(self) -> list[str]:
        before = copy.deepcopy(self.tables)
        name = self._name("point")
        inside = [each for _ in range(self.draw.randrange(1, 4)) for each in self._statements()]
        if self.draw.random() < 0.5:
            self.tables = before
            return [f"SAVEPOINT {name}", *inside, f"ROLLBACK TO {name}"]
        return [f"SAVEPOINT {name}", *inside, f"RELEASE {name}"]

    def _statements(self) -> list[str]:
        works, weights = zip(*self._kinds, strict=True)
        [work] = self.draw.choices(works, weights)
        found: list[str] = work(self.draw.choice(self.tables))
        return found

    def _name(self, kind: str) -> str:
        self._numbers += 1
        name = f"{kind}_{self._numbers}"
        return f'"{name.title()}"' if self._numbers % 7 == 0 else name

    def _new_row(self, table: _Table) -> tuple[str, ...]:
        self._numbers += 1
        # Rows that are the same in every column are what only a table without a key can have.
        if not table.key and table.rows and self.draw.random() < 0.1:
            return self.draw.choice(table.rows)
        return tuple(_key_value(kind, self._numbers) for _, kind in table.address)

    def _value(self, kind: str) -> str:
        if self.draw.random() < 0.15:
            return "NULL"
        return TYPES[kind][1](self.draw)

    def _insert(self, table: _Table) -> list[str]:
        rows = [self._new_row(table) for _ in range(self.draw.choice([1, 1, 2, 5]))]
        values = [
            [*row, *(self._value(kind) for kind in table.columns.values())] for row in rows
        ]
        table.rows += rows
        names = [*(name for name, _ in table.address), *table.columns]
        tuples = ", ".join(f"({', '.join(each)})" for each in values)
        return [f"INSERT INTO {table.name} ({', '.join(names)}) VALUES {tuples}"]

    def _sets(self, table: _Table) -> str:
        names = list(table.columns)
        chosen = self.draw.sample(names, self.draw.randrange(1, min(4, len(names)) + 1))
        return ", ".join(f"{name} = {self._value(table.columns[name])}" for name in chosen)

    def _update(self, table: _Table) -> list[str]:
        if not table.rows or not table.columns:
            return self._insert(table)
        where = table.where(self.draw.choice(table.rows))
        return [f"UPDATE {table.name} SET {self._sets(table)} WHERE {where}"]

    def _update_key(self, table: _Table) -> list[str]:
        if not table.rows or not table.key:
            return self._insert(table)
        place = self.draw.randrange(len(table.rows))
        old, new = table.rows[place], self._new_row(table)
        if len(old) > 1 and self.draw.random() < 0.5:
            new = (old[0], *new[1:])
        table.rows[place] = new
        names = [name for name, _ in table.address]
        sets = ", ".join(f"{name} = {value}" for name, value in zip(names, new, strict=True))
        if table.columns and self.draw.random() < 0.5:
            sets += f", {self._sets(table)}"
        return [f"UPDATE {table.name} SET {sets} WHERE {table.where(old)}"]

    def _update_nothing(self, table: _Table) -> list[str]:
        name = table.address[0][0]
        return [f"UPDATE {table.name} SET {name} = {name} WHERE {name} IS NOT NULL"]

    def _update_all(self, table: _Table) -> list[str]:
        if not table.columns:
            return self._insert(table)
        return [f"UPDATE {table.name} SET {self._sets(table)}"]

    def _delete(self, table: _Table) -> list[str]:
        if not table.rows:
            return self._insert(table)
        row = self.draw.choice(table.rows)
        table.rows = [each for each in table.rows if each != row]
        again = f"DELETE FROM {table.name} WHERE {table.where(row)}"
        if not table.key or self.draw.random() < 0.7:
            return [again]
        # Gone and back within a transaction.
        table.rows.append(row)
        names = ", ".join(name for name, _ in table.address)
        return [again, f"INSERT INTO {table.name} ({names}) VALUES ({', '.join(row)})"]

    def _upsert(self, table: _Table) -> list[str]:
        if not table.rows or not table.key or not table.columns:
            return self._insert(table)
        row = self.draw.choice(table.rows)
        names = ", ".join(name for name, _ in table.address)
        insert = f"INSERT INTO {table.name} ({names}) VALUES ({', '.join(row)})"
        return [f"{insert} ON CONFLICT ({names}) DO UPDATE SET {self._sets(table)}"]

    def _truncate(self, table: _Table) -> list[str]:
        chosen = {table.name: table}
        if self.draw.random() < 0.3:
            other = self.draw.choice(self.tables)
            chosen[other.name] = other
        for each in chosen.values():
            each.rows = []
        return [f"TRUNCATE {', '.join(chosen)}"]

    def _add(self, table: _Table) -> list[str]:
        kind = self.draw.choice(self.types)
        name = self._name(kind)
        table.columns[name] = kind
        default = f" DEFAULT {self._value(kind)}" if self.draw.random() < 0.3 else ""
        return [f"ALTER TABLE {table.name} ADD COLUMN {name} {TYPES[kind][0]}{default}"]

    def _drop(self, table: _Table) -> list[str]:
        if len(table.columns) < 3:
            return self._add(table)
        name = self.draw.choice(list(table.columns))
        del table.columns[name]
        return [f"ALTER TABLE {table.name} DROP COLUMN {name}"]

    def _rename(self, table: _Table) -> list[str]:
        if not table.columns:
            return self._add(table)
        old = self.draw.choice(list(table.columns))
        kind = table.columns.pop(old)
        new = self._name(kind)
        table.columns[new] = kind
        return [f"ALTER TABLE {table.name} RENAME COLUMN {old} TO {new}"]
