"""The Protobuf converter and its options, compatible with Confluent's ProtobufConverter."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Converter, RecordError, Schema
from headrace.sdk.config import Importance, Settings, setting
from headrace.sdk.converter import ArrowCall, Converted, Fault
from headrace.sdk.errors import SetupError
from headrace.sdk.sqltext import literal
from headrace.sdk.struct_exprs import texts_of_variants
from headrace_plugins.confluent.protoc import compile_proto
from headrace_plugins.confluent.remote_schemas import (
    UNWANTED,
    HeadedDecoder,
    RemoteSchemas,
    RemoteSettings,
    head_of,
    refusing,
)
from headrace_plugins.confluent.schema_registry import SchemaText, SchemaType
from headrace_plugins.converters.scalars import ConverterSettings, unused_cache

if TYPE_CHECKING:
    from headrace.sdk import ConverterContext
    from headrace.sdk.config import Config
    from headrace.sdk.converter import ArrowDecoder
    from headrace_plugins.confluent.protobuf_payloads import RecordWriter
    from headrace_plugins.confluent.remote_schemas import PayloadReader, WriterSchema

_BYTES = Schema.bytes(optional=True)


class ProtoOptions(Settings, group="Schemas"):
    """The options of the conversion between Protobuf and Kafka Connect schemas."""

    enhanced: bool = setting(
        "Whether schema names are the full names of messages, including the package.",
        key="enhanced.protobuf.schema.support",
        default=False,
        importance=Importance.LOW,
    )
    words: bool = setting(
        "Whether nullable fields are written with the keyword optional, and only fields with "
        "it are read as nullable. Without this setting and wrapper.for.nullables, a null "
        "number is read as 0, and a null string as an empty string.",
        key="optional.for.nullables",
        default=False,
    )
    wrappers: bool = setting(
        "Whether nullable fields are written as wrapper messages, such as "
        "google.protobuf.Int64Value, and wrapper messages are read as their value.",
        key="wrapper.for.nullables",
        default=False,
    )
    raw_wrappers: bool = setting(
        "Whether a record that is a wrapper message is read as its value.",
        key="wrapper.for.raw.primitives",
        default=True,
        importance=Importance.LOW,
    )
    proto2_words: bool = setting(
        "Whether a missing optional field of Protobuf 2 is read as null, instead of its "
        "default.",
        key="optional.for.proto2",
        default=True,
        importance=Importance.LOW,
    )
    enum_numbers: bool = setting(
        "Whether enums are read as numbers, instead of names.",
        key="int.for.enums",
        default=False,
        importance=Importance.LOW,
    )
    structs_for_nulls: bool = setting(
        "Whether a missing message is read as a struct of defaults, instead of null.",
        key="generate.struct.for.nulls",
        default=False,
        importance=Importance.LOW,
    )
    union_places: bool = setting(
        "Whether the field for a oneof is named by the name and the index of the oneof, such "
        "as choice_0.",
        key="generate.index.for.unions",
        default=True,
        importance=Importance.LOW,
    )
    flat_unions: bool = setting(
        "Whether the fields of a oneof become fields of their message, instead of a nested "
        "struct.",
        key="flatten.unions",
        default=False,
        importance=Importance.LOW,
    )
    scrubs: bool = setting(
        "Whether names that Protobuf does not allow are replaced by valid names. If false, "
        "they are an error.",
        key="scrub.invalid.names",
        default=False,
        importance=Importance.LOW,
    )
    schemas_cache_config: int = unused_cache("Confluent")

    def union_field(self, name: str, place: int) -> str:
        """Return the name of the field for a `oneof`."""
        return f"{name}_{place}" if self.union_places else name


class ProtobufSettings(ProtoOptions, RemoteSettings, ConverterSettings):
    """The settings of ``ProtobufConverter``."""


class ProtobufConverter(Converter):
    """Converts Protobuf with the schema in a schema registry.

    Kafka Connect schemas and Protobuf schemas are converted as in Confluent's converter. Needs
    the extra `headrace[protobuf]`.
    """

    aliases = ("io.confluent.connect.protobuf.ProtobufConverter",)

    settings: ProtobufSettings

    def __init__(self, config: Config, context: ConverterContext) -> None:
        super().__init__(config, context)
        if find_spec("grpc_tools") is None:
            problem = "ProtobufConverter needs protoc, which is not installed."
            raise SetupError(problem, fix="Install headrace[protobuf].")
        self._schemas = RemoteSchemas(self.settings, context, SchemaType.PROTOBUF)

    @override
    def close(self) -> None:
        self._schemas.close()

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        text = f"Failed to serialize Protobuf data from topic {self.context.topic}: "
        try:
            writer = self._writer(schema)
        except UNWANTED as error:
            return refusing(column, error)
        except RecordError as error:
            fault = Fault(f"{column} IS NOT NULL", literal(text + error.problem))
            return Converted("CAST(NULL AS BINARY)", _BYTES, faults=(fault,))
        from headrace_plugins.confluent.protobuf_payloads import (  # noqa: PLC0415 - an extra
            RESULT,
        )

        called = ArrowCall.called(made)
        message = f"concat({literal(text)}, {called}.problem)"
        return Converted(
            f"{called}.bytes",
            _BYTES,
            faults=(Fault(f"{called}.problem IS NOT NULL", message),),
            call=ArrowCall(texts_of_variants(column, schema), writer, RESULT),
        )

    def _writer(self, schema: Schema) -> RecordWriter:
        # These imports need the extra, but the plugin must be listed without it.
        from headrace_plugins.confluent.protobuf_payloads import (  # noqa: PLC0415
            RecordWriter,
        )
        from headrace_plugins.confluent.protobuf_schemas import proto_of  # noqa: PLC0415
        from headrace_plugins.confluent.protobuf_types import ProtoFile  # noqa: PLC0415

        written = proto_of(schema, self.settings)
        found = self._schemas.writer(
            SchemaText(written.text, SchemaType.PROTOBUF), written.name
        )
        files = compile_proto(found.schema.text, found.references)
        path = tuple(ProtoFile(files).path_of(written.name))
        writer = RecordWriter(files, path, schema, self.settings, head_of(found.id))
        writer.check()
        return writer

    @override
    def decoder(self) -> ArrowDecoder:
        return HeadedDecoder(self._schemas, partial(_reader, options=self.settings))


def _reader(writer: WriterSchema, *, options: ProtoOptions) -> PayloadReader:
    from headrace_plugins.confluent.protobuf_payloads import (  # noqa: PLC0415 - an extra
        PayloadReader,
    )

    return PayloadReader(compile_proto(writer.schema.text, writer.references), options)
