"""Another parallelism for jobs whose checkpoints hold rows that are bound to the parallelism at which they
were taken; see `unistream.core.restore.in_flight`."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.core.cluster import EVERY_2_S, Cluster, Task, settings
from tests.unit.core.graphs import job_of
from unistream.base.ids import CheckpointId
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobGraph, Ship, SourceInfo
from unistream.model.in_flight import InFlightHandle, InFlightRun
from unistream.model.snapshot import TaskSnapshot
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

CONFIG = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "execution.checkpointing.unaligned.enabled": "true",
}
ADAPTIVE = {"jobmanager.scheduler": "adaptive"}
WAIT, STABLE, COOL = (contract.Timer(contract.TimerKind.RESOURCES, number) for number in range(3))
SLOTS = contract.Timer(contract.TimerKind.SLOT_REQUEST, -1)
BOUND = "in-flight rows on 'source' -> 'count' (rescale)"


def graph(parallelism: int) -> JobGraph:
    """source -> rescale -> count: rows on that edge cannot be redistributed."""
    info = SourceInfo(connector="static", options={}, bounded=False, pull=False)
    stream = StreamGraph(
        name="bound",
        nodes=[
            StreamNode(id=0, name="source", operator=None, uid="source", source=info),
            StreamNode(id=1, name="count", operator=None, uid="count", stateful=True),
        ],
        edges=[StreamEdge(source=0, target=1, ship=Ship.RESCALE)],
    )
    return job_of(stream, parallelism=parallelism)


class Bound(Cluster):
    """Whose checkpoints hold a row on that edge. `always`: also those whose barriers overtake nothing."""

    always = False

    def take(self, task: Task, n: CheckpointId) -> TaskSnapshot:
        snapshot = super().take(task, n)
        if task.is_source or (n in self.aligned and not self.always):
            return snapshot
        place = task.attempt.index
        run = InFlightRun(edge=self.graph.edges[0].id, producer=place, consumer=place, start=0, stop=1)
        file = FileRef(path=f"in-flight-{n}-{place}", size=1, sha256="0")
        return structs.replace(snapshot, in_flight=InFlightHandle(file=file, inputs=(run,)))

    @property
    def aligned(self) -> set[CheckpointId]:
        sent = [c.message for c in self.commands if isinstance(c, contract.Send)]
        return {m.checkpoint_id for m in sent if isinstance(m, msg.TriggerCheckpoint) and m.aligned}


def running(slots: int, parallelism: int = 2, **config: str) -> Bound:
    cluster = Bound(graph(parallelism), settings(EVERY_2_S | CONFIG | config))
    cluster.handle(contract.Started())
    for _ in range(slots):
        cluster.grant()
    settle(cluster)
    return cluster


def settle(cluster: Cluster) -> None:
    """No worker comes by itself."""
    cluster.settle_without("grant")


def ask(cluster: Cluster, width: int) -> None:
    vertices = {vertex.id: width for vertex in cluster.graph.vertices}
    cluster.handle(contract.RescaleRequested(request="r", parallelism=vertices))
    settle(cluster)


def widths(cluster: Cluster) -> set[int]:
    return {vertex.parallelism for vertex in cluster.machine.view().graph.vertices}


def attempts(cluster: Cluster) -> set[int]:
    return {view.attempt.attempt for view in cluster.machine.view().attempts}


def lose_one(cluster: Cluster) -> None:
    cluster.lose(cluster.where[cluster.task("count", 1).attempt])
    settle(cluster)
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    settle(cluster)


def test_it_is_done_from_a_checkpoint_that_has_no_such_rows() -> None:
    cluster = running(2)
    edge = cluster.graph.edges[0]
    assert cluster.stored["chk-1"].in_flight_keys == {edge.id: ()}, "they were not sent by key"
    ask(cluster, 1)
    assert cluster.answers["r"].error is None
    assert (cluster.state, widths(cluster)) == ("RUNNING", {1})
    assert cluster.aligned == {3}, "the second one that it has taken"
    restore = cluster.task("count", 0).deployment.restore
    assert restore is None or not restore.in_flight


def test_a_job_that_could_not_start_again_is_left_as_it_is() -> None:
    cluster = running(2)
    cluster.always = True
    ask(cluster, 1)
    assert BOUND in (cluster.answers["r"].error or "")
    assert "the job was not rescaled" in (cluster.answers["r"].error or "")
    assert (cluster.state, widths(cluster), attempts(cluster)) == ("RUNNING", {2}, {0})
    cluster.always = False
    vertices = {vertex.id: 1 for vertex in cluster.graph.vertices}
    cluster.handle(contract.RescaleRequested(request="again", parallelism=vertices))
    settle(cluster)
    assert (cluster.answers["again"].error, widths(cluster)) == (None, {1})


class TestAdaptive:
    def test_a_lost_worker_is_waited_for_rather_than_to_fail(self) -> None:
        cluster = running(2, **ADAPTIVE)
        lose_one(cluster)
        cluster.fire(STABLE)
        settle(cluster)
        assert (cluster.state, cluster.ended) == ("RESTARTING", None), "one slot is not enough for these rows"
        cluster.grant()
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", {2})

    def test_it_fails_with_the_reason_when_none_comes(self) -> None:
        cluster = running(2, **ADAPTIVE)
        lose_one(cluster)
        cluster.fire(STABLE)
        cluster.fire(WAIT)
        settle(cluster)
        assert cluster.ended is not None
        assert cluster.ended.failure is not None
        assert BOUND in cluster.ended.failure.message

    def test_it_starts_as_it_was_though_there_are_more_slots_now(self) -> None:
        cluster = running(2, parallelism=3, **ADAPTIVE)
        cluster.fire(STABLE)
        settle(cluster)
        cluster.grant()
        cluster.fail(cluster.task("count", 1))
        settle(cluster)
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", {2})
        cluster.fire(COOL)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", {3}), "it grows from an aligned checkpoint"
        assert cluster.aligned

    @pytest.mark.parametrize("comes", [False, True])
    def test_a_higher_bound_without_slots_for_it_restarts_nothing(self, comes: bool) -> None:
        cluster = running(2, parallelism=2, **ADAPTIVE)
        ask(cluster, 3)
        assert (cluster.state, widths(cluster), attempts(cluster)) == ("RUNNING", {2}, {0})
        assert "r" not in cluster.answers, "slots may come at once"
        if comes:
            cluster.grant()
            settle(cluster)
            assert (cluster.answers["r"].error, widths(cluster)) == (None, {3})
            return
        cluster.fire(SLOTS)
        settle(cluster)
        assert cluster.answers["r"].error is None
        assert (cluster.state, attempts(cluster)) == ("RUNNING", {0})
        cluster.grant()
        cluster.fire(COOL)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", {3}), "the bound holds from then on"

    def test_a_lower_bound_that_is_not_reached_restarts_nothing(self) -> None:
        cluster = running(1, parallelism=3, **ADAPTIVE)
        cluster.fire(STABLE)
        settle(cluster)
        ask(cluster, 2)
        cluster.fire(SLOTS)
        settle(cluster)
        assert cluster.answers["r"].error is None
        assert (cluster.state, widths(cluster), attempts(cluster)) == ("RUNNING", {1}, {0})
        assert len(cluster.wanted) == 1, "of the slots that are missing, one is not asked for any more"

    def test_the_bound_stays_when_the_job_fails_before_it_is_set(self) -> None:
        cluster = running(2, parallelism=2, **ADAPTIVE)
        ask(cluster, 3)
        cluster.fail(cluster.task("count", 0))
        assert cluster.answers["r"].error == "the job was not rescaled: boom"
        settle(cluster)
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        settle(cluster)
        wanted = cluster.machine.view().wanted
        assert wanted is not None
        assert {vertex.parallelism for vertex in wanted.vertices} == {2}
        assert (cluster.state, widths(cluster), len(cluster.wanted)) == ("RUNNING", {2}, 0)
