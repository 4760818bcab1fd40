"""One job graph at one parallelism: its attempts, its regions and its strategies (Flink's ExecutionGraph).

It is replaced when the parallelism of a job changes; attempt numbers keep growing.
"""

from __future__ import annotations

from collections.abc import Mapping

from unistream.base import config as options
from unistream.base.errors import ConfigError
from unistream.base.ids import PartitionId, SubtaskId, VertexId
from unistream.core.contract import CommandOutbox, JobSettings
from unistream.core.execution.executions import Execution, Executions
from unistream.core.execution.failover import FailoverStrategy, create_failover
from unistream.core.execution.partition_tracker import PartitionTracker
from unistream.core.execution.reported_results import ReportedResults
from unistream.core.execution.scheduling_strategy import SchedulingStrategy, create_strategy
from unistream.core.execution.stored_exchanges import StoredExchanges
from unistream.core.graph import ExecutionPlan, build_regions, offloaded_vertices, why_no_checkpoints
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.stored_rows import StoredRows


class JobRun:
    """Implements the views of the scheduling and failover strategies.

    Attributes:
        is_batch: It takes no snapshots; a failed region starts from its inputs.
        tracker: Which blocking partitions exist, and where.
        reported: Committables of a BATCH job, which workers report and no worker keeps.
        has_blocking: Some exchange is read when it is complete: regions run one after the other.
        stored: Effects of those exchanges on checkpoints.
        offloaded: The bounded part, if an engine runs it: one region.
        stored_rows: What an engine has stored, as long as it is read.
    """

    def __init__(
        self,
        graph: JobGraph,
        settings: JobSettings,
        outbox: CommandOutbox,
        attempts: Mapping[SubtaskId, int] | None = None,
    ) -> None:
        _check_strategy(settings.scheduling_strategy, graph)
        self.graph = graph
        self.is_batch = why_no_checkpoints(graph) is not None
        self.plan = ExecutionPlan(graph)
        self.topology = self.plan.topology
        self.offloaded = frozenset(offloaded_vertices(graph)) if settings.offloads else frozenset[VertexId]()
        self.stored_rows: dict[PartitionId, StoredRows] = {}
        self.regions = build_regions(self.topology, self.offloaded)
        self.executions = Executions(
            settings.job, self.plan, outbox, attempts, first=settings.used.next_attempt
        )
        self.tracker = PartitionTracker(settings.job, self.regions)
        self.reported = ReportedResults(self.topology)
        if settings.sealed is not None:
            self.reported.restore(settings.sealed)
        self.scheduling: SchedulingStrategy = create_strategy(
            settings.scheduling_strategy, self.regions, self
        )
        self.failover: FailoverStrategy = create_failover(settings.failover_strategy, self.regions)
        self.has_blocking = any(link.partition.is_blocking for link in self.topology.links)
        self.stored = StoredExchanges(graph, self.tracker, self.reported, self.stored_rows)

    @property
    def why_inactive(self) -> str:
        """Why a request that needs all tasks is refused, for people."""
        if self.is_batch:
            return (
                "it is a BATCH job, which takes no snapshots and keeps its parallelism; cancel it, or start "
                f"it with {options.RUNTIME_MODE.key}=STREAMING"
            )
        part = frozenset(offloaded_vertices(self.graph))
        states = {e.state for e in self.executions if e.attempt.vertex in part}
        if states - {ExecutionState.FINISHED}:
            return (
                "the bounded part of the job runs before the stream, which takes checkpoints and savepoints "
                "when it has read what that part stores; try again then, or cancel the job"
            )
        if self.has_blocking and not part:
            return (
                "not all tasks are running: the job's stages run one after the other and store what they "
                "exchange (a blocking exchange); there may be no time when all of them run"
            )
        return "not all tasks are running; try again when it is RUNNING"

    # --- views of the strategies ------------------------------------------------------------------

    def state(self, subtask: SubtaskId) -> ExecutionState:
        return self.executions[subtask].state

    def is_produced(self, partition: PartitionId) -> bool:
        return self.reported.is_readable(partition) or self.tracker.is_available(partition)

    def is_available(self, partition: PartitionId) -> bool:
        """It exists, or is still being written."""
        if self.state(partition.producer) is not ExecutionState.FINISHED:
            return True
        return self.reported.exists(partition) or self.is_produced(partition)

    # --- attempts ---------------------------------------------------------------------------------

    def next_attempts(self) -> dict[SubtaskId, int]:
        """Unused attempt numbers, for the next graph."""
        return {
            execution.attempt.subtask: execution.attempt.attempt
            + (execution.state is not ExecutionState.CREATED)
            for execution in self.executions
        }

    def will_restart(self, subtasks: frozenset[SubtaskId]) -> None:
        """They run again later."""
        self.tracker.will_restart(subtasks)
        self.reported.will_restart(subtasks)

    def blocking_outputs(self, execution: Execution) -> bool:
        """Some of its outputs are stored."""
        links = self.topology.outputs[execution.attempt.vertex]
        return any(link.partition.is_blocking for link in links)


def _check_strategy(strategy: str, graph: JobGraph) -> None:
    """Eager deploys everything at once, also consumers of results that are not stored yet."""
    blocking = next((edge for edge in graph.edges if edge.partition.is_blocking), None)
    if strategy == "eager" and blocking is not None:
        source, target = graph.vertex(blocking.source).name, graph.vertex(blocking.target).name
        raise ConfigError(
            f"{options.SCHEDULING_STRATEGY.key}=eager: the exchange {source!r} -> {target!r} is read when it "
            "is complete, so its ends cannot start together; use pipelined-region"
        )
