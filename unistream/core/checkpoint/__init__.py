"""Checkpoints and savepoints of one job, and the splits of its sources. Pure.

Decides: when the next checkpoint may start (`queue`, `schedule`), which tasks take part and are triggered
(`plan`, `start`), when all have acknowledged (`pending`, `pendings`), when it is durable (`finalization`),
which completed ones stay (`store`), which subtask reads which split (`sources`), and which positions of
sources a sink records (`positions`). May import: `core.execution`, `core.contract`. Start with `coordinator`.
"""

from __future__ import annotations

from unistream.core.checkpoint.coordinator import CheckpointCoordinator
from unistream.core.checkpoint.finalization import MANIFEST_TRIES
from unistream.core.checkpoint.history import Sample
from unistream.core.checkpoint.pending import PendingCheckpoint
from unistream.core.checkpoint.phased_assignment import PhasedAssigner
from unistream.core.checkpoint.positions import read_positions, sources_before
from unistream.core.checkpoint.result import vertex_snapshot
from unistream.core.checkpoint.sources import Sources
from unistream.core.checkpoint.split_assignment import SplitAssigner
from unistream.core.checkpoint.store import CompletedSnapshots
