"""The life of a job: each behaviour is one test; the pretended cluster is in `cluster`."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, settings
from unistream.base.errors import ConfigError, ProtocolError
from unistream.core import contract
from unistream.core.contract.settings import RestorePoint
from unistream.core.job import JobMachine
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SnapshotKind

STREAM = {"bounded": False}


def running(config: dict[str, str] | None = None, **graph: object) -> Cluster:
    """A job whose tasks all run and whose first checkpoint (if any) is complete."""
    cluster = Cluster(job_graph(**graph), settings(config))  # type: ignore[arg-type]
    cluster.handle(contract.Started())
    cluster.settle()
    return cluster


def test_a_bounded_job_finishes_after_a_checkpoint_behind_its_end_of_data() -> None:
    cluster = running()
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    states = [c.state for c in cluster.commands if isinstance(c, contract.RecordJobState)]
    assert states == ["CREATED", "RUNNING", "FINISHED"]
    assert cluster.machine.view().checkpoints_completed >= 1


def test_without_checkpointing_a_bounded_job_finishes_without_a_checkpoint() -> None:
    cluster = running({})
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert cluster.of(contract.PrepareDirectory) == []


def test_nothing_is_deployed_before_every_slot_is_there() -> None:
    cluster = Cluster()
    cluster.handle(contract.Started())
    cluster.grant()
    assert cluster.sent(msg.DeployTask) == []
    cluster.grant()
    assert len(cluster.sent(msg.DeployTask)) == 5
    assert len(set(cluster.where)) == 0, "messages are still under way"


def test_subtask_i_of_every_vertex_shares_slot_i() -> None:
    cluster = running(**STREAM)
    places = {(a.vertex, a.index): worker for a, worker in cluster.where.items()}
    assert len(set(places.values())) == 2
    assert len({worker for (_, index), worker in places.items() if index == 0}) == 1


def test_the_first_checkpoint_follows_at_once_when_all_run() -> None:
    cluster = running(**STREAM)
    assert list(cluster.stored) == ["chk-1"]
    assert cluster.timers.keys() == {contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL)}


def test_a_missing_slot_fails_the_job_with_the_number_of_missing_slots() -> None:
    cluster = Cluster(job_settings=settings({"slot.request.timeout": "1 s"}))
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.fire(contract.Timer(contract.TimerKind.SLOT_REQUEST))
    assert cluster.ended is not None
    assert cluster.ended.state == "FAILED"
    assert cluster.ended.failure is not None
    assert "1 of 2 slots are missing after 1000 ms" in cluster.ended.failure.message


def test_a_failure_restarts_everything_from_the_latest_checkpoint_with_the_next_attempt() -> None:
    cluster = running(**STREAM)
    before = len(cluster.sent(msg.DeployTask))
    cluster.fail(cluster.task("count", 1))
    assert cluster.state == "RESTARTING"
    cluster.settle()
    assert cluster.tasks == {}
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    deployed = [m.deployment for m in cluster.sent(msg.DeployTask)[before:]]
    assert {d.attempt.attempt for d in deployed} == {1}
    assert {d.restore.checkpoint_id for d in deployed if d.restore} == {1}
    cluster.settle()
    assert cluster.state == "RUNNING"
    assert cluster.machine.view().restarts == 1
    assert list(cluster.stored) == ["chk-1", "chk-2"], "ids go on growing, and the first one comes at once"


def test_the_restart_waits_for_every_task_to_end() -> None:
    cluster = running(**STREAM)
    cluster.fail(cluster.task("sink", 0))
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    assert cluster.state == "RESTARTING"
    assert len(cluster.tasks) == 4
    cluster.settle()
    assert cluster.state == "RUNNING"


def test_a_worker_whose_tasks_were_about_to_restart_is_in_the_exceptions_once() -> None:
    """Those who read from it have noticed its end first."""
    cluster = running(**STREAM)
    reader = cluster.task("sink", 0)
    gone = next(worker for worker in cluster.mail if worker != cluster.where[reader.attempt])
    cluster.report(reader, "FAILED", msg.TaskFailure(kind="RemoteTransportError", message="it broke"))
    cluster.lose(gone)
    recorded = [c for c in cluster.of(contract.RecordException) if isinstance(c, contract.RecordException)]
    assert [(one.failure.kind, one.is_root) for one in recorded] == [
        ("RemoteTransportError", True),
        ("TaskManagerLost", False),
    ]
    assert recorded[1].task_manager == gone
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
    assert cluster.state == "RUNNING"
    assert cluster.machine.view().restarts == 1


def test_a_lost_worker_ends_its_tasks_also_while_they_are_cancelled() -> None:
    cluster = running(**STREAM)
    first, second = list(cluster.mail)
    cluster.fail(cluster.task("source", 0))
    cluster.lose(first)
    cluster.lose(second)
    assert cluster.tasks == {}
    assert set(cluster.wanted) == {"default/0:2", "default/1:2"}
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
    assert cluster.state == "RUNNING"
    assert cluster.machine.view().restarts == 1


def test_an_unrecoverable_failure_fails_the_job_without_a_restart() -> None:
    cluster = running(**STREAM)
    cluster.fail(cluster.task("source", 0), recoverable=False)
    assert cluster.state == "FAILING"
    cluster.settle()
    assert cluster.ended is not None
    assert (cluster.ended.state, cluster.ended.failure.message) == ("FAILED", "boom")  # type: ignore[union-attr]


def test_without_checkpointing_the_first_failure_fails_the_job() -> None:
    cluster = Cluster(job_graph(bounded=False), settings({}))
    cluster.handle(contract.Started())
    cluster.settle()
    cluster.fail(cluster.task("source", 0))
    cluster.settle()
    assert cluster.ended is not None
    assert cluster.ended.state == "FAILED"


def test_fixed_delay_allows_as_many_restarts_as_it_says() -> None:
    cluster = running(
        EVERY_2_S | {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2"},
        **STREAM,
    )
    for _ in range(2):
        cluster.fail(cluster.task("count", 0))
        cluster.settle()
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.settle()
    assert cluster.state == "RUNNING"
    cluster.fail(cluster.task("count", 0))
    cluster.settle()
    assert cluster.ended is not None
    assert cluster.ended.state == "FAILED"


def test_failures_of_one_failover_count_once() -> None:
    cluster = running(**STREAM)
    cluster.fail(cluster.task("source", 0))
    cluster.fail(cluster.task("source", 1))
    assert cluster.machine.view().restarts == 1


def test_cancel_ends_every_task_and_then_the_job() -> None:
    cluster = running(**STREAM)
    cluster.handle(contract.CancelRequested())
    assert cluster.state == "CANCELLING"
    cluster.settle()
    assert cluster.ended == contract.JobEnded(state="CANCELED")
    assert cluster.discarded == ["chk-1"]


def test_cancel_before_any_slot_is_there() -> None:
    cluster = Cluster()
    cluster.handle(contract.Started())
    cluster.handle(contract.CancelRequested())
    assert cluster.ended == contract.JobEnded(state="CANCELED")
    assert cluster.of(contract.ReleaseSlots) == [contract.ReleaseSlots()]


def test_cancel_during_the_restart_delay() -> None:
    cluster = running(**STREAM)
    cluster.fail(cluster.task("source", 0))
    cluster.settle()
    cluster.handle(contract.CancelRequested())
    assert cluster.ended == contract.JobEnded(state="CANCELED")


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", False),
        ("RETAIN_ON_CANCELLATION", True),
        ("DELETE_ON_CANCELLATION", False),
    ],
)
def test_retention_after_cancel(retention: str, kept: bool) -> None:
    cluster = running(
        EVERY_2_S | {"execution.checkpointing.externalized-checkpoint-retention": retention}, **STREAM
    )
    cluster.handle(contract.CancelRequested())
    cluster.settle()
    assert (cluster.discarded == []) is kept


def test_messages_of_an_old_attempt_are_ignored() -> None:
    cluster = running(**STREAM)
    old = cluster.task("count", 0)
    cluster.fail(cluster.task("source", 0))
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
    failure = msg.TaskFailure(kind="Late", message="late")
    assert cluster.handle(msg.TaskStateChanged(attempt=old.attempt, state="FAILED", failure=failure)) == []
    assert cluster.handle(msg.EndOfDataReached(attempt=old.attempt)) == []
    assert cluster.handle(msg.SplitRequested(attempt=old.attempt)) == []
    assert cluster.state == "RUNNING"


def test_a_worker_cannot_report_a_state_that_is_the_masters_own() -> None:
    cluster = running(**STREAM)
    attempt = cluster.task("count", 0).attempt
    for name in ("SCHEDULED", "CANCELING", "NONSENSE"):
        with pytest.raises(ProtocolError, match=name):
            cluster.handle(msg.TaskStateChanged(attempt=attempt, state=name))


def test_a_refused_deployment_fails_over_and_is_not_waited_for() -> None:
    cluster = Cluster(job_graph(bounded=False))
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.grant()
    deploy = next(c for c in cluster.commands if isinstance(c, contract.Send) and c.token)
    cluster.mail[deploy.task_manager].remove(deploy)
    cluster.handle(contract.Undelivered(token=deploy.token or 0, reason="no slot", refused=True))
    assert cluster.state == "RESTARTING"
    assert cluster.machine.view().attempts[0].state == "FAILED"
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    assert cluster.released == ["default/0"], "the worker may know nothing of that lease any more"
    assert list(cluster.wanted) == ["default/0:2"]
    cluster.settle()
    assert cluster.state == "RUNNING"


def test_tasks_that_do_not_end_lose_their_worker() -> None:
    cluster = running(**STREAM)
    cluster.fail(cluster.task("source", 0))
    for worker in cluster.mail:
        while cluster.mail[worker]:
            cluster.drop(worker)  # no cancel ever arrives, though it is sent three times
    assert len(cluster.tasks) == 4
    assert len(cluster.sent(msg.CancelTask)) == 4 * 3
    cluster.fire(contract.Timer(contract.TimerKind.CANCELLATION))
    assert {m.task_manager for m in cluster.sent(msg.ReleaseTaskManager)} == set(cluster.mail)


def test_a_completion_that_cannot_be_delivered_fails_the_task() -> None:
    cluster = Cluster(job_graph(bounded=False))
    cluster.handle(contract.Started())
    while not cluster.sent(msg.CheckpointCompleted):
        cluster.enabled()[0][1]()
    worker = cluster.sent_to(msg.CheckpointCompleted)[0]
    while any(isinstance(send.message, msg.CheckpointCompleted) for send in cluster.mail[worker]):
        cluster.drop(worker)
    cluster.fire(contract.TimerKind.UNDELIVERED)
    assert cluster.state == "RESTARTING"
    assert "could not be notified of checkpoint 1" in cluster.machine.view().failure.message  # type: ignore[union-attr]


@pytest.mark.parametrize("first", ["the loss", "the message"])
@pytest.mark.parametrize("kind", [msg.DeployTask, msg.AssignSplits, msg.CheckpointCompleted])
def test_the_loss_of_a_worker_is_the_root_cause_whichever_is_heard_of_first(kind: type, first: str) -> None:
    cluster = Cluster(job_graph(bounded=False))
    cluster.handle(contract.Started())
    while not cluster.sent(kind):
        cluster.enabled()[0][1]()
    worker = cluster.sent_to(kind)[0]
    if first == "the message":
        while cluster.mail[worker]:
            cluster.drop(worker)
    cluster.lose(worker)
    cluster.settle()
    recorded = [c for c in cluster.of(contract.RecordException) if isinstance(c, contract.RecordException)]
    assert recorded
    assert {record.failure.kind for record in recorded} == {"TaskManagerLost"}
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
    assert cluster.state == "RUNNING"
    while cluster.timers_of(contract.TimerKind.UNDELIVERED):
        cluster.fire(contract.TimerKind.UNDELIVERED)
    assert cluster.state == "RUNNING", "what was doubtful has ended long since"


def test_a_task_that_comes_up_although_nobody_answered_its_deployment_goes_on() -> None:
    cluster = Cluster(job_graph(bounded=False))
    cluster.handle(contract.Started())
    while not cluster.fates:
        cluster.enabled()[0][1]()
    cluster.lose_answer(next(iter(cluster.fates)))
    cluster.settle()
    cluster.fire(contract.TimerKind.UNDELIVERED)
    assert cluster.state == "RUNNING"
    assert cluster.machine.view().restarts == 0


def test_discovery_that_fails_fails_the_job() -> None:
    cluster = Cluster()
    cluster.handle(contract.Started())
    discover = cluster.of(contract.DiscoverSplits)[0]
    assert isinstance(discover, contract.DiscoverSplits)
    failure = msg.TaskFailure(kind="ConfigError", message="no topic", recoverable=False)
    cluster.handle(contract.DiscoveryFailed(vertex=discover.vertex, failure=failure, number=discover.number))
    assert cluster.ended == contract.JobEnded(state="FAILED", failure=failure)


# --- stopping -------------------------------------------------------------------------------------


def stop(cluster: Cluster, kind: SnapshotKind = SnapshotKind.SUSPEND) -> None:
    cluster.handle(contract.SnapshotRequest(id="stop", kind=kind, target="memory://sp"))


@pytest.mark.parametrize("kind", [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE])
def test_a_stop_is_answered_when_the_job_has_finished(kind: SnapshotKind) -> None:
    cluster = running(**STREAM)
    stop(cluster, kind)
    last = 3 if kind is SnapshotKind.TERMINATE else 2  # a drain takes a resumable one first
    while cluster.sent(msg.CheckpointCompleted)[-1].checkpoint_id != last:  # type: ignore[union-attr]
        cluster.enabled()[0][1]()
    assert cluster.answers == {}, "the savepoint is complete, but nothing is committed yet"
    cluster.settle()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert cluster.answers["stop"].path == f"savepoint-{last}"
    assert cluster.discarded == ["chk-1"], "the savepoint is the user's"


def test_a_stop_ends_periodic_checkpoints() -> None:
    cluster = running(**STREAM)
    stop(cluster)
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    cluster.settle()
    assert list(cluster.stored) == ["chk-1", "savepoint-2"]


def test_a_stop_that_a_task_declines_is_answered_and_the_job_goes_on() -> None:
    cluster = running(**STREAM)
    stop(cluster)
    while not any(task.to_ack for task in cluster.tasks.values()):
        cluster.enabled()[0][1]()
    task = cluster.task("count", 0)
    cluster.handle(msg.CheckpointDeclined(attempt=task.attempt, checkpoint_id=2, reason="disk full"))
    assert "disk full" in (cluster.answers["stop"].error or "")
    assert cluster.state == "RESTARTING"
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
    assert cluster.state == "RUNNING"
    assert "chk-3" in cluster.stored, "periodic checkpoints are back"


def test_a_stop_whose_directory_cannot_be_made_leaves_the_job_alone() -> None:
    cluster = running(**STREAM)
    stop(cluster)
    cluster.jobs.clear()
    cluster.handle(contract.DirectoryFailed(checkpoint_id=2, reason="no such bucket"))
    assert "no such bucket" in (cluster.answers["stop"].error or "")
    assert cluster.state == "RUNNING"
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    cluster.settle()
    assert "chk-3" in cluster.stored


def test_a_worker_lost_after_the_stops_savepoint_does_not_undo_the_stop() -> None:
    cluster = running(**STREAM)
    stop(cluster, SnapshotKind.TERMINATE)
    while "savepoint-3" not in cluster.stored:
        cluster.enabled()[0][1]()
    cluster.lose(next(iter(cluster.mail)))
    assert cluster.answers == {}
    splits_before = len(cluster.sent(msg.AssignSplits))
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
    restored = [m.deployment.restore for m in cluster.sent(msg.DeployTask)[5:]]
    assert {r.checkpoint_id for r in restored if r} == {3}, "its committers commit the savepoint's output"
    assert len(cluster.sent(msg.AssignSplits)) == splits_before, "and nothing more is read"
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert cluster.answers["stop"].path == "savepoint-3"
    assert list(cluster.stored) == ["chk-1", "savepoint-2", "savepoint-3"]


def test_a_stop_whose_job_cannot_come_back_names_the_savepoint() -> None:
    cluster = running(EVERY_2_S | {"restart-strategy.type": "none"}, **STREAM)
    stop(cluster)
    while "savepoint-2" not in cluster.stored:
        cluster.enabled()[0][1]()
    cluster.lose(next(iter(cluster.mail)))
    cluster.settle()
    assert cluster.ended is not None
    assert cluster.ended.state == "FAILED"
    assert "savepoint-2" in (cluster.answers["stop"].error or "")


def test_a_stop_that_was_still_waiting_when_the_job_failed_leaves_nothing_behind() -> None:
    cluster = running(**STREAM)
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    stop(cluster)  # waits behind checkpoint 2
    cluster.fail(cluster.task("count", 0))
    assert cluster.answers["stop"].error == "boom"
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
    assert "chk-3" in cluster.stored, "periodic checkpoints are back"


def test_a_second_stop_is_refused_while_the_first_is_under_way() -> None:
    cluster = running(**STREAM)
    stop(cluster)
    cluster.handle(contract.SnapshotRequest(id="again", kind=SnapshotKind.TERMINATE))
    assert "stopped already" in (cluster.answers["again"].error or "")


def test_cancel_answers_a_stop_that_is_under_way() -> None:
    cluster = running(**STREAM)
    stop(cluster)
    cluster.handle(contract.CancelRequested())
    cluster.settle()
    assert "cancelled" in (cluster.answers["stop"].error or "")
    assert cluster.ended == contract.JobEnded(state="CANCELED")


@pytest.mark.parametrize("kind", list(SnapshotKind))
def test_a_request_to_a_job_that_does_not_run_is_refused(kind: SnapshotKind) -> None:
    cluster = Cluster()
    cluster.handle(contract.Started())
    cluster.handle(contract.SnapshotRequest(id="early", kind=kind))
    assert "not all tasks are running" in (cluster.answers["early"].error or "")
    cluster.handle(contract.CancelRequested())
    cluster.handle(contract.SnapshotRequest(id="late", kind=kind))
    assert "has ended: CANCELED" in (cluster.answers["late"].error or "")


# --- restoring ------------------------------------------------------------------------------------


def savepoint_of_a_stopped_job() -> RestorePoint:
    cluster = running(**STREAM)
    stop(cluster)
    cluster.settle()
    return RestorePoint(directory="moved", manifest=cluster.stored["savepoint-2"], owned=False)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_starts_from_a_savepoint_with_another_parallelism(parallelism: int) -> None:
    restore = savepoint_of_a_stopped_job()
    cluster = Cluster(job_graph(parallelism=parallelism), settings(), restore)
    cluster.handle(contract.Started())
    cluster.settle()
    assert min(m.checkpoint_id for m in cluster.stored.values()) == 3, "ids go on"
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert "moved" not in cluster.discarded, "what the user gave is never discarded"


def test_a_savepoint_of_another_lineage_is_refused() -> None:
    restore = savepoint_of_a_stopped_job()
    other = settings()
    with pytest.raises(ConfigError, match="lineage"):
        JobMachine(job_graph(), dataclasses.replace(other, lineage="else"), restore)  # type: ignore[arg-type]


def test_an_invalid_graph_is_refused_before_anything_starts() -> None:
    graph = job_graph()
    broken = msgspec.structs.replace(graph, vertices=())
    with pytest.raises(ConfigError, match="no operators"):
        JobMachine(broken, settings())


@pytest.mark.parametrize("retention", ["NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION"])
def test_a_suspended_job_ends_its_tasks_and_keeps_its_checkpoints(retention: str) -> None:
    config = EVERY_2_S | {"execution.checkpointing.externalized-checkpoint-retention": retention}
    cluster = running(config, **STREAM)
    cluster.handle(contract.SuspendRequested(reason="its cluster was shut down"))
    cluster.settle()
    assert cluster.tasks == {}
    assert cluster.ended is not None
    assert cluster.ended.state == "SUSPENDED"
    assert cluster.ended.failure is not None
    assert "-s chk-1'" in cluster.ended.failure.message
    assert cluster.discarded == []
    assert not [c for c in cluster.of(contract.DiscardSnapshot) if c.sweep], (
        "the next leader may store files there"
    )


def test_a_job_without_a_checkpoint_says_so_when_it_is_suspended() -> None:
    cluster = Cluster()
    cluster.handle(contract.Started())
    cluster.handle(contract.SuspendRequested(reason="its cluster was shut down"))
    assert cluster.ended is not None
    assert cluster.ended.failure is not None
    assert "no checkpoint to resume from" in cluster.ended.failure.message


def test_a_suspended_job_that_its_cluster_goes_on_with_is_not_to_be_resumed_as_well() -> None:
    cluster = running(**STREAM)
    goes_on = "unistream cluster start --workdir w"
    cluster.handle(contract.SuspendRequested(reason="its cluster was shut down", goes_on=goes_on))
    cluster.settle()
    assert cluster.ended is not None
    assert cluster.ended.failure is not None
    text = cluster.ended.failure.message
    assert f"'{goes_on}' goes on with it; only if that is never run again: resume it from" in text
    assert "-s chk-1'" in text


def test_a_cancelled_job_stays_one_when_its_cluster_ends_meanwhile() -> None:
    cluster = running(**STREAM)
    cluster.handle(contract.CancelRequested())
    cluster.handle(contract.SuspendRequested(reason="its cluster was shut down"))
    cluster.settle()
    assert cluster.ended == contract.JobEnded(state="CANCELED")
    assert cluster.discarded == ["chk-1"]


def test_a_stop_that_a_shutdown_interrupts_is_answered() -> None:
    cluster = running(**STREAM)
    cluster.handle(contract.SnapshotRequest(id="stop", kind=SnapshotKind.SUSPEND))
    cluster.handle(contract.SuspendRequested(reason="its cluster was shut down"))
    cluster.settle()
    assert cluster.answers["stop"].error is not None
    assert cluster.ended is not None
    assert cluster.ended.state == "SUSPENDED"
