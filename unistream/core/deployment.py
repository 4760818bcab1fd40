"""What is sent to a worker so that it runs one attempt."""

from __future__ import annotations

from collections.abc import Mapping

from unistream.base.ids import SubtaskId, VertexId
from unistream.core.checkpoint_store import Completed
from unistream.core.execution import ExecutionState
from unistream.core.executions import Executions
from unistream.core.job_settings import JobSettings
from unistream.core.outbox import Outbox
from unistream.core.scheduling import SlotPool
from unistream.core.state_assignment import assign_state, assigner_states
from unistream.model.messages import DeployTask, TaskDeployment
from unistream.model.plan import ExecutionPlan
from unistream.model.snapshot import TaskRestore


class Deployer:
    """Deploys all subtasks at once: producers and consumers find each other by address."""

    def __init__(
        self,
        *,
        settings: JobSettings,
        plan: ExecutionPlan,
        executions: Executions,
        slots: SlotPool,
        outbox: Outbox,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._executions = executions
        self._slots = slots
        self._outbox = outbox

    def restores(self, start: Completed | None) -> dict[SubtaskId, TaskRestore]:
        """What each subtask reads of `start`.

        Raises:
            ConfigError: the state does not fit the graph.
        """
        if start is None:
            return {}
        return assign_state(
            start.manifest,
            start.directory,
            self._plan.graph,
            allow_non_restored=self._settings.allow_non_restored,
        )

    def assigner_states(self, start: Completed | None) -> dict[VertexId, bytes | None] | None:
        return None if start is None else assigner_states(start.manifest, self._plan.graph)

    def deploy(self, restores: Mapping[SubtaskId, TaskRestore]) -> None:
        """Sends every task to its slot; nothing may be missing."""
        places = {subtask: self._slots.place(subtask) for subtask in self._plan.subtasks}
        attempts = self._executions.attempts
        vertices = {vertex.id: vertex for vertex in self._plan.graph.vertices}
        for subtask in self._plan.subtasks:
            execution = self._executions[subtask]
            restore = restores.get(subtask)
            execution.place = places[subtask]
            execution.restored_finished = restore is not None and restore.finished
            self._executions.move(execution, ExecutionState.DEPLOYING, "all slots are there")
            deployment = TaskDeployment(
                attempt=execution.attempt,
                job_name=self._plan.graph.name,
                lineage=self._settings.lineage,
                epoch=self._settings.epoch,
                vertex=vertices[subtask.vertex],
                artifact=self._settings.artifact,
                gates=self._plan.gates(subtask, attempts, places),
                partitions=self._plan.partitions(subtask),
                restore=restore,
                checkpoint_root=self._settings.checkpoint_root,
                checkpointing=self._settings.checkpointing,
                config=self._plan.graph.config,
            )
            self._outbox.send_tracked(places[subtask].task_manager, DeployTask(deployment=deployment))
