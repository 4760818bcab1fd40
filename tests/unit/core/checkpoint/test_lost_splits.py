"""Splits whose message nobody answered, to a task that ends meanwhile: none is lost, and nothing waits."""

from __future__ import annotations

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, settings, stages
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.graph import JobType


def with_splits_under_way(cluster: Cluster) -> contract.Send:
    """The cluster, at the moment at which the first splits have been sent."""
    cluster.handle(contract.Started())
    while not cluster.sent(msg.AssignSplits):
        cluster.enabled()[0][1]()
    return next(
        c
        for c in cluster.commands
        if isinstance(c, contract.Send) and isinstance(c.message, msg.AssignSplits)
    )


def assignment(send: contract.Send) -> msg.AssignSplits:
    assert isinstance(send.message, msg.AssignSplits)
    return send.message


def state_of(cluster: Cluster, send: contract.Send) -> str:
    attempt = assignment(send).attempt
    return next(view.state for view in cluster.machine.view().attempts if view.attempt == attempt)


def test_a_reader_that_ends_well_without_its_splits_has_failed() -> None:
    """A repeated request got it later ones, and the word that nothing follows."""
    cluster = Cluster(stages(pull=True, job_type=JobType.BATCH))
    send = with_splits_under_way(cluster)
    cluster.mail[send.task_manager].remove(send)
    cluster.handle(contract.Undelivered(token=send.token or 0, reason="no answer"))
    assert cluster.state != "RESTARTING", "the worker may be lost, and then that is the cause"
    cluster.handle(msg.TaskStateChanged(attempt=assignment(send).attempt, state="FINISHED"))
    assert cluster.state == "RESTARTING"
    assert "could not be reached" in cluster.machine.view().failure.message  # type: ignore[union-attr]


def test_a_reader_that_has_ended_well_has_got_what_was_sent_to_it() -> None:
    """Nothing is under way to it any more, or no snapshot would begin."""
    cluster = Cluster(job_graph(bounded=True))
    send = with_splits_under_way(cluster)
    cluster.mail[send.task_manager].remove(send)
    cluster.handle(msg.TaskStateChanged(attempt=assignment(send).attempt, state="FINISHED"))
    assert state_of(cluster, send) == "FINISHED"
    sources = cluster.machine._parts.sources
    sources.hold()
    under_way = dict(sources._undelivered)
    cluster.handle(contract.Undelivered(token=send.token or 0, reason="no answer"))
    assert send.token in under_way
    assert send.token not in sources._undelivered
    assert state_of(cluster, send) == "FINISHED"


@pytest.mark.parametrize("reported", [True, False])
def test_a_task_that_has_ended_when_splits_come_is_known_by_what_it_ended_by(reported: bool) -> None:
    """Its worker does not have it any more, and refuses; its own report is slower."""
    cluster = Cluster(job_graph(bounded=False))
    send = with_splits_under_way(cluster)
    attempt = assignment(send).attempt
    cluster.mail[send.task_manager].remove(send)
    cluster.handle(contract.Undelivered(token=send.token or 0, reason="does not run here", refused=True))
    assert cluster.machine.view().failure is None
    if reported:
        cluster.fail(cluster.tasks[attempt])
    else:
        cluster.fire(contract.TimerKind.UNDELIVERED)
    assert cluster.state == "RESTARTING"
    failure = cluster.machine.view().failure
    assert failure is not None
    assert failure.message == "boom" if reported else "does not run here" in failure.message
    roots = [
        c.failure.message
        for c in cluster.of(contract.RecordException)
        if isinstance(c, contract.RecordException)
    ]
    assert roots == [failure.message]


def test_a_source_that_had_finished_in_the_snapshot_is_sent_nothing() -> None:
    """It ends by itself as soon as it runs; a message would find it gone, and restart its region for ever."""
    cluster = Cluster(job_graph(bounded=True), settings(EVERY_2_S | {"restart-strategy.type": "fixed-delay"}))
    cluster.handle(contract.Started())
    cluster.settle_without("end of data count")
    for _ in range(2):  # the first lets the source finish, the second holds it as finished
        cluster.fire(contract.TimerKind.CHECKPOINT_INTERVAL)
        cluster.settle_without("end of data count")
    assert sum(attempt.subtask.vertex == source_of(cluster) for attempt in cluster.finished) == 2
    before = len(cluster.sent(msg.AssignSplits))
    cluster.fail(cluster.task("count", 0))
    cluster.settle_without("end of data count")
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle_without("end of data count")
    assert cluster.task("count", 0).attempt.attempt == 1
    assert len(cluster.sent(msg.AssignSplits)) == before
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")


def source_of(cluster: Cluster) -> str:
    return next(vertex.id for vertex in cluster.graph.vertices if vertex.source is not None)
