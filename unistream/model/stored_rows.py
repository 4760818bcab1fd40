"""The complete output of one task on one edge, as a file in the checkpoint storage."""

from __future__ import annotations

import msgspec

from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.model.file_ref import FileRef


class StoredRows(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        vertex, producer: The subtask that has made it.
        folder: URL of the folder that `file` is in.
        index_bytes, index_crc: Size and CRC-32 of the index, with which the file ends.
    """

    edge: EdgeId
    vertex: VertexId
    producer: int
    folder: str
    file: FileRef
    index_bytes: int
    index_crc: int

    @property
    def partition(self) -> PartitionId:
        return PartitionId(SubtaskId(self.vertex, self.producer), self.edge)
