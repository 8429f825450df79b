"""What a schema registry holds."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RegisteredSchema", "SchemaReference", "SchemaText", "SchemaType"]


class SchemaType(StrEnum):
    """The language a schema is written in."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """One schema's use of another.

    Args:
        name: What the text calls it: an Avro full name, a `$ref`, or a Protobuf import.
        subject: The subject that has it.
        version: Its version there; always a number, as a reference never moves.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as it is registered.

    Args:
        text: Avro or JSON Schema in JSON; Protobuf as a .proto file's text, or as the Base64 of
            its FileDescriptorProto.
        type: The language.
        references: The schemas of other subjects that the text uses.
    """

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject. The id names the schema everywhere, in records too."""

    subject: str
    version: int
    id: int
    schema: SchemaText
