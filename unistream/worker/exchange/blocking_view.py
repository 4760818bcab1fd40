"""One reading of one subpartition of a blocking partition."""

from __future__ import annotations

from functools import partial

from unistream.base.ids import PartitionId
from unistream.worker.exchange.bucketed_partition import reader_of
from unistream.worker.exchange.frame_view import FrameView
from unistream.worker.exchange.sealed_partition import SealedPartition
from unistream.worker.exchange.spill_file import spill_reader


class BlockingView(FrameView):
    """A reader of one subpartition's file; implements `port.transport.SubpartitionView`."""

    def __init__(self, sealed: SealedPartition, subpartition: int) -> None:
        file = sealed.files[subpartition]
        path = sealed.folder / str(file)
        whole = partial(spill_reader, path, sealed.sizes[file])
        super().__init__(
            reader_of(sealed, file) if sealed.segments else whole,
            f"the file {path}",
            PartitionId(sealed.attempt.subtask, sealed.edge),
        )
