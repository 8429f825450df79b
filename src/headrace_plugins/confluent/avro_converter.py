"""The Avro converter, compatible with Confluent's AvroConverter."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from headrace.sdk import ConfigError, Converter, RecordError, Schema
from headrace.sdk.config import Importance, ValidString, setting
from headrace.sdk.converter import Converted, ExpressionDecoder, Fault
from headrace.sdk.schema_evolution import evolve
from headrace.sdk.sqltext import literal, quote, sql_null
from headrace.sdk.struct_exprs import texts_of_variants, variants_of_texts
from headrace_plugins.avro_container import CONTAINER, container_metadata
from headrace_plugins.confluent.avro_codec import (
    AvroShaper,
    connected,
    fitted,
    inexact,
    overflowing,
    unwritable,
)
from headrace_plugins.confluent.avro_schemas import (
    AvroType,
    avro_of,
    connect_of,
    engine_tree,
    parse_avro,
)
from headrace_plugins.confluent.remote_schemas import (
    NO_HEAD,
    UNWANTED,
    RemoteSchemas,
    RemoteSettings,
    framed_sql,
    head_sql,
    payload_sql,
    refusing,
    unframed_sql,
)
from headrace_plugins.confluent.schema_registry import SchemaText, SchemaType
from headrace_plugins.converters.scalars import ConverterSettings, unused_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_SYNC_BYTES = 16
_SYNC = "SYNC"


@dataclass(frozen=True)
class Written:
    """The writer schema of some values of a batch.

    Args:
        type: The schema; or, if the values are bad, the error message.
        condition: SQL that is true for the bytes of these values.
        body: SQL for the Avro bytes in them.
        around: The Avro fields before and after the value in the body.
    """

    type: AvroType | str
    condition: str
    body: str = ""
    around: tuple[Sequence[Any], Sequence[Any]] = ((), ())


Framed: TypeAlias = "Callable[[str], str]"
"""Returns SQL for the framed bytes of a value; the argument is SQL for its Avro bytes."""


class Framing(ABC):
    """The way in which the bytes of a value identify its schema."""

    @abstractmethod
    def framed(self, tree: Any, name: str | None) -> tuple[AvroType, Framed]:
        """Return the writer schema for a schema, and a function that frames the Avro bytes.

        ``name`` is the full name of the schema, if it has one.
        """

    @abstractmethod
    def tokens(self, raw: str) -> str:
        """Return SQL for the bytes that identify a value's schema; null if there are none."""

    @abstractmethod
    def written(self, raw: str, tokens: Sequence[bytes]) -> list[Written]:
        """Return the writer schemas of the values of a batch."""

    @abstractmethod
    def fault(self, raw: str) -> Fault:
        """Return the fault of bytes that do not identify a schema."""


class RemoteFraming(Framing):
    """The schema is in a registry; its id precedes the value."""

    def __init__(self, remote: RemoteSchemas) -> None:
        """Use the schemas of ``remote``."""
        self._remote = remote

    @override
    def framed(self, tree: Any, name: str | None) -> tuple[AvroType, Framed]:
        text = SchemaText(json.dumps(tree, ensure_ascii=False), SchemaType.AVRO)
        writer = self._remote.writer(text, name)
        type_ = parse_avro(writer.schema.text, writer.references)
        if type_.kind != "bytes":
            return type_, lambda body: framed_sql(writer.id, body)
        # Confluent's serializers write bytes without their length.
        return type_, lambda body: framed_sql(writer.id, f"from_avro({body}, '\"bytes\"')")

    @override
    def tokens(self, raw: str) -> str:
        return head_sql(raw)

    @override
    def written(self, raw: str, tokens: Sequence[bytes]) -> list[Written]:
        known = self._remote.known(tokens)
        body = payload_sql(raw)
        all_: list[Written] = []
        for token in map(bytes, tokens):
            condition = f"startswith({raw}, X'{token.hex()}')"
            if token in known.unknown:
                all_.append(Written(known.unknown[token], condition))
                continue
            writer = known.found[token]
            try:
                type_ = parse_avro(writer.schema.text, writer.references)
            except RecordError as error:
                all_.append(Written(f"Schema {writer.id}: {error.problem}", condition))
                continue
            whole = f"to_avro({body}, '\"bytes\"')" if type_.kind == "bytes" else body
            all_.append(Written(type_, condition, whole))
        return all_

    @override
    def fault(self, raw: str) -> Fault:
        return Fault(unframed_sql(raw), literal(NO_HEAD))


class LocalFraming(Framing):
    """The schema precedes each value: each is an Avro object container file of one object.

    avro.apache.org/docs/1.12.0/specification/#object-container-files
    """

    @override
    def framed(self, tree: Any, name: str | None) -> tuple[AvroType, Framed]:
        text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
        sync = hashlib.sha256(text.encode()).digest()[:_SYNC_BYTES]
        meta = {"avro.codec": b"null", "avro.schema": text.encode()}
        pairs = b"".join(_counted(k.encode()) + _counted(v) for k, v in meta.items())
        header = CONTAINER + _long(len(meta)) + pairs + b"\x00" + sync + _long(1)
        start, end = f"X'{header.hex()}'", f"X'{sync.hex()}'"
        # The size and content of a block have the encoding of Avro bytes.
        return parse_avro(
            text
        ), lambda body: f"concat({start}, to_avro({body}, '\"bytes\"'), {end})"

    @override
    def tokens(self, raw: str) -> str:
        # The bytes before the first sync marker. Each file has its own marker, which is also
        # its last 16 bytes.
        mark = f"hex(substring({raw}, -{_SYNC_BYTES}))"
        header = f"unhex(substring_index(hex({raw}), {mark}, 1))"
        return f"IF({self.fault(raw).condition}, NULL, {header})"

    @override
    def written(self, raw: str, tokens: Sequence[bytes]) -> list[Written]:
        sync = {"type": "fixed", "name": _SYNC, "size": _SYNC_BYTES}
        around = (
            [{"name": "count", "type": "long"}, {"name": "size", "type": "long"}],
            [{"name": "sync", "type": sync}],
        )
        all_ = []
        for token in map(bytes, tokens):
            at = len(token) + 1
            ends = (
                f"substring({raw}, {at}, {_SYNC_BYTES}) = substring({raw}, -{_SYNC_BYTES}) "
                f"AND substring({raw}, {at + _SYNC_BYTES}, 1) = X'02'"
            )
            condition = f"(startswith({raw}, X'{token.hex()}') AND {ends})"
            body = f"substring({raw}, {at + _SYNC_BYTES})"
            all_.append(Written(_type_in(token), condition, body, around))
        return all_

    @override
    def fault(self, raw: str) -> Fault:
        starts = f"startswith({raw}, X'{CONTAINER.hex()}')"
        short = len(CONTAINER) + 2 * _SYNC_BYTES
        condition = f"(NOT {starts} OR octet_length({raw}) < {short})"
        return Fault(condition, literal("The value does not begin with its Avro schema."))


def _type_in(header: bytes) -> AvroType | str:
    """Return the schema in a file's header, or the error message."""
    try:
        meta = container_metadata(header)
        codec = meta.get("avro.codec", b"null").decode()
        if codec != "null":
            return f"The Avro value is compressed with {codec}, which is not supported."
        return parse_avro(meta["avro.schema"].decode())
    except RecordError as error:
        return str(error.problem)
    except (ValueError, KeyError) as error:
        return f"The value does not begin with an Avro schema: {error!r}"


def _long(number: int) -> bytes:
    """Encode a non-negative number as an Avro long."""
    rest, written = number << 1, bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits a byte
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def _counted(content: bytes) -> bytes:
    return _long(len(content)) + content


_REMOTE, _LOCAL = "remote", "local"
_BYTES = Schema.bytes(optional=True)
_UNFIT = "The schema does not fit the other records of its topic: "


class AvroSettings(RemoteSettings, ConverterSettings, group="Schemas"):
    """The settings of ``AvroConverter``."""

    schema_mode: str = setting(
        "Where the schema of a value is stored: remote, in a schema registry; or local, before "
        "each value, which is then an Avro object container file.",
        default=_REMOTE,
        validator=ValidString(_REMOTE, _LOCAL),
        importance=Importance.HIGH,
    )
    connect_meta_data: bool = setting(
        "Whether Avro schemas store the metadata of Kafka Connect's schemas in additional "
        "properties.",
        default=True,
        importance=Importance.LOW,
    )
    enhanced_avro_schema_support: bool = setting(
        "Whether strings that were read from an enum are written as an enum, and the branches "
        "of a union have their full names.",
        default=False,
    )
    schemas_cache_config: int = unused_cache("Confluent")


class AvroConverter(Converter):
    """Converts Avro, with the schema in a schema registry or before each value.

    Kafka Connect schemas and Avro schemas are converted as in Confluent's converter. All
    records of a batch get one schema that includes the fields of all their schemas. This
    schema is stored, so a batch of older records also has the columns of newer ones.
    """

    aliases = ("io.confluent.connect.avro.AvroConverter",)

    settings: AvroSettings

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        try:
            return self._encoded(column, made, schema)
        except UNWANTED as error:
            return refusing(column, error)
        except RecordError as error:
            text = f"Failed to serialize Avro data from topic {self.context.topic}: "
            fault = Fault(f"{column} IS NOT NULL", literal(text + str(error.problem)))
            return Converted("CAST(NULL AS BINARY)", _BYTES, faults=(fault,))

    def _encoded(self, column: str, made: str, schema: Schema) -> Converted:
        enhanced = self.settings.enhanced_avro_schema_support
        tree = avro_of(schema, enhanced=enhanced, facts=self.settings.connect_meta_data)
        type_, framed = self._framing.framed(tree, _name(tree))
        shaped = AvroShaper(enhanced=enhanced).shaped(
            texts_of_variants(column, schema), schema, type_
        )
        written = f"to_avro({made}, {literal(json.dumps(engine_tree(type_)))})"
        faults = tuple(
            Fault(
                condition,
                literal(f"Invalid value for the Avro schema at {path or 'the top level'}"),
            )
            for path, condition in unwritable(made, type_)
        )
        faults += tuple(
            Fault(
                condition,
                literal(
                    "The Avro schema cannot represent the value at "
                    f"{path or 'the top level'} exactly: round it in a transform, for example "
                    "times to milliseconds with date_trunc"
                ),
            )
            for path, condition in inexact(column, schema, type_, enhanced=enhanced)
        )
        bad = " OR ".join(fault.condition for fault in faults)
        bytes_ = f"IF({made} IS NULL, NULL, {framed(written)})"
        sql = f"IF({bad}, NULL, {bytes_})" if bad else bytes_
        return Converted(sql, _BYTES, made=shaped, faults=faults)

    @override
    def decoder(self) -> ExpressionDecoder:
        return _AvroDecoder(self, self._framing)

    @override
    def close(self) -> None:
        self._remote.close()

    @property
    def enhanced(self) -> bool:
        """Whether branches of unions have their full names."""
        return self.settings.enhanced_avro_schema_support

    @cached_property
    def _remote(self) -> RemoteSchemas:
        return RemoteSchemas(self.settings, self.context, SchemaType.AVRO)

    @cached_property
    def _framing(self) -> Framing:
        local = self.settings.schema_mode == _LOCAL
        return LocalFraming() if local else RemoteFraming(self._remote)


def _name(tree: Any) -> str | None:
    """Return the full name of a schema."""
    if not isinstance(tree, dict) or "name" not in tree:
        return None
    space = tree.get("namespace")
    return f"{space}.{tree['name']}" if space else str(tree["name"])


class _AvroDecoder(ExpressionDecoder):
    """Reads the values of each writer schema separately, and converts all to one schema."""

    def __init__(self, converter: AvroConverter, framing: Framing) -> None:
        self._converter = converter
        self._framing = framing

    @override
    def tokens(self, raw: str) -> str:
        return self._framing.tokens(raw)

    @override
    def decode(self, raw: str, made: str, tokens: Sequence[Any]) -> Converted:
        written = self._framing.written(raw, tokens)
        good: list[_Good] = []
        faults = [self._framing.fault(raw)]
        target = self._known()
        for place, each in enumerate(written):
            if not isinstance(each.type, AvroType):
                faults.append(Fault(each.condition, literal(each.type)))
                continue
            try:
                own = connect_of(each.type, enhanced=self._converter.enhanced)
                target = own if target is None else evolve(target, own)
            except (RecordError, ConfigError) as error:
                faults.append(Fault(each.condition, literal(_UNFIT + error.problem)))
            else:
                good.append(_Good(f"w{place}", each, each.type, own))
        target = (target or Schema.string()).replaced(optional=True)
        if not good:
            return Converted(sql_null(target), target, None, tuple(faults))
        self._remember(target)
        # The IF keeps Spark from splitting the struct, which would decode the value again for
        # each use of a field.
        whole = good[0].read()
        if len(good) > 1:
            read = ", ".join(f"'{one.name}', {one.read()}" for one in good)
            whole = f"IF({raw} IS NULL, NULL, named_struct({read}))"
            good = [replace(one, name=f"{made}.{one.name}") for one in good]
        else:
            good = [replace(good[0], name=made)]
        text = f"Failed to deserialize data for topic {self._converter.context.topic} to Avro"
        oks = " OR ".join(one.ok for one in good)
        faults.append(Fault(f"({raw} IS NOT NULL AND NOT ({oks}))", literal(text)))
        faults += [fault for one in good for fault in one.faults(text)]
        values = " ".join(f"WHEN {one.ok} THEN {one.value(target)}" for one in good)
        return Converted(f"CASE {values} END", target, whole, tuple(faults))

    def _known(self) -> Schema | None:
        context = self._converter.context
        return None if context.schemas is None else context.schemas.get(context.memory_name)

    def _remember(self, schema: Schema) -> None:
        context = self._converter.context
        if context.schemas is not None and self._known() != schema:
            context.schemas.put(context.memory_name, schema)


_LOOKED_AT = 16  # the maximum number of fields that are searched for one that is not null


@dataclass(frozen=True)
class _Good:
    """Values of one valid writer schema, read into a column.

    Most types are read directly. Types for which a good value and a bad one could both be
    null are wrapped in a record, which makes ``from_avro`` take three times as long.
    """

    name: str
    written: Written
    type: AvroType
    schema: Schema

    def read(self) -> str:
        """Return SQL that reads the values for which ``written.condition`` is true."""
        if self._is_within:
            sql = self._within()
        else:
            sql = _from_avro(self.written.body, engine_tree(self.type))
        return f"IF({self.written.condition}, {sql}, NULL)"

    @property
    def ok(self) -> str:
        """The condition, never null, that the column has a valid value."""
        column = self.name
        if self._is_within:
            return f"({column}.ok IS NOT NULL)"
        for field in self.type.fields:
            if not field.type.is_nullable:
                return f"({column}.{quote(field.name)} IS NOT NULL)"
        if self.type.kind != "record":
            return f"({column} IS NOT NULL)"
        # All fields of a good value may be null. Only such values are read again: Spark
        # evaluates the later arguments of coalesce only if needed.
        names = [quote(field.name) for field in self.type.fields[:_LOOKED_AT]]
        present = ", ".join(f"IF({column}.{name} IS NULL, NULL, true)" for name in names)
        return (
            f"({column} IS NOT NULL AND coalesce({present}, {self._within()}.ok) IS NOT NULL)"
        )

    def faults(self, text: str) -> Iterator[Fault]:
        for path, condition in self._overflowing():
            where = path or "the top level"
            message = f"{text}: The number at {where} is out of the range of its type."
            yield Fault(f"({self.ok} AND {condition})", literal(message))

    def value(self, target: Schema) -> str:
        value = connected(self._plain, self.type, self.schema)
        value = variants_of_texts(value, self.schema, strict=False)
        value = fitted(value, self.schema, target)
        bad = " OR ".join(condition for _, condition in self._overflowing())
        return f"IF({bad}, NULL, {value})" if bad else value

    def _overflowing(self) -> Iterator[tuple[str, str]]:
        return overflowing(self._plain, self.type)

    @property
    def _plain(self) -> str:
        """SQL for the value in the column."""
        return f"{self.name}.v" if self._is_within else self.name

    @property
    def _is_within(self) -> bool:
        # A union may contain null, and Spark cannot read a top-level union of records.
        is_empty = self.type.kind == "record" and not self.type.fields
        return any(self.written.around) or self.type.kind == "union" or is_empty

    def _within(self) -> str:
        """Return SQL for a struct of ``v`` and ``ok``, which is null for bad values.

        The writer schema wraps the value in a record. The reader schema adds the field ``ok``
        with a default, so ``ok`` is set if the value could be read.
        """
        value = {"name": "v", "type": engine_tree(self.type)}
        before, after = self.written.around
        ok = {"name": "ok", "type": "boolean", "default": True}
        own = {"type": "record", "name": "W", "fields": [*before, value, *after]}
        reader = {"type": "record", "name": "W", "fields": [value, ok]}
        return _from_avro(self.written.body, own, reader)


def _from_avro(body: str, own: Any, reader: Any = None) -> str:
    options = "'mode', 'PERMISSIVE'"
    if reader is not None:
        options += f", 'avroSchema', {literal(json.dumps(reader))}"
    return f"from_avro({body}, {literal(json.dumps(own))}, map({options}))"
