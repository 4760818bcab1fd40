"""Exchange: how rows travel between tasks, and how many may wait on the way."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import Bytes, ConfigOption, WholeNumber, parse_bool, parse_duration_ms
from unistream.base.limits import GIB, KIB

MEMORY_SEGMENT: Final = ConfigOption(
    "taskmanager.memory.segment-size",
    Bytes(4 * KIB, 1 * GIB),
    "1 mb",
    "Unit of network memory: about one Arrow batch. What a channel and a gate may hold is a number of them.",
)
BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.buffers-per-channel",
    WholeNumber(1, 1_000),
    "2",
    "Exclusive segments of each channel.",
)
FLOATING_BUFFERS: Final = ConfigOption(
    "taskmanager.network.memory.floating-buffers-per-gate",
    WholeNumber(1, 10_000),
    "8",
    "Segments that the channels of one gate or result partition share.",
)
MAX_BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.max-buffers-per-channel",
    WholeNumber(1, 10_000),
    "10",
    "Segments that may wait for one consumer before its producer is backpressured.",
)
BUFFER_TIMEOUT: Final = ConfigOption(
    "execution.buffer-timeout.interval",
    parse_duration_ms,
    "100 ms",
    "Longest wait before a partly filled batch is sent to another process.",
)
PARTITION_REQUEST_TIMEOUT: Final = ConfigOption(
    "taskmanager.network.partition-request-timeout",
    parse_duration_ms,
    "10 s",
    "Longest wait for a producer's partition.",
)
BATCH_SHUFFLE_WRITE_BUFFER: Final = ConfigOption(
    "execution.batch-shuffle.write-buffer.size",
    Bytes(1 * KIB, 1 * GIB),
    "8 mb",
    "Rows of a stored exchange that a task gathers before it divides them among the consumers and writes"
    " them, which takes some four times as much memory. More makes larger pieces for many consumers.",
)
BATCH_SHUFFLE_HOST_LOCAL: Final = ConfigOption(
    "execution.batch-shuffle.read-host-local",
    parse_bool,
    "true",
    "What another worker of the same machine and user has stored below io.tmp.dirs is read from its files; "
    "false: through the network, as from other machines.",
)
TMP_DIRS: Final = ConfigOption(
    "io.tmp.dirs",
    str,
    None,
    "Folders of each worker's machine for blocking partitions, separated by commas or colons; unset: the"
    " system's temporary folder.",
)
