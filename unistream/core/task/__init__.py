"""The rules inside one task: barriers, alignment, watermarks, commits, network memory. Pure.

Decides: when a barrier is aligned or overtakes rows (`barriers` and the three handlers of it), when all rows
of a bucket have come (`bucket_alignment`), how watermarks of several inputs combine (`watermark`), what a
committer may commit (`commit`), who gets network buffers (`network_memory`). May import: `model`, `base`, and
no other room. Start with `barriers`.
"""

from __future__ import annotations

from unistream.core.task.alignment import BarrierAligner
from unistream.core.task.barriers import (
    Abort,
    AbortReason,
    Action,
    BarrierHandler,
    Prioritize,
    StartPersisting,
    StopPersisting,
    Trigger,
)
from unistream.core.task.barriers_alternating import AlternatingAligner
from unistream.core.task.barriers_settings import BarrierSettings
from unistream.core.task.barriers_tracker import PENDING_MAX, BarrierTracker
from unistream.core.task.bucket_alignment import BucketAlignment
from unistream.core.task.commit import (
    CheckpointNotification,
    NotifyAborted,
    NotifyComplete,
    StopFailed,
    TaskCheckpoints,
)
from unistream.core.task.network_memory import (
    BATCH_OVERHEAD_BYTES,
    Account,
    GateCredits,
    Grant,
    NetworkLedger,
)
from unistream.core.task.watermark import CombinedWatermark, Signal, StatusWatermarkValve
