"""The Protobuf converter, compatible with Confluent's ProtobufConverter."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Converter, RecordError, Schema
from headrace.sdk.converter import ArrowCall, Converted, Fault
from headrace.sdk.errors import SetupError
from headrace.sdk.sqltext import literal
from headrace.sdk.struct_exprs import texts_of_variants
from headrace_plugins.confluent.protobuf_options import ProtoOptions
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
from headrace_plugins.converters.scalars import ConverterSettings

if TYPE_CHECKING:
    from headrace.sdk import ConverterContext
    from headrace.sdk.config import Config
    from headrace.sdk.converter import ArrowDecoder
    from headrace_plugins.confluent.protobuf_payloads import RecordWriter
    from headrace_plugins.confluent.remote_schemas import PayloadReader, WriterSchema

_BYTES = Schema.bytes(optional=True)


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
        self._options = self.settings
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

        written = proto_of(schema, self._options)
        found = self._schemas.writer(
            SchemaText(written.text, SchemaType.PROTOBUF), written.name
        )
        files = compile_proto(found.schema.text, found.references)
        path = tuple(ProtoFile(files).path_of(written.name))
        writer = RecordWriter(files, path, schema, self._options, head_of(found.id))
        writer.check()
        return writer

    @override
    def decoder(self) -> ArrowDecoder:
        return HeadedDecoder(self._schemas, partial(_reader, options=self._options))


def _reader(writer: WriterSchema, *, options: ProtoOptions) -> PayloadReader:
    from headrace_plugins.confluent.protobuf_payloads import (  # noqa: PLC0415 - an extra
        PayloadReader,
    )

    return PayloadReader(compile_proto(writer.schema.text, writer.references), options)
