"""All that the author of a plugin may import."""

from headrace.sdk.arrow import from_arrow, to_arrow, to_arrow_type
from headrace.sdk.conform import conform
from headrace.sdk.connector import (
    BoundaryKind,
    Connector,
    ConnectorContext,
    Contract,
    DeliveryGuarantee,
    Ledger,
    SchemaMemory,
    TaskContext,
)
from headrace.sdk.ddl import parse_ddl
from headrace.sdk.errors import (
    Category,
    ConfigError,
    ConfigErrors,
    DataLostError,
    HeadraceError,
    PluginNotFoundError,
    RecordError,
    RetriableError,
    SetupError,
    SinkError,
    SourceError,
    StaleEpochError,
    StateError,
    ToleranceExceededError,
)
from headrace.sdk.evolution import evolve
from headrace.sdk.frames import checked_rows, rows
from headrace.sdk.position import Position, ReadLimit
from headrace.sdk.projection import project
from headrace.sdk.record import Header, Record
from headrace.sdk.schema import Field, Schema, Type, validate_value
from headrace.sdk.schema_builder import SchemaBuilder
from headrace.sdk.sink import (
    BatchSink,
    FrameSink,
    Mark,
    RecordSink,
    SinkBatch,
    SinkConnector,
    SinkTask,
    StagedWrite,
)
from headrace.sdk.source import (
    CapturedBatch,
    CaptureSource,
    FrameSource,
    ReplayableSource,
    SourceConnector,
    SourceTask,
    Split,
    SplitSource,
    StreamSplitSource,
)
from headrace.sdk.sparktypes import from_spark_json, to_ddl, to_spark_json
from headrace.sdk.stored import schema_from_json, schema_to_json
from headrace.sdk.struct import Struct
from headrace.sdk.transform import ERROR_TYPE, Part, Predicate, Shape, Transform, literal, quote

__all__ = [
    "ERROR_TYPE",
    "BatchSink",
    "BoundaryKind",
    "CaptureSource",
    "CapturedBatch",
    "Category",
    "ConfigError",
    "ConfigErrors",
    "Connector",
    "ConnectorContext",
    "Contract",
    "DataLostError",
    "DeliveryGuarantee",
    "Field",
    "FrameSink",
    "FrameSource",
    "Header",
    "HeadraceError",
    "Ledger",
    "Mark",
    "Part",
    "PluginNotFoundError",
    "Position",
    "Predicate",
    "ReadLimit",
    "Record",
    "RecordError",
    "RecordSink",
    "ReplayableSource",
    "RetriableError",
    "Schema",
    "SchemaBuilder",
    "SchemaMemory",
    "SetupError",
    "Shape",
    "SinkBatch",
    "SinkConnector",
    "SinkError",
    "SinkTask",
    "SourceConnector",
    "SourceError",
    "SourceTask",
    "Split",
    "SplitSource",
    "StagedWrite",
    "StaleEpochError",
    "StateError",
    "StreamSplitSource",
    "Struct",
    "TaskContext",
    "ToleranceExceededError",
    "Transform",
    "Type",
    "checked_rows",
    "conform",
    "evolve",
    "from_arrow",
    "from_spark_json",
    "literal",
    "parse_ddl",
    "project",
    "quote",
    "rows",
    "schema_from_json",
    "schema_to_json",
    "to_arrow",
    "to_arrow_type",
    "to_ddl",
    "to_spark_json",
    "validate_value",
]
