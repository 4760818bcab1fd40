"""A job among random faults: safe at every step, and at its end as soon as the faults stop."""

from __future__ import annotations

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec import structs

from tests.unit.core.cluster import (
    EVERY_2_S,
    Action,
    Cluster,
    enriched,
    grouped,
    job_graph,
    pipelines,
    settings,
    stages,
)
from tests.unit.core.shared import shared_files
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.elements import SnapshotKind
from unistream.model.graph import JobGraph, JobType
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile

MANY = EVERY_2_S | {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "execution.checkpointing.tolerable-failed-checkpoints": "3",
}


ADAPTIVE = {"jobmanager.scheduler": "adaptive"}


def graph_is_staged(graph: JobGraph) -> bool:
    return any(edge.partition.is_blocking for edge in graph.edges)


def faults(cluster: Cluster) -> list[Action]:
    """All that may go wrong now."""
    actions: list[Action] = []
    for worker in list(cluster.mail):
        actions.append((f"lose {worker}", lambda w=worker: cluster.lose(w)))
        if worker in cluster.fates:
            actions.append((f"lose answer {worker}", lambda w=worker: cluster.lose_answer(w)))
        elif cluster.mail[worker]:
            actions.append((f"drop {worker}", lambda w=worker: cluster.drop(w)))
    for task in list(cluster.tasks.values()):
        if task.state in ("INITIALIZING", "RUNNING"):
            actions.append((f"fail {task.attempt}", lambda t=task: cluster.fail(t)))
        for n in task.to_ack:
            decline = msg.CheckpointDeclined(attempt=task.attempt, checkpoint_id=n, reason="full")
            actions.append((f"decline {n}", lambda d=decline: cluster.handle(d)))
    for job in cluster.jobs:
        actions += _io_faults(cluster, job)
    for timer in list(cluster.timers):
        actions.append((f"fire {timer}", lambda t=timer: cluster.fire(t)))
    return actions


def _io_faults(cluster: Cluster, job: contract.Command) -> list[Action]:
    def fail(event: contract.Event, *, happened: bool = False) -> None:
        cluster.jobs.remove(job)
        if happened and isinstance(job, contract.WriteManifest):
            cluster.store(job.directory, job.manifest)
        cluster.in_doubt |= isinstance(event, contract.ManifestFailed) and event.unknown
        cluster.handle(event)

    match job:
        case contract.PrepareDirectory(checkpoint_id=n):
            return [
                ("no directory", lambda: fail(contract.DirectoryFailed(checkpoint_id=n, reason="denied")))
            ]
        case contract.WriteManifest(manifest=manifest):
            n = manifest.checkpoint_id
            unknown = contract.ManifestFailed(checkpoint_id=n, reason="timed out", unknown=True)
            return [
                ("no manifest", lambda: fail(contract.ManifestFailed(checkpoint_id=n, reason="denied"))),
                ("manifest unknown, there", lambda: fail(unknown, happened=True)),
                ("manifest unknown, not there", lambda: fail(unknown)),
            ]
    return []


def check_safety(cluster: Cluster) -> None:
    """What holds after every event."""
    manifests = [c.manifest for c in cluster.commands if isinstance(c, contract.WriteManifest)]
    latest = [m.checkpoint_id for m in manifests if m.kind is not SnapshotKind.SAVEPOINT]
    started = [c.checkpoint_id for c in cluster.commands if isinstance(c, contract.PrepareDirectory)]
    assert started == sorted(set(started)), "ids strictly grow"
    assert latest == sorted(latest), "what a restart continues from never goes back"
    acked = {a.checkpoint_id for a in cluster.sent(msg.CheckpointCompleted)}  # type: ignore[union-attr]
    durable = {m.checkpoint_id for m in cluster.stored.values()}
    assert acked <= durable, "announced before it was durable"
    records = [c.record for c in cluster.commands if isinstance(c, contract.RecordCheckpoint)]
    completed = {record.path for record in records if record.status is SnapshotStatus.COMPLETED}
    kept = [d for d in completed if d not in cluster.discarded]
    assert not completed or kept or cluster.ended, "the last completed checkpoint was discarded"
    assert not any(d.startswith("savepoint") and d in completed for d in cluster.discarded)
    assert shared_files(*cluster.kept) <= cluster.shared.files, "a file that a kept snapshot names has gone"


class JobAmongFaults(RuleBasedStateMachine):
    """Anything plausible, in any order; then the faults stop and the job has to end."""

    @initialize(
        shape=st.sampled_from(
            (
                "joined",
                "pipelines",
                "stages",
                "chain of stages",
                "streaming stages",
                "enriched",
                "groups",
                "unlike groups",
            )
        ),
        bounded=st.booleans(),
        pull=st.booleans(),
        checkpointing=st.booleans(),
        adaptive=st.booleans(),
        strategy=st.sampled_from(("pipelined-region", "eager", "lazy-from-sources")),
        at_once=st.integers(1, 3),
    )
    def start(
        self,
        *,
        shape: str,
        bounded: bool,
        pull: bool,
        checkpointing: bool,
        adaptive: bool,
        strategy: str,
        at_once: int,
    ) -> None:
        config = dict(MANY if checkpointing else {"restart-strategy.type": "fixed-delay"})
        config |= ADAPTIVE if adaptive else {}
        config |= {"execution.checkpointing.max-concurrent-checkpoints": str(at_once)}
        graph = job_graph(bounded=bounded, pull=pull)
        if shape == "pipelines":
            graph = pipelines(bounded=bounded, pull=pull)
        elif shape == "stages":
            bounded, graph = True, stages(pull=pull)
        elif shape == "chain of stages":
            bounded, graph = True, pipelines(bounded=True, partition=PartitionType.BLOCKING, pull=pull)
        elif shape == "streaming stages":
            bounded, graph = True, stages(pull=pull, job_type=JobType.STREAMING)
        elif shape == "enriched":
            graph = enriched(bounded=bounded)
        elif shape == "groups":
            graph = grouped(job_graph(bounded=bounded, pull=pull), count="b", sink="c")
        elif shape == "unlike groups":
            big, small = ResourceProfile(memory_mb=2), ResourceProfile(memory_mb=1)
            graph = grouped(job_graph(bounded=bounded, pull=pull), count="b", sink="c")
            graph = structs.replace(graph, profiles={"b": big, "c": small})
        if strategy != "eager" or not graph_is_staged(graph):
            config |= {"jobmanager.scheduling-strategy": strategy}
        self.bounded = bounded
        self.cluster = Cluster(graph, settings(config))
        self.cluster.handle(contract.Started())
        self.requests = 0

    @rule(choices=st.lists(st.integers(0, 50), min_size=5, max_size=40))
    def go_on(self, choices: list[int]) -> None:
        for choice in choices:
            actions = self.cluster.enabled()
            if actions:
                actions[choice % len(actions)][1]()

    @rule(choice=st.integers(0, 50))
    def go_wrong(self, choice: int) -> None:
        actions = faults(self.cluster)
        if actions:
            actions[choice % len(actions)][1]()

    @rule()
    def calm(self) -> None:
        self.cluster.settle()

    @precondition(lambda self: self.cluster.state == "RUNNING")
    @rule(kind=st.sampled_from(SnapshotKind))
    def ask(self, kind: SnapshotKind) -> None:
        self.requests += 1
        self.cluster.handle(contract.SnapshotRequest(id=f"r{self.requests}", kind=kind, target="sp"))

    @precondition(lambda self: self.cluster.state == "RUNNING")
    @rule(vertex=st.integers(0, 2), width=st.integers(1, 4))
    def rescale(self, vertex: int, width: int) -> None:
        self.requests += 1
        parallelism = {self.cluster.graph.vertices[vertex].id: width}
        event = contract.RescaleRequested(request=f"r{self.requests}", parallelism=parallelism)
        self.cluster.handle(event)

    @invariant()
    def safe(self) -> None:
        if hasattr(self, "cluster"):
            check_safety(self.cluster)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.settle()
        if cluster.ended is None and not self.bounded:
            cluster.handle(contract.CancelRequested())
        cluster.run_to_end()
        check_safety(cluster)
        assert len(cluster.answers) == self.requests, "every request is answered once"
        attempts = cluster.machine.view().attempts
        assert all(a.state in ("FINISHED", "CANCELED", "FAILED") for a in attempts)
        assert cluster.handle(contract.Started()) == [], "an ended job stays ended"
        if not cluster.in_doubt:
            assert cluster.shared.files == shared_files(*cluster.kept), "unreferenced files are left"


class TestAJobAmongFaults(JobAmongFaults.TestCase):  # type: ignore[misc]  # hypothesis makes the class
    settings = hypothesis_settings(
        max_examples=500, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )


@given(order=st.lists(st.integers(0, 100), max_size=200), pull=st.booleans())
@hypothesis_settings(max_examples=25, deadline=None)
def test_without_faults_every_order_ends_with_every_split_read_once(order: list[int], pull: bool) -> None:
    cluster = Cluster(job_graph(pull=pull), settings())
    cluster.handle(contract.Started())
    for choice in order:
        actions = cluster.enabled()
        if actions:
            actions[choice % len(actions)][1]()
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert cluster.machine.view().restarts == 0
