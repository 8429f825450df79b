"""All that the author of a plugin may import."""

from headrace.sdk.arrow import from_arrow, to_arrow, to_arrow_type
from headrace.sdk.changes import ChangeKind, SchemaChange, schema_changes
from headrace.sdk.code_transform import (
    ArrowTransform,
    CodeTransform,
    FrameTransform,
    RecordTransform,
    TransformBatch,
    TransformContext,
)
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
from headrace.sdk.edits import Change, Column, defaulted
from headrace.sdk.errors import (
    Category,
    ConfigError,
    ConfigErrors,
    DataLostError,
    HeadraceError,
    PluginNotFoundError,
    RecordError,
    RetriableError,
    SchemaChangeError,
    SetupError,
    SinkError,
    SourceError,
    StaleEpochError,
    StateError,
    ToleranceExceededError,
    UnfitRecordError,
)
from headrace.sdk.evolution import evolve
from headrace.sdk.evolving import EVOLUTION_KINDS, EvolutionPolicy, Handling
from headrace.sdk.fieldpath import FieldPath, field_path, field_paths, with_field_syntax
from headrace.sdk.frames import checked_rows, rows
from headrace.sdk.javatypes import java_class
from headrace.sdk.part import Part
from headrace.sdk.position import Lag, Position, ReadLimit
from headrace.sdk.projection import project
from headrace.sdk.reconciling import Handled, Member, Move, Reconciled, reconcile
from headrace.sdk.record import Header, Record
from headrace.sdk.schema import Field, Schema, Type, validate_value
from headrace.sdk.schema_builder import SchemaBuilder
from headrace.sdk.sink import (
    BatchSink,
    Counting,
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
from headrace.sdk.sqltext import literal, literal_text, quote, sql_null, sql_type, sql_value
from headrace.sdk.stored import schema_from_json, schema_to_json
from headrace.sdk.struct import Struct
from headrace.sdk.transform import DATA_EXCEPTION, ERROR_TYPE, Predicate, Shape, Transform

__all__ = [
    "DATA_EXCEPTION",
    "ERROR_TYPE",
    "EVOLUTION_KINDS",
    "ArrowTransform",
    "BatchSink",
    "BoundaryKind",
    "CaptureSource",
    "CapturedBatch",
    "Category",
    "Change",
    "ChangeKind",
    "CodeTransform",
    "Column",
    "ConfigError",
    "ConfigErrors",
    "Connector",
    "ConnectorContext",
    "Contract",
    "Counting",
    "DataLostError",
    "DeliveryGuarantee",
    "EvolutionPolicy",
    "Field",
    "FieldPath",
    "FrameSink",
    "FrameSource",
    "FrameTransform",
    "Handled",
    "Handling",
    "Header",
    "HeadraceError",
    "Lag",
    "Ledger",
    "Mark",
    "Member",
    "Move",
    "Part",
    "PluginNotFoundError",
    "Position",
    "Predicate",
    "ReadLimit",
    "Reconciled",
    "Record",
    "RecordError",
    "RecordSink",
    "RecordTransform",
    "ReplayableSource",
    "RetriableError",
    "Schema",
    "SchemaBuilder",
    "SchemaChange",
    "SchemaChangeError",
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
    "TransformBatch",
    "TransformContext",
    "Type",
    "UnfitRecordError",
    "checked_rows",
    "conform",
    "defaulted",
    "evolve",
    "field_path",
    "field_paths",
    "from_arrow",
    "from_spark_json",
    "java_class",
    "literal",
    "literal_text",
    "parse_ddl",
    "project",
    "quote",
    "reconcile",
    "rows",
    "schema_changes",
    "schema_from_json",
    "schema_to_json",
    "sql_null",
    "sql_type",
    "sql_value",
    "to_arrow",
    "to_arrow_type",
    "to_ddl",
    "to_spark_json",
    "validate_value",
    "with_field_syntax",
]
