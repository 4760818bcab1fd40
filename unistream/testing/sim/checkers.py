"""Checks of a run: what must hold after every event, and at the end.

Ids are those of docs/guide/simulation.md: I1 to I8, I11, I12, I14, I15. A violation stops the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from unistream.base.ids import (
    AttemptId,
    CheckpointId,
    JobId,
    LeaderEpoch,
    LineageId,
    OperatorUid,
    TaskManagerId,
)
from unistream.core import contract
from unistream.core.contract import JOB_TRANSITIONS
from unistream.core.execution import EXECUTION_TRANSITIONS
from unistream.model.execution_state import ExecutionState
from unistream.model.job_status import JobStatus
from unistream.model.manifest_files import referenced_files
from unistream.model.messages import DeployTask
from unistream.model.snapshot import Manifest, OperatorStateHandle
from unistream.model.snapshot_kind import SnapshotKind
from unistream.operator.sink import COMMITTER_STATE
from unistream.port.operator import CommitPermit
from unistream.testing.sim.results import JobJudge, owner
from unistream.testing.sim.scenario import SimPipeline
from unistream.testing.sim.store import SimStore
from unistream.testing.sim.table import Row
from unistream.testing.sim.world import World


class VisibleOutputs:
    """I1 to I3: the rows that become visible in the table, for each sink.

    Args:
        pipelines: By the uid of their sink.
    """

    def __init__(self, world: World, pipelines: Mapping[OperatorUid, SimPipeline]) -> None:
        self._world = world
        self._pipelines = pipelines
        self._seen: dict[OperatorUid, set[tuple[int, int]]] = {uid: set() for uid in pipelines}
        self._counts: dict[OperatorUid, set[tuple[int, int]]] = {uid: set() for uid in pipelines}
        self._durable: dict[LineageId, set[CheckpointId]] = {}
        self._listed: dict[LineageId, set[bytes]] = {}

    def on_manifest(self, manifest: Manifest) -> None:
        """Notes a durable manifest: from now on the committables that it lists may be committed."""
        self._durable.setdefault(manifest.lineage, set()).add(manifest.checkpoint_id)
        self._listed.setdefault(manifest.lineage, set()).update(_committables(manifest))

    def on_commit(
        self, uid: OperatorUid, permit: CommitPermit, names: Sequence[bytes], rows: Sequence[Row]
    ) -> None:
        """Checks rows that are about to be visible."""
        pipeline = self._pipelines[uid]
        if not pipeline.checkpointed:
            self._unique(uid, rows, counted=pipeline.has_counts)
            self.check_complete(uid)  # all at once
            return
        if permit.checkpoint_id not in self._durable.get(permit.lineage, ()):
            raise self._world.violated(
                f"I2: {uid} commits by checkpoint {permit.checkpoint_id}, which is not durable"
            )
        unlisted = set(names) - self._listed[permit.lineage]
        if unlisted:
            raise self._world.violated(
                f"I2: {uid} commits {sorted(unlisted)}, which no durable manifest lists"
            )
        self._unique(uid, rows, counted=pipeline.has_counts)
        if pipeline.whole and not pipeline.holds:
            self.check_prefix(uid)

    def _unique(self, uid: OperatorUid, rows: Sequence[Row], *, counted: bool) -> None:
        seen, counts = self._seen[uid], self._counts[uid]
        for split, offset, key, count in rows:
            if (split, offset) in seen:
                raise self._world.violated(f"I1: {uid} shows row {split}@{offset} twice")
            seen.add((split, offset))
            if counted and (key, count) in counts:
                raise self._world.violated(f"I5: {uid} shows count {count} of key {key} twice")
            counts.add((key, count))

    def check_prefix(self, uid: OperatorUid) -> None:
        """Checks, after every commit of a committer for all writers, that the visible rows of each split have
        no gap.

        Also when some writers had prepared for an aborted checkpoint: that output is committed together with
        the output of all writers for the next one.
        """
        highest: dict[int, int] = {}
        rows: dict[int, int] = {}
        for split, offset in self._seen[uid]:
            highest[split] = max(offset, highest.get(split, 0))
            rows[split] = rows.get(split, 0) + 1
        gaps = [split for split, last in highest.items() if rows[split] != last + 1]
        if gaps:
            raise self._world.violated(f"I1: {uid} shows a gap in split {min(gaps)}")

    def missing(self, uid: OperatorUid) -> int:
        """Rows of the input that are not visible."""
        contents = self._pipelines[uid].contents
        return contents.splits * contents.rows - len(self._seen[uid])

    def check_complete(self, uid: OperatorUid) -> None:
        """I3 and I5: all input is visible, and counted."""
        pipeline = self._pipelines[uid]
        contents = pipeline.contents
        expected = {(split, offset) for split in contents.numbers for offset in range(contents.rows)}
        lost = sorted(expected - self._seen[uid])
        if lost:
            raise self._world.violated(
                f"I3: {uid} never shows {len(lost)} of {len(expected)} rows, such as {lost[:5]}"
            )
        if pipeline.has_counts:
            totals: dict[int, int] = {}
            for split, offset in sorted(expected):
                key = contents.key(split, offset)
                totals[key] = totals.get(key, 0) + 1
            counted = {(key, n) for key, total in totals.items() for n in range(1, total + 1)}
            if counted != self._counts[uid]:
                raise self._world.violated(
                    f"I5: {uid} has wrong counts: {sorted(counted ^ self._counts[uid])[:5]}"
                )


def _committables(manifest: Manifest) -> Iterable[bytes]:
    """Payloads of all committers in a manifest."""
    for handle in _operators(manifest):
        for part in handle.lists:
            if part.name == COMMITTER_STATE:
                for item in part.inline or ():
                    for pending in msgspec.msgpack.decode(item):
                        yield from pending["payloads"]


def _operators(manifest: Manifest) -> Iterable[OperatorStateHandle]:
    for vertex in manifest.vertices:
        for subtask in vertex.subtasks:
            if subtask is not None:
                yield from subtask.operators.values()


class Writes:
    """I4, I6, I7, I8: writes to the storage and removals."""

    def __init__(self, store: SimStore, outputs: VisibleOutputs) -> None:
        self._world = store.world
        self._store = store
        self._directories: dict[JobId, dict[CheckpointId, LeaderEpoch]] = {}
        self._outputs = outputs

    def on_directory(self, job: JobId, checkpoint_id: CheckpointId, epoch: LeaderEpoch) -> None:
        """The directories of one leader may be created out of order, as several are requested at once."""
        self._check_epoch("a directory", epoch)
        made = self._directories.setdefault(job, {})
        older = max((n for n, by in made.items() if by < epoch), default=0)
        if checkpoint_id <= older or (checkpoint_id in made and not self._store.repeats):
            raise self._world.violated(f"I6: checkpoint {checkpoint_id} of {job} comes after {max(made)}")
        made[checkpoint_id] = epoch

    def on_manifest(self, directory: str, manifest: Manifest, epoch: LeaderEpoch) -> None:
        """A manifest has become durable."""
        self._check_epoch(directory, epoch)
        self._check_files(directory, manifest)
        self._check_key_groups(directory, manifest)
        older = [
            m.checkpoint_id
            for m in self._store.manifests.values()
            if m.job == manifest.job and m is not manifest and m.kind is not SnapshotKind.SAVEPOINT
        ]
        if manifest.kind is not SnapshotKind.SAVEPOINT and older and max(older) >= manifest.checkpoint_id:
            raise self._world.violated(
                f"I6: manifest {manifest.checkpoint_id} of {manifest.job} comes after {max(older)}"
            )

    def on_pointer(self, directory: str, epoch: LeaderEpoch) -> None:
        """A snapshot counts from now on: what it lists may be committed."""
        self._check_epoch(f"the pointer to {directory}", epoch)
        manifest = self._store.manifests.get(directory)
        if manifest is None:
            raise self._world.violated(f"I7: a pointer names {directory}, which has no manifest")
        self._outputs.on_manifest(manifest)

    def _check_files(self, directory: str, manifest: Manifest) -> None:
        """The files of the manifest exist, with their size and checksum."""
        own = self._store.files.get(directory, {})
        for ref in referenced_files(manifest):
            content = (self._store.shared.shared_of(directory) if ref.shared else own).get(ref.path)
            if content is None:
                raise self._world.violated(f"I7: {directory} refers to {ref.path}, which is not there")
            if (len(content), hashlib.sha256(content).hexdigest()) != (ref.size, ref.sha256):
                raise self._world.violated(f"I7: {directory} refers to {ref.path}, which has another content")
            if ref.shared and ref.stored_for != manifest.checkpoint_id:
                self._world.sometimes("a checkpoint refers to a file that was stored for an older one")

    def _check_key_groups(self, directory: str, manifest: Manifest) -> None:
        for vertex in manifest.vertices:
            for index, subtask in enumerate(vertex.subtasks):
                for uid, handle in subtask.operators.items() if subtask is not None else ():
                    stored = {group for table in handle.keyed for group in table.key_groups}
                    for native in handle.native:
                        stored.update(range(native.key_groups[0], native.key_groups[1] + 1))
                    foreign = {
                        group
                        for group in stored
                        if owner(group, vertex.max_parallelism, len(vertex.subtasks)) != index
                    }
                    if foreign:
                        raise self._world.violated(
                            f"I11: {directory} has key groups {sorted(foreign)} of {uid} from subtask "
                            f"{index} of {len(vertex.subtasks)}, to which they do not belong"
                        )

    def on_discard(self, directory: str, epoch: LeaderEpoch) -> None:
        self._check_epoch(f"removing {directory}", epoch)
        if directory in self._store.given:
            raise self._world.violated(f"I8: {directory} is removed, and it belongs to a user")
        manifest = self._store.manifests.get(directory)
        if manifest is None or manifest.job in self._store.results:
            return
        newest = self._store.newest(manifest.job)
        if newest is not None and newest.directory == directory:
            raise self._world.violated(f"I8: {directory} is removed, the newest of a job that has not ended")

    def on_shared_removed(self, parent: str, name: str, epoch: LeaderEpoch) -> None:
        """No checkpoint in the folder may need the file: neither one of this job nor, unless it is claimed,
        the one that another job has started from."""
        self._check_epoch(f"removing {parent}/shared/{name}", epoch)
        directory = self._store.shared.namer(parent, name)
        if directory is not None:
            raise self._world.violated(f"I8: {parent}/shared/{name} is removed, but {directory} refers to it")

    def _check_epoch(self, what: str, epoch: LeaderEpoch) -> None:
        if epoch < self._store.epoch:
            raise self._world.violated(
                f"I4: {what} is written by leader {epoch}, but {self._store.epoch} leads"
            )


class Lives(JobJudge):
    """I6, I12 and I15: states of one job and its attempts, and its checkpoints, under one leader."""

    def __init__(self, store: SimStore, job: JobId, epoch: LeaderEpoch) -> None:
        super().__init__(store, job)
        self._epoch = epoch
        self._check_start()
        self.state = JobStatus.INITIALIZING
        self._attempts: dict[AttemptId, ExecutionState] = {}
        self._last_id = 0
        self._ended = False

    def _check_start(self) -> None:
        result = self._store.results.get(self._job)
        if result is not None:
            raise self._world.violated(f"I15: {self._job} has ended as {result} and starts again")

    def on_command(self, command: contract.Command) -> None:
        """A change of the job or of an attempt, a deployment or a new checkpoint."""
        match command:
            case contract.RecordJobState(state=state):
                self._job_is(JobStatus(state))
            case contract.RecordAttempt(attempt=attempt, state=state):
                self._attempt_is(attempt, ExecutionState(state))
            case contract.Send(message=DeployTask()):
                self._may_run()
            case contract.PrepareDirectory(checkpoint_id=checkpoint_id):
                self._id_is(checkpoint_id)
            case contract.JobEnded():
                self._end()

    def _job_is(self, state: JobStatus) -> None:
        if state is not self.state and state not in JOB_TRANSITIONS[self.state]:
            raise self._world.violated(f"I12: {self._job} changes from {self.state.value} to {state.value}")
        if state is not self.state:
            self._world.log(f"{self._job} (leader {self._epoch}) is {state.value}")
        self.state = state

    def _attempt_is(self, attempt: AttemptId, state: ExecutionState) -> None:
        before = self._attempts.get(attempt, ExecutionState.CREATED)
        if state is not before and state not in EXECUTION_TRANSITIONS[before]:
            raise self._world.violated(f"I12: {attempt} changes from {before.value} to {state.value}")
        self._attempts[attempt] = state

    def _id_is(self, checkpoint_id: CheckpointId) -> None:
        if checkpoint_id <= self._last_id:
            text = f"I6: checkpoint {checkpoint_id} of {self._job} is begun after {self._last_id}"
            raise self._world.violated(text)
        self._last_id = checkpoint_id

    def _may_run(self) -> None:
        if self._ended:
            raise self._world.violated(f"I15: {self._job} deploys a task after its end")
        if self._job in self._store.results and self._epoch == self._store.epoch:
            raise self._world.violated(f"I15: {self._job} has a result and deploys a task")

    def _end(self) -> None:
        self._ended = True
        if not self._is_final():
            raise self._world.violated(f"I12: {self._job} ends as {self.state.value}")
        alive = [attempt for attempt, state in self._attempts.items() if not state.is_terminal]
        if alive:
            raise self._world.violated(
                f"I12: {self._job} ends while {alive[0]} is {self._attempts[alive[0]].value}"
            )

    def _is_final(self) -> bool:
        return self.state.is_globally_terminal


class Places:
    """I14: the tasks on each worker. `slots`: of each worker; `is_lost`: its master considers it lost."""

    def __init__(self, world: World, slots: int, is_lost: Callable[[TaskManagerId], bool]) -> None:
        self._world = world
        self._slots = slots
        self._is_lost = is_lost
        self._running: dict[TaskManagerId, dict[AttemptId, None]] = {}

    def on_task(self, worker: TaskManagerId, attempt: AttemptId, what: str) -> None:
        """A task starts or has ended."""
        running = self._running.setdefault(worker, {})
        if what != "begins":
            running.pop(attempt, None)
            return
        for other in running:
            if (other.job, other.subtask) == (attempt.job, attempt.subtask):
                raise self._world.violated(f"I14: {attempt} begins on {worker} while {other} runs there")
        running[attempt] = None
        slices = {(a.job, a.index) for a in running}
        if len(slices) > self._slots and not self._is_lost(worker):
            raise self._world.violated(
                f"I14: {worker} has {self._slots} slot(s) and runs {len(slices)} slices"
            )

    def removed(self, worker: TaskManagerId) -> None:
        self._running.pop(worker, None)

    def left_over(self, ended: Iterable[JobId]) -> list[tuple[TaskManagerId, AttemptId]]:
        """Tasks of finished jobs on workers that live and have a master."""
        jobs = set(ended)
        return [
            (worker, attempt)
            for worker, tasks in self._running.items()
            for attempt in tasks
            if attempt.job in jobs and not self._is_lost(worker)
        ]


class Leases:
    """I14: no slot is granted to two requests at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._holders: dict[str, tuple[JobId, str]] = {}

    def on_granted(self, job: JobId, leases: Iterable[contract.SlotLease]) -> None:
        for lease in leases:
            holder = self._holders.setdefault(lease.allocation, (job, lease.request))
            if holder != (job, lease.request):
                raise self._world.violated(
                    f"I14: {lease.allocation} is held by {holder} and granted to {(job, lease.request)}"
                )
