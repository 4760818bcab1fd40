"""Checkpoints that a user asks for: Flink's `CheckpointCoordinator.triggerCheckpoint(CheckpointType)`."""

from __future__ import annotations

import pytest

from tests.unit.core.checkpoint.rig import INTERVAL, Rig, kinds
from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, stages
from unistream.base.ids import CheckpointId
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.graph import JobGraph, JobType
from unistream.model.snapshot_kind import SnapshotKind

SOURCE = job_graph().vertices[0].id
ONE_AT_A_TIME = {"execution.checkpointing.max-concurrent-checkpoints": "1"}
NO_SCHEDULE: dict[str, str] = {}


def running(config: dict[str, str] | None = None, schedule: dict[str, str] = EVERY_2_S) -> Rig:
    """A job behind its first checkpoint, if it takes any by itself."""
    rig = Rig(ONE_AT_A_TIME | (config or {}), schedule=schedule)
    if kinds(rig.start()).count("PrepareDirectory"):
        rig.complete(1)
    rig.all.clear()
    return rig


def take(rig: Rig, *, full: bool = False, request: str = "r") -> list[contract.Command]:
    event = contract.SnapshotRequest(id=request, kind=SnapshotKind.CHECKPOINT, full=full)
    return rig.do(lambda c: c.request(event))


def answers(rig: Rig) -> dict[str, tuple[str | None, str | None]]:
    return {c.request: (c.path, c.error) for c in rig.all if isinstance(c, contract.AnswerRequest)}


def triggers(rig: Rig) -> dict[CheckpointId, set[bool]]:
    """Checkpoint -> whether its tasks were notified that it is a full one."""
    found: dict[CheckpointId, set[bool]] = {}
    for command in rig.all:
        if isinstance(command, contract.Send) and isinstance(command.message, msg.TriggerCheckpoint):
            found.setdefault(command.message.checkpoint_id, set()).add(command.message.full)
    return found


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("schedule", "number"),
    [
        pytest.param(EVERY_2_S, 2, id="between two of the schedule"),
        pytest.param(NO_SCHEDULE, 1, id="where there is no schedule"),
    ],
)
def test_it_is_taken_at_once_and_answered_when_it_is_durable(
    schedule: dict[str, str], number: int, full: bool
) -> None:
    rig = running(schedule=schedule)
    assert kinds(take(rig, full=full)).count("PrepareDirectory") == 1
    prepared = [c.kind for c in rig.all if isinstance(c, contract.PrepareDirectory)]
    assert prepared == [SnapshotKind.CHECKPOINT]
    rig.ready(number)
    assert triggers(rig) == {CheckpointId(number): {full}}
    rig.ack(number)
    rig.settle_triggers()
    assert answers(rig) == {}
    rig.durable(number)
    assert answers(rig) == {"r": (f"chk-{number}", None)}
    latest = rig.coordinator.completed.latest
    assert latest is not None
    assert latest.directory == f"chk-{number}"
    assert latest.owned, "the job's own: it makes way for newer ones"


def test_a_full_one_does_not_make_those_of_the_schedule_full() -> None:
    rig = running()
    take(rig, full=True)
    rig.complete(2)
    rig.fire(INTERVAL)
    rig.complete(3)
    assert triggers(rig) == {CheckpointId(2): {True}, CheckpointId(3): {False}}


def test_it_waits_for_one_that_is_under_way_and_comes_before_that_of_the_schedule() -> None:
    rig = running()
    rig.fire(INTERVAL)
    rig.ready(2)
    assert kinds(take(rig, full=True)) == []
    rig.fire(INTERVAL)
    rig.ack(2)
    rig.settle_triggers()
    rig.durable(2)
    rig.complete(3)
    assert triggers(rig)[CheckpointId(3)] == {True}
    assert answers(rig) == {"r": ("chk-3", None)}


def test_a_savepoint_goes_first() -> None:
    rig = running()
    rig.fire(INTERVAL)
    take(rig, request="checkpoint")
    rig.ask(SnapshotKind.SAVEPOINT, "savepoint")  # of those under way it waits for the start only
    rig.ready(2)
    rig.settle_triggers()
    rig.complete(3)
    assert answers(rig) == {"savepoint": ("chk-3", None)}
    rig.ack(2)
    rig.settle_triggers()
    rig.durable(2)
    rig.complete(4)
    assert answers(rig)["checkpoint"] == ("chk-4", None)


def test_told_twice_it_is_taken_once() -> None:
    rig = running()
    take(rig)
    assert kinds(take(rig)) == []
    rig.complete(2)
    assert answers(rig) == {"r": ("chk-2", None)}
    assert kinds(take(rig)) == []


@pytest.mark.parametrize("why", ["declined", "expired", "the storage refuses", "the job restarts"])
def test_who_asked_is_told_why_there_is_none(why: str) -> None:
    rig = running({"execution.checkpointing.tolerable-failed-checkpoints": "9"})
    take(rig)
    rig.ready(2)
    match why:
        case "declined":
            rig.decline(2, "disk full")
        case "expired":
            rig.expire(2)
        case "the storage refuses":
            rig.ack(2)
            rig.settle_triggers()
            rig.fail_manifest(2)
        case _:
            rig.suspend()
    path, error = answers(rig)["r"]
    assert path is None
    part = {"declined": "disk full", "the storage refuses": "oops", "the job restarts": "test"}
    assert part.get(why, "execution.checkpointing.timeout") in (error or "").lower()


def test_a_job_that_is_being_stopped_takes_none() -> None:
    rig = running()
    rig.ask(SnapshotKind.SUSPEND, "stop")
    take(rig)
    assert "being stopped" in (answers(rig)["r"][1] or "")


@pytest.mark.parametrize(
    "requested",
    [
        pytest.param(contract.SnapshotRequest(id="r", kind=SnapshotKind.CHECKPOINT), id="checkpoint"),
        pytest.param(contract.SnapshotRequest(id="r", kind=SnapshotKind.TERMINATE), id="drain"),
        pytest.param(contract.RescaleRequested(request="r", parallelism={SOURCE: 1}), id="rescale"),
    ],
)
@pytest.mark.parametrize(
    ("graph", "reported"),
    [
        pytest.param(job_graph(), "try again when it is RUNNING", id="a stream that starts"),
        pytest.param(
            stages(job_type=JobType.STREAMING),
            "stages run one after the other",
            id="stages, of which one runs",
        ),
        pytest.param(stages(), "it is a BATCH job, which takes no snapshots", id="a batch job"),
    ],
)
def test_who_asks_while_not_all_tasks_run_is_told_whether_they_ever_will(
    graph: JobGraph, reported: str, requested: contract.SnapshotRequest | contract.RescaleRequested
) -> None:
    cluster = Cluster(graph)
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.handle(requested)
    assert reported in (cluster.answers["r"].error or "")
