"""Checks of an election and of what masters do: who leads, who writes, who decides (I4, I6, I8, I15, I18).

The judge sees what ZooKeeper has committed, and believes no master: the leader is who is first in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.masters.tree import Tree
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch
from unistream.master.store.leadership import Leadership
from unistream.model.job_status import JobStatus
from unistream.model.messages import Ping, ReleaseTaskManager, ToTaskManager
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.ha import HaStore
from unistream.testing.sim.checkers import Lives, VisibleOutputs, Writes
from unistream.testing.sim.store import SimStore
from unistream.testing.sim.world import World

OF_WORKERS = (Ping, ReleaseTaskManager)
"""What the ResourceManager sends to workers of its own master, whether that leads or not."""


class Election:
    """I4: who leads by the committed nodes, and who has led.

    Args:
        folder: Of the queue of contenders.
    """

    def __init__(self, world: World, tree: Tree, folder: str) -> None:
        self.world = world
        self._tree = tree
        self._folder = folder
        self._leaders: dict[LeaderEpoch, str] = {}
        self._written = LeaderEpoch(0)

    def first(self) -> LeaderEpoch | None:
        """The epoch of the contender that is first in the queue now; None: there is none."""
        path = self.first_node()
        node = None if path is None else self._tree.now(path)
        return None if node is None else LeaderEpoch(node.czxid)

    def first_node(self) -> str | None:
        """That of the contender that is first in the queue."""
        names = self._tree.children(self._folder, self._tree.zxid)
        return f"{self._folder}/{min(names, key=lambda name: name[-10:])}" if names else None

    def granted(self, process: str, epoch: LeaderEpoch) -> None:
        """A process is the leader of `epoch`."""
        newest = max(self._leaders, default=LeaderEpoch(0))
        if epoch <= newest:
            raise self.world.violated(
                f"I4: {process} leads with epoch {epoch}, after {newest} of {self._leaders[newest]}"
            )
        self._leaders[epoch] = process
        if len(set(self._leaders.values())) > 1:
            self.world.sometimes("another master has taken over")
        self.world.log(f"{process} is granted epoch {epoch}")

    @property
    def newest(self) -> LeaderEpoch:
        """The last one that was granted."""
        return max(self._leaders, default=LeaderEpoch(0))

    def process_of(self, epoch: LeaderEpoch | None) -> str | None:
        """The process that was granted it."""
        return None if epoch is None else self._leaders.get(epoch)

    def wrote(self, name: str, epoch: LeaderEpoch | None) -> None:
        """Something durable was changed."""
        first = self.first()
        if epoch is None or epoch != first:
            raise self.world.violated(f"I4: {name} is written by leader {epoch}, but {first} leads")
        if epoch < self._written:
            raise self.world.violated(f"I4: {name} is written by leader {epoch}, after {self._written}")
        self._written = epoch

    def published(self, epoch: LeaderEpoch, session: int) -> None:
        """Where the leader of `epoch` is was written to a node of `session`: that of the leader itself, so
        that nobody finds one that is gone, and everybody one that is not."""
        path = self.first_node()
        node = None if path is None else self._tree.now(path)
        if node is None or node.czxid != epoch:
            raise self.world.violated(f"I4: leader {epoch} is published, but {self.first()} leads")
        if node.owner != session:
            raise self.world.violated(
                f"I18: leader {epoch} of session {node.owner} is published, and found while {session} lasts"
            )

    def decides(self, process: str, epoch: LeaderEpoch) -> None:
        """A master that believes to lead is about to decide."""
        first = self.first()
        if epoch != first:
            raise self.world.violated(f"I4: {process} decides as leader {epoch}, but {first} leads")


class Decisions:
    """I4: one master decides in steps that begin while it leads."""

    def __init__(self, judge: Election, store: HaStore, leadership: Leadership, process: str) -> None:
        self._judge = judge
        self._store = store
        self._leadership = leadership
        self._process = process
        self._may_decide = False

    def must_wait(self) -> bool:
        """It is suspended, or its lease is over and its end not delivered."""
        return self._leadership.over is None and not self._store.leads()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step of a loop."""
        self._may_decide = self._leadership.over is None and self._store.leads()
        if self._may_decide:
            self._judge.decides(self._process, self._store.epoch)
        try:
            yield
        finally:
            self._may_decide = False

    def send(self, message: ToTaskManager) -> None:
        """A message is queued for a worker."""
        leads = self._leadership.over is None and self._store.leads()
        if not (leads or self._may_decide or isinstance(message, OF_WORKERS)):
            why = self._leadership.over or "it is suspended"
            raise self._judge.world.violated(
                f"I4: {self._process} sends {type(message).__name__}, and does not lead: {why}"
            )


class ContendedLives(Lives):
    """A master that leads no more may still make a machine, which gets no step."""

    def __init__(self, store: SimStore, job: JobId, epoch: LeaderEpoch, leads: Callable[[], bool]) -> None:
        self._leads = leads
        super().__init__(store, job, epoch)

    def _check_start(self) -> None:
        if self._leads():
            super()._check_start()

    def _is_final(self) -> bool:
        """A master that is asked to end suspends its jobs."""
        return super()._is_final() or self.state is JobStatus.SUSPENDED


class ContendedWrites(Writes):
    """Files are not fenced, pointers are: checkpoints are judged when a pointer names them.

    Args:
        pointed: Directories that pointers name now.
    """

    def __init__(self, store: SimStore, outputs: VisibleOutputs, pointed: Callable[[], set[str]]) -> None:
        super().__init__(store, outputs)
        self._pointed = pointed
        self._numbers: dict[tuple[JobId, CheckpointId], LeaderEpoch] = {}
        self._highest: dict[JobId, CheckpointId] = {}

    def on_directory(self, job: JobId, checkpoint_id: CheckpointId, epoch: LeaderEpoch) -> None:
        """A number was taken from the counter that all leaders share, so it is one leader's alone."""
        by = self._numbers.setdefault((job, checkpoint_id), epoch)
        if by != epoch:
            raise self._world.violated(
                f"I6: checkpoint {checkpoint_id} of {job} is begun by leader {epoch}, and was by {by}"
            )

    def on_manifest(self, directory: str, manifest: Manifest, epoch: LeaderEpoch) -> None:
        """It counts with its pointer; a savepoint has none, and counts with its answer."""

    def on_pointer(self, directory: str, epoch: LeaderEpoch) -> None:
        super().on_pointer(directory, epoch)
        manifest = self._store.manifests[directory]
        self._check_files(directory, manifest)
        self._check_key_groups(directory, manifest)
        highest = self._highest.get(manifest.job, CheckpointId(0))
        if manifest.kind is not SnapshotKind.SAVEPOINT:
            if manifest.checkpoint_id <= highest:
                raise self._world.violated(
                    f"I6: checkpoint {manifest.checkpoint_id} of {manifest.job} counts after {highest}"
                )
            self._highest[manifest.job] = manifest.checkpoint_id

    def on_discard(self, directory: str, epoch: LeaderEpoch) -> None:
        manifest = self._store.manifests.get(directory)
        if manifest is not None and manifest.job not in self._store.results and directory in self._pointed():
            raise self._world.violated(f"I8: {directory} is removed, and a pointer names it")
        super().on_discard(directory, epoch)

    def _check_epoch(self, what: str, epoch: LeaderEpoch) -> None:
        """Files of older leaders do no harm."""
