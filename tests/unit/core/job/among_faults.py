"""What random tests of a job share: all that may go wrong, what holds nevertheless, and the rules."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.core.cluster import Action, Cluster
from tests.unit.core.shared import shared_files
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind


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


def check_drained(cluster: Cluster, rounds: int = 10) -> None:
    """Tasks of a stream have moved from workers that are drained, if the job comes to run meanwhile."""
    if any(edge.partition.is_blocking for edge in cluster.graph.edges):
        return
    for _ in range(rounds):
        for timer in list(cluster.timers):
            if timer in cluster.timers and cluster.draining:
                cluster.fire(timer)
                cluster.settle()
    assert cluster.state != "RUNNING" or not cluster.draining, f"{cluster.draining} still have tasks"


class AmongFaults(RuleBasedStateMachine):
    """Anything plausible, in any order; then the faults stop and the job has to end.

    A subclass initializes `cluster`, and `bounded`: whether the job ends by itself.
    """

    cluster: Cluster
    bounded: bool

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def faults(self) -> list[Action]:
        """All that may go wrong now."""
        return faults(self.cluster)

    @rule(choices=st.lists(st.integers(0, 50), min_size=5, max_size=40))
    def go_on(self, choices: list[int]) -> None:
        for choice in choices:
            actions = self.cluster.enabled()
            if actions:
                actions[choice % len(actions)][1]()

    @rule(choice=st.integers(0, 50))
    def go_wrong(self, choice: int) -> None:
        actions = self.faults()
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
    @rule(vertex=st.integers(0, 7), width=st.integers(1, 4))
    def rescale(self, vertex: int, width: int) -> None:
        self.requests += 1
        vertices = self.cluster.graph.vertices
        parallelism = {vertices[vertex % len(vertices)].id: width}
        event = contract.RescaleRequested(request=f"r{self.requests}", parallelism=parallelism)
        self.cluster.handle(event)

    @rule(choice=st.integers(0, 50))
    def drain(self, choice: int) -> None:
        workers = sorted(set(self.cluster.leased.values()) & set(self.cluster.mail))
        if workers:
            self.cluster.drain(workers[choice % len(workers)])

    @invariant()
    def safe(self) -> None:
        if hasattr(self, "cluster"):
            check_safety(self.cluster)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.settle()
        check_drained(cluster)
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
