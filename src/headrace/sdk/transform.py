"""Transforms and predicates as SQL expressions over the record columns.

A chain is compiled before any data moves: each transform turns one ``RecordExpr`` into
the next, in plain Python, and the runtime lays the result over the DataFrame as one
projection a step, which Spark merges into a single stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk.config import Configured
from headrace.sdk.errors import UnfitRecordError
from headrace.sdk.javatypes import java_class
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from headrace.sdk.config import Config
    from headrace.sdk.expressions import RecordExpr, ValueExpr
    from headrace.sdk.schema import Schema

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"
"""What Kafka Connect's transforms raise for most records that do not fit."""


class Transform(Configured, ABC):
    """Changes or drops a record in flight."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it, without ``$Key`` or ``$Value``."""
    parts: ClassVar[bool] = True
    """Whether it exists for the key and for the value (``$Key``, ``$Value``)."""
    uses_names: ClassVar[bool] = False
    """Whether its expressions hold SQL of the user's, which names the value's fields."""
    routes: bool = False
    """Whether it may change the topic: tasks that read any topic then wait for its task."""

    ordered: ClassVar[bool] = False
    """Whether it looks at the order of records. The frame of a FrameTransform then has the
    column ``position`` wherever a source or a topic can tell the order."""

    def __init__(self, alias: str, config: Config, *, of_key: bool = False) -> None:
        """Keep the alias it has in the chain and its parsed configuration."""
        self.alias = alias
        self.config = config
        self.settings = self.settings_class().from_config(config)
        self.of_key = of_key

    @abstractmethod
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Return the shape after this step.

        Called once for each schema the stream has had. Raises UnfitRecordError when records
        of this shape cannot go through, and ConfigError when the configuration is wrong
        whatever the records are.
        """

    @property
    def title(self) -> str:
        """What errors call it beside its alias: the name of its class."""
        return type(self).__name__

    def part(self, shape: RecordExpr) -> ValueExpr:
        """Return the part this transform works on."""
        return shape.key if self.of_key else shape.value

    def with_part(self, shape: RecordExpr, part: ValueExpr) -> RecordExpr:
        """Return ``shape`` with the part this transform works on replaced."""
        return replace(shape, key=part) if self.of_key else replace(shape, value=part)

    def struct(self, shape: RecordExpr, purpose: str) -> ValueExpr:
        """Return the part, which must have fields: a STRUCT, or a map without schema.

        Records whose part is null are let pass, as by most of Kafka Connect's transforms.

        Args:
            shape: The records.
            purpose: What the fields are needed for, in the words of Kafka Connect's message.

        Raises:
            UnfitRecordError: The part is of another type.
        """
        part = self.part(shape)
        if part.is_struct or part.is_map:
            return part
        raise self.unstructured(part, purpose, where=f"NOT {part.is_null()}")

    def whole_struct(
        self, shape: RecordExpr, purpose: str
    ) -> tuple[RecordExpr, ValueExpr | None]:
        """Return the part, which must have fields and not be null, and reject other records.

        The part is None when no record can have fields: the shape is then the outcome.
        Arguments as in `struct`.
        """
        part = self.part(shape)
        nothing = part.is_null()
        if nothing != "false":
            error = self.unstructured(part, purpose, null=True, where=nothing)
            shape = self.refusing(shape, error)
        if part.is_struct or part.is_map:
            return shape, part
        error = self.unstructured(part, purpose, where=f"NOT {nothing}")
        return replace(self.refusing(shape, error), unfit=True), None

    def unstructured(
        self, part: ValueExpr, purpose: str, *, null: bool = False, where: str = "true"
    ) -> UnfitRecordError:
        """Return the error for a part that has no fields, as Kafka Connect words it.

        Args:
            part: The part.
            purpose: What the fields are needed for.
            null: Whether this is about records in which the part is null; it always is for
                a part that has fields.
            where: SQL condition, never null, for the records concerned.
        """
        schema = None if null or part.is_struct or part.is_map else part.schema
        found = "null" if schema is None else java_class(schema, schemaless=part.schemaless)
        plain = part.schema is None or part.schemaless
        kind = (
            "Map objects supported in absence of schema"
            if plain
            else "Struct objects supported"
        )
        return UnfitRecordError(
            message=f"Only {kind} for [{purpose}], found: {found}", where=where
        )

    def rejecting(
        self,
        shape: RecordExpr,
        condition: str,
        message: str,
        *,
        exception: str = DATA_EXCEPTION,
    ) -> RecordExpr:
        """Reject the records for which ``condition`` is true, in this transform's name.

        ``message`` is an SQL expression of type STRING. What the step makes of these records
        does not matter, but it must not raise.
        """
        return shape.failing(
            condition,
            stage="TRANSFORMATION",
            plugin=f"{self.alias} ({self.title})",
            exception=exception,
            message=message,
        )

    def refusing(self, shape: RecordExpr, error: UnfitRecordError) -> RecordExpr:
        """Reject the records that an error is about."""
        return self.rejecting(
            shape, error.where, literal(error.message), exception=error.exception
        )


Types = Callable[[Sequence[str]], "Schema"]
"""Gives the schema of a struct of named SQL expressions over the records of a step."""


class TypedTransform(Transform):
    """A transform with SQL of the user's, whose type only Spark can tell.

    It is SQL all the same, and part of the one stage.
    """

    @abstractmethod
    def apply_typed(self, shape: RecordExpr, types: Types) -> RecordExpr:
        """Return the shape after this step, as ``apply`` does.

        ``types`` analyses expressions, each with a name, such as ``a + 1 AS value``; it takes
        some milliseconds, and what Spark refuses becomes a ConfigError of this step.
        """

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Without Spark nothing can be said: the runtime calls ``apply_typed``."""
        raise NotImplementedError


class Predicate(Configured, ABC):
    """Decides which records a transform applies to."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it."""
    uses_names: ClassVar[bool] = False
    """Whether its condition is SQL of the user's, which names the value's fields."""

    def __init__(self, alias: str, config: Config) -> None:
        """Keep the alias and the parsed configuration."""
        self.alias = alias
        self.config = config
        self.settings = self.settings_class().from_config(config)

    @abstractmethod
    def condition(self, shape: RecordExpr) -> str:
        """Return an SQL condition over the record that is never null."""
