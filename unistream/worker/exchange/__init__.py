"""Rows between tasks: result partitions, channels, gates, spilled and stored files.

A producer writes to a `partition` (pipelined), a `blocking_partition` (stored) or a `bucketed_partition`
(stored for a consumer that sorts); a consumer reads a gate (`gates`) of local and remote `channels`, and
what another worker of this machine has stored from its files (`host_local`). Rows in flight of an unaligned
checkpoint are kept here (`in_flight`). May import: `net`, `core.task`. Start with `output` (what a task
sees), then `partition`, then `gates`.
"""

from __future__ import annotations

from unistream.worker.exchange.aligned import (
    AlignedBarrier,
    AlignmentFigures,
    GivenUp,
    HandedOn,
    InputsGathered,
)
from unistream.worker.exchange.batch_stream import decode_batch, encode_batch
from unistream.worker.exchange.blocking_partition import SPILL_BYTES, BlockingPartition
from unistream.worker.exchange.blocking_store import BlockingPartitions, PartitionKey, spill_roots
from unistream.worker.exchange.blocking_view import BlockingView
from unistream.worker.exchange.bucketed_partition import BucketedPartition
from unistream.worker.exchange.channels import InputChannel, LocalInputChannel, LocalPartitions
from unistream.worker.exchange.gates import Gate, InputGates
from unistream.worker.exchange.host_local import SPILL_FOLDER_PREFIX, HostLocalPartition, HostLocalPartitions
from unistream.worker.exchange.in_flight import Gathered, RestoredRows, Run, write_in_flight
from unistream.worker.exchange.local_folder import PLACE_FOLDER_PREFIX, STATE_FOLDER_PREFIX, LocalFolder
from unistream.worker.exchange.network_memory import NetworkMemory, Shares, batch_cost
from unistream.worker.exchange.output import GatheringOutput, OutputPartition, Outputs
from unistream.worker.exchange.partition import ResultPartition
from unistream.worker.exchange.partition_registry import PartitionRegistry
from unistream.worker.exchange.remote_channel import RemoteInputChannel
from unistream.worker.exchange.remote_queue import Announcement
from unistream.worker.exchange.reported_partition import (
    ReportedOutput,
    decode_reported,
    encode_reported,
    reported_by,
)
from unistream.worker.exchange.shipping import Router
from unistream.worker.exchange.spill_file import FrameEncoder, append_frames, spill_reader
from unistream.worker.exchange.stored_files import StoredFile, StoredOutput
from unistream.worker.exchange.stored_inputs import EndedPartitions, StoredInputs
