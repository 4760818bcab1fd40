"""What is sent to a worker so that it runs one attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unistream.base.ids import SubtaskId
from unistream.core.contract import JobSettings, Outbox
from unistream.core.execution.execution import ExecutionState
from unistream.core.execution.executions import Executions
from unistream.core.execution.stored_exchanges import StoredExchanges
from unistream.core.graph import ExecutionPlan
from unistream.core.resource import SlotPool
from unistream.model.messages import DeployTask, TaskDeployment
from unistream.model.snapshot import TaskRestore


class Deployer:
    """Deploys bulks: the subtasks of a region at once, so that they find each other by address."""

    def __init__(
        self,
        *,
        settings: JobSettings,
        plan: ExecutionPlan,
        executions: Executions,
        slots: SlotPool,
        outbox: Outbox,
        stored: StoredExchanges,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._vertices = {vertex.id: vertex for vertex in plan.graph.vertices}
        self._executions = executions
        self._slots = slots
        self._outbox = outbox
        self._stored = stored

    def deploy(self, bulk: Sequence[SubtaskId], restores: Mapping[SubtaskId, TaskRestore]) -> None:
        """Sends the tasks of one bulk to their slots; none may be missing.

        Their producers are in the same bulk, or have been deployed before.
        """
        for subtask in bulk:
            self._executions[subtask].place = self._slots.place(subtask)
        places, attempts = self._executions.places, self._executions.attempts
        for subtask in bulk:
            execution = self._executions[subtask]
            restore = restores.get(subtask)
            execution.restored_finished = restore is not None and restore.finished
            self._executions.move(execution, ExecutionState.DEPLOYING, "all slots of its region are there")
            deployment = TaskDeployment(
                attempt=execution.attempt,
                job_name=self._plan.graph.name,
                lineage=self._settings.lineage,
                epoch=self._settings.epoch,
                vertex=self._vertices[subtask.vertex],
                artifact=self._settings.artifact,
                gates=self._stored.gates(self._plan.gates(subtask, attempts, places)),
                partitions=self._plan.partitions(subtask),
                restore=restore,
                checkpoint_root=self._settings.checkpoint_root,
                checkpointing=self._settings.checkpointing and self._stored.may_checkpoint(subtask.vertex),
                config=self._plan.graph.config,
                allocation=self._slots.allocation(subtask),
            )
            self._outbox.send_tracked(places[subtask].task_manager, DeployTask(deployment=deployment))
