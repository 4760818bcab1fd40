"""When a snapshot starts, who takes part, when it is complete, what is kept; splits of sources. Pure.

Decides: when the next checkpoint may start (`queue`, `schedule`), who is triggered and who has finished
(`plan`, `start`), when all have acknowledged (`pending`, `pendings`), which completed ones stay
(`store`), and who reads which split (`sources`). May import: `core.execution`, `core.contract`. Start
with `coordinator`.
"""

from __future__ import annotations

from unistream.core.checkpoint.coordinator import CheckpointCoordinator
from unistream.core.checkpoint.history import Sample
from unistream.core.checkpoint.pending import Pending, Request
from unistream.core.checkpoint.sources import Sources
from unistream.core.checkpoint.split_assignment import SplitAssigner
from unistream.core.checkpoint.store import CompletedSnapshots

__all__ = [
    "CheckpointCoordinator",
    "CompletedSnapshots",
    "Pending",
    "Request",
    "Sample",
    "Sources",
    "SplitAssigner",
]
