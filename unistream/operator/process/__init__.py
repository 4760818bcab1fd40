"""Process functions: the user's own code by row or by batch, with state and timers.

`process` is the keyed form by row, `batch` the one by batch, `plain` has no key, `broadcast` reads a
second, broadcast input; `timer_table` stores timers. May import: `operator.common`. Start with `process`.
"""

from __future__ import annotations

from unistream.operator.process.batch import (
    BatchCollector,
    KeyedBatch,
    KeyedBatchFunction,
    KeyedBatchOperator,
    TimerBatch,
)
from unistream.operator.process.batch_context import BatchContext
from unistream.operator.process.broadcast import (
    BROADCAST_INPUT,
    BroadcastContext,
    BroadcastProcessFunction,
    BroadcastProcessOperator,
)
from unistream.operator.process.context import Collector, ProcessContext
from unistream.operator.process.list_state import (
    item_head,
    item_of,
    item_rows_max,
    item_schema,
    list_schema,
    map_schema,
    read_item,
)
from unistream.operator.process.plain import FunctionContext, ProcessFunction, ProcessOperator
from unistream.operator.process.process import KeyedProcessFunction, KeyedProcessOperator
from unistream.operator.process.timer_table import EVENT_TIMERS, PROCESSING_TIMERS, TIMESTAMP_COLUMN
from unistream.operator.process.user_metrics import UserMetrics
