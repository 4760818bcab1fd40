"""What `import unistream as us` offers: the only list of it, read by type checkers and by the package itself.

`max`, `min` and `sum` are `us.max`, …, and left out of `__all__`: `from unistream import *` hides no builtin.
"""

from unistream import testing
from unistream.api.commit_group import CommitGroup
from unistream.api.environment import Environment
from unistream.api.finalizing import finalize_savepoint
from unistream.api.functions import Expression, col, concat, lit, when
from unistream.api.keyed import BroadcastConnectedStream, KeyedStream, WindowedStream
from unistream.api.sinks import DataStreamSink
from unistream.api.slots import SlotSharingGroup
from unistream.api.stream import DataStream
from unistream.api.two_phase import TransactionTimeout, TwoPhaseCommitSink
from unistream.base.config import Configuration
from unistream.base.errors import (
    AlreadyEnded,
    ConfigError,
    CorruptSnapshot,
    Fenced,
    JobCancelled,
    NotFound,
    OutcomeUnknown,
    SuppressRestarts,
    Transient,
    UnistreamError,
    Unreachable,
    UserCodeError,
)
from unistream.base.secrets import Secret
from unistream.client.remote.job_client import JobClient, JobResult
from unistream.connector import datagen
from unistream.connector.blackhole import BlackholeSink
from unistream.connector.catalogue import ConnectorInfo
from unistream.connector.collect import CollectSink
from unistream.connector.datagen import DatagenSource
from unistream.connector.delta import DeltaSink, DeltaSource
from unistream.connector.file import FileSink, FileSource
from unistream.connector.group import read_group
from unistream.connector.hybrid import HybridSource
from unistream.connector.iceberg import IcebergSink, IcebergSource
from unistream.connector.kafka import AvroRecord, KafkaSink, KafkaSource, ProtobufMessage, SchemaRegistry
from unistream.connector.print_ import PrintSink
from unistream.connector.simple import PollingSource, SimpleSink
from unistream.connector.sql import SqlSink, SqlSource
from unistream.connector.static import StaticSource
from unistream.model.elements import Batch
from unistream.model.graph import SourceInfo
from unistream.model.job_info import JobInfo
from unistream.model.messages import Split
from unistream.model.snapshot import ListMode
from unistream.model.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorListDescriptor,
    ReducingStateDescriptor,
    StateOptions,
    StateTtl,
    TtlUpdate,
    TtlVisibility,
    ValueStateDescriptor,
)
from unistream.model.stream_graph import StreamExchangeMode
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.process import (
    BatchCollector,
    BatchContext,
    BroadcastContext,
    BroadcastProcessFunction,
    Collector,
    FunctionContext,
    KeyedBatch,
    KeyedBatchFunction,
    KeyedProcessFunction,
    ProcessContext,
    ProcessFunction,
    TimerBatch,
    UserMetrics,
)
from unistream.operator.window import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    count,
    mean,
)
from unistream.operator.window import (
    max as max,
)
from unistream.operator.window import (
    min as min,
)
from unistream.operator.window import (
    sum as sum,
)
from unistream.port.dead_letters import OnError
from unistream.port.group import GroupCommit, TableVersion
from unistream.port.line import KeepsLine, LineCommit, OnForeign
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    AppendsToForeign,
    ChecksRows,
    CommitOutcome,
    CommitRequest,
    CommitResult,
    CommittableFunction,
    CommittableStage,
    Committer,
    JointCommitter,
    RecordsPositions,
    RecoverableCommitter,
    ReplacesRows,
    RowCheck,
    Sink,
    SinkContext,
    SinkWriter,
    SoleCommitter,
    StatefulCommitter,
    VisibleRows,
    WithGlobalCommitter,
    WithPostCommitStages,
    WithPreCommitStages,
)
from unistream.port.source import (
    Exhausted,
    Idle,
    ReaderContext,
    Rows,
    SendsDeadLetters,
    Source,
    SourceReader,
    SplitDiscovery,
    SplitFinished,
)
from unistream.port.state import AppendingState, ListState, MapState, ValueState
from unistream.savepoint import Savepoint, SavepointWriter, read_savepoint, write_savepoint

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "AlreadyEnded",
    "AppendingState",
    "AppendsToForeign",
    "AvroRecord",
    "Batch",
    "BatchCollector",
    "BatchContext",
    "BlackholeSink",
    "BroadcastConnectedStream",
    "BroadcastContext",
    "BroadcastProcessFunction",
    "ChecksRows",
    "CollectSink",
    "Collector",
    "CommitGroup",
    "CommitOutcome",
    "CommitPermit",
    "CommitRequest",
    "CommitResult",
    "CommittableFunction",
    "CommittableStage",
    "Committer",
    "ConfigError",
    "Configuration",
    "ConnectorInfo",
    "CorruptSnapshot",
    "DataStream",
    "DataStreamSink",
    "DatagenSource",
    "DeltaSink",
    "DeltaSource",
    "Environment",
    "Exhausted",
    "Expression",
    "Fenced",
    "FileSink",
    "FileSource",
    "FunctionContext",
    "GroupCommit",
    "HybridSource",
    "IcebergSink",
    "IcebergSource",
    "Idle",
    "JobCancelled",
    "JobClient",
    "JobInfo",
    "JobResult",
    "JointCommitter",
    "KafkaSink",
    "KafkaSource",
    "KeepsLine",
    "KeyedBatch",
    "KeyedBatchFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "LineCommit",
    "ListMode",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "NotFound",
    "OnError",
    "OnForeign",
    "OperatorListDescriptor",
    "OutcomeUnknown",
    "PollingSource",
    "PrintSink",
    "ProcessContext",
    "ProcessFunction",
    "ProtobufMessage",
    "ReaderContext",
    "RecordsPositions",
    "RecoverableCommitter",
    "ReducingStateDescriptor",
    "ReplacesRows",
    "RowCheck",
    "Rows",
    "Savepoint",
    "SavepointWriter",
    "SchemaRegistry",
    "Secret",
    "SendsDeadLetters",
    "SimpleSink",
    "Sink",
    "SinkContext",
    "SinkWriter",
    "SlidingEventTimeWindows",
    "SlotSharingGroup",
    "SoleCommitter",
    "Source",
    "SourceInfo",
    "SourceReader",
    "Split",
    "SplitDiscovery",
    "SplitFinished",
    "SqlSink",
    "SqlSource",
    "StateOptions",
    "StateTtl",
    "StatefulCommitter",
    "StaticSource",
    "StreamExchangeMode",
    "SuppressRestarts",
    "TableVersion",
    "TimerBatch",
    "TransactionTimeout",
    "Transient",
    "TtlUpdate",
    "TtlVisibility",
    "TumblingEventTimeWindows",
    "TwoPhaseCommitSink",
    "UnistreamError",
    "Unreachable",
    "UserCodeError",
    "UserMetrics",
    "ValueState",
    "ValueStateDescriptor",
    "VisibleRows",
    "WatermarkStrategy",
    "WindowedStream",
    "WithGlobalCommitter",
    "WithPostCommitStages",
    "WithPreCommitStages",
    "__version__",
    "col",
    "concat",
    "count",
    "datagen",
    "finalize_savepoint",
    "lit",
    "mean",
    "read_group",
    "read_savepoint",
    "testing",
    "when",
    "write_savepoint",
]

__version__: str
