"""The bytes around an Avro value: the id of its schema, or the schema itself."""

from __future__ import annotations

import hashlib
import io
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import RecordError, SetupError
from headrace.sdk.converter import Fault
from headrace.sdk.sqltext import literal
from headrace_plugins.confluent.avro_types import AvroType, parse_avro
from headrace_plugins.confluent.schema_registry import SchemaText, SchemaType
from headrace_plugins.confluent.wireform import (
    NO_HEAD,
    framed_sql,
    head_sql,
    payload_sql,
    unframed_sql,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.confluent.remote_schemas import RemoteSchemas

_OBJECT = b"Obj\x01"
_SYNC_BYTES = 16
_SYNC = "SYNC"


@dataclass(frozen=True)
class Written:
    """What some values of a batch were written with.

    Args:
        type: The schema; or what is wrong with it: the values are bad.
        condition: SQL that is true for their bytes.
        body: SQL for the Avro bytes in them.
        around: Fields before and after the value in the body, by a name that sorts so.
    """

    type: AvroType | str
    condition: str
    body: str = ""
    around: tuple[Sequence[Any], Sequence[Any]] = ((), ())


class Framing(ABC):
    """How the schema of a value is told."""

    @abstractmethod
    def framed(self, tree: Any, name: str | None, body: str) -> tuple[AvroType, str]:
        """Return the schema that is to be written with, and SQL for the whole.

        Args:
            tree: The schema of the values.
            name: Its full name, if it has one.
            body: SQL for the Avro bytes, to be computed by the schema that is returned.
        """

    @abstractmethod
    def tokens(self, raw: str) -> str:
        """Return SQL for what tells the schema of a column of bytes; null if nothing does."""

    @abstractmethod
    def written(self, raw: str, tokens: Sequence[bytes]) -> list[Written]:
        """Return what the values of a batch were written with."""

    @abstractmethod
    def fault(self, raw: str) -> Fault:
        """Return which bytes tell no schema."""


class RemoteFraming(Framing):
    """The schema is in a registry, its id before the value."""

    def __init__(self, remote: RemoteSchemas) -> None:
        """Ask ``remote``."""
        self._remote = remote

    @override
    def framed(self, tree: Any, name: str | None, body: str) -> tuple[AvroType, str]:
        text = SchemaText(json.dumps(tree, ensure_ascii=False), SchemaType.AVRO)
        writer = self._remote.writer(text, name)
        type_ = parse_avro(writer.schema.text, writer.references)
        if type_.kind == "bytes":
            # Confluent's serializers write bytes as they are, without their length.
            body = f"from_avro({body}, '\"bytes\"')"
        return type_, framed_sql(writer.id, body)

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
    """The schema is before each value: each is an Avro object container file of one object.

    avro.apache.org/docs/1.12.0/specification/#object-container-files
    """

    @override
    def framed(self, tree: Any, name: str | None, body: str) -> tuple[AvroType, str]:
        text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
        sync = hashlib.sha256(text.encode()).digest()[:_SYNC_BYTES]
        meta = {"avro.codec": b"null", "avro.schema": text.encode()}
        pairs = b"".join(_counted(k.encode()) + _counted(v) for k, v in meta.items())
        header = _OBJECT + _long(len(meta)) + pairs + b"\x00" + sync + _long(1)
        # A block's size and content are written as bytes are.
        block = f"to_avro({body}, '\"bytes\"')"
        return parse_avro(text), f"concat(X'{header.hex()}', {block}, X'{sync.hex()}')"

    @override
    def tokens(self, raw: str) -> str:
        # What comes before the first of the marks that also end it, of which each file has
        # its own.
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
        starts = f"startswith({raw}, X'{_OBJECT.hex()}')"
        short = len(_OBJECT) + 2 * _SYNC_BYTES
        condition = f"(NOT {starts} OR octet_length({raw}) < {short})"
        return Fault(condition, literal("The value does not begin with its Avro schema."))


def _type_in(header: bytes) -> AvroType | str:
    """Return the schema in a file's header, or what is wrong with it.

    Raises SetupError when the extra `headrace[confluent]` is not installed.
    """
    try:
        from avro.errors import AvroException  # noqa: PLC0415 - an extra
    except ImportError:
        problem = "Values that begin with their Avro schema need the Python package avro."
        raise SetupError(problem, fix="Install headrace[confluent].") from None
    try:
        meta = _metadata(header)
        codec = meta.get("avro.codec", b"null").decode()
        if codec != "null":
            return f"The Avro value is compressed with {codec}, which is not read here."
        return parse_avro(meta["avro.schema"].decode())
    except RecordError as error:
        return str(error.problem)
    except (AvroException, ValueError, KeyError) as error:
        return f"The value does not begin with an Avro schema: {error!r}"


def _metadata(header: bytes) -> dict[str, bytes]:
    from avro.io import BinaryDecoder  # noqa: PLC0415 - an extra

    decoder = BinaryDecoder(io.BytesIO(header[len(_OBJECT) :]))
    meta: dict[str, bytes] = {}
    while number := decoder.read_long():
        if number < 0:
            decoder.read_long()  # the size of the block
        for _ in range(abs(number)):
            key = decoder.read_utf8()
            meta[key] = decoder.read_bytes()
    return meta


def _long(number: int) -> bytes:
    """Write a number that is not negative as Avro does."""
    rest, written = number << 1, bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits a byte
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def _counted(content: bytes) -> bytes:
    return _long(len(content)) + content
