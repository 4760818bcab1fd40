"""What a BATCH job commits is fixed before the first commit, whatever fails afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.unit.core.cluster import SPLITS, Cluster, committing, settings
from unistream.base.errors import CorruptSnapshot
from unistream.base.limits import REPORTED_BYTES_MAX
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.graph import JobGraph
from unistream.model.stored_job import AttemptCounter, Sealed

MANY = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000"}
FULL = {"jobmanager.execution.failover-strategy": "full"}
COMMITTERS = [
    pytest.param(committing(parallelism=2), id="a committer for each writer"),
    pytest.param(committing(spread=False, parallelism=2), id="one for all"),
    pytest.param(committing(levels=2, parallelism=2), id="a global committer behind it"),
]


def started(graph: JobGraph, config: dict[str, str] | None = None) -> Cluster:
    cluster = Cluster(graph, settings(MANY | (config or {})))
    cluster.handle(contract.Started())
    return cluster


def lose_one(cluster: Cluster) -> None:
    for worker in list(cluster.mail)[:1]:
        cluster.lose(worker)


def lose_last(cluster: Cluster) -> None:
    for worker in list(cluster.mail)[-1:]:
        cluster.lose(worker)


def lose_all(cluster: Cluster) -> None:
    for worker in list(cluster.mail):
        cluster.lose(worker)


def fail_one(cluster: Cluster) -> None:
    for task in [t for t in cluster.tasks.values() if t.state in ("INITIALIZING", "RUNNING")][:1]:
        cluster.fail(task)


def fail_job(cluster: Cluster) -> None:
    """A failure that belongs to no task."""
    cluster.machine._life.fail(msg.TaskFailure(kind="Boom", message="of the whole job"), None)
    cluster.handle(contract.TimerFired(contract.Timer(contract.TimerKind.SLOT_IDLE)))


FAULTS = [lose_one, lose_last, lose_all, fail_one, fail_job]


def check_committed(cluster: Cluster) -> None:
    assert cluster.state == "FINISHED"
    by_vertex: dict[str, list[str]] = {}
    for subtask, names in cluster.committed.items():
        by_vertex.setdefault(subtask.vertex, []).extend(names)
    assert by_vertex, "something was committed"
    for names in by_vertex.values():
        assert Counter(names) == Counter(SPLITS)


@pytest.mark.parametrize("config", [{}, FULL], ids=["region", "full"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("graph", COMMITTERS)
def test_each_split_is_committed_once_wherever_it_fails(
    graph: JobGraph, fault: Callable[[Cluster], None], config: dict[str, str]
) -> None:
    steps = 0
    while True:
        cluster = started(graph, config)
        for _ in range(steps):
            actions = cluster.enabled()
            if not actions or cluster.ended is not None:
                break
            actions[-1][1]()  # those that ask last get the splits now, and others after the restart
        if cluster.ended is not None:
            break
        fault(cluster)
        cluster.run_to_end()
        check_committed(cluster)
        steps += 2
    assert steps > 30


@pytest.mark.parametrize("graph", COMMITTERS)
def test_each_split_is_committed_once_whenever_another_leader_goes_on(graph: JobGraph) -> None:
    steps, begun = 0, 0
    while True:
        cluster = started(graph)
        for _ in range(steps):
            actions = cluster.enabled()
            if not actions or cluster.ended is not None:
                break
            actions[-1][1]()
        if cluster.ended is not None:
            break
        sealed = what_is_durable(cluster)
        second = followed_by_another_leader(cluster, sealed)
        if sealed is not None:
            begun += 1
            second.committed = dict(cluster.committed)
            assert not second.jobs, "no splits are looked for: no source runs again"
        second.run_to_end()
        check_committed(second)
        assert sealed is None or {task.deployment.vertex.name for task in second.tasks.values()} <= {
            vertex.name for vertex in graph.vertices if "committer" in vertex.name
        }
        steps += 1
    assert begun > 3


def what_is_durable(cluster: Cluster) -> Sealed | None:
    """It is stored before the first committer is deployed, and whenever there is more of it."""
    sent = [message for message in cluster.sent(msg.DeployTask) if isinstance(message, msg.DeployTask)]
    return cluster.machine.sealed() if any(one.deployment.reads_reported for one in sent) else None


def followed_by_another_leader(former: Cluster, sealed: Sealed | None) -> Cluster:
    """Nothing of the former one runs any more."""
    highest = max(view.attempt.attempt for view in former.machine.view().attempts)
    used = AttemptCounter(highest=highest, restarts=0)
    second = Cluster(former.graph, settings(MANY, used=used, sealed=sealed))
    second.handle(contract.Started())
    second.finished |= {view.attempt for view in second.machine.view().attempts if view.state == "FINISHED"}
    return second


def test_what_another_leader_commits_is_of_its_graph() -> None:
    cluster = started(committing(parallelism=2))
    cluster.settle_without("end of data committer")
    sealed = what_is_durable(cluster)
    assert sealed is not None
    other = committing(parallelism=3)
    with pytest.raises(CorruptSnapshot, match="is not of its graph"):
        Cluster(other, settings(MANY, sealed=sealed))


def test_committers_start_when_all_writers_have_finished() -> None:
    cluster = started(committing())
    cluster.settle_without("finish source/1")
    assert {t.deployment.vertex.name for t in cluster.tasks.values()} == {"source"}
    cluster.settle()
    check_committed(cluster)


@pytest.mark.parametrize("config", [{}, FULL], ids=["region", "full"])
@pytest.mark.parametrize("fault", [lose_all, fail_job])
def test_no_writer_runs_again_once_a_committer_may_have_committed(
    fault: Callable[[Cluster], None], config: dict[str, str]
) -> None:
    cluster = started(committing(), config)
    cluster.settle_without("end of data committer")
    fault(cluster)
    cluster.run_to_end()
    names = {vertex.id: vertex.name for vertex in cluster.graph.vertices}
    attempts = {(names[v.attempt.vertex], v.attempt.attempt) for v in cluster.machine.view().attempts}
    assert attempts == {("source", 0), ("committer0", 1)}
    check_committed(cluster)


def test_a_writer_that_finishes_without_its_committables_fails_the_job_before_any_commit() -> None:
    cluster = started(committing())
    cluster.settle_without("finish source/0")
    cluster.handle(msg.TaskStateChanged(attempt=cluster.task("source", 0).attempt, state="FINISHED"))
    assert "has finished without the committables of 'source' -> 'committer0'" in ended(cluster)


def test_too_many_committables_fail_the_job_before_any_commit() -> None:
    cluster = started(committing(spread=False))
    cluster.settle_without("finish source")
    half = bytes(REPORTED_BYTES_MAX // 2 + 1)
    for index in (0, 1):
        task = cluster.task("source", index)
        [edge] = [partition.edge for partition in task.deployment.partitions]
        reported = (msg.ReportedPartition(edge=edge, contents=(half,)),)
        cluster.handle(msg.TaskStateChanged(attempt=task.attempt, state="FINISHED", committables=reported))
    assert f"{2 * len(half)} B for one committer" in ended(cluster)


def ended(cluster: Cluster) -> str:
    """Why the job failed; nothing was committed."""
    cluster.settle()
    assert isinstance(cluster.ended, contract.JobEnded)
    assert cluster.ended.failure is not None
    assert not cluster.committed
    return cluster.ended.failure.message
