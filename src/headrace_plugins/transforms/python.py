"""Python: runs a Python function on records, one by one or in Arrow batches."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import (
    ArrowTransform,
    CodeTransform,
    ConfigError,
    Record,
    RecordError,
    RecordTransform,
    Schema,
    Struct,
    Type,
    UnfitRecordError,
)
from headrace.sdk.config import Importance, Meaning, Settings, ValidString, setting
from headrace.sdk.sparktypes import parse_ddl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.sdk.config import Config

ROW = "__row"
"""The column with the row numbers of a batch."""


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    function, code = props.get("function"), props.get("code")
    if (function is None) == (code is None):
        yield ConfigError(
            problem="Either function or code must be set.", field="function", fix="Set one."
        )
    if function is not None and not all(str(function).rpartition(":")):
        yield ConfigError(
            problem=f"Invalid function {function!r}.",
            field="function",
            fix="Write package.module:name or path/of/file.py:name.",
        )
    if code is not None:
        yield from _wrong_text("<code>", str(code), "transform", "code")
    if props.get("schema") is not None:
        try:
            parse_ddl(str(props["schema"]), field="schema")
        except ConfigError as error:
            yield error


def _wrong_text(place: str, text: str, name: str, field: str) -> Iterable[ConfigError]:
    """Yield the errors in a module's source code, without running it."""
    try:
        tree = ast.parse(text, place)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f" in line {line}" if line else ""
        message = getattr(error, "msg", None) or error
        yield ConfigError(
            problem=f"{place} is not valid Python{where}: {message}.",
            field=field,
            fix="Correct the code; test it in a Python prompt.",
        )
        return
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=known) | ast.ClassDef(name=known):
                names.add(known)
            case ast.Name(id=known, ctx=ast.Store()):
                names.add(known)
            case ast.alias(name=known, asname=other):
                names.add(other or known)
    # Names from a star import or a module's __getattr__ are only known at run time.
    if not names & {name, "*", "__getattr__"}:
        yield ConfigError(
            problem=f"{place} has no function {name}.", field=field, fix=f"Define {name}."
        )


def _missing_module(name: str) -> str | None:
    """Return the prefix of a module's name that cannot be found; import nothing."""
    if name in sys.modules:
        return None
    path: Sequence[str] | None = None
    parts = name.split(".")
    if not all(parts):
        return name
    for number in range(len(parts)):
        whole = ".".join(parts[: number + 1])
        if whole in sys.modules:
            path = getattr(sys.modules[whole], "__path__", None)
        else:
            # For a name without dots this imports nothing.
            found = PathFinder.find_spec(whole, path) if number else find_spec(whole)
            if found is None:
                return whole
            path = found.submodule_search_locations
        if path is None and number + 1 < len(parts):
            return ".".join(parts[: number + 2])
    return None


class PythonSettings(Settings):
    """The settings of ``Python``."""

    function: str | None = setting(
        "The function, as package.module:name or path/of/file.py:name.",
        default=None,
        importance=Importance.HIGH,
        meaning=Meaning.CODE,
    )
    code: str | None = setting(
        "Instead of function: Python code that defines a function named transform.",
        default=None,
        importance=Importance.HIGH,
        meaning=Meaning.CODE,
    )
    of: str = setting(
        "The argument of the function: one record, or an Arrow batch, which is about ten times "
        "as fast.",
        default="record",
        validator=ValidString("record", "batch"),
        importance=Importance.HIGH,
    )
    schema: str | None = setting(
        "The fields of the returned values, such as 'id bigint, name string'. By default the "
        "fields of the input.",
        default=None,
        importance=Importance.MEDIUM,
    )
    changes_topic: bool = setting(
        "For of=record: whether the function may change the record's topic.", default=False
    )

    rules = (_check,)


class _Configured(CodeTransform):
    settings: PythonSettings

    @override
    def __init__(self, alias: str, config: Config, *, of_key: bool = False) -> None:
        super().__init__(alias, config, of_key=of_key)
        self.routes = self.settings.changes_topic


class Python(_Configured):
    """Runs a Python function, in Spark's Python workers.

    A function of one record takes a ``headrace.sdk.Record`` and returns a record, a mapping as
    the new value, or None to drop the record. A function of a batch takes the fields of the
    values as a ``pyarrow.RecordBatch`` and returns one with the same number of rows; to drop
    rows, it filters the column ``__row`` along with the others. If the function raises, its
    record is rejected; a failed batch is split until only the failing records are rejected.
    """

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        if config.find_str("function") is None:
            return
        try:
            place, text, name = _source(config)
        except ConfigError as error:
            yield error
            return
        if place.endswith(".py"):
            yield from _wrong_text(place, text, name, "function")
        elif (missing := _missing_module(place)) is not None:
            yield ConfigError(
                problem=f"The module {missing} does not exist.",
                field="function",
                fix="Install it where Headrace runs, or write path/of/file.py:name.",
            )

    @override
    def runner(self) -> CodeTransform:
        kind = _OfRecords if self.settings.of == "record" else _OfBatches
        runner = kind(self.alias, self.config)
        runner.source = _source(self.config)
        runner.function()  # raises its errors here, before any record is processed
        return runner


class _Function(_Configured):
    """The common base of the two runners."""

    source: tuple[str, str, str]

    @property
    @override
    def title(self) -> str:
        return "Python"

    def function(self) -> Callable[[Any], Any]:
        """Return the function. Each worker process loads it once."""
        return _function(*self.source)

    @override
    def output(self, value: Schema) -> Schema:
        ddl = self.config.find_str("schema")
        return value if ddl is None else parse_ddl(ddl, field="schema")

    def check_names(self, names: Iterable[str], before: Iterable[str]) -> None:
        """Raise RecordError for a returned field that the output schema does not contain.

        ``before`` are the fields of the values that the function was called with.
        """
        ddl = self.config.find_str("schema")
        for name in frozenset(names) - (frozenset(before) if ddl is None else _names(ddl)):
            raise RecordError(
                problem=f"The function returned the field {name}, which is not in the schema.",
                fix="Set schema to all fields that the function returns.",
            )


class _OfRecords(_Function, RecordTransform):
    """Calls the function for each record."""

    @override
    def transform(self, record: Record) -> Record | None:
        after = self.function()(record)
        if isinstance(after, Mapping | Struct):
            after = record.with_value(after)
        if after is None:
            return None
        if not isinstance(after, Record):
            found = type(after).__name__
            problem = f"The function returned {found}, not a Record, a mapping or None."
            raise RecordError(problem)
        if isinstance(after.value, Mapping) and record.value_schema is not None:
            self.check_names(after.value, (f.name for f in record.value_schema.fields))
        if after.topic != record.topic and not self.routes:
            raise RecordError(
                problem=f"The function returned topic {after.topic} without changes.topic.",
                fix="Set changes.topic to true.",
            )
        return after


class _OfBatches(_Function, ArrowTransform):
    """Calls the function for each Arrow batch."""

    @override
    def output(self, value: Schema) -> Schema:
        if value.type is not Type.STRUCT:
            raise UnfitRecordError(message="A function of a batch needs values with fields.")
        return super().output(value)

    @override
    def transform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        value, numbers = rows.column("value"), rows.column("row")
        there = pc.is_valid(value)
        some = value.filter(there)
        names = [field.name for field in value.type]
        columns = [pc.struct_field(some, [n]) for n in range(len(names))]
        before = pa.RecordBatch.from_arrays([*columns, numbers.filter(there)], [*names, ROW])
        after = self.function()(before) if before.num_rows else before
        if isinstance(after, pa.Table):
            columns = [pa.concat_arrays(c.chunks) for c in after.combine_chunks().columns]
            after = pa.RecordBatch.from_arrays(columns, schema=after.schema)
        if not isinstance(after, pa.RecordBatch):
            found = type(after).__name__
            problem = f"The function returned {found}, not a RecordBatch."
            raise RecordError(problem)
        left = after.schema.names
        if ROW not in left and after.num_rows != before.num_rows:
            problem = (
                f"The function returned {after.num_rows} rows for {before.num_rows} without "
                f"the column {ROW}."
            )
            raise RecordError(problem)
        row_numbers = (after if ROW in left else before).column(ROW)
        fields = [name for name in left if name != ROW]
        self.check_names(fields, names)
        made = pa.StructArray.from_arrays([after.column(name) for name in fields], fields)
        # Tombstones pass unchanged.
        none = numbers.filter(pc.invert(there))
        made = pa.concat_arrays([made, pa.nulls(len(none), made.type)])
        row_numbers = pa.concat_arrays([row_numbers, none])
        return pa.RecordBatch.from_pydict({"value": made, "row": row_numbers})


@lru_cache(maxsize=64)
def _names(ddl: str) -> frozenset[str]:
    return frozenset(field.name for field in parse_ddl(ddl, field="schema").fields)


def _source(config: Config) -> tuple[str, str, str]:
    """Return the module or file, the source code (empty for a module), and the function."""
    code = config.find_str("code")
    if code is not None:
        return "<code>", code, "transform"
    place, _, name = config.get_str("function").rpartition(":")
    if not place.endswith(".py"):
        return place, "", name
    try:
        return place, Path(place).read_text(encoding="utf-8"), name
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            problem=f"{place} cannot be read: {reason}.",
            field="function",
            fix="Set function to the path of a readable Python file, or to a module.",
        ) from error


@lru_cache(maxsize=64)
def _function(place: str, text: str, name: str) -> Callable[[Any], Any]:
    field = "code" if place == "<code>" else "function"
    try:
        if text:
            names: dict[str, Any] = {"__name__": "headrace_transform"}
            exec(compile(text, place, "exec"), names)  # noqa: S102 - the purpose of this plugin
            found = names.get(name)
        else:
            found = getattr(importlib.import_module(place), name, None)
    except Exception as error:
        raise ConfigError(
            problem=f"{place} cannot be loaded: {type(error).__name__}: {error}.",
            field=field,
            fix="Correct the code; test it in a Python prompt.",
        ) from error
    if not callable(found):
        raise ConfigError(
            problem=f"{place} has no function {name}.", field=field, fix=f"Define {name}."
        )
    function: Callable[[Any], Any] = found
    return function
