"""Limits, each with its reason."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

BATCH_ROWS_MAX: Final = 65_536  # large enough for vector kernels, small enough for the L2 cache
LOCAL_QUEUE_BATCHES: Final = 8  # a producer is backpressured when one local consumer is this far behind
FRAME_BYTES_MAX: Final = 16 * MIB  # one control message or one batch; a writer splits larger batches
REPORTED_BYTES_MAX: Final = FRAME_BYTES_MAX // 2  # committables of one committer, compressed, in one message
REPORTED_JOB_BYTES_MAX: Final = 128 * MIB  # committables of a BATCH job, which its JobManager keeps in memory
BUNDLE_MESSAGES_MAX: Final = 1_000  # messages in one request: handling all takes far less than RPC_TIMEOUT_S
ARTIFACT_BYTES_MAX: Final = 512 * MIB  # user code of one job
PIPELINE_BYTES_MAX: Final = (
    64 * MIB
)  # what a job was made of: it goes through the JobManager's memory as a whole
STATE_INLINE_BYTES_MAX: Final = 20 * KIB  # Flink's execution.checkpointing.data-inline-threshold
PARALLELISM_MAX: Final = 4_096
KEY_GROUPS_MAX: Final = 32_768  # as Flink
VERTICES_MAX: Final = 10_000
MIN_WATERMARK: Final = -(2**63)  # Long.MIN_VALUE
NEVER_MS: Final = 2**63 - 1  # the last moment that int64 has
MAX_WATERMARK: Final = 2**63 - 1  # Long.MAX_VALUE; sent once per input at the end of all data
RPC_TIMEOUT_S: Final = 10.0  # pekko.ask.timeout
