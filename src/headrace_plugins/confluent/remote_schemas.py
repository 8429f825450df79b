"""Schemas in a registry, and the head of a value: a zero byte, and the schema id in four bytes.

This is the wire format of Confluent's serializers,
docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop. The code
identifies schemas by the head itself, so values can be compared without decoding it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import ConfigError, RecordError, Schema
from headrace.sdk.config import Importance, Range, ValidString, setting
from headrace.sdk.converter import ArrowDecoder, Converted, Decoded, Fault, Group, RecordPart
from headrace.sdk.sqltext import literal
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.confluent.client import RegistrySettings, open_registry
from headrace_plugins.confluent.schema_registry import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
    resolve_references,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk import ConverterContext
    from headrace_plugins.confluent.schema_registry import (
        SchemaRegistry,
        SchemaText,
        SchemaType,
    )


HEAD_BYTES = 5
_MAGIC = b"\x00"
NO_HEAD = "Unknown magic byte!"
"""The message of Confluent's deserializers for bytes that do not begin with a schema id."""


def head_of(schema_id: int) -> bytes:
    """Return the head of a schema's values."""
    return _MAGIC + schema_id.to_bytes(HEAD_BYTES - 1, "big")


def id_of(head: bytes) -> int:
    """Return the id in a head."""
    return int.from_bytes(bytes(head[1:]), "big")


def framed_sql(schema_id: int, payload: str) -> str:
    """Return SQL for a payload with the head of its schema; null for null."""
    return f"concat(X'{head_of(schema_id).hex()}', {payload})"


def head_sql(raw: str) -> str:
    """Return SQL for the head of a value; null if it has none."""
    return f"IF({unframed_sql(raw)}, NULL, substring({raw}, 1, {HEAD_BYTES}))"


def unframed_sql(raw: str) -> str:
    """Return the SQL condition for bytes without a head; null for null."""
    return f"(NOT startswith({raw}, X'00') OR octet_length({raw}) < {HEAD_BYTES})"


def payload_sql(raw: str) -> str:
    """Return SQL for the payload after the head."""
    return f"substring({raw}, {HEAD_BYTES + 1})"


def heads(raw: pa.Array) -> tuple[pa.Array, Sequence[int]]:
    """Return the heads of values, null if there is none, and the rows of bad values.

    Bad values are bytes without a head; nulls are not bad.
    """
    first = pc.binary_slice(raw, 0, HEAD_BYTES)
    framed = pc.and_(pc.starts_with(raw, _MAGIC), pc.equal(pc.binary_length(first), HEAD_BYTES))
    bad = pc.indices_nonzero(pc.and_(raw.is_valid(), pc.invert(framed)))
    return pc.if_else(framed, first, pa.scalar(None, pa.binary())), bad.to_pylist()


def payloads(raw: pa.Array) -> pa.Array:
    """Return the payloads after the heads of values."""
    # An open-ended binary_slice fails if most values are shorter than its start.
    return pc.binary_replace_slice(raw, 0, HEAD_BYTES, b"")


_STRATEGIES = "io.confluent.kafka.serializers.subject."
_TOPIC, _RECORD, _TOPIC_RECORD = (
    "TopicNameStrategy",
    "RecordNameStrategy",
    "TopicRecordNameStrategy",
)

UNWANTED = (SchemaNotFoundError, IncompatibleSchemaError, InvalidSchemaError)
"""The registry's errors for a schema that it does not accept: they reject the records."""


_NAMES = (_TOPIC, _RECORD, _TOPIC_RECORD)
_NEEDS = "requires auto.register.schemas=false."


def _strategy(part: str) -> Any:
    return setting(
        f"How the subject of a {part}'s schema is named: after the topic, the record's schema, "
        "or both. Confluent's class names are accepted, too.",
        default=_TOPIC,
        validator=ValidString(*_NAMES, *(_STRATEGIES + name for name in _NAMES)),
    )


class RemoteSettings(RegistrySettings, group="Schema Registry"):
    """The settings of converters with schemas in a registry, with Confluent's names."""

    auto_register_schemas: bool = setting(
        "Whether new schemas are registered automatically.", default=True
    )
    use_latest_version: bool = setting(
        "Whether to write with the latest version of the subject, instead of the records' own "
        f"schema; {_NEEDS}",
        default=False,
    )
    normalize_schemas: bool = setting(
        "Whether the registry normalizes schemas, so that equivalent texts are one schema.",
        default=False,
    )
    use_schema_id: int = setting(
        f"The id of the schema to write with, or -1 for none; {_NEEDS}",
        default=-1,
        validator=Range(at_least=-1),
        importance=Importance.LOW,
    )
    key_subject_name_strategy: str = _strategy("key")
    value_subject_name_strategy: str = _strategy("value")

    def subject_name_strategy(self, part: RecordPart) -> str:
        """Return the subject name strategy of a part."""
        key = self.key_subject_name_strategy
        found = key if part is RecordPart.KEY else self.value_subject_name_strategy
        return found.removeprefix(_STRATEGIES)


@dataclass(frozen=True)
class WriterSchema:
    """The schema that records are written with.

    Args:
        id: The schema id, written before each record.
        schema: The schema; differs from the requested one if the configuration specifies one.
        references: The texts of all referenced schemas, by name, dependencies first.
    """

    id: int
    schema: SchemaText
    references: Mapping[str, str]


@dataclass(frozen=True)
class KnownSchemas:
    """The schemas of the records of a batch.

    Args:
        found: The schemas by head.
        unknown: The error messages for the other heads; records with these heads are bad.
    """

    found: Mapping[bytes, WriterSchema]
    unknown: Mapping[bytes, str]


class RemoteSchemas:
    """The schemas in a registry for the key or the value of a topic's records."""

    def __init__(
        self, settings: RemoteSettings, context: ConverterContext, kind: SchemaType
    ) -> None:
        """Store the settings and the context; nothing is sent yet."""
        self._settings = settings
        self._context = context
        self._kind = kind

    @cached_property
    def registry(self) -> SchemaRegistry:
        """The registry. Raises ConfigError if there is none."""
        return open_registry(self._settings, self._context.registry)

    def close(self) -> None:
        """Close connections, except those of the runtime's registry."""
        opened = self.__dict__.pop("registry", None)
        if opened is not None and opened is not self._context.registry:
            opened.close()

    def subject(self, record_name: str | None) -> str:
        """Return the subject of a schema; raise ConfigError if a required name is missing."""
        topic, part = self._context.topic, self._context.part
        strategy = self._settings.subject_name_strategy(part)
        if strategy == _TOPIC:
            return f"{topic}-{part}"
        if not record_name:
            raise ConfigError(
                problem=f"{strategy} requires a schema name, but the schema has none.",
                field=f"{part}.converter.{part}.subject.name.strategy",
                fix=f"Set a name with the transform SetSchemaMetadata, or use {_TOPIC}.",
            )
        return record_name if strategy == _RECORD else f"{topic}-{record_name}"

    def writer(self, schema: SchemaText, record_name: str | None = None) -> WriterSchema:
        """Return the writer schema for records of a schema. Called once per batch.

        Raises one of ``UNWANTED`` if the registry does not accept the schema (``refusing``
        turns this into faults of the records), and RetriableError if it cannot be reached.
        """
        registry, normalize = self.registry, self._settings.normalize_schemas
        registers = self._settings.auto_register_schemas
        if not registers and (schema_id := self._settings.use_schema_id) >= 0:
            return self._of(schema_id, registry.by_id(schema_id))
        subject = self.subject(record_name)
        if registers:
            return self._of(registry.register(subject, schema, normalize=normalize), schema)
        if self._settings.use_latest_version:
            found = registry.latest(subject)
        else:
            found = registry.lookup(subject, schema, normalize=normalize)
        return self._of(found.id, found.schema)

    def known(self, heads: Iterable[bytes]) -> KnownSchemas:
        """Return the schemas for heads. Called once per batch, on the driver.

        Raises RetriableError if the registry cannot be reached; this does not reject records.
        """
        found: dict[bytes, WriterSchema] = {}
        unknown: dict[bytes, str] = {}
        for head in map(bytes, heads):
            try:
                found[head] = self._read(id_of(head))
            except (SchemaNotFoundError, InvalidSchemaError) as error:
                unknown[head] = (
                    f"Error retrieving {self._kind} {self._context.part} schema for id "
                    f"{id_of(head)}: {error.problem}"
                )
        return KnownSchemas(found, unknown)

    def _read(self, schema_id: int) -> WriterSchema:
        # Ids are unique in a registry, so reading does not need the subject name strategy.
        schema = self.registry.by_id(schema_id)
        if schema.type is not self._kind:
            raise InvalidSchemaError(
                problem=f"The schema is of type {schema.type}, not {self._kind}."
            )
        return self._of(schema_id, schema)

    def _of(self, schema_id: int, schema: SchemaText) -> WriterSchema:
        find = self.registry.version
        texts = resolve_references(lambda to: find(to.subject, to.version).schema, schema)
        return WriterSchema(schema_id, schema, texts)


def refusing(column: str, error: SchemaRegistryError) -> Converted:
    """Return an encoding with the registry's error as the fault of all values except nulls."""
    text = f"The schema registry did not accept the schema of the records: {error.problem}"
    fault = Fault(f"{column} IS NOT NULL", literal(text), exception=DATA_EXCEPTION)
    return Converted("CAST(NULL AS BINARY)", Schema.bytes(optional=True), faults=(fault,))


PayloadReader = Callable[[pa.Array], Decoded]
"""Decodes the payloads after the heads, of non-null values of one schema."""


class HeadedDecoder(ArrowDecoder):
    """Decodes values with a reader for each writer schema of the batch.

    The driver queries the registry; the readers are sent to the executors.
    """

    def __init__(
        self, schemas: RemoteSchemas, reader_of: Callable[[WriterSchema], PayloadReader]
    ) -> None:
        """Create a decoder without readers; `prepare` adds them.

        ``reader_of`` returns a picklable reader for a schema. It raises RecordError or
        InvalidSchemaError if no record of the schema can be read.
        """
        self._schemas = schemas
        self._reader_of = reader_of
        self._readers: dict[bytes, PayloadReader] = {}
        self._problems: dict[bytes, str] = {}

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Exclude the registry, which stays on the driver."""
        return {"_readers": self._readers, "_problems": self._problems}

    @override
    def tokens(self, raw: str) -> str:
        return head_sql(raw)

    @override
    def prepare(self, tokens: Sequence[Any]) -> None:
        known = self._schemas.known(tokens)
        self._problems = dict(known.unknown)
        for head, writer in known.found.items():
            try:
                self._readers[head] = self._reader_of(writer)
            except (RecordError, InvalidSchemaError) as error:
                where = f" at {error.field}" if error.field else ""
                problem = f"The schema with id {writer.id} is not supported"
                self._problems[head] = f"{problem}: {error.problem}{where}"

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        first, bad = heads(raw)
        faults = dict.fromkeys(bad, (DATA_EXCEPTION, NO_HEAD))
        groups: list[Group] = []
        for head in first.drop_null().unique().to_pylist():
            places = pc.indices_nonzero(pc.equal(first, pa.scalar(head, pa.binary())))
            rows = places.to_pylist()
            if head not in self._readers:
                unknown = f"The schema with id {id_of(head)} was not loaded."
                fault = (DATA_EXCEPTION, self._problems.get(head, unknown))
                faults |= dict.fromkeys(rows, fault)
                continue
            texts = raw if len(rows) == len(raw) else raw.take(places)
            decoded = self._readers[head](payloads(texts))
            faults |= {rows[row]: fault for row, fault in decoded.faults.items()}
            groups += [_of_rows(group, rows, faults) for group in decoded.groups]
        return Decoded(groups, faults)


def _of_rows(group: Group, rows: Sequence[int], faults: Mapping[int, Any]) -> Group:
    """Return a group with the row numbers of the batch, without bad rows."""
    own = rows if group.rows is None else [rows[number] for number in group.rows]
    good = [number for number, row in enumerate(own) if row not in faults]
    if len(good) == len(own):
        return replace(group, rows=own)
    values = group.values.take(pa.array(good, pa.int64()))
    return Group(group.schema, values, [own[number] for number in good])
