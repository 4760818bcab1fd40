"""Statistics of a job's snapshots in the shapes of Flink's REST API.

Times are epoch milliseconds, -1 where nothing has happened yet. Flink's `checkpointed_size` is what was
written for this snapshot, `state_size` all that it refers to; `alignment_buffered` is 0 in Flink, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import CheckpointId, VertexId
from unistream.core.checkpoint import Sample
from unistream.core.contract import ExternalizedCheckpointRetention, SnapshotRequest
from unistream.core.graph import checkpoint_interval_ms
from unistream.master.cluster import Dispatcher
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    RestoredFigures,
    SnapshotStatus,
    Spread,
    SubtaskFigures,
    VertexFigures,
)
from unistream.model.graph import JobGraph
from unistream.model.snapshot_kind import CheckpointType, SnapshotKind
from unistream.rest.answers import json_answer, operation
from unistream.rest.requests import (
    CheckpointBody,
    body_of,
    checkpoint_type,
    chosen_trigger,
    job_id,
    trigger_id,
)
from unistream.rest.triggers import Triggers

Json = dict[str, object]

WHAT: Final = "checkpoint"
"""What `Triggers` calls the operations of this module."""

NEVER_MS: Final = 2**63 - 1
"""Flink's interval of a job without checkpoints."""

MATERIALIZATION_MS: Final = 600_000  # Flink's default; there is no changelog here
QUANTILES: Final = ("p50", "p90", "p95", "p99", "p999")
NOTHING: Final[Json] = {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(QUANTILES, "NaN")}
ZERO: Final[Json] = {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(QUANTILES, 0.0)}
BACKENDS: Final = {"hashmap": "HashMapStateBackend", "rocksdb": "EmbeddedRocksDBStateBackend"}

_ID: Final = re.compile(r"[0-9]{1,18}")


class CheckpointsApi:
    """The handlers of a job's checkpoints."""

    def __init__(self, dispatcher: Dispatcher, triggers: Triggers) -> None:
        self._dispatcher = dispatcher
        self._triggers = triggers

    def routes(self, router: APIRouter) -> None:
        router.get("/jobs/{id_}/checkpoints")(self.overview)
        router.post("/jobs/{id_}/checkpoints")(self.take)
        router.get("/jobs/{id_}/checkpoints/config")(self.config)
        router.get("/jobs/{id_}/checkpoints/details/{checkpoint}")(self.details)
        router.get("/jobs/{id_}/checkpoints/details/{checkpoint}/subtasks/{vertex}")(self.subtasks)
        router.get("/jobs/{id_}/checkpoints/{trigger}")(self.taken)
        router.get("/unistream/jobs/{id_}/checkpoints")(self.own)
        router.get("/unistream/jobs/{id_}/checkpoints/{trigger}")(self.own_taken)

    async def take(self, id_: str, request: Request) -> Response:
        """A checkpoint now. Body: `CheckpointBody`."""
        body = await body_of(request, CheckpointBody)
        return await run_in_threadpool(self._take, id_, body)

    def _take(self, id_: str, body: CheckpointBody) -> Response:
        job = job_id(id_)
        full = checkpoint_type(body.type) is CheckpointType.FULL
        request = SnapshotRequest(kind=SnapshotKind.CHECKPOINT, full=full)
        begin = lambda _trigger: self._dispatcher.snapshot(job, request)  # noqa: E731
        trigger = chosen_trigger(body.trigger)
        started = self._triggers.start(job, begin, what=WHAT, trigger=trigger, request=request)
        return json_answer({"request-id": started}, 202)

    def taken(self, id_: str, trigger: str) -> Response:
        """The state of a requested checkpoint, and its id."""
        return self._outcome(id_, trigger, lambda path: {"checkpointId": int(path.rpartition("/chk-")[2])})

    def own_taken(self, id_: str, trigger: str) -> Response:
        """The outcome of a requested checkpoint with its directory, which Flink's API does not have."""
        return self._outcome(id_, trigger, lambda path: {"location": path})

    def _outcome(self, id_: str, trigger: str, result: Callable[[str], Json]) -> Response:
        path = self._triggers.outcome(job_id(id_), trigger_id(trigger), WHAT)
        return operation(None if path is None else result(path))

    def overview(self, id_: str) -> Response:
        return json_answer(overview(self._dispatcher.checkpoints(job_id(id_))))

    def config(self, id_: str) -> Response:
        return json_answer(checkpoint_config(self._dispatcher.graph(job_id(id_))))

    def details(self, id_: str, checkpoint: str) -> Response:
        return json_answer(details(self._figures(id_, checkpoint)))

    def subtasks(self, id_: str, checkpoint: str, vertex: str) -> Response:
        figures = self._figures(id_, checkpoint)
        wanted = VertexId(vertex.lower())
        for found in figures.vertices:
            if found.vertex == wanted:
                return json_answer(vertex_details(figures, found))
        raise NotFound(f"checkpoint {figures.checkpoint_id} has no vertex {vertex[:80]!r}")

    def own(self, id_: str) -> Response:
        """The whole `CheckpointsInfo`."""
        return json_answer(self._dispatcher.checkpoints(job_id(id_)))

    def _figures(self, id_: str, checkpoint: str) -> CheckpointFigures:
        job = job_id(id_)
        if not _ID.fullmatch(checkpoint):
            raise ConfigError(f"{checkpoint[:80]!r} is not the id of a checkpoint, such as 12")
        found = self._dispatcher.checkpoints(job).find(CheckpointId(int(checkpoint)))
        if found is None:
            raise NotFound(f"job {job} has no checkpoint {checkpoint}, or its statistics are no longer kept")
        return found


# --- shapes ---------------------------------------------------------------------------------------


def overview(info: CheckpointsInfo) -> Json:
    """The answer to GET /jobs/{id}/checkpoints."""
    spread = {name: _spread(info.summary.get(name)) for name in info.summary}
    latest = {
        "completed": info.latest_completed,
        "savepoint": info.latest_savepoint,
        "failed": info.latest_failed,
    }
    return {
        "counts": {
            "restored": info.restored,
            "total": info.completed + info.failed + info.in_progress,
            "in_progress": info.in_progress,
            "completed": info.completed,
            "failed": info.failed,
        },
        "summary": {
            "checkpointed_size": spread.get("new_bytes", NOTHING),
            "state_size": spread.get("state_bytes", NOTHING),
            "end_to_end_duration": spread.get("duration_ms", NOTHING),
            "alignment_buffered": ZERO,
            "processed_data": spread.get("processed_bytes", NOTHING),
            "persisted_data": spread.get("persisted_bytes", NOTHING),
        },
        "latest": {
            **{name: None if figures is None else item(figures) for name, figures in latest.items()},
            "restored": None if info.latest_restored is None else _restored(info.latest_restored),
        },
        "history": [item(figures) for figures in info.latest],
    }


def item(figures: CheckpointFigures) -> Json:
    """One snapshot, without its tasks."""
    shown: Json = {
        "className": figures.status.name.lower(),
        "id": figures.checkpoint_id,
        "status": figures.status.name,
        "is_savepoint": figures.kind.is_savepoint,
        "savepointFormat": _format(figures),
        "trigger_timestamp": figures.timestamp_ms,
        **_totals(figures, figures.subtasks),
        "state_size": figures.state_bytes,
        "end_to_end_duration": figures.duration_ms,
        "num_subtasks": figures.expected,
        "num_acknowledged_subtasks": len(figures.subtasks),
        "checkpoint_type": _type(figures),
        "tasks": {},
    }
    match figures.status:
        case SnapshotStatus.COMPLETED:
            return {**shown, "external_path": figures.path, "discarded": figures.discarded}
        case SnapshotStatus.FAILED:
            failed_ms = figures.timestamp_ms + figures.duration_ms
            return {**shown, "failure_timestamp": failed_ms, "failure_message": figures.reason}
    return shown


def details(figures: CheckpointFigures) -> Json:
    """The answer to GET /jobs/{id}/checkpoints/details/{checkpoint}."""
    return {**item(figures), "tasks": {v.vertex: _vertex(figures, v) for v in figures.vertices}}


def vertex_details(figures: CheckpointFigures, vertex: VertexFigures) -> Json:
    """The answer to GET /jobs/{id}/checkpoints/details/{checkpoint}/subtasks/{vertex}."""
    subtasks = vertex.subtasks

    def spread(of: Callable[[SubtaskFigures], int]) -> Json:
        return _spread(Sample(of(s) for s in subtasks).spread() if subtasks else None)

    shown = [(s.index, _subtask(figures, s)) for s in subtasks]
    shown += [(index, _missing(index)) for index in vertex.missing]
    return {
        **_vertex(figures, vertex),
        "summary": {
            "checkpointed_size": spread(lambda s: s.new_bytes),
            "state_size": spread(lambda s: s.state_bytes),
            "end_to_end_duration": spread(lambda s: s.acked_after_ms),
            "checkpoint_duration": {
                "sync": spread(lambda s: s.sync_ms),
                "async": spread(lambda s: s.async_ms),
            },
            "alignment": {
                "buffered": ZERO,
                "processed": spread(lambda s: s.processed_bytes),
                "persisted": spread(lambda s: s.persisted_bytes),
                "duration": spread(lambda s: s.alignment_ms),
            },
            "start_delay": spread(lambda s: s.start_delay_ms),
        },
        "subtasks": [subtask for _, subtask in sorted(shown, key=lambda pair: pair[0])],
    }


def checkpoint_config(graph: JobGraph) -> Json:
    """/jobs/{id}/checkpoints/config. A job without checkpoints promises no more than at least once."""
    config = Configuration(graph.config)
    interval_ms = checkpoint_interval_ms(graph, config)
    retention = ExternalizedCheckpointRetention(config.get(options.CHECKPOINT_RETENTION))
    mode = "AT_LEAST_ONCE" if interval_ms is None else config.get(options.CHECKPOINT_MODE)
    return {
        "mode": mode.lower(),
        "interval": NEVER_MS if interval_ms is None else interval_ms,
        "timeout": config.get(options.CHECKPOINT_TIMEOUT),
        "min_pause": config.get(options.CHECKPOINT_MIN_PAUSE),
        "max_concurrent": config.get(options.CHECKPOINT_MAX_CONCURRENT),
        "externalization": {
            "enabled": retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
            "delete_on_cancellation": retention is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        },
        "state_backend": BACKENDS[config.get(options.STATE_BACKEND)],
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": config.get(options.UNALIGNED_ENABLED),
        "tolerable_failed_checkpoints": config.get(options.CHECKPOINT_TOLERABLE_FAILURES),
        "aligned_checkpoint_timeout": config.get(options.ALIGNED_TIMEOUT),
        "checkpoints_after_tasks_finish": config.get(options.CHECKPOINTS_AFTER_TASKS_FINISH),
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": MATERIALIZATION_MS,
        "changelog_storage": "memory",
    }


def _vertex(figures: CheckpointFigures, vertex: VertexFigures) -> Json:
    acked_after_ms = max((s.acked_after_ms for s in vertex.subtasks), default=-1)
    return {
        "id": figures.checkpoint_id,
        "status": figures.status.name,
        **_totals(figures, vertex.subtasks),
        "end_to_end_duration": acked_after_ms,
        "num_subtasks": vertex.expected,
        "num_acknowledged_subtasks": len(vertex.subtasks),
    }


def _totals(figures: CheckpointFigures, subtasks: Iterable[SubtaskFigures]) -> Json:
    acked = tuple(subtasks)
    last_ms = max((figures.timestamp_ms + s.acked_after_ms for s in acked), default=-1)
    return {
        "latest_ack_timestamp": last_ms,
        "checkpointed_size": sum(s.new_bytes for s in acked),
        "state_size": sum(s.state_bytes for s in acked),
        "alignment_buffered": 0,
        "processed_data": sum(s.processed_bytes for s in acked),
        "persisted_data": sum(s.persisted_bytes for s in acked),
    }


def _subtask(figures: CheckpointFigures, subtask: SubtaskFigures) -> Json:
    return {
        "className": "completed",
        "index": subtask.index,
        "ack_timestamp": figures.timestamp_ms + subtask.acked_after_ms,
        "end_to_end_duration": subtask.acked_after_ms,
        "checkpointed_size": subtask.new_bytes,
        "state_size": subtask.state_bytes,
        "checkpoint": {"sync": subtask.sync_ms, "async": subtask.async_ms},
        "alignment": {
            "buffered": 0,
            "processed": subtask.processed_bytes,
            "persisted": subtask.persisted_bytes,
            "duration": subtask.alignment_ms,
        },
        "start_delay": subtask.start_delay_ms,
        "unaligned_checkpoint": subtask.unaligned,
        "aborted": False,
        "status": "completed",
    }


def _missing(index: int) -> Json:
    """A subtask that has not acknowledged, as Flink's `PendingSubtaskCheckpointStatistics`."""
    return {"className": "pending", "index": index, "status": "pending_or_failed"}


def _restored(restored: RestoredFigures) -> Json:
    return {
        "id": restored.checkpoint_id,
        "restore_timestamp": restored.restored_ms,
        "is_savepoint": restored.kind.is_savepoint,
        "external_path": restored.path,
    }


def _type(figures: CheckpointFigures) -> str:
    """The snapshot's type as Flink's `RestAPICheckpointType` names it."""
    if figures.kind.is_synchronous:
        return "SYNC_SAVEPOINT"
    if figures.kind.is_savepoint:
        return "SAVEPOINT"
    unaligned = any(subtask.unaligned for subtask in figures.subtasks)
    return "UNALIGNED_CHECKPOINT" if unaligned else "CHECKPOINT"


def _format(figures: CheckpointFigures) -> str | None:
    return figures.format.name if figures.kind.is_savepoint and figures.format is not None else None


def _spread(spread: Spread | None) -> Json:
    if spread is None:
        return NOTHING
    quantiles = {name: getattr(spread, name) for name in QUANTILES}
    return {"min": spread.min, "max": spread.max, "avg": int(spread.average), **quantiles}
