"""Partitions and their rows: what tests put in and find again, and how the files of blocking ones break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.walked import walked
from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.model.deployment import ChannelDescriptor, PartitionDescriptor
from unistream.model.elements import Batch, Element, EndOfData, EndOfPartition
from unistream.model.graph import Ship
from unistream.model.partition_type import PartitionType
from unistream.worker.exchange import BlockingPartition, BlockingPartitions
from unistream.worker.exchange.blocking_partition import SPILL_BYTES
from unistream.worker.exchange.sealed_partition import INDEX

ATTEMPT = AttemptId(JobId("0" * 32), VertexId("v"), 1, 4)
EDGE = EdgeId("e")


def batch_of(count: int, start: int = 0) -> Batch:
    """`count` values from `start` on, with keys and event times."""
    values = np.arange(start, start + count, dtype=np.int64)
    return Batch(pa.record_batch({"k": values % 97, "v": values}), pa.array(values))


def values_of(elements: list[Element]) -> list[int]:
    return [v for e in elements if isinstance(e, Batch) for v in e.records.column("v").to_pylist()]


def descriptor_of(ship: Ship, consumers: int, **options: Any) -> PartitionDescriptor:
    return PartitionDescriptor(
        ship=ship,
        consumers=tuple(range(consumers)),
        consumer_parallelism=consumers,
        consumer_max_parallelism=128,
        key_columns=("k",),
        **{"edge": EDGE, **options},
    )


# --- blocking ones, of ATTEMPT and on EDGE --------------------------------------------------------


def create(
    store: BlockingPartitions, ship: Ship = Ship.FORWARD, consumers: int = 1, **options: Any
) -> BlockingPartition:
    options = {"type": PartitionType.BLOCKING, **options}
    attempt = options.pop("attempt", ATTEMPT)
    spill_bytes = options.pop("spill_bytes", SPILL_BYTES)
    return store.create(attempt, descriptor_of(ship, consumers, **options), spill_bytes)


def channel_to(subpartition: int = 0, attempt: AttemptId = ATTEMPT, edge: EdgeId = EDGE) -> ChannelDescriptor:
    return ChannelDescriptor(
        producer=attempt,
        edge=edge,
        subpartition=subpartition,
        task_manager=TaskManagerId("tm"),
        address="",
    )


def seal(partition: BlockingPartition) -> None:
    """What ends it."""
    partition.broadcast(EndOfData())
    partition.broadcast(EndOfPartition())


def read(store: BlockingPartitions, subpartition: int = 0, attempt: AttemptId = ATTEMPT) -> list[Element]:
    """All of it."""
    view = store.open_subpartition(channel_to(subpartition, attempt), lambda: None)
    assert view is not None
    found = []
    while (element := view.poll()) is not None:
        found.append(element)
    return found


def files_in(folder: Path) -> list[Path]:
    """Those with rows."""
    return [p for p in walked(folder) if p.is_file() and p.name not in ("lock", INDEX)]


def fill_disk(partition: BlockingPartition, number: int = 0) -> None:
    """Whatever is written to that file meets the kernel's own "No space left on device"."""
    partition._partial.mkdir(parents=True)
    (partition._partial / str(number)).symlink_to("/dev/full")


def flip_bit(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
