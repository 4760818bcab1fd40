"""Slots, channels, restart policy, settings, and what a subtask restores from."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, settings
from tests.unit.core.graphs import job_of
from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, JobId, OperatorUid, SubtaskId, TaskManagerId
from unistream.core import contract
from unistream.core.graph.plan import ExecutionPlan
from unistream.core.restore import assign_state, assigner_states
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobGraph, Ship, SourceInfo
from unistream.model.plan import TaskManagerLocation
from unistream.model.snapshot import KeyedHandle, Manifest, OperatorStateHandle, TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

SOURCE = SourceInfo(connector="static", options={}, bounded=True, pull=False)


def two_vertices(ship: Ship, producers: int, consumers: int, **fields: str) -> JobGraph:
    graph = StreamGraph(
        nodes=[
            StreamNode(id=0, name="from", operator=None, source=SOURCE, parallelism=producers),
            StreamNode(id=1, name="to", operator=None, parallelism=consumers, **fields),  # type: ignore[arg-type]
        ],
        edges=[StreamEdge(source=0, target=1, ship=ship, key_columns=("k",) if ship is Ship.HASH else ())],
    )
    return job_of(graph, parallelism=1, chaining=False)


@pytest.mark.parametrize("ship", [Ship.RESCALE, Ship.HASH, Ship.REBALANCE, Ship.BROADCAST, Ship.GLOBAL])
@pytest.mark.parametrize(("producers", "consumers"), [(1, 1), (2, 3), (3, 2), (4, 4), (1, 5), (5, 1)])
def test_both_ends_of_every_channel_agree(ship: Ship, producers: int, consumers: int) -> None:
    plan = ExecutionPlan(two_vertices(ship, producers, consumers))
    attempts = {s: AttemptId(JobId("j"), s.vertex, s.index, 7) for s in plan.subtasks}
    places = {s: TaskManagerLocation(TaskManagerId(f"tm{s.index}"), f"unix:{s.index}") for s in plan.subtasks}
    read = set()
    first, second = (vertex.id for vertex in plan.graph.vertices)
    for index in range(consumers):
        (gate,) = plan.gates(SubtaskId(second, index), attempts, places)
        for channel in gate.channels:
            assert channel.address == f"unix:{channel.producer.index}"
            (partition,) = plan.partitions(SubtaskId(first, channel.producer.index))
            assert partition.consumers[channel.subpartition] == index
            assert partition.edge == channel.edge
            read.add((channel.producer.index, channel.subpartition))
    written = {
        (p, s)
        for p in range(producers)
        for s in range(len(plan.partitions(SubtaskId(first, p))[0].consumers))
    }
    assert read == written, "every subpartition is read by exactly one"


def test_edges_of_one_input_share_its_gate() -> None:
    nodes = [
        StreamNode(id=0, name="a", operator=None, source=SOURCE),
        StreamNode(id=1, name="b", operator=None, source=SOURCE),
        StreamNode(id=2, name="c", operator=None, source=SOURCE),
        StreamNode(id=3, name="join", operator=None, inputs=2),
    ]
    edges = [StreamEdge(source=i, target=3, input_index=i // 2) for i in range(3)]
    graph = job_of(StreamGraph(nodes=nodes, edges=edges))
    plan = ExecutionPlan(graph)
    join = SubtaskId(graph.vertices[3].id, 1)
    attempts = {s: AttemptId(JobId("j"), s.vertex, s.index, 0) for s in plan.subtasks}
    assert [len(gate.channels) for gate in plan.gates(join, attempts, {})] == [2, 1]


def test_both_ends_of_an_edge_know_that_it_carries_committables() -> None:
    nodes = [
        StreamNode(id=0, name="a", operator=None, source=SOURCE),
        StreamNode(id=1, name="writer", operator=None),
        StreamNode(id=2, name="committer", operator=None, parallelism=1),
    ]
    edges = [
        StreamEdge(source=0, target=1, ship=Ship.REBALANCE),
        StreamEdge(source=1, target=2, ship=Ship.GLOBAL, committables=True),
    ]
    plan = ExecutionPlan(job_of(StreamGraph(nodes=nodes, edges=edges), chaining=False))
    attempts = {s: AttemptId(JobId("j"), s.vertex, s.index, 0) for s in plan.subtasks}
    sent = {s: [one.committables for one in plan.partitions(s)] for s in plan.subtasks if s.index == 0}
    read = {s: [one.committables for one in plan.gates(s, attempts, {})] for s in sent}
    assert list(sent.values()) == [[False], [True], []]
    assert list(read.values()) == [[], [False], [True]]


@pytest.mark.parametrize(
    ("config", "strategy"),
    [
        pytest.param({}, "none", id="unset without checkpoints"),
        pytest.param(EVERY_2_S, "exponential-delay", id="unset with checkpoints"),
        pytest.param(EVERY_2_S | {"restart-strategy.type": "off"}, "none", id="off"),
        pytest.param({"restart-strategy.type": "fixed-delay"}, "fixed-delay", id="fixed delay"),
    ],
)
def test_each_job_has_a_restart_strategy_of_its_own(config: dict[str, str], strategy: str) -> None:
    create = settings(config).create_backoff
    assert create().describe().startswith(strategy)
    assert create() is not create()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.checkpointing.interval", "5 ms"),
        ("execution.checkpointing.num-retained", "0"),
        ("execution.checkpointing.tolerable-failed-checkpoints", "-1"),
        ("restart-strategy.fixed-delay.attempts", "-1"),
        ("slot.request.timeout", "0 ms"),
    ],
)
def test_settings_out_of_range_are_refused_by_key(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        settings(EVERY_2_S | {key: value})


# --- restoring ------------------------------------------------------------------------------------


def savepoint(*, stateful: bool = True) -> Manifest:
    """Of the job of `cluster`, taken while it ran; `count` has keyed state in every key group."""
    cluster = Cluster(job_graph(bounded=False))
    cluster.handle(contract.Started())
    cluster.settle()
    cluster.handle(contract.SnapshotRequest(id="r", kind=SnapshotKind.SAVEPOINT))
    cluster.settle()
    manifest = cluster.stored["savepoint-2"]
    if not stateful:
        return manifest
    count = next(v for v in manifest.vertices if v.name == "count")
    handle = KeyedHandle(
        name="n", file=FileRef(path="f", size=1, sha256=""), key_groups=tuple(range(64)), rows=64
    )
    stored = TaskSnapshot(operators={OperatorUid("count"): OperatorStateHandle(keyed=(handle,))})
    changed = msgspec.structs.replace(count, subtasks=(stored, TaskSnapshot()))
    return msgspec.structs.replace(
        manifest, vertices=tuple(changed if v is count else v for v in manifest.vertices)
    )


def test_every_subtask_of_a_known_vertex_is_restored_also_without_state() -> None:
    manifest = savepoint(stateful=False)
    graph = job_graph(bounded=False)
    restores = assign_state(manifest, "dir", graph, allow_non_restored=False)
    assert set(restores) == set(ExecutionPlan(graph).subtasks)
    assert {r.checkpoint_id for r in restores.values()} == {2}
    assert not any(r.finished for r in restores.values())


def test_state_whose_operator_is_gone_is_refused_unless_allowed() -> None:
    graph = two_vertices(Ship.HASH, 2, 2)
    with pytest.raises(ConfigError, match=r"operator uid 'source'.*non-restored"):
        assign_state(savepoint(), "dir", graph, allow_non_restored=False)
    assert assign_state(savepoint(), "dir", graph, allow_non_restored=True) == {}
    assert assigner_states(savepoint(), graph) == {}


def test_another_number_of_key_groups_is_refused() -> None:
    graph = job_graph(bounded=False)
    wider = msgspec.structs.replace(
        graph, vertices=tuple(msgspec.structs.replace(v, max_parallelism=256) for v in graph.vertices)
    )
    with pytest.raises(
        ConfigError, match=r"'count': its keyed state has 128 key groups.*pipeline.max-parallelism"
    ):
        assign_state(savepoint(), "dir", wider, allow_non_restored=False)
    assert assign_state(savepoint(stateful=False), "dir", wider, allow_non_restored=False)


def finished() -> Manifest:
    """Of a job all of whose tasks have ended."""
    cluster = Cluster()
    cluster.handle(contract.Started())
    cluster.run_to_end()
    last = cluster.stored[max(cluster.stored, key=lambda name: int(name.split("-")[1]))]
    return msgspec.structs.replace(
        last,
        vertices=tuple(
            msgspec.structs.replace(
                v,
                subtasks=(None,) * v.parallelism,
                finished_subtasks=tuple(range(v.parallelism)),
                coordinator=None,
            )
            for v in last.vertices
        ),
    )


def test_a_finished_operator_under_another_uid_is_refused_because_it_would_begin_anew() -> None:
    graph = two_vertices(Ship.HASH, 2, 2)
    with pytest.raises(ConfigError, match=r"operator uid 'source'.*had finished.*a second time"):
        assign_state(finished(), "dir", graph, allow_non_restored=False)
    assert assign_state(finished(), "dir", graph, allow_non_restored=True) == {}


def test_a_finished_job_restores_as_finished_and_gives_out_nothing() -> None:
    done = finished()
    graph = job_graph()
    restores = assign_state(done, "dir", graph, allow_non_restored=False)
    assert all(r.finished and not r.operators for r in restores.values())
    assert assigner_states(done, graph) == {graph.vertices[0].id: None}


def test_a_task_that_only_called_finish_runs_again_because_it_may_hold_committables() -> None:
    cluster = Cluster(job_graph(bounded=False))
    cluster.handle(contract.Started())
    cluster.settle()
    cluster.handle(contract.SnapshotRequest(id="r", kind=SnapshotKind.TERMINATE))
    cluster.settle()
    last = cluster.stored["savepoint-3"]
    assert all(task is not None and task.finished for v in last.vertices for task in v.subtasks)
    restores = assign_state(last, "dir", job_graph(), allow_non_restored=False)
    assert not any(r.finished for r in restores.values())
