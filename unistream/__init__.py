"""One Python pipeline, run as a batch job or as a stream, with one result.

`import unistream as us` is enough: everything that a pipeline is written with is here. Names are
resolved when they are first used, so that importing the package costs nothing, and connectors whose
libraries are heavy are loaded only by those who use them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

_HOMES: Final = {
    "unistream.api.environment": ("Environment",),
    "unistream.api.finalizing": ("finalize_savepoint",),
    "unistream.api.functions": ("col", "lit"),
    "unistream.api.keyed": ("BroadcastConnectedStream", "KeyedStream", "WindowedStream"),
    "unistream.api.sinks": ("DataStreamSink",),
    "unistream.api.slots": ("SlotSharingGroup",),
    "unistream.api.stream": ("DataStream",),
    "unistream.api.two_phase": ("TransactionTimeout", "TwoPhaseCommitSink"),
    "unistream.base.config": ("Configuration",),
    "unistream.base.errors": (
        "ConfigError",
        "JobCancelled",
        "SuppressRestarts",
        "UnistreamError",
        "UserCodeError",
    ),
    "unistream.base.secrets": ("Secret",),
    "unistream.connector.blackhole": ("BlackholeSink",),
    "unistream.connector.collect": ("CollectSink",),
    "unistream.connector.datagen": ("DatagenSource",),
    "unistream.connector.delta": ("DeltaSink",),
    "unistream.connector.file": ("FileSink", "FileSource"),
    "unistream.connector.kafka": ("KafkaSource",),
    "unistream.connector.print_": ("PrintSink",),
    "unistream.connector.static": ("StaticSource",),
    "unistream.model.snapshot": ("ListMode",),
    "unistream.model.state": (
        "AggregatingStateDescriptor",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "OperatorListDescriptor",
        "ReducingStateDescriptor",
        "StateOptions",
        "StateTtl",
        "TtlUpdate",
        "TtlVisibility",
        "ValueStateDescriptor",
    ),
    "unistream.model.stream_graph": ("StreamExchangeMode",),
    "unistream.model.watermarks": ("WatermarkStrategy",),
    "unistream.operator.process": (
        "BatchCollector",
        "BatchContext",
        "BroadcastContext",
        "BroadcastProcessFunction",
        "Collector",
        "FunctionContext",
        "KeyedBatch",
        "KeyedBatchFunction",
        "KeyedProcessFunction",
        "ProcessContext",
        "ProcessFunction",
        "TimerBatch",
    ),
    "unistream.operator.window": (
        "SlidingEventTimeWindows",
        "TumblingEventTimeWindows",
        "count",
        "max",
        "mean",
        "min",
        "sum",
    ),
    "unistream.savepoint": ("Savepoint", "SavepointWriter", "read_savepoint", "write_savepoint"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}
_MODULES: Final = {"datagen": "unistream.connector.datagen", "testing": "unistream.testing"}

if TYPE_CHECKING:
    from unistream import testing
    from unistream.api.environment import Environment
    from unistream.api.finalizing import finalize_savepoint
    from unistream.api.functions import col, lit
    from unistream.api.keyed import BroadcastConnectedStream, KeyedStream, WindowedStream
    from unistream.api.sinks import DataStreamSink
    from unistream.api.slots import SlotSharingGroup
    from unistream.api.stream import DataStream
    from unistream.api.two_phase import TransactionTimeout, TwoPhaseCommitSink
    from unistream.base.config import Configuration
    from unistream.base.errors import (
        ConfigError,
        JobCancelled,
        SuppressRestarts,
        UnistreamError,
        UserCodeError,
    )
    from unistream.base.secrets import Secret
    from unistream.connector import datagen
    from unistream.connector.blackhole import BlackholeSink
    from unistream.connector.collect import CollectSink
    from unistream.connector.datagen import DatagenSource
    from unistream.connector.delta import DeltaSink
    from unistream.connector.file import FileSink, FileSource
    from unistream.connector.kafka import KafkaSource
    from unistream.connector.print_ import PrintSink
    from unistream.connector.static import StaticSource
    from unistream.model.snapshot import ListMode
    from unistream.model.state import (
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
    )
    from unistream.operator.window import (
        SlidingEventTimeWindows,
        TumblingEventTimeWindows,
        count,
        max,
        mean,
        min,
        sum,
    )
    from unistream.savepoint import Savepoint, SavepointWriter, read_savepoint, write_savepoint

__all__ = [
    "AggregatingStateDescriptor",
    "BatchCollector",
    "BatchContext",
    "BlackholeSink",
    "BroadcastConnectedStream",
    "BroadcastContext",
    "BroadcastProcessFunction",
    "CollectSink",
    "Collector",
    "ConfigError",
    "Configuration",
    "DataStream",
    "DataStreamSink",
    "DatagenSource",
    "DeltaSink",
    "Environment",
    "FileSink",
    "FileSource",
    "FunctionContext",
    "JobCancelled",
    "KafkaSource",
    "KeyedBatch",
    "KeyedBatchFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListMode",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "OperatorListDescriptor",
    "PrintSink",
    "ProcessContext",
    "ProcessFunction",
    "ReducingStateDescriptor",
    "Savepoint",
    "SavepointWriter",
    "Secret",
    "SlidingEventTimeWindows",
    "SlotSharingGroup",
    "StateOptions",
    "StateTtl",
    "StaticSource",
    "StreamExchangeMode",
    "SuppressRestarts",
    "TimerBatch",
    "TransactionTimeout",
    "TtlUpdate",
    "TtlVisibility",
    "TumblingEventTimeWindows",
    "TwoPhaseCommitSink",
    "UnistreamError",
    "UserCodeError",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "WindowedStream",
    "__version__",
    "col",
    "count",
    "datagen",
    "finalize_savepoint",
    "lit",
    "max",
    "mean",
    "min",
    "read_savepoint",
    "sum",
    "testing",
    "write_savepoint",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'unistream' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
