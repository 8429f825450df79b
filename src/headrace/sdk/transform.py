"""Transforms and predicates as SQL expressions over the record columns.

A chain is compiled before any data moves: each transform turns one ``Shape`` into
the next, in plain Python, and the runtime lays the result over the DataFrame as one
projection a step, which Spark merges into a single stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.sdk.config import Config, ConfigDef


def quote(identifier: str) -> str:
    """Quote a column or field name for Spark SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Write a string as a Spark SQL literal, in a form no escape can break out of."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@dataclass(frozen=True)
class Part:
    """The key or the value of a record, as expressions.

    Args:
        schema: The part's schema; None when records have no such part.
        fields: For a STRUCT, the SQL expression of each field, in schema order.
        whole: For any other type, the SQL expression of the value.
        missing: SQL condition under which the part is null as a whole; None: never.
    """

    schema: Schema | None
    fields: Mapping[str, str] = field(default_factory=dict)
    whole: str = "NULL"
    missing: str | None = None

    @property
    def is_struct(self) -> bool:
        """Return whether the part has fields."""
        return self.schema is not None and self.schema.type is Type.STRUCT

    def with_fields(self, columns: Mapping[str, tuple[str, Schema]]) -> Part:
        """Return a STRUCT part made of ``name -> (expression, schema)``."""
        base = self.schema if self.is_struct else None
        schema = Schema.struct(
            {name: column[1] for name, column in columns.items()},
            name=base.name if base else None,
            version=base.version if base else None,
            doc=base.doc if base else None,
            optional=self.schema.optional if self.schema else False,
        )
        return replace(
            self,
            schema=schema,
            fields={name: column[0] for name, column in columns.items()},
            whole="NULL",
        )

    def columns(self) -> dict[str, tuple[str, Schema]]:
        """Return ``name -> (expression, schema)`` of a STRUCT part."""
        if not self.is_struct or self.schema is None:
            return {}
        return {f.name: (self.fields[f.name], f.schema) for f in self.schema.fields}

    def sql(self) -> str:
        """Return the whole part as one SQL expression."""
        if self.schema is None:
            return "NULL"
        if not self.is_struct:
            return self.whole
        pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in self.fields.items())
        struct = f"named_struct({pairs})"
        return struct if self.missing is None else f"IF({self.missing}, NULL, {struct})"


@dataclass(frozen=True)
class Shape:
    """The records of a stream as SQL expressions over the columns of the step before.

    Args:
        key, value: The two parts.
        topic: STRING.
        partition: INT.
        headers: ``array<struct<key:string,value:string,type:string>>``.
        timestamp: TIMESTAMP.
        dropped: STRING, the alias of the transform that dropped the record; None when
            no transform so far drops any.
        error: The error struct, see ``failed``; None when no step so far can fail.
    """

    key: Part
    value: Part
    topic: str
    partition: str = "CAST(NULL AS INT)"
    headers: str = "CAST(NULL AS array<struct<key:string,value:string,type:string>>)"
    timestamp: str = "CAST(NULL AS TIMESTAMP)"
    dropped: str | None = None
    error: str | None = None

    def dropping(self, condition: str, alias: str) -> Shape:
        """Drop the records for which ``condition`` is true, in the name of ``alias``."""
        before = self.dropped or "CAST(NULL AS STRING)"
        alive = self.alive(condition)
        return replace(
            self, dropped=f"CASE WHEN {alive} THEN {literal(alias)} ELSE {before} END"
        )

    def failing(
        self, condition: str, *, stage: str, plugin: str, exception: str, message: str
    ) -> Shape:
        """Reject the records for which ``condition`` is true.

        ``message`` is an SQL expression of type STRING; the other texts are literals.
        The first error of a record stays.
        """
        before = self.error or f"CAST(NULL AS {ERROR_TYPE})"
        error = (
            f"named_struct('stage', {literal(stage)}, 'plugin', {literal(plugin)}, "
            f"'exception', {literal(exception)}, 'message', {message}, "
            "'raw', CAST(NULL AS STRING))"
        )
        return replace(
            self, error=f"CASE WHEN {self.alive(condition)} THEN {error} ELSE {before} END"
        )

    def alive(self, condition: str) -> str:
        """Return ``condition`` restricted to records neither dropped nor rejected."""
        gone = [f"{column} IS NULL" for column in (self.dropped, self.error) if column]
        return " AND ".join([*gone, f"({condition})"])


ERROR_TYPE = "struct<stage:string,plugin:string,exception:string,message:string,raw:string>"
"""Why a record was rejected: Kafka's stage name, the plugin's name, the class of the
error, its text, and the raw input where the record itself could not be made."""


class Transform(ABC):
    """Changes or drops a record in flight."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it, without ``$Key`` or ``$Value``."""
    parts: ClassVar[bool] = True
    """Whether it exists for the key and for the value (``$Key``, ``$Value``)."""
    uses_names: ClassVar[bool] = False
    """Whether its expressions hold SQL of the user's, which names the value's fields."""

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """Return the transform's keys."""

    def __init__(self, alias: str, config: Config, *, of_key: bool = False) -> None:
        """Keep the alias it has in the chain and its parsed configuration."""
        self.alias = alias
        self.config = config
        self.of_key = of_key

    @abstractmethod
    def apply(self, shape: Shape) -> Shape:
        """Return the shape after this step.

        Called once for each schema the stream has had. Raises ConfigError when the
        configuration does not fit the schema.
        """

    def part(self, shape: Shape) -> Part:
        """Return the part this transform works on."""
        return shape.key if self.of_key else shape.value

    def with_part(self, shape: Shape, part: Part) -> Shape:
        """Return ``shape`` with the part this transform works on replaced."""
        return replace(shape, key=part) if self.of_key else replace(shape, value=part)

    def struct(self, shape: Shape) -> Part:
        """Return the part, which must have fields."""
        part = self.part(shape)
        if part.is_struct:
            return part
        which = "key" if self.of_key else "value"
        kind = "missing" if part.schema is None else part.schema.type.name
        raise ConfigError(
            problem=f"needs a {which} with fields, but it is {kind}.",
            field=f"transforms.{self.alias}",
            fix="Put HoistField before it, or use a converter that gives a structure.",
        )


class Predicate(ABC):
    """Decides which records a transform applies to."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it."""
    uses_names: ClassVar[bool] = False
    """Whether its condition is SQL of the user's, which names the value's fields."""

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """Return the predicate's keys."""

    def __init__(self, alias: str, config: Config) -> None:
        """Keep the alias and the parsed configuration."""
        self.alias = alias
        self.config = config

    @abstractmethod
    def condition(self, shape: Shape) -> str:
        """Return an SQL condition over the record that is never null."""
