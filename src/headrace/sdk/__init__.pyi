from .connector import (
    Connector as Connector,
    ConnectorContext as ConnectorContext,
    DeliveryGuarantee as DeliveryGuarantee,
    Ledger as Ledger,
    SchemaMemory as SchemaMemory,
    TaskContext as TaskContext,
)
from .converter import Converter as Converter, ConverterContext as ConverterContext
from .errors import (
    ConfigError as ConfigError,
    ConfigErrors as ConfigErrors,
    DataLostError as DataLostError,
    HeadraceError as HeadraceError,
    RecordError as RecordError,
    RejectedError as RejectedError,
    RetriableError as RetriableError,
    SinkError as SinkError,
    SourceError as SourceError,
    StateError as StateError,
    UnfitRecordError as UnfitRecordError,
)
from .expressions import RecordExpr as RecordExpr, ValueExpr as ValueExpr
from .mark import Mark as Mark
from .position import (
    Boundaries as Boundaries,
    BoundaryKind as BoundaryKind,
    Lag as Lag,
    Position as Position,
    ReadLimit as ReadLimit,
    check_range as check_range,
)
from .worker_plugins import (
    Alert as Alert,
    AlertChannel as AlertChannel,
    ConfigProvider as ConfigProvider,
    MetricsReporter as MetricsReporter,
    ProviderContext as ProviderContext,
)
from .ready_sources import (
    NumberedSource as NumberedSource,
    Page as Page,
    PagedSource as PagedSource,
    source as source,
)
from .record import Header as Header, Record as Record
from .schema import Field as Field, Schema as Schema, Type as Type
from .sink import (
    BatchSink as BatchSink,
    FrameSink as FrameSink,
    RecordSink as RecordSink,
    Refusal as Refusal,
    SinkBatch as SinkBatch,
    SinkConnector as SinkConnector,
    SinkTask as SinkTask,
)
from .sources import (
    ArrowParts as ArrowParts,
    CapturedBatch as CapturedBatch,
    CaptureSource as CaptureSource,
    FrameSource as FrameSource,
    SourceConnector as SourceConnector,
    SourceTask as SourceTask,
    Split as Split,
    SplitSource as SplitSource,
    StreamFrameSource as StreamFrameSource,
    StreamRows as StreamRows,
    StreamSplitSource as StreamSplitSource,
)
from .sql_sink import SqlSink as SqlSink
from .struct import Struct as Struct
from .transform import (
    ArrowTransform as ArrowTransform,
    CodeTransform as CodeTransform,
    FrameTransform as FrameTransform,
    Predicate as Predicate,
    RecordTransform as RecordTransform,
    Transform as Transform,
    TransformBatch as TransformBatch,
    TransformContext as TransformContext,
)
