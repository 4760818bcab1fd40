"""A job in each state of its life, and all that may happen to it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, settings
from unistream.base.ids import AttemptId, CheckpointId, JobId, TaskManagerId, VertexId
from unistream.core import contract
from unistream.core.contract import JobState, Timer, TimerKind
from unistream.model import bounded
from unistream.model import messages as msg
from unistream.model.job_status import JobStatus
from unistream.model.snapshot import TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind

CONFIG = EVERY_2_S | {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "9"}
STABLE = Timer(TimerKind.RESOURCES, 1)


def state(cluster: Cluster) -> JobState:
    return cluster.machine._parts.state


def until(cluster: Cluster, wanted: JobState) -> Cluster:
    for _ in range(1000):
        if state(cluster) is wanted:
            return cluster
        cluster.enabled()[0][1]()
    raise AssertionError(f"{state(cluster)} instead of {wanted}")


def started(**config: str) -> Cluster:
    cluster = Cluster(job_graph(bounded=False), settings(CONFIG | config))
    cluster.handle(contract.Started())
    return cluster


def running(**config: str) -> Cluster:
    cluster = started(**config)
    cluster.settle()
    return cluster


def restarting() -> Cluster:
    cluster = running()
    cluster.fail(cluster.task("count", 0))
    return cluster


def rescaling() -> Cluster:
    cluster = running()
    source = cluster.graph.vertices[0].id
    cluster.handle(contract.RescaleRequested(request="wider", parallelism={source: 3}))
    return until(cluster, JobState.RESCALING)


def waiting() -> Cluster:
    """An adaptive job of which one worker was lost, and not replaced."""
    cluster = running(**{"jobmanager.scheduler": "adaptive"})
    cluster.lose(cluster.where[cluster.task("source", 1).attempt])
    cluster.settle_without("grant")
    cluster.fire(TimerKind.RESTART_DELAY)
    return cluster


def finishing() -> Cluster:
    """A stop whose savepoint is durable, and a task failed before everything was committed."""
    cluster = running()
    cluster.handle(contract.SnapshotRequest(id="stop", kind=SnapshotKind.SUSPEND))
    while cluster.machine._parts.coordinator.stop_path is None:
        cluster.enabled()[0][1]()
    cluster.fail(cluster.task("count", 0))
    cluster.settle()
    cluster.fire(TimerKind.RESTART_DELAY)
    return until(cluster, JobState.FINISHING)


def after(event: contract.Event, given: Callable[[], Cluster] = running) -> Cluster:
    cluster = given()
    cluster.handle(event)
    return cluster


def failing() -> Cluster:
    cluster = running()
    cluster.fail(cluster.task("count", 0), recoverable=False)
    return cluster


def ended(cluster: Cluster) -> Cluster:
    cluster.run_to_end()
    return cluster


STEPS_DOWN = contract.LeadershipLost(reason="another leader was elected")
SHUT_DOWN = contract.SuspendRequested(reason="its cluster was shut down")
GIVEN: dict[JobState, Callable[[], Cluster]] = {
    JobState.INITIAL: lambda: Cluster(job_graph(bounded=False), settings(CONFIG)),
    JobState.CREATED: lambda: started(**{"jobmanager.scheduler": "adaptive"}),
    JobState.STARTING: started,
    JobState.RUNNING: running,
    JobState.RESTARTING: restarting,
    JobState.RESCALING: rescaling,
    JobState.WAITING: waiting,
    JobState.FINISHING: finishing,
    JobState.CANCELLING: lambda: after(contract.CancelRequested()),
    JobState.FAILING: failing,
    JobState.FINISHED: lambda: ended(finishing()),
    JobState.CANCELED: lambda: ended(after(contract.CancelRequested())),
    JobState.FAILED: lambda: ended(failing()),
    JobState.SUSPENDING: lambda: after(SHUT_DOWN),
    JobState.SUSPENDED: lambda: after(STEPS_DOWN),
}
LEFT = [
    pytest.param(state, id=state.name)
    for state in GIVEN
    if state not in (JobState.FINISHED, JobState.CANCELED, JobState.FAILED, JobState.SUSPENDED)
]

NOBODY = AttemptId(JobId("j"), VertexId("v"), 0, 7)
BOOM = msg.TaskFailure(kind="Boom", message="boom")
ELSEWHERE = VertexId("elsewhere")
EVENTS: list[contract.Event] = [
    contract.Started(),
    contract.SlotsGranted(leases=()),
    contract.SlotsUnfulfillable(requests=("default/0",), reason="too big", permanent=False),
    contract.SlotsUnfulfillable(requests=("default/0",), reason="too big", permanent=True),
    contract.TaskManagerLost(task_manager=TaskManagerId("unknown"), reason="gone"),
    contract.TaskManagerLost(task_manager=TaskManagerId("tm0"), reason="gone"),
    contract.TaskManagerDraining(task_manager=TaskManagerId("unknown")),
    contract.TaskManagerDraining(task_manager=TaskManagerId("tm0")),
    contract.Delivered(token=99),
    contract.Undelivered(token=99, reason="gone"),
    contract.SplitsDiscovered(vertex=ELSEWHERE, splits=(), number=1),
    contract.DiscoveryFailed(vertex=ELSEWHERE, failure=BOOM, number=1),
    contract.DirectoryReady(checkpoint_id=CheckpointId(99), directory="d", timestamp_ms=1),
    contract.DirectoryFailed(checkpoint_id=CheckpointId(99), reason="full"),
    contract.ManifestDurable(checkpoint_id=CheckpointId(99)),
    contract.ManifestFailed(checkpoint_id=CheckpointId(99), reason="full"),
    *(contract.TimerFired(Timer(kind, number)) for kind in TimerKind for number in (-1, 0, 1)),
    *(contract.SnapshotRequest(id=kind.name, kind=kind) for kind in SnapshotKind),
    contract.RescaleRequested(request="rescale", parallelism={}),
    contract.CancelRequested(),
    SHUT_DOWN,
    STEPS_DOWN,
    msg.TaskStateChanged(attempt=NOBODY, state="FAILED", failure=BOOM),
    msg.EndOfDataReached(attempt=NOBODY),
    msg.StoredInputsRead(attempt=NOBODY),
    msg.SplitRequested(attempt=NOBODY),
    msg.CheckpointAcked(
        attempt=NOBODY, checkpoint_id=CheckpointId(9), snapshot=TaskSnapshot(), state_bytes=1
    ),
    msg.CheckpointDeclined(attempt=NOBODY, checkpoint_id=CheckpointId(99), reason="x"),
    bounded.AttemptsChanged(run=1, attempts=()),
    bounded.StagesRan(run=1, staged=()),
    bounded.CommittersStored(run=1, snapshots=()),
    bounded.StagedCommitted(run=1),
    bounded.RunFailed(run=1, failure=BOOM),
]


def test_there_is_a_way_into_every_state_that_the_machine_can_reach_by_itself() -> None:
    assert set(JobState) - set(GIVEN) == {JobState.RECONCILING}, "no event leads there yet"
    for wanted, given in GIVEN.items():
        assert state(given()) is wanted


@pytest.mark.parametrize("given", [pytest.param(g, id=s.name) for s, g in GIVEN.items()])
def test_whatever_happens_is_a_step_of_the_table_or_changes_nothing(given: Callable[[], Cluster]) -> None:
    cluster = given()
    before = state(cluster)
    for event in EVENTS:
        cluster.handle(event)  # an IllegalTransition or a broken invariant would be raised
        assert state(cluster).status.value == cluster.state
        if state(cluster) is not before:
            cluster = given()


def test_all_events_are_tried() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(contract.Event))


@pytest.mark.parametrize("before", LEFT)
def test_a_user_cancels_it(before: JobState) -> None:
    own_way = {
        JobState.FINISHING: "FINISHED",
        JobState.FAILING: "FAILED",
        JobState.SUSPENDING: "SUSPENDED",
    }
    cluster = after(contract.CancelRequested(), GIVEN[before])
    assert cluster.state != JobStatus.CANCELLING.value or before not in own_way
    cluster.settle()
    assert cluster.ended is not None
    assert cluster.ended.state == own_way.get(before, "CANCELED")


@pytest.mark.parametrize("before", LEFT)
def test_its_leader_steps_down(before: JobState) -> None:
    cluster = GIVEN[before]()
    stored, discarded, count = dict(cluster.stored), list(cluster.discarded), len(cluster.commands)
    cluster.handle(STEPS_DOWN)
    assert (state(cluster), cluster.state) == (JobState.SUSPENDED, "SUSPENDED")
    done = cluster.commands[count:]
    allowed = (contract.RecordJobState, contract.AnswerRequest, contract.CancelTimer, contract.SetTimer)
    assert all(isinstance(command, allowed) for command in done), "workers, slots and storage are the next's"
    assert (cluster.stored, cluster.discarded, cluster.ended) == (stored, discarded, None)
    assert not cluster.timers_of(TimerKind.CHECKPOINT_INTERVAL)
    assert not cluster.timers_of(TimerKind.RESOURCES)
    cluster.settle()
    assert cluster.commands[count + len(done) :] == [], "what comes later is nothing to it"


@pytest.mark.parametrize("before", LEFT)
def test_its_cluster_is_shut_down(before: JobState) -> None:
    own_way = {
        JobState.FINISHING: "FINISHED",
        JobState.FAILING: "FAILED",
        JobState.CANCELLING: "CANCELED",
    }
    cluster = after(SHUT_DOWN, GIVEN[before])
    cluster.settle()
    if before is JobState.INITIAL:
        assert cluster.ended is None, "it is started first"
        return
    assert cluster.ended is not None
    assert cluster.ended.state == own_way.get(before, "SUSPENDED")
    if before not in own_way:
        assert set(cluster.discarded) <= set(GIVEN[before]().discarded), "what it can restart from is kept"


def test_who_waits_for_an_answer_is_refused_by_a_leader_that_steps_down() -> None:
    cluster = running()
    cluster.handle(contract.SnapshotRequest(id="savepoint", kind=SnapshotKind.SAVEPOINT))
    cluster.handle(contract.SnapshotRequest(id="stop", kind=SnapshotKind.SUSPEND))
    cluster.handle(STEPS_DOWN)
    assert {name: answer.error for name, answer in cluster.answers.items()} == {
        "savepoint": "another leader was elected; it may still become complete",
        "stop": "another leader was elected",
    }
    cluster.handle(contract.SnapshotRequest(id="late", kind=SnapshotKind.SAVEPOINT))
    assert cluster.answers["late"].error == "the job has ended: SUSPENDED"


def test_a_stop_and_a_change_of_parallelism_are_answered_too() -> None:
    cluster = rescaling()
    cluster.handle(STEPS_DOWN)
    assert cluster.answers["wider"].error == "the job was not rescaled: another leader was elected"
    cluster = finishing()
    cluster.handle(STEPS_DOWN)
    error = cluster.answers["stop"].error or ""
    assert "the savepoint is complete at savepoint-2, but another leader was elected before" in error
