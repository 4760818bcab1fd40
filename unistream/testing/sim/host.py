"""Where simulated workers run: processes that start, sometimes do not, and end."""

from __future__ import annotations

from typing import Final

from unistream.base.ids import TaskManagerId
from unistream.port.host import LostListener, TaskManagerSpec
from unistream.testing.sim.faults import NONE
from unistream.testing.sim.worker import SimWorker, Surroundings

UNREPORTED: Final = 0.15  # share of ends that only a heartbeat timeout shows
UNSTOPPED: Final = 0.3  # share of workers that have to end by themselves


class SimHost:
    """`port.host.WorkerHost` of one master.

    Args:
        workers: All running workers, of any master.
        on_lost: Notified of most ends.
    """

    def __init__(
        self, around: Surroundings, workers: dict[TaskManagerId, SimWorker], on_lost: LostListener
    ) -> None:
        self._around = around
        self._workers = workers
        self._world = around.world
        self._on_lost = on_lost
        self.started: set[TaskManagerId] = set()
        self._stopped: set[TaskManagerId] = set()

    def start(self, spec: TaskManagerSpec) -> None:
        if spec.id in self.started:
            return
        self.started.add(spec.id)
        self._world.at(self._world.between(20, 600), lambda: self._up(spec))

    def _up(self, spec: TaskManagerSpec) -> None:
        if spec.id in self._stopped:
            return
        if self._world.places is not None and len(self._workers) >= self._world.places:
            self._world.sometimes("there was no place for a worker")
            self._world.at(5, lambda: self._on_lost(spec.id, "there is no room for it"))
            return
        if self._world.chance(self._world.faults.start_fail):
            self._world.sometimes("a worker did not start")
            self._world.at(5, lambda: self._on_lost(spec.id, "it did not start"))
            return
        worker = SimWorker(spec, self._around)
        self._workers[spec.id] = worker
        self._world.log(f"{spec.id} is up", spec.id)
        worker.start()

    def ended(self, task_manager: TaskManagerId, reason: str, *, noticed: bool) -> None:
        """Reported a little later; or never, and then the heartbeat times out."""
        if not noticed and self._world.chance(UNREPORTED if self._world.faults is not NONE else 0):
            self._world.sometimes("the host did not report the end of a worker")
            return
        self._world.at(self._world.between(1, 300), lambda: self._on_lost(task_manager, reason))

    def stop(self, task_manager: TaskManagerId) -> None:
        self._stopped.add(task_manager)
        worker = self._workers.get(task_manager)
        if worker is None:
            return
        if worker.is_registered and self._world.faults is not NONE and self._world.chance(UNSTOPPED):
            self._world.sometimes("a host could not stop a worker")
            self._world.log(f"{task_manager} cannot be reached by its host", task_manager)
            return
        worker.die("stopped by its host")

    def close(self) -> None:
        """Workers end with the run."""
