"""What is sent to a worker so that it runs one attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unistream.base.ids import SubtaskId, VertexId
from unistream.core.checkpoint_store import Completed
from unistream.core.execution import ExecutionState
from unistream.core.executions import Executions
from unistream.core.in_flight import with_in_flight
from unistream.core.job_settings import JobSettings
from unistream.core.outbox import Outbox
from unistream.core.slot_pool import SlotPool
from unistream.core.state_assignment import assign_state, assigner_states
from unistream.core.stored_exchanges import StoredExchanges
from unistream.model.messages import DeployTask, TaskDeployment
from unistream.model.plan import ExecutionPlan
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

    def restores(self, start: Completed | None) -> dict[SubtaskId, TaskRestore]:
        """What each subtask reads of `start`.

        Raises:
            ConfigError: the state does not fit the graph.
        """
        if start is None:
            return {}
        graph, allow = self._plan.graph, self._settings.allow_non_restored
        restores = assign_state(start.manifest, start.directory, graph, allow_non_restored=allow)
        return with_in_flight(restores, start.manifest, start.directory, graph, allow_non_restored=allow)

    def assigner_states(self, start: Completed | None) -> dict[VertexId, bytes | None] | None:
        return None if start is None else assigner_states(start.manifest, self._plan.graph)

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
