"""What each new subtask reads of a manifest, whose graph may have changed since.

State is matched by operator uid, never by position. Keyed state is split by key group; lists are
redistributed by their mode, as in Flink. What does not fit is refused by name, before anything starts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from unistream.base import config as options
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid, SubtaskId, VertexId
from unistream.core.restore.ended_tasks import check_finished, ended_subtasks
from unistream.model.graph import JobGraph, JobVertex
from unistream.model.key_groups import intersect, key_group_range, subtask_of_key_group
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import (
    KeyedShare,
    ListHandle,
    ListMode,
    ListShare,
    Manifest,
    NativeHandle,
    OperatorRestore,
    OperatorStateHandle,
    TaskRestore,
    VertexSnapshot,
)

_OF_NO_UID: Final = re.compile(r"-committer-\d+$")
"""The uid that the committer of a sink without a uid is given, by its place in the pipeline."""


def assign_state(
    manifest: Manifest, directory: str, graph: JobGraph, *, allow_non_restored: bool
) -> dict[SubtaskId, TaskRestore]:
    """Subtask -> what it restores from; subtasks of vertices that are not in the snapshot are left out.

    Args:
        manifest: Of the snapshot.
        directory: fsspec URL of its current location.
        graph: The job that starts from it.
        allow_non_restored: Drop state without an operator.

    Raises:
        ConfigError: state without an operator, a changed number of key groups, or an operator before (or in)
            a finished part.
    """
    known = {uid: vertex for vertex in manifest.vertices for uid in vertex.operators}
    if not allow_non_restored:
        _check_all_wanted(manifest, graph, directory)
    check_finished(manifest, graph)
    _check_offloaded(known, graph, directory)
    ended = ended_subtasks(manifest, graph)
    restores: dict[SubtaskId, TaskRestore] = {}
    for vertex in graph.vertices:
        olds = {op.uid: known[op.uid] for op in vertex.operators if op.uid in known}
        if not olds:
            continue
        finished = len(olds) == len(vertex.operators) and all(old.fully_finished for old in olds.values())
        recorded = manifest.positions
        shares = {uid: _shares(uid, old, vertex, recorded.get(uid, ())) for uid, old in olds.items()}
        for index in range(vertex.parallelism):
            subtask = SubtaskId(vertex.id, index)
            restores[subtask] = TaskRestore(
                root=directory,
                checkpoint_id=manifest.restores_as,
                job=manifest.job,
                operators={} if finished else {uid: shares[uid][index] for uid in shares},
                finished=finished,
                data_ended=subtask in ended and not finished,
            )
    return restores


def assigner_states(manifest: Manifest, graph: JobGraph) -> dict[VertexId, bytes | None]:
    """State of the split assigner of every source in the snapshot; None: it had finished."""
    old = {vertex.operators[0]: vertex for vertex in manifest.vertices if vertex.operators}
    return {
        vertex.id: found.coordinator
        for vertex in graph.vertices
        if vertex.source is not None
        and (found := old.get(vertex.operators[0].uid)) is not None
        and (found.fully_finished or found.coordinator is not None)
    }


def _check_all_wanted(manifest: Manifest, graph: JobGraph, directory: str) -> None:
    wanted = {operator.uid for vertex in graph.vertices for operator in vertex.operators}
    for vertex in manifest.vertices:
        for uid in vertex.operators:
            if uid not in wanted and any(_is_stateful(handle) for handle in _handles(uid, vertex)):
                raise ConfigError(
                    f"{directory} has state of operator uid {uid!r} (in {vertex.name!r}), which the job "
                    f"does not have; {_remedy(uid, directory)}"
                )
            if uid not in wanted and vertex.finished_subtasks:
                raise ConfigError(
                    f"in {directory} operator uid {uid!r} (in {vertex.name!r}) had finished, but the job "
                    "does not have it: under another uid it would start from scratch and read its input a "
                    "second time; give the operator that uid, or allow non-restored "
                    "state (--allow-non-restored-state)"
                )


def _remedy(uid: OperatorUid, directory: str) -> str:
    """A committer has the uid of its sink with a suffix; one of a sink without a uid has one that nobody can
    give it."""
    if _OF_NO_UID.search(uid):
        return (
            "it is of a sink that had no uid, at another place of the pipeline: commit what it has by "
            f"'unistream savepoint finalize {directory}', then allow non-restored state "
            "(--allow-non-restored-state)"
        )
    return "give the operator that uid, or allow non-restored state (--allow-non-restored-state)"


def _check_offloaded(known: Mapping[OperatorUid, VertexSnapshot], graph: JobGraph, directory: str) -> None:
    """The bounded part of a stream is read from its beginning to its end, or not at all."""
    for vertex in graph.vertices:
        olds = [known[operator.uid] for operator in vertex.operators if operator.uid in known]
        if vertex.offloaded and not all(old.fully_finished for old in olds):
            raise ConfigError(
                f"{directory} was taken while {vertex.name!r} was read as a stream: its position and state "
                f"have no meaning for a bounded part; set {options.OFFLOAD_BOUNDED.key}=false until it has "
                "been read to its end"
            )


def _handles(uid: OperatorUid, vertex: VertexSnapshot) -> list[OperatorStateHandle | None]:
    """What each old subtask stored for one operator; None = nothing."""
    return [None if task is None else task.operators.get(uid) for task in vertex.subtasks]


def _is_stateful(handle: OperatorStateHandle | None) -> bool:
    return handle is not None and bool(handle.keyed or handle.lists or handle.native)


def _shares(
    uid: OperatorUid, old: VertexSnapshot, new: JobVertex, positions: tuple[SourcePositions, ...]
) -> list[OperatorRestore]:
    """What each new subtask reads of one operator."""
    handles = _handles(uid, old)
    keyed = _keyed_shares(uid, old, new, handles)
    lists = list_shares([() if handle is None else handle.lists for handle in handles], new.parallelism)
    native = _native_shares(new, handles)
    return [
        OperatorRestore(keyed=keyed[i], lists=lists[i], native=native[i], positions=positions)
        for i in range(new.parallelism)
    ]


def _keyed_shares(
    uid: OperatorUid, old: VertexSnapshot, new: JobVertex, handles: list[OperatorStateHandle | None]
) -> list[tuple[KeyedShare, ...]]:
    tables = [handle for stored in handles if stored is not None for handle in stored.keyed]
    native = any(stored.native for stored in handles if stored is not None)
    if (tables or native) and old.max_parallelism != new.max_parallelism:
        raise ConfigError(
            f"operator uid {uid!r}: its keyed state has {old.max_parallelism} key groups, the job has "
            f"{new.max_parallelism}; set {options.MAX_PARALLELISM.key} to {old.max_parallelism}"
        )
    shares: list[list[KeyedShare]] = [[] for _ in range(new.parallelism)]
    for handle in tables:  # each has rows for few of them
        for index in _owners(new, handle.key_groups):
            first, last = key_group_range(new.max_parallelism, new.parallelism, index)
            start = bisect_left(handle.key_groups, first)
            stop = bisect_left(handle.key_groups, last + 1)
            if start < stop:
                shares[index].append(KeyedShare(handle=handle, start=start, stop=stop))
    return [tuple(share) for share in shares]


def _owners(new: JobVertex, key_groups: tuple[int, ...]) -> range:
    """The subtasks between the owners of the first and the last of these key groups, which are sorted."""
    if not key_groups:
        return range(0)
    first, last = (
        subtask_of_key_group(new.max_parallelism, new.parallelism, group)
        for group in (key_groups[0], key_groups[-1])
    )
    return range(first, min(last + 1, new.parallelism))


def _native_shares(
    new: JobVertex, handles: list[OperatorStateHandle | None]
) -> list[tuple[NativeHandle, ...]]:
    """Native files of a state backend, for the subtasks that own some of their key groups."""
    stored = [handle for task in handles if task is not None for handle in task.native]
    shares: list[list[NativeHandle]] = [[] for _ in range(new.parallelism)]
    for handle in stored:
        for index in _owners(new, handle.key_groups):
            wanted = key_group_range(new.max_parallelism, new.parallelism, index)
            share = native_share(handle, wanted)
            if share is not None:
                shares[index].append(share)
    return [tuple(share) for share in shares]


def native_share(handle: NativeHandle, wanted: tuple[int, int]) -> NativeHandle | None:
    """What a subtask with the key groups `wanted` (first, last) reads of a backend's native files, or None.
    Each file is read whole, and those without a shard by all subtasks."""
    if intersect(handle.key_groups, wanted) is None:
        return None
    files = tuple(
        file for file in handle.files if file.shard is None or intersect(file.shard, wanted) is not None
    )
    return msgspec.structs.replace(handle, files=files)


def list_shares(old: list[tuple[ListHandle, ...]], parallelism: int) -> list[tuple[ListShare, ...]]:
    """Redistributes the named lists of one operator to `parallelism` new subtasks.

    `old[i]`: what old subtask i stored. SPLIT: unchanged at the same parallelism; otherwise one contiguous
    run each, the first receivers get one more, and the next name starts where the extra ones ended. UNION:
    all subtasks read everything. BROADCAST: the own copy, otherwise copy i mod n.
    """
    by_name: dict[str, dict[int, ListHandle]] = {}
    for subtask, handles in enumerate(old):
        for handle in handles:
            by_name.setdefault(handle.name, {})[subtask] = handle
    shares: list[list[ListShare]] = [[] for _ in range(parallelism)]
    start = 0
    for name in sorted(by_name):
        copies = by_name[name]
        mode = next(iter(copies.values())).mode
        if mode is ListMode.UNION:
            for receiver in shares:
                receiver.extend(_whole(handle) for handle in copies.values())
        elif mode is ListMode.BROADCAST:
            ordered = list(copies.values())
            own: Mapping[int, ListHandle] = copies if len(old) == parallelism else {}
            for index, receiver in enumerate(shares):
                receiver.append(_whole(own.get(index, ordered[index % len(ordered)])))
        elif len(old) == parallelism:
            for subtask, handle in copies.items():
                shares[subtask].append(_whole(handle))
        else:
            start = _deal(list(copies.values()), shares, start)
    return [tuple(share for share in receiver if share.start < share.stop) for receiver in shares]


def _whole(handle: ListHandle) -> ListShare:
    return ListShare(handle=handle, start=0, stop=handle.count)


def _deal(handles: Iterable[ListHandle], shares: list[list[ListShare]], start: int) -> int:
    """Deals contiguous runs, beginning with receiver `start`; returns the first receiver of the next list."""
    pieces = list(handles)
    base, extra = divmod(sum(handle.count for handle in pieces), len(shares))
    place, offset = 0, 0
    for turn, receiver in enumerate(shares[start:] + shares[:start]):
        wanted = base + (turn < extra)
        while wanted:
            taken = min(wanted, pieces[place].count - offset)
            if taken:
                receiver.append(ListShare(handle=pieces[place], start=offset, stop=offset + taken))
            wanted -= taken
            offset += taken
            if offset == pieces[place].count:
                place, offset = place + 1, 0
    return (start + extra) % len(shares)
