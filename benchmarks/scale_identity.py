"""One simulated worker of `benchmarks.scale_workers`, and one task on it."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from unistream.base.ids import AttemptId, OperatorUid, TaskManagerId
from unistream.base.limits import KIB
from unistream.model import messages as msg
from unistream.model.file_ref import FileRef
from unistream.model.snapshot import KeyedHandle, OperatorStateHandle, TaskSnapshot
from unistream.net.client import FlightControlClient

STATE: Final = bytes(64)  # of each keyed operator
METRICS: Final = msg.TaskMetrics(records_in=10**6, records_out=10**6, busy_ms=10**5, watermark=10**12)


@dataclass(slots=True)
class Task:
    """One attempt that was deployed to a worker."""

    attempt: AttemptId
    worker: Worker
    operators: tuple[OperatorUid, ...]
    pulls: bool
    key_groups: tuple[int, ...]
    state: str = "INITIALIZING"

    def snapshot(self, folder: Path) -> TaskSnapshot:
        """State as a keyed operator has it: a file with a record batch for each key group. It is there,
        since the next master looks for it, but for its content."""
        name = f"{self.attempt.vertex}-{self.attempt.index}-keyed-state"
        (folder / name).write_bytes(STATE)
        table = KeyedHandle(
            name="state",
            file=FileRef(path=name, size=len(STATE), sha256=hashlib.sha256(STATE).hexdigest()),
            key_groups=self.key_groups,
            rows=1_000_000,
            offsets=tuple(KIB * n for n in range(len(self.key_groups) + 1)),
            checksums=tuple(range(len(self.key_groups) + 1)),
        )
        handle = OperatorStateHandle(keyed=(table,))
        return TaskSnapshot(
            operators=dict.fromkeys(self.operators, handle), watermarks=dict.fromkeys(self.operators, 0)
        )


@dataclass(slots=True, eq=False)
class Worker:
    """One identity."""

    id: TaskManagerId
    address: str
    lease: FlightControlClient
    reports: FlightControlClient
    left: threading.Event  # its master is gone
    waiting: deque[msg.ToJobManager] = field(default_factory=deque)
    sends: bool = False
    released: bool = False
    tasks: dict[AttemptId, Task] = field(default_factory=dict)

    def close(self) -> None:
        self.lease.close()
        self.reports.close()
