"""Whether the state of a job fits into the memory of its slots at another parallelism. Pure.

Only what is sure is refused: the bytes that a snapshot has of the state that a backend keeps in memory. As
objects of Python they are more, up to several times for small values; and a slot's memory is for the batches
between its tasks as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from unistream.base.config import MEMORY_PROCESS, Configuration
from unistream.base.config.state import STATE_BACKEND
from unistream.base.ids import SubtaskId
from unistream.base.limits import MIB
from unistream.core.memory import describe_bytes
from unistream.model.graph import JobGraph
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KeyedShare, TaskRestore

IN_MEMORY: Final = "hashmap"
_OWN: Final = (StateKind.TABLE, StateKind.TIMERS)  # an operator's: it may spill


def why_no_room(
    graph: JobGraph, restores: Mapping[SubtaskId, TaskRestore], room_mb: Mapping[str, int]
) -> str | None:
    """Why a slot cannot hold the state of its subtasks, for people; None: it may be enough.

    Args:
        graph: The job as it would run.
        restores: What each of its subtasks reads.
        room_mb: Slot sharing group -> MiB of task, managed and network memory of its biggest slot; a group
            that is missing, or 0: unknown.
    """
    if Configuration(graph.config).get(STATE_BACKEND) != IN_MEMORY:
        return None
    groups = {vertex.id: vertex.slot_sharing_group for vertex in graph.vertices}
    held: defaultdict[tuple[str, int], int] = defaultdict(int)
    for subtask, restore in restores.items():
        held[groups[subtask.vertex], subtask.index] += _held(restore)
    for (group, index), size in sorted(held.items()):
        room = room_mb.get(group, 0) * MIB
        if 0 < room < size:
            names = [
                v.name for v in graph.vertices if v.slot_sharing_group == group and index < v.parallelism
            ]
            return (
                f"subtask {index + 1} of {' + '.join(names)} would hold at least {describe_bytes(size)} of "
                f"state in memory, and a slot has {describe_bytes(room)} for it: use more subtasks, bigger "
                f"workers ({MEMORY_PROCESS.key}), or {STATE_BACKEND.key} = rocksdb"
            )
    return None


def _held(restore: TaskRestore) -> int:
    shares = (share for operator in restore.operators.values() for share in operator.keyed)
    return sum(_size(share) for share in shares if share.handle.kind not in _OWN)


def _size(share: KeyedShare) -> int:
    handle = share.handle
    if handle.offsets:
        return handle.offsets[share.stop] - handle.offsets[share.start]
    return handle.file.size * (share.stop - share.start) // max(1, len(handle.key_groups))
