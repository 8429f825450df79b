"""Transforms and predicates as SQL expressions over the record columns.

A chain is compiled before any data moves: each transform turns one ``Shape`` into
the next, in plain Python, and the runtime lays the result over the DataFrame as one
projection a step, which Spark merges into a single stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk.config import Configured
from headrace.sdk.errors import UnfitRecordError
from headrace.sdk.javatypes import java_class
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from headrace.sdk.config import Config
    from headrace.sdk.part import Part
    from headrace.sdk.schema import Schema

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"
"""What Kafka Connect's transforms raise for most records that do not fit."""


@dataclass(frozen=True)
class Shape:
    """The records of a stream as SQL expressions over the columns of the step before.

    Args:
        key, value: The two parts.
        topic: STRING, never random. A literal, or what Spark can compute without data,
            sends all records to one topic; else each batch is divided by topic.
        partition: INT.
        headers: ``array<struct<key:string,value:string,type:string>>``.
        timestamp: TIMESTAMP.
        offset: BIGINT, the place of the record in its topic or partition; None where no
            one number says it.
        dropped: STRING, the alias of the transform that dropped the record; None when
            no transform so far drops any.
        error: The error struct, see ``failing``; None when no step so far can fail.
        unfit: Whether a step so far did not fit and left the shape as it was, so that the
            steps after it may not fit either.
        shared: Function calls that the other expressions hold more than once, to the letter,
            and that never raise: the runtime computes each once for a record.
    """

    key: Part
    value: Part
    topic: str
    partition: str = "CAST(NULL AS INT)"
    headers: str = "CAST(NULL AS array<struct<key:string,value:string,type:string>>)"
    timestamp: str = "CAST(NULL AS TIMESTAMP)"
    offset: str | None = None
    dropped: str | None = None
    error: str | None = None
    unfit: bool = False
    shared: tuple[str, ...] = ()

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

    def sharing(self, call: str | None) -> Shape:
        """Compute a function call, if one is given, once for a record; see ``shared``."""
        return self if call is None else replace(self, shared=(*self.shared, call))

    def alive(self, condition: str) -> str:
        """Return ``condition`` restricted to records neither dropped nor rejected."""
        gone = [f"{column} IS NULL" for column in (self.dropped, self.error) if column]
        return " AND ".join([*gone, f"({condition})"])


ERROR_TYPE = "struct<stage:string,plugin:string,exception:string,message:string,raw:string>"
"""Why a record was rejected: Kafka's stage name, the plugin's name, the class of the
error, its text, and the raw input where the record itself could not be made."""


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
    def apply(self, shape: Shape) -> Shape:
        """Return the shape after this step.

        Called once for each schema the stream has had. Raises UnfitRecordError when records
        of this shape cannot go through, and ConfigError when the configuration is wrong
        whatever the records are.
        """

    @property
    def title(self) -> str:
        """What errors call it beside its alias: the name of its class."""
        return type(self).__name__

    def part(self, shape: Shape) -> Part:
        """Return the part this transform works on."""
        return shape.key if self.of_key else shape.value

    def with_part(self, shape: Shape, part: Part) -> Shape:
        """Return ``shape`` with the part this transform works on replaced."""
        return replace(shape, key=part) if self.of_key else replace(shape, value=part)

    def struct(self, shape: Shape, purpose: str) -> Part:
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

    def whole_struct(self, shape: Shape, purpose: str) -> tuple[Shape, Part | None]:
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
        self, part: Part, purpose: str, *, null: bool = False, where: str = "true"
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
        self, shape: Shape, condition: str, message: str, *, exception: str = DATA_EXCEPTION
    ) -> Shape:
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

    def refusing(self, shape: Shape, error: UnfitRecordError) -> Shape:
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
    def apply_typed(self, shape: Shape, types: Types) -> Shape:
        """Return the shape after this step, as ``apply`` does.

        ``types`` analyses expressions, each with a name, such as ``a + 1 AS value``; it takes
        some milliseconds, and what Spark refuses becomes a ConfigError of this step.
        """

    @override
    def apply(self, shape: Shape) -> Shape:
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
    def condition(self, shape: Shape) -> str:
        """Return an SQL condition over the record that is never null."""
