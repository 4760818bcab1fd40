"""The output of one edge that the master keeps: committables of a BATCH job, reported when the task finishes.

Rows are gathered in memory; EndOfPartition divides and encodes them. They are committables, not the rows of
the job: their size is limited here, and for the whole job by the master (`core.execution.reported_results`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pyarrow import ipc

from unistream.base.errors import UNDECODABLE, ConfigError, ProtocolError
from unistream.base.limits import MIB, REPORTED_BYTES_MAX
from unistream.model.deployment import PartitionDescriptor
from unistream.model.elements import Batch, EndOfPartition, Event
from unistream.model.messages import ReportedPartition
from unistream.net.wire import WIRE_ERRORS
from unistream.worker.exchange.batch_stream import decode_batch, encode_batch
from unistream.worker.exchange.output import GatheringOutput, OutputPartition

GATHERED_BYTES_MAX: Final = 16 * REPORTED_BYTES_MAX  # they compress well, but not better than that

_OPTIONS: Final = ipc.IpcWriteOptions(compression="zstd", use_threads=False)


class ReportedOutput(GatheringOutput):
    """An `OutputPartition`.

    Raises (`emit`):
        ConfigError: there are too many committables.
    """

    def __init__(self, descriptor: PartitionDescriptor, index: int) -> None:
        super().__init__(descriptor, index, GATHERED_BYTES_MAX)
        self.reported: ReportedPartition | None = None

    def emit(self, batch: Batch) -> None:
        assert self.reported is None, "nothing follows EndOfPartition"
        super().emit(batch)

    def _full(self) -> None:
        raise _too_large(self._bytes)

    def broadcast(self, event: Event) -> None:
        if isinstance(event, EndOfPartition):
            self._complete()

    def _complete(self) -> None:
        divided: list[list[Batch]] = [[] for _ in range(self._router.targets)]
        for target, batch in self._taken():
            divided[target].append(batch)
        encoded = [encode_reported(batches) for batches in divided]
        contents = tuple(encoded[self._router.target_of(place)] for place in range(len(self._consumers)))
        self.reported = ReportedPartition(edge=self.edge, contents=contents)


def reported_by(partitions: Sequence[OutputPartition]) -> tuple[ReportedPartition, ...]:
    """What a task that finishes reports of its outputs.

    Raises:
        ConfigError: it is too large for one message.
    """
    outputs = [partition for partition in partitions if isinstance(partition, ReportedOutput)]
    assert all(output.reported is not None for output in outputs), "EndOfPartition precedes FINISHED"
    found = tuple(output.reported for output in outputs if output.reported is not None)
    size = sum(len(content) for reported in found for content in reported.contents)
    if size > REPORTED_BYTES_MAX:
        raise _too_large(size)
    return found


def _too_large(size: int) -> ConfigError:
    return ConfigError(
        f"one task has {size} B of committables of its sinks; in a BATCH job it reports at most "
        f"{REPORTED_BYTES_MAX // MIB} MiB, compressed. Write fewer and larger files, give the sink "
        "more writers, or use execution.runtime-mode=STREAMING with checkpoints"
    )


def encode_reported(batches: Sequence[Batch]) -> bytes:
    """An Arrow stream for each batch, compressed."""
    return msgspec.msgpack.encode([encode_batch(batch, _OPTIONS) for batch in batches])


def decode_reported(content: bytes) -> list[Batch]:
    """What `encode_reported` was given.

    Raises:
        ProtocolError: it cannot be read.
    """
    try:
        streams = msgspec.msgpack.decode(content, type=list[bytes])
        return [decode_batch(stream) for stream in streams]
    except (*UNDECODABLE, *WIRE_ERRORS) as error:
        raise ProtocolError(f"reported committables cannot be read: {error}") from error
