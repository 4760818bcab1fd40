"""What is reported of a job's snapshots: over REST in Flink's shapes, to clients, and from the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import WAIT_S, Api
from unistream.base.errors import NotFound
from unistream.base.ids import CheckpointId, JobId, LineageId, VertexId
from unistream.client.embedded.embedded_cluster import EmbeddedJobClient
from unistream.client.remote.rest_client import RestClient
from unistream.core.contract import SnapshotRequest
from unistream.master.shown.history import checkpoints_from_records
from unistream.model import messages as msg
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    RestoredFigures,
    SnapshotStatus,
    SubtaskFigures,
    VertexFigures,
)
from unistream.model.job_info import CheckpointInfo
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.port.metadata import JobRecord
from unistream.rest.checkpoints import checkpoint_config, details, item, overview, vertex_details

SAVEPOINT = SnapshotRequest(kind=SnapshotKind.SAVEPOINT)
STOP = SnapshotRequest(kind=SnapshotKind.SUSPEND)

UNKNOWN = "0" * 31 + "a"
Make = Callable[..., Any]

# Fields as a session cluster of Flink 2.3.0 shows them.
SPREAD = {"min", "max", "avg", "p50", "p90", "p95", "p99", "p999"}
SIZES = {"checkpointed_size", "state_size", "alignment_buffered", "processed_data", "persisted_data"}
COUNTED = {"num_subtasks", "num_acknowledged_subtasks", "latest_ack_timestamp", "end_to_end_duration"}
ITEM = (
    {"className", "id", "status", "is_savepoint", "savepointFormat", "trigger_timestamp"}
    | {"checkpoint_type", "tasks"}
    | SIZES
    | COUNTED
)
COMPLETED = ITEM | {"external_path", "discarded"}
TASK = {"id", "status"} | SIZES | COUNTED
SUBTASK = {
    *("className", "index", "ack_timestamp", "end_to_end_duration", "checkpointed_size", "state_size"),
    *("checkpoint", "alignment", "start_delay", "unaligned_checkpoint", "aborted", "status"),
}
CONFIG = {
    *("mode", "interval", "timeout", "min_pause", "max_concurrent", "externalization", "state_backend"),
    *("checkpoint_storage", "unaligned_checkpoints", "tolerable_failed_checkpoints"),
    *("aligned_checkpoint_timeout", "checkpoints_after_tasks_finish", "state_changelog_enabled"),
    *("changelog_periodic_materialization_interval", "changelog_storage"),
}

VERTEX = VertexFigures(
    vertex=VertexId("v"),
    name="count",
    subtasks=(
        SubtaskFigures(
            index=1,
            acked_after_ms=20,
            start_delay_ms=3,
            alignment_ms=5,
            sync_ms=2,
            async_ms=9,
            processed_bytes=10,
            persisted_bytes=20,
            state_bytes=400,
            new_bytes=100,
            unaligned=True,
        ),
        SubtaskFigures(index=2, acked_after_ms=30, state_bytes=600, new_bytes=300, sync_ms=4),
    ),
    missing=(0,),
)


def figures(status: SnapshotStatus = SnapshotStatus.COMPLETED, **more: Any) -> CheckpointFigures:
    values: dict[str, Any] = {
        "checkpoint_id": CheckpointId(7),
        "kind": SnapshotKind.CHECKPOINT,
        "status": status,
        "timestamp_ms": 1_000,
        "duration_ms": 44,
        "path": "file:///chk-7",
        "vertices": (VERTEX,),
    }
    return CheckpointFigures(**(values | more))


@pytest.fixture
def job(api: Api, submission: Make, checkpointed: dict[str, str]) -> str:
    """A running job with a checkpoint."""
    job = api.cluster.dispatcher.submit(submission(config=checkpointed))
    api.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    return str(job)


class TestShapes:
    """Of single figures, with numbers that differ."""

    @pytest.mark.parametrize(
        ("one", "reported"),
        [
            pytest.param(
                figures(),
                {"className": "completed", "status": "COMPLETED", "external_path": "file:///chk-7"},
                id="completed",
            ),
            pytest.param(figures(discarded=True), {"discarded": True}, id="made way for newer ones"),
            pytest.param(
                figures(SnapshotStatus.IN_PROGRESS),
                {"className": "in_progress", "status": "IN_PROGRESS", "end_to_end_duration": 44},
                id="under way",
            ),
            pytest.param(
                figures(SnapshotStatus.FAILED, reason="IO_EXCEPTION: full"),
                {"status": "FAILED", "failure_timestamp": 1_044, "failure_message": "IO_EXCEPTION: full"},
                id="failed",
            ),
            pytest.param(
                figures(),
                {"checkpoint_type": "UNALIGNED_CHECKPOINT", "is_savepoint": False, "savepointFormat": None},
                id="unaligned: one of its tasks was",
            ),
            pytest.param(figures(vertices=()), {"checkpoint_type": "CHECKPOINT"}, id="aligned"),
            pytest.param(
                figures(kind=SnapshotKind.SAVEPOINT),
                {"checkpoint_type": "SAVEPOINT", "is_savepoint": True, "savepointFormat": "CANONICAL"},
                id="a savepoint",
            ),
            pytest.param(
                figures(kind=SnapshotKind.SUSPEND, format=SavepointFormat.NATIVE),
                {"savepointFormat": "NATIVE"},
                id="a native savepoint",
            ),
            pytest.param(
                figures(kind=SnapshotKind.SAVEPOINT, format=None),
                {"is_savepoint": True, "savepointFormat": None},
                id="a savepoint of which only a record is left",
            ),
            pytest.param(
                figures(kind=SnapshotKind.SUSPEND), {"checkpoint_type": "SYNC_SAVEPOINT"}, id="of a stop"
            ),
            pytest.param(
                figures(kind=SnapshotKind.TERMINATE), {"checkpoint_type": "SYNC_SAVEPOINT"}, id="of a drain"
            ),
            pytest.param(
                figures(),
                {"checkpointed_size": 400, "state_size": 1_000, "processed_data": 10, "persisted_data": 20},
                id="sizes are those of all tasks",
            ),
            pytest.param(
                figures(),
                {"num_subtasks": 3, "num_acknowledged_subtasks": 2, "latest_ack_timestamp": 1_030},
                id="who has acknowledged, and when the last one did",
            ),
            pytest.param(
                figures(vertices=(), recorded_bytes=77),
                {"state_size": 77, "num_subtasks": 0, "latest_ack_timestamp": -1},
                id="from a record: no tasks",
            ),
        ],
    )
    def test_a_snapshot(self, one: CheckpointFigures, reported: dict[str, object]) -> None:
        shown = item(one)
        assert {name: shown[name] for name in reported} == reported
        assert set(shown) >= ITEM

    def test_its_tasks(self) -> None:
        shown: Any = details(figures())
        assert set(shown) == COMPLETED
        assert set(shown["tasks"]) == {"v"}
        task = shown["tasks"]["v"]
        assert set(task) == TASK
        assert (task["id"], task["status"], task["state_size"], task["end_to_end_duration"]) == (
            *(7, "COMPLETED"),
            *(1_000, 30),
        )

    def test_the_subtasks_of_a_vertex(self) -> None:
        shown: Any = vertex_details(figures(SnapshotStatus.IN_PROGRESS), VERTEX)
        assert set(shown) == TASK | {"summary", "subtasks"}
        missing, first, second = shown["subtasks"]
        assert missing == {"className": "pending", "index": 0, "status": "pending_or_failed"}
        assert set(first) == set(second) == SUBTASK
        assert (first["index"], first["ack_timestamp"], first["start_delay"]) == (1, 1_020, 3)
        assert first["checkpoint"] == {"sync": 2, "async": 9}
        assert first["alignment"] == {"buffered": 0, "processed": 10, "persisted": 20, "duration": 5}
        assert (first["unaligned_checkpoint"], second["unaligned_checkpoint"]) == (True, False)
        summary = shown["summary"]
        assert set(summary) == {
            *("checkpointed_size", "state_size", "end_to_end_duration", "checkpoint_duration"),
            *("alignment", "start_delay"),
        }
        assert set(summary["alignment"]) == {"buffered", "processed", "persisted", "duration"}
        assert set(summary["checkpoint_duration"]["async"]) == SPREAD
        sync = summary["checkpoint_duration"]["sync"]
        assert (sync["min"], sync["avg"], sync["max"], sync["p50"]) == (2, 3, 4, 3.0)

    def test_a_vertex_without_an_acknowledgement(self) -> None:
        alone = VertexFigures(vertex=VertexId("v"), name="count", missing=(0, 1))
        shown: Any = vertex_details(figures(SnapshotStatus.IN_PROGRESS, vertices=(alone,)), alone)
        assert (shown["latest_ack_timestamp"], shown["end_to_end_duration"]) == (-1, -1)
        assert shown["summary"]["state_size"] == {"min": 0, "max": 0, "avg": 0} | dict.fromkeys(
            ("p50", "p90", "p95", "p99", "p999"), "NaN"
        )

    def test_what_was_restored(self) -> None:
        restored = RestoredFigures(
            checkpoint_id=CheckpointId(3), kind=SnapshotKind.SAVEPOINT, path="file:///sp", restored_ms=5
        )
        shown: Any = overview(CheckpointsInfo(restored=2, latest_restored=restored))
        assert shown["counts"]["restored"] == 2
        assert shown["latest"]["restored"] == {
            "id": 3,
            "restore_timestamp": 5,
            "is_savepoint": True,
            "external_path": "file:///sp",
        }

    @pytest.mark.parametrize(
        ("config", "reported"),
        [
            pytest.param(
                {},
                {"interval": 2**63 - 1, "mode": "at_least_once", "timeout": 600_000, "max_concurrent": 1},
                id="no checkpoints",
            ),
            pytest.param(
                {"execution.checkpointing.interval": "5 s"},
                {"interval": 5_000, "mode": "exactly_once", "unaligned_checkpoints": False},
                id="defaults",
            ),
            pytest.param(
                {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"},
                {"externalization": {"enabled": True, "delete_on_cancellation": False}},
                id="kept when cancelled",
            ),
            pytest.param(
                {"execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION"},
                {"externalization": {"enabled": True, "delete_on_cancellation": True}},
                id="kept when failed",
            ),
            pytest.param(
                {"state.backend.type": "rocksdb", "execution.checkpointing.min-pause": "10 ms"},
                {"state_backend": "EmbeddedRocksDBStateBackend", "min_pause": 10},
                id="backend and pause",
            ),
            pytest.param(
                {
                    "execution.checkpointing.unaligned.enabled": "true",
                    "execution.checkpointing.aligned-checkpoint-timeout": "3 s",
                },
                {"unaligned_checkpoints": True, "aligned_checkpoint_timeout": 3_000},
                id="unaligned after a time",
            ),
        ],
    )
    def test_the_configuration(
        self, job_graph: Make, config: dict[str, str], reported: dict[str, object]
    ) -> None:
        shown = checkpoint_config(msgspec.structs.replace(job_graph(), config=config))
        assert set(shown) == CONFIG
        assert {name: shown[name] for name in reported} == reported


class TestOverRest:
    @pytest.mark.parametrize("prefix", ["", "/v1"])
    def test_all_of_a_job(self, api: Api, job: str, prefix: str) -> None:
        found = api.get(f"{prefix}/jobs/{job}/checkpoints")
        counts = found["counts"]
        assert counts["total"] == counts["completed"] + counts["failed"] + counts["in_progress"]
        assert counts["completed"] >= 1
        assert set(found["summary"]) == SIZES | {"end_to_end_duration"}
        assert all(set(spread) == SPREAD for spread in found["summary"].values())
        assert set(found["latest"]) == {"completed", "savepoint", "failed", "restored"}
        assert set(found["latest"]["completed"]) == COMPLETED
        assert found["latest"]["completed"]["trigger_timestamp"] > 0
        assert 0 < len(found["history"]) <= 10
        ids = [shown["id"] for shown in found["history"]]
        assert ids == sorted(ids, reverse=True)

    def test_one_with_its_vertices(self, api: Api, job: str) -> None:
        path = api.cluster.dispatcher.snapshot(JobId(job), SAVEPOINT).result(WAIT_S)
        saved = api.get(f"/jobs/{job}/checkpoints")["latest"]["savepoint"]
        assert saved["external_path"] == path
        shown = api.get(f"/jobs/{job}/checkpoints/details/{saved['id']}")
        assert (shown["status"], shown["num_subtasks"], shown["num_acknowledged_subtasks"]) == (
            *("COMPLETED", 4),
            4,
        )
        vertices = [vertex["id"] for vertex in api.get(f"/jobs/{job}")["vertices"]]
        assert sorted(shown["tasks"]) == sorted(vertices)
        for vertex in vertices:
            below = api.get(f"/jobs/{job}/checkpoints/details/{saved['id']}/subtasks/{vertex}")
            assert [subtask["index"] for subtask in below["subtasks"]] == [0, 1]
            assert below["num_subtasks"] == 2

    def test_the_configuration(self, api: Api, job: str) -> None:
        config = api.get(f"/jobs/{job}/checkpoints/config")
        assert (config["interval"], config["mode"]) == (20, "exactly_once")

    def test_what_is_not_there(self, api: Api, job: str, subtests: pytest.Subtests) -> None:
        api.cluster.dispatcher.snapshot(JobId(job), SAVEPOINT).result(WAIT_S)
        saved = api.get(f"/jobs/{job}/checkpoints")["latest"]["savepoint"]["id"]
        for path, status, text in (
            ("/jobs/{job}/checkpoints/details/999999", 404, "has no checkpoint 999999"),
            ("/jobs/{job}/checkpoints/details/first", 400, "'first' is not the id of a checkpoint"),
            ("/jobs/{job}/checkpoints/details/-1", 400, "'-1' is not the id of a checkpoint"),
            ("/jobs/{job}/checkpoints/details/{id}/subtasks/" + UNKNOWN, 404, "has no vertex"),
            (f"/jobs/{UNKNOWN}/checkpoints", 404, "there is no job"),
            (f"/jobs/{UNKNOWN}/checkpoints/config", 404, "there is no job"),
            (f"/jobs/{UNKNOWN}/checkpoints/details/1", 404, "there is no job"),
            (f"/unistream/jobs/{UNKNOWN}/checkpoints", 404, "there is no job"),
        ):
            with subtests.test(path):
                answer = api.http.get(path.format(job=job, id=saved))
                assert answer.status_code == status
                assert text in answer.json()["errors"][0]

    def test_figures_are_kept_after_the_end_and_the_same_for_every_client(self, api: Api, job: str) -> None:
        path = api.cluster.dispatcher.snapshot(JobId(job), STOP).result(WAIT_S)
        embedded = EmbeddedJobClient(api.cluster.dispatcher, JobId(job)).checkpoints()
        with RestClient(api.server.url) as client:
            assert client.client(JobId(job)).checkpoints() == embedded
            with pytest.raises(NotFound):
                client.client(JobId(UNKNOWN)).checkpoints()
        assert embedded.latest_savepoint is not None
        assert (embedded.latest_savepoint.path, embedded.in_progress) == (path, 0)
        assert embedded.latest_savepoint.kind is SnapshotKind.SUSPEND
        assert {vertex.name for vertex in embedded.latest_savepoint.vertices} == {"source", "sink"}

    def test_a_restart_is_a_restore(self, api: Api, job: str) -> None:
        attempt = api.cluster.workers.messages(msg.DeployTask)[0].deployment.attempt
        failure = msg.TaskFailure(kind="UserCodeError", message="no such flight")
        api.cluster.workers.call_master(
            msg.TaskStateChanged(attempt=attempt, state="FAILED", failure=failure)
        )
        api.cluster.workers.await_message(msg.DeployTask, 8)
        found = api.get(f"/jobs/{job}/checkpoints")
        assert found["counts"]["restored"] == 1
        restored = found["latest"]["restored"]
        assert (restored["is_savepoint"], restored["restore_timestamp"] > 0) == (False, True)
        assert f"chk-{restored['id']}" in restored["external_path"]


# --- from the catalogue ---------------------------------------------------------------------------


def record(n: int, status: SnapshotStatus, duration_ms: int = 0, **more: Any) -> CheckpointFigures:
    values: dict[str, Any] = {"kind": SnapshotKind.CHECKPOINT, "timestamp_ms": n * 100, "format": None}
    return CheckpointFigures(
        checkpoint_id=CheckpointId(n), status=status, duration_ms=duration_ms, **(values | more)
    )


JOB = JobRecord(
    job=JobId("j"), name="j", lineage=LineageId("l"), state="FINISHED", target="local", submitted_ms=0
)


def test_what_the_catalogue_knows() -> None:
    info = checkpoints_from_records(
        JOB,
        [
            record(2, SnapshotStatus.FAILED, 9, reason="full"),
            record(1, SnapshotStatus.COMPLETED, 10, recorded_bytes=100, path="chk-1"),
            record(4, SnapshotStatus.IN_PROGRESS),
            record(
                3, SnapshotStatus.COMPLETED, 30, recorded_bytes=300, path="sp", kind=SnapshotKind.SAVEPOINT
            ),
        ],
    )
    assert (info.completed, info.failed, info.in_progress, info.restored) == (2, 1, 1, 0)
    assert [known.checkpoint_id for known in info.latest] == [4, 3, 2, 1]
    assert all(known.vertices == () for known in info.latest)
    latest = (info.latest_completed, info.latest_savepoint, info.latest_failed)
    assert [(known.checkpoint_id, known.state_bytes) for known in latest if known is not None] == [
        (1, 100),
        (3, 300),
        (2, 0),
    ]
    assert {name: (spread.min, spread.max) for name, spread in info.summary.items()} == {
        "duration_ms": (10, 30),
        "state_bytes": (100, 300),
    }


def test_a_job_without_records() -> None:
    assert checkpoints_from_records(JOB, []) == CheckpointsInfo()


def test_a_job_of_an_earlier_master_is_told_of_from_the_catalogue(
    make_cluster: Make, submission: Make, checkpointed: dict[str, str]
) -> None:
    first = make_cluster(workers=ScriptedWorkers(ends=False))
    job = first.dispatcher.submit(submission(config=checkpointed))
    first.workers.await_message(msg.CheckpointCompleted, 4)
    first.dispatcher.snapshot(job, STOP).result(WAIT_S)
    known = first.dispatcher.checkpoints(job)
    first.dispatcher.close()

    second = first.lead()
    try:
        recorded = second.checkpoints(job)
        with pytest.raises(NotFound):
            second.checkpoints(JobId(UNKNOWN))
    finally:
        second.close()
    assert (recorded.completed, recorded.failed) == (known.completed, known.failed)
    assert [f.checkpoint_id for f in recorded.latest] == [f.checkpoint_id for f in known.latest]
    assert recorded.latest_savepoint is not None
    assert known.latest_savepoint is not None
    assert recorded.latest_savepoint.path == known.latest_savepoint.path
    assert recorded == known, "with what its tasks did"


def test_a_job_says_how_many_are_shown_also_from_the_catalogue(
    make_cluster: Make, submission: Make, checkpointed: dict[str, str]
) -> None:
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    job = api.cluster.dispatcher.submit(submission(config=checkpointed | {"web.checkpoints.history": "2"}))
    api.cluster.workers.await_message(msg.CheckpointCompleted, 12)
    shown = api.get(f"/jobs/{job}/checkpoints")
    assert shown["counts"]["completed"] > 2
    assert len(shown["history"]) == 2
    api.cluster.dispatcher.snapshot(job, STOP).result(WAIT_S)
    api.close()
    api.cluster.dispatcher.close()
    second = api.cluster.lead()
    try:
        recorded = second.checkpoints(job)
    finally:
        second.close()
    assert recorded.completed > 2
    assert len(recorded.latest) == 2


# --- one record, two shapes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "in_job", "duration_ms", "in_statistics"),
    [
        pytest.param(SnapshotStatus.IN_PROGRESS, "triggered", None, "in progress", id="in progress"),
        pytest.param(SnapshotStatus.COMPLETED, "completed", 9, "completed", id="completed"),
        pytest.param(SnapshotStatus.FAILED, "failed", 9, "failed", id="failed"),
    ],
)
def test_json_of_a_record(
    status: SnapshotStatus, in_job: str, duration_ms: int | None, in_statistics: str
) -> None:
    known = record(2, status, 9, recorded_bytes=5, path="chk-2")
    assert msgspec.to_builtins(CheckpointInfo.of(known)) == {
        "checkpoint_id": 2,
        "kind": "checkpoint",
        "state": in_job,
        "triggered_ms": 200,
        "duration_ms": duration_ms,
        "state_bytes": 5,
        "path": "chk-2",
        "reason": None,
    }
    assert msgspec.to_builtins(known) == {
        "checkpoint_id": 2,
        "kind": "checkpoint",
        "status": in_statistics,
        "timestamp_ms": 200,
        "duration_ms": 9,
        "path": "chk-2",
        "reason": None,
        "vertices": (),
        "recorded_bytes": 5,
        "discarded": False,
        "format": None,
        "read": (),
    }
