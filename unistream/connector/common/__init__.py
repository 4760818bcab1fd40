"""What several sinks share: the encoding of committables, durable local files, partition folders.

May import: `port`, `model`, `base`. Start with `committable_format`.
"""

from __future__ import annotations

from unistream.connector.common.committable_format import decode_formatted
from unistream.connector.common.json_values import check_values, line_array, lines_of
from unistream.connector.common.partitions import PartitionKey, by_partition, partition_folder

__all__ = [
    "PartitionKey",
    "by_partition",
    "check_values",
    "decode_formatted",
    "line_array",
    "lines_of",
    "partition_folder",
]
