"""The job's machine in a bootstrap: the order of state, manifest and commit, and what a failure repeats."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import structs

from unistream.base.config import Configuration
from unistream.base.ids import (
    CheckpointId,
    EdgeId,
    JobId,
    LeaderEpoch,
    LineageId,
    OperatorUid,
    SubtaskId,
    VertexId,
)
from unistream.core import contract
from unistream.core.checkpoint import PhasedAssigner
from unistream.core.contract import Command, Event
from unistream.core.job import BoundedJobMachine, job_settings
from unistream.model.bounded import CommittersStored, RunFailed, StagedCommitted, StagesRan, SubtaskSnapshot
from unistream.model.graph import (
    HISTORY,
    LIVE,
    Bootstrap,
    JobEdge,
    JobGraph,
    JobType,
    JobVertex,
    OperatorInfo,
    Ship,
    SourceInfo,
)
from unistream.model.messages import Split, TaskFailure
from unistream.model.snapshot import Manifest, TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind

JOB = JobId("job")
ROWS, NAMES, SINK, COMMIT = (VertexId(name) for name in ("rows", "names", "sink", "commit"))
BOUNDED = SourceInfo(connector="file", options={}, bounded=True, pull=True)
ENDLESS = SourceInfo(connector="kafka", options={}, bounded=False, pull=False)
HYBRID = SourceInfo(connector="hybrid", options={}, bounded=False, pull=False, phases=(BOUNDED, ENDLESS))
OLD, NEW = Split(id="history:a", data=b"", phase=HISTORY), Split(id="live:0", data=b"at 7", phase=LIVE)
BROKEN = TaskFailure(kind="SparkJobFailed", message="no disk")
WIDTHS = {ROWS: 2, NAMES: 1, SINK: 2, COMMIT: 1}
DUE = contract.TimerFired(contract.Timer(contract.TimerKind.RESTART_DELAY))
DURABLE = contract.ManifestDurable(checkpoint_id=CheckpointId(1))
WORK = (
    contract.RunStages,
    contract.StoreCommitters,
    contract.WriteManifest,
    contract.CommitStaged,
    contract.CancelRun,
    contract.JobEnded,
)


def vertex(id_: VertexId, source: SourceInfo | None = None) -> JobVertex:
    return JobVertex(
        id=id_,
        name=id_,
        operators=(OperatorInfo(uid=OperatorUid(id_), name=id_),),
        parallelism=WIDTHS[id_],
        max_parallelism=128,
        source=source,
        inputs=0 if source else 1,
    )


def machine(*, commits: bool = True) -> BoundedJobMachine:
    edges = [
        JobEdge(id=EdgeId("a"), source=ROWS, target=SINK, ship=Ship.REBALANCE),
        JobEdge(id=EdgeId("b"), source=NAMES, target=SINK, ship=Ship.BROADCAST),
    ]
    vertices = [vertex(ROWS, HYBRID), vertex(NAMES, BOUNDED), vertex(SINK)]
    if commits:
        edges.append(JobEdge(id=EdgeId("c"), source=SINK, target=COMMIT, ship=Ship.GLOBAL, committables=True))
        vertices.append(vertex(COMMIT))
    graph = JobGraph(
        name="job",
        vertices=tuple(vertices),
        edges=tuple(edges),
        job_type=JobType.BATCH,
        bootstrap=Bootstrap(directory="file:///start", watermarks={ROWS: 99}, timestamp_ms=5),
    )
    settings = job_settings(
        Configuration({}),
        job=JOB,
        lineage=LineageId("lineage"),
        epoch=LeaderEpoch(1),
        artifact="",
        checkpoint_root="",
        draw=lambda: 0.5,
        batch=True,
    )
    return BoundedJobMachine(graph, settings)


def feed(job: BoundedJobMachine, *events: Event) -> list[Any]:
    """The work that follows."""
    commands: list[Command] = []
    for event in events:
        commands += job.handle(event, 0)
        job.validate()
    return [command for command in commands if isinstance(command, WORK)]


def found(source: VertexId, *splits: Split) -> contract.SplitsDiscovered:
    return contract.SplitsDiscovered(vertex=source, splits=splits, number=0, origin="topic", position="p")


def states(source: VertexId, newest: int | None = None) -> tuple[SubtaskSnapshot, ...]:
    return tuple(
        SubtaskSnapshot(subtask=SubtaskId(source, index), snapshot=TaskSnapshot(), newest=newest)
        for index in range(WIDTHS[source])
    )


STAGES_RAN = StagesRan(run=1, staged=(b"files",), snapshots=(*states(ROWS, 42), *states(SINK)))
STORED = CommittersStored(run=1, snapshots=states(COMMIT))


def started(*, commits: bool = True) -> BoundedJobMachine:
    job = machine(commits=commits)
    [run] = feed(job, contract.Started(), found(ROWS, OLD, NEW), found(NAMES, OLD))
    assert run.splits == {ROWS: (OLD,), NAMES: (OLD,)}, "live splits are not read"
    return job


def test_the_manifest_is_durable_before_anything_is_committed() -> None:
    job = started()
    [order] = feed(job, STAGES_RAN)
    assert (type(order), order.staged) == (contract.StoreCommitters, (b"files",))
    [write] = feed(job, STORED)
    assert isinstance(write, contract.WriteManifest)
    [commit] = feed(job, DURABLE)
    assert (type(commit), commit.staged) == (contract.CommitStaged, (b"files",))
    assert feed(job, StagedCommitted(run=1)) == [contract.JobEnded(state="FINISHED")]


def test_the_manifest_says_what_goes_on_and_where() -> None:
    job = started()
    [write] = feed(job, STAGES_RAN, STORED)[-1:]
    assert (write.directory, write.tidies) == ("file:///start", True)
    manifest = write.manifest
    assert (manifest.kind, manifest.checkpoint_id, manifest.timestamp_ms) == (SnapshotKind.SAVEPOINT, 1, 5)
    assert manifest.lineage == "lineage", "what is committed now and later has one identity"
    by_name = {one.name: one for one in manifest.vertices}
    assert by_name["names"].fully_finished, "a bounded source is not read again"
    assert not any(by_name[name].finished_subtasks for name in ("rows", "sink", "commit"))
    state = by_name["rows"].coordinator
    assert state is not None
    assigner = PhasedAssigner.restore(HYBRID, 3, state, separated=True)
    assert assigner.is_live, "no checkpoint has to come before live rows"
    assert assigner.unassigned == (NEW,), "with the positions from before the history"
    for index in range(3):
        assigner.ready(index)
        assigner.request(index, LIVE)
    given = [one for one in assigner.take() if one.splits]
    assert [(one.splits, one.phase, one.newest) for one in given] == [((NEW,), LIVE, 42)]


def test_without_committers_the_manifest_is_the_end() -> None:
    job = started(commits=False)
    [write] = feed(job, STAGES_RAN)
    assert isinstance(write, contract.WriteManifest)
    assert feed(job, DURABLE) == [contract.JobEnded(state="FINISHED")]


def test_splits_that_are_found_again_do_not_move_the_live_source() -> None:
    """A restart discovers nothing again; a late answer counts for nothing."""
    job = started()
    feed(job, found(ROWS, Split(id="live:0", data=b"at 9", phase=LIVE)), RunFailed(run=1, failure=BROKEN))
    [again] = feed(job, DUE)
    assert (type(again), again.run, again.splits[ROWS]) == (contract.RunStages, 2, (OLD,))


@pytest.mark.parametrize(
    ("before", "repeated"),
    [
        ((), contract.RunStages),
        ((STAGES_RAN,), contract.StoreCommitters),
        ((STAGES_RAN, STORED, DURABLE), contract.CommitStaged),
    ],
)
def test_what_fails_is_repeated_and_not_what_was_before_it(before: tuple[Event, ...], repeated: type) -> None:
    job = started()
    feed(job, *before)
    assert feed(job, RunFailed(run=1, failure=BROKEN)) == []
    assert [type(command) for command in feed(job, DUE)] == [repeated]


def test_a_manifest_with_unknown_outcome_is_written_again_and_is_the_same() -> None:
    job = started()
    writes = feed(job, STAGES_RAN, STORED)[-1:]
    failed = contract.ManifestFailed(checkpoint_id=CheckpointId(1), reason="no answer", unknown=True)
    for _ in range(2):
        writes += feed(job, failed)
    assert len({repr(write) for write in writes}) == 1
    assert len(writes) == 3
    assert feed(job, failed) == [], "it waits for its restart"
    [write] = feed(job, DUE)
    assert write == writes[0]
    assert isinstance(feed(job, DURABLE)[0], contract.CommitStaged)


def test_a_manifest_of_another_run_fails_the_job_and_commits_nothing() -> None:
    job = started()
    feed(job, STAGES_RAN, STORED)
    fenced = contract.ManifestFailed(checkpoint_id=CheckpointId(1), reason="another leader", fenced=True)
    [ended] = feed(job, fenced)
    assert (ended.state, ended.failure.kind) == ("FAILED", "Fenced")
    assert feed(job, DURABLE, DUE, StagedCommitted(run=1)) == []


@pytest.mark.parametrize(
    "late", [DURABLE, contract.ManifestFailed(checkpoint_id=CheckpointId(1), reason="disk")]
)
def test_a_cancel_while_the_manifest_is_written_commits_nothing(late: Event) -> None:
    job = started()
    feed(job, STAGES_RAN, STORED)
    [ended] = feed(job, contract.CancelRequested())
    assert ended.state == "CANCELED"
    assert feed(job, late) == []


class World:
    """An engine and a storage, which do what they are ordered to, or fail."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.written: list[Manifest] = []  # by create-if-absent

    def answer(self, command: Command) -> list[Event]:
        broken = self._draw.random() < 0.3
        match command:
            case contract.DiscoverSplits(vertex=source):
                splits = (OLD, NEW) if source == ROWS else (OLD,)
                failed = contract.DiscoveryFailed(vertex=source, failure=BROKEN, number=0)
                return [failed if broken else found(source, *splits)]
            case contract.RunStages() | contract.StoreCommitters() | contract.CommitStaged() if broken:
                return [RunFailed(run=command.run, failure=BROKEN)]
            case contract.RunStages(run=run):
                assert not self.written, "the stages are not run again"
                return [replace_run(STAGES_RAN, run)]
            case contract.StoreCommitters(run=run):
                return [replace_run(STORED, run)]
            case contract.CommitStaged(run=run):
                assert len(self.written) == 1, "the savepoint is there before anything is committed"
                return [StagedCommitted(run=run)]
            case contract.WriteManifest(manifest=manifest):
                return [self._write(manifest, broken=broken)]
        return []

    def _write(self, manifest: Manifest, *, broken: bool) -> Event:
        happened = not broken or self._draw.random() < 0.5
        if happened:
            assert not self.written or self.written == [manifest], "it is the same each time"
            self.written = [manifest]
        if not broken:
            return DURABLE
        unknown = happened or self._draw.random() < 0.5
        return contract.ManifestFailed(checkpoint_id=CheckpointId(1), reason="no answer", unknown=unknown)


def replace_run(event: Any, run: int) -> Event:
    changed: Event = structs.replace(event, run=run)
    return changed


@pytest.mark.parametrize("seed", range(100))
def test_whatever_fails_nothing_is_committed_without_the_savepoint(seed: int) -> None:
    draw = random.Random(seed)
    job, world = machine(), World(draw)
    pending: list[Event] = [contract.Started()]
    ended: list[str] = []
    for _ in range(200):
        if draw.random() < 0.01:
            pending.append(contract.CancelRequested())
        event = pending.pop(0) if pending else DUE
        commands = job.handle(event, 0)
        job.validate()
        ended += [command.state for command in commands if isinstance(command, contract.JobEnded)]
        pending += [answer for command in commands for answer in world.answer(command)]
    assert len(ended) == 1
    assert ended[0] in ("FINISHED", "FAILED", "CANCELED")
    assert world.written or ended[0] != "FINISHED"
