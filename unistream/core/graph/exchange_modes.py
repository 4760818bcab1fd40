"""Streaming or batch: which exchanges of a job are pipelined or stored, and whether it takes checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from unistream.base.config import BATCH_SHUFFLE_MODE, CHECKPOINT_INTERVAL, RUNTIME_MODE, Configuration
from unistream.base.errors import ConfigError
from unistream.core.graph.bounded_part import BoundedPart, bounded_part
from unistream.model.graph import JobGraph, JobType, Ship
from unistream.model.partition_type import PartitionType
from unistream.model.stream_graph import GlobalStreamExchangeMode, StreamEdge, StreamGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePlan:
    """
    Attributes:
        job_type: AUTOMATIC is decided.
        mode: Of exchanges that set none; `part_mode`: of those inside the bounded part.
        part: The bounded part of a STREAMING job.
    """

    job_type: JobType
    mode: GlobalStreamExchangeMode
    part: BoundedPart = field(default_factory=BoundedPart)
    part_mode: GlobalStreamExchangeMode = GlobalStreamExchangeMode.ALL_EDGES_BLOCKING

    def stored(self, edge: StreamEdge) -> StreamEdge:
        """`edge` as it is in this job: in a batch job the committables of a sink are kept by the master.
        Otherwise a committer that failed after its commit, or lost the committables with their worker, would
        run again with its writer, and commit the same rows under other names. What leaves the bounded part is
        stored."""
        if edge.committables and edge.partition is None and self.job_type is JobType.BATCH:
            return replace(edge, partition=PartitionType.BLOCKING_REPORTED)
        if edge.partition is None and self.part.leaves(edge):
            return replace(edge, partition=PartitionType.BLOCKING)
        return edge

    def partition(self, edge: StreamEdge, ship: Ship) -> PartitionType:
        """The type of an exchange; irrelevant for edges inside a task."""
        mode = self.part_mode if self.part.contains(edge) else self.mode
        return edge.partition or mode.partition(ship)

    def in_batch_form(self, node: int) -> bool:
        """The operator is as in a bounded job."""
        return self.job_type is JobType.BATCH or node in self.part.nodes


def exchange_plan(graph: StreamGraph, config: Configuration, *, bootstrap: bool = False) -> ExchangePlan:
    """Decides between streaming and batch (a `bootstrap` is always batch), and what of a stream is bounded
    and runs before it."""
    job_type = JobType.BATCH if bootstrap else _job_type(graph, config.get(RUNTIME_MODE))
    if job_type is JobType.BATCH:
        return ExchangePlan(job_type=job_type, mode=_stages_mode(graph, config))
    mode = graph.exchange_mode or GlobalStreamExchangeMode.ALL_EDGES_PIPELINED
    part = bounded_part(graph, config)
    if not part.nodes:
        return ExchangePlan(job_type=job_type, mode=mode, part=part)
    return ExchangePlan(job_type=job_type, mode=mode, part=part, part_mode=_stages_mode(graph, config))


def _job_type(graph: StreamGraph, runtime_mode: str) -> JobType:
    unbounded = [node.name for node in graph.nodes if node.source is not None and not node.source.bounded]
    if runtime_mode == "AUTOMATIC":
        return JobType.STREAMING if unbounded else JobType.BATCH
    if runtime_mode == "BATCH" and unbounded:
        raise ConfigError(
            f"{RUNTIME_MODE.key}=BATCH: source {unbounded[0]!r} never ends; set {RUNTIME_MODE.key} to "
            "STREAMING or AUTOMATIC, or use a bounded source"
        )
    return JobType(runtime_mode)


def _stages_mode(graph: StreamGraph, config: Configuration) -> GlobalStreamExchangeMode:
    """The mode of exchanges between operators in batch form."""
    if any(not profile.is_unknown for profile in graph.profiles.values()):
        # Slots of unlike sizes could leave one end of a pipelined exchange waiting for ever, as in Flink.
        return GlobalStreamExchangeMode.ALL_EDGES_BLOCKING
    return graph.exchange_mode or _batch_mode(config.get(BATCH_SHUFFLE_MODE))


def _batch_mode(shuffle_mode: str) -> GlobalStreamExchangeMode:
    match shuffle_mode:
        case "ALL_EXCHANGES_BLOCKING":
            return GlobalStreamExchangeMode.ALL_EDGES_BLOCKING
        case "ALL_EXCHANGES_PIPELINED":
            return GlobalStreamExchangeMode.ALL_EDGES_PIPELINED
    raise ConfigError(
        f"{BATCH_SHUFFLE_MODE.key}={shuffle_mode}: hybrid exchanges are not supported; use "
        "ALL_EXCHANGES_BLOCKING or ALL_EXCHANGES_PIPELINED"
    )


def checkpoint_interval_ms(graph: JobGraph, config: Configuration) -> int | None:
    """The interval of periodic checkpoints; None: there are none."""
    return None if why_no_checkpoints(graph) is not None else config.find(CHECKPOINT_INTERVAL)


def why_interval_is_idle(graph: JobGraph, config: Configuration) -> str | None:
    """Why the interval that is set has no effect, for people; None: none is set, or it has an effect."""
    return None if config.find(CHECKPOINT_INTERVAL) is None else why_no_checkpoints(graph)


def check_restores(graph: JobGraph, savepoint: str) -> None:
    """Raises ConfigError if the job can start from no savepoint."""
    if why_no_checkpoints(graph) is not None:
        raise ConfigError(
            f"{savepoint}: a BATCH job reads its inputs from their beginning and restores nothing; set "
            f"{RUNTIME_MODE.key}=STREAMING to continue from a savepoint"
        )


def why_no_checkpoints(job: JobGraph | ExchangePlan) -> str | None:
    """Why a job cannot take checkpoints, for people; None: it can. A streaming job with a stored exchange
    takes them when that is read (`unistream.core.execution.stored_exchanges`)."""
    return "it is a BATCH job" if job.job_type is JobType.BATCH else None
