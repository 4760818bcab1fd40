"""Work that takes time, for tests with full queues. Workers get this module by value."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Slow:
    """So long for each batch."""

    seconds: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        threading.Event().wait(self.seconds)
        return batch
