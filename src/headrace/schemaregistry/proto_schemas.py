"""Protobuf schemas: protoc compiles them, and what it makes of them is compared."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from headrace.schemaregistry.proto_differences import differences
from headrace.sdk.schemaregistry import compile_proto

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.schemaregistry.languages import ParsedSchema


@dataclass(frozen=True)
class ProtoSchema:
    """See ParsedSchema."""

    text: str
    files: FileDescriptorSet

    @property
    def file(self) -> FileDescriptorProto:
        """The schema's own file."""
        return self.files.file[-1]

    @cached_property
    def identity(self) -> str:
        """See ParsedSchema. Comments, layout and Base64 make no difference."""
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()

    @property
    def normalized(self) -> str:
        """See ParsedSchema. It is as it came, as `identity` leaves nothing to normalize."""
        return self.text

    def unreadable(self, written: ParsedSchema) -> Sequence[str]:
        """See ParsedSchema."""
        assert isinstance(written, ProtoSchema)
        return [str(each) for each in differences(written.files, self.files)]


def parse_proto(text: str, references: Mapping[str, str]) -> ProtoSchema:
    """Read a schema. Raises InvalidSchemaError, and SetupError where protoc is missing.

    Args:
        text: A .proto file's text, or a descriptor in Base64.
        references: What it imports, by path.
    """
    compiled = FileDescriptorSet.FromString(compile_proto(text, references))
    return ProtoSchema(text, compiled)
