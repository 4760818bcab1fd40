"""A BATCH job that an engine runs: what follows from each event, and that it ends whatever happens."""

from __future__ import annotations

import random
from typing import Any

import pytest

from unistream.base.config import Configuration
from unistream.base.ids import AttemptId, EdgeId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.core import contract
from unistream.core.contract import Command, Event
from unistream.core.job import AttemptsHistory, BoundedJobMachine, PastAttempt, job_settings
from unistream.model.bounded import AttemptsChanged, AttemptState, RunFailed, StagedCommitted, StagesRan
from unistream.model.graph import JobEdge, JobGraph, JobType, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.messages import Split, TaskFailure
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import Sealed

JOB = JobId("job")
SOURCE, OTHER, SINK, COMMIT = (VertexId(name) for name in ("source", "other", "sink", "commit"))
SPLIT = Split(id="s", data=b"")
BROKEN = TaskFailure(kind="SparkJobFailed", message="no disk")
USERS = TaskFailure(kind="UserCodeError", message="division by zero")
HOPELESS = TaskFailure(kind="ConfigError", message="no such column", recoverable=False)


def vertex(id_: VertexId, *, inputs: int = 1) -> JobVertex:
    source = None if inputs else SourceInfo(connector="file", options={}, bounded=True, pull=True)
    return JobVertex(
        id=id_,
        name=id_,
        operators=(OperatorInfo(uid=OperatorUid(id_), name=id_),),
        parallelism=2 if id_ != COMMIT else 1,
        max_parallelism=128,
        source=source,
        inputs=inputs,
    )


def graph(*, commits: bool = True) -> JobGraph:
    edges = [
        JobEdge(id=EdgeId("a"), source=SOURCE, target=SINK, ship=Ship.REBALANCE),
        JobEdge(id=EdgeId("b"), source=OTHER, target=SINK, ship=Ship.REBALANCE),
    ]
    vertices = [vertex(SOURCE, inputs=0), vertex(OTHER, inputs=0), vertex(SINK)]
    if commits:
        edges.append(JobEdge(id=EdgeId("c"), source=SINK, target=COMMIT, ship=Ship.GLOBAL, committables=True))
        vertices.append(vertex(COMMIT))
    return JobGraph(name="job", vertices=tuple(vertices), edges=tuple(edges), job_type=JobType.BATCH)


def machine(*, commits: bool = True, sealed: Sealed | None = None, **config: str) -> BoundedJobMachine:
    settings = job_settings(
        Configuration(config),
        job=JOB,
        lineage=LineageId("lineage"),
        epoch=LeaderEpoch(1),
        artifact="",
        checkpoint_root="",
        draw=lambda: 0.5,
        batch=True,
        sealed=sealed,
    )
    return BoundedJobMachine(graph(commits=commits), settings)


class Driver:
    """Feeds events, and keeps what is to be done."""

    def __init__(self, job: BoundedJobMachine) -> None:
        self.job = job
        self.now_ms = 0

    def feed(self, *events: Event) -> list[Command]:
        commands: list[Command] = []
        for event in events:
            commands += self.job.handle(event, self.now_ms)
            self.job.validate()
        return commands

    def started(self) -> Driver:
        self.feed(contract.Started(), found(SOURCE), found(OTHER))
        return self

    @property
    def states(self) -> dict[str, str]:
        return {f"{v.attempt.vertex}-{v.attempt.index}": v.state for v in self.job.view().attempts}


def found(source: VertexId) -> contract.SplitsDiscovered:
    return contract.SplitsDiscovered(vertex=source, splits=(SPLIT,), number=0)


def attempt(vertex_id: VertexId, index: int, state: str, number: int = 0) -> AttemptState:
    return AttemptState(attempt=AttemptId(JOB, vertex_id, index, number), state=state)


def of(commands: list[Command], *kinds: type) -> list[Any]:
    return [command for command in commands if isinstance(command, kinds)]


WORK = (contract.RunStages, contract.CommitStaged, contract.CancelRun, contract.JobEnded)
DUE = contract.TimerFired(contract.Timer(contract.TimerKind.RESTART_DELAY))


def test_stages_run_when_the_splits_of_all_sources_are_known_and_then_the_commit() -> None:
    driver = Driver(machine())
    assert [c.vertex for c in of(driver.feed(contract.Started()), contract.DiscoverSplits)] == [SOURCE, OTHER]
    assert of(driver.feed(found(SOURCE)), *WORK) == []
    assert of(driver.feed(found(OTHER)), *WORK) == [
        contract.RunStages(run=1, first_attempt=0, splits={SOURCE: (SPLIT,), OTHER: (SPLIT,)})
    ]
    assert driver.job.view().state == "CREATED"
    driver.feed(AttemptsChanged(run=1, attempts=(attempt(SOURCE, 0, "RUNNING"),)))
    assert driver.job.view().state == "RUNNING"
    commit = of(driver.feed(StagesRan(run=1, staged=(b"files",))), *WORK)
    assert [(c.run, c.first_attempt, c.staged) for c in commit] == [(1, 0, (b"files",))]
    assert driver.states["sink-1"] == "FINISHED"
    assert driver.states["commit-0"] == "SCHEDULED"
    commands = driver.feed(StagedCommitted(run=1))
    assert of(commands, *WORK) == [contract.JobEnded(state="FINISHED")]
    assert set(driver.states.values()) == {"FINISHED"}


def test_another_leader_goes_on_with_the_commit_and_runs_no_stage() -> None:
    former = Driver(machine()).started()
    former.feed(StagesRan(run=1, staged=(b"files",)))
    driver = Driver(machine(sealed=former.job.sealed()))
    [commit] = of(driver.feed(contract.Started()), *WORK, contract.DiscoverSplits)
    assert isinstance(commit, contract.CommitStaged)
    assert commit.staged == (b"files",)
    assert driver.states == {
        **dict.fromkeys(["source-0", "source-1", "other-0", "other-1", "sink-0", "sink-1"], "FINISHED"),
        "commit-0": "SCHEDULED",
    }
    again = of(driver.feed(RunFailed(run=commit.run, failure=BROKEN), DUE), *WORK)
    assert [(type(c), c.staged) for c in again] == [(contract.CommitStaged, (b"files",))]
    assert of(driver.feed(StagedCommitted(run=commit.run)), *WORK) == [contract.JobEnded(state="FINISHED")]


def test_without_committers_there_is_no_commit() -> None:
    driver = Driver(machine(commits=False)).started()
    assert of(driver.feed(StagesRan(run=1, staged=())), *WORK) == [contract.JobEnded(state="FINISHED")]


def test_a_failure_of_the_engine_restarts_the_stages_three_times() -> None:
    driver = Driver(machine()).started()
    for run in (1, 2, 3):
        commands = driver.feed(RunFailed(run=run, failure=BROKEN))
        assert of(commands, *WORK) == []
        assert driver.job.view().state == "RESTARTING"
        again = of(driver.feed(DUE), *WORK)
        assert [(c.run, c.first_attempt) for c in again] == [(run + 1, run)]
    assert driver.job.view().restarts == 3
    ended = of(driver.feed(RunFailed(run=4, failure=BROKEN)), *WORK)
    assert ended == [contract.JobEnded(state="FAILED", failure=BROKEN)]


def test_a_commit_that_fails_is_repeated_with_the_same_output_and_the_stages_are_not() -> None:
    driver = Driver(machine()).started()
    driver.feed(StagesRan(run=1, staged=(b"files",)))
    failed = AttemptId(JOB, COMMIT, 0, 0)
    driver.feed(RunFailed(run=1, failure=BROKEN, attempt=failed))
    assert driver.states == {
        **{f"{v}-{i}": "FINISHED" for v in (SOURCE, OTHER, SINK) for i in (0, 1)},
        "commit-0": "FAILED",
    }
    again = of(driver.feed(DUE), *WORK)
    assert [(type(c).__name__, c.run, c.first_attempt, c.staged) for c in again] == [
        ("CommitStaged", 1, 1, (b"files",))
    ]
    assert of(driver.feed(StagedCommitted(run=1)), *WORK) == [contract.JobEnded(state="FINISHED")]


@pytest.mark.parametrize("failure", [USERS, HOPELESS])
def test_what_no_restart_mends_fails_the_job_at_once(failure: TaskFailure) -> None:
    driver = Driver(machine()).started()
    commands = driver.feed(RunFailed(run=1, failure=failure, attempt=AttemptId(JOB, SINK, 1, 0)))
    assert of(commands, *WORK) == [contract.JobEnded(state="FAILED", failure=failure)]
    assert of(commands, contract.RecordException)[0].attempt == AttemptId(JOB, SINK, 1, 0)
    assert driver.states["sink-1"] == "FAILED"
    assert driver.states["sink-0"] == "CANCELED"


def test_errors_of_functions_restart_with_a_strategy_of_the_user() -> None:
    options = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1"}
    driver = Driver(machine(**options)).started()
    driver.feed(RunFailed(run=1, failure=USERS))
    assert len(of(driver.feed(DUE), contract.RunStages)) == 1


def test_a_discovery_that_fails_is_repeated_for_that_source_alone() -> None:
    driver = Driver(machine())
    driver.feed(contract.Started(), found(OTHER))
    driver.feed(contract.DiscoveryFailed(vertex=SOURCE, failure=BROKEN, number=0))
    assert [c.vertex for c in of(driver.feed(DUE), contract.DiscoverSplits)] == [SOURCE]
    assert len(of(driver.feed(found(SOURCE)), contract.RunStages)) == 1


@pytest.mark.parametrize(
    ("event", "state"),
    [(contract.CancelRequested(), "CANCELED"), (contract.SuspendRequested(reason="shut down"), "SUSPENDED")],
)
def test_an_end_waits_for_the_engine(event: Event, state: str) -> None:
    driver = Driver(machine()).started()
    driver.feed(AttemptsChanged(run=1, attempts=(attempt(SOURCE, 0, "RUNNING"),)))
    assert of(driver.feed(event), *WORK) == [contract.CancelRun()]
    assert of(driver.feed(event), *WORK) == []
    ended = of(driver.feed(RunFailed(run=1, failure=HOPELESS)), *WORK)
    assert [c.state for c in ended] == [state]
    assert driver.states["source-0"] == "CANCELED"
    assert driver.feed(DUE, found(SOURCE), StagesRan(run=1, staged=())) == []


def test_a_job_that_waits_for_its_restart_is_cancelled_at_once() -> None:
    driver = Driver(machine()).started()
    driver.feed(RunFailed(run=1, failure=BROKEN))
    assert of(driver.feed(contract.CancelRequested()), *WORK) == [contract.JobEnded(state="CANCELED")]
    assert driver.feed(DUE) == []


def test_of_a_slow_attempt_and_its_copy_the_one_that_finishes_is_shown() -> None:
    driver = Driver(machine()).started()
    driver.feed(
        AttemptsChanged(run=1, attempts=(attempt(SINK, 0, "RUNNING"), attempt(SINK, 0, "RUNNING", 1))),
        AttemptsChanged(run=1, attempts=(attempt(SINK, 0, "FINISHED"), attempt(SINK, 0, "CANCELED", 1))),
    )
    shown = [v for v in driver.job.view().attempts if v.attempt.subtask == AttemptId(JOB, SINK, 0, 0).subtask]
    assert [(v.attempt.attempt, v.state) for v in shown] == [(0, "FINISHED")]


def test_a_restart_gives_no_attempt_the_number_of_a_copy() -> None:
    driver = Driver(machine()).started()
    both = (attempt(SINK, 0, "RUNNING"), attempt(SINK, 0, "RUNNING", 1))
    driver.feed(
        AttemptsChanged(run=1, attempts=both),
        AttemptsChanged(run=1, attempts=(attempt(SINK, 0, "FINISHED"), attempt(SINK, 0, "CANCELED", 1))),
        RunFailed(run=1, failure=BROKEN),
    )
    assert [command.first_attempt for command in of(driver.feed(DUE), contract.RunStages)] == [2]


def test_attempts_are_recorded_in_the_order_in_which_history_takes_them() -> None:
    driver, history = Driver(machine()).started(), AttemptsHistory(10)
    both = (attempt(SINK, 0, "RUNNING"), attempt(SINK, 0, "RUNNING", 1))
    commands = driver.feed(
        AttemptsChanged(run=1, attempts=both),
        AttemptsChanged(run=1, attempts=(attempt(SINK, 0, "FINISHED", 1),)),
        AttemptsChanged(run=1, attempts=(attempt(SINK, 0, "CANCELED"),)),
    )
    ends = [c for c in of(commands, contract.RecordAttempt) if c.state in ("FINISHED", "CANCELED")]
    for end in ends:
        history.add(PastAttempt(attempt=end.attempt, state=end.state, ended_ms=0))
    assert [(end.attempt.attempt, end.state) for end in ends] == [(1, "FINISHED")]


def test_snapshots_and_rescaling_are_refused() -> None:
    driver = Driver(machine()).started()
    snapshot = contract.SnapshotRequest(id="1", kind=SnapshotKind.SAVEPOINT)
    rescale = contract.RescaleRequested(request="2", parallelism={})
    answers = of(driver.feed(snapshot, rescale), contract.AnswerRequest)
    assert [(a.request, a.path is None) for a in answers] == [("1", True), ("2", True)]
    assert "BATCH" in answers[0].error
    assert "parallelism" in answers[1].error


class Engine:
    """Does what it is ordered to, fails now and then, and refuses a second order meanwhile."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._work: contract.RunStages | contract.CommitStaged | None = None
        self._staged: dict[int, tuple[bytes, ...]] = {}

    @property
    def is_idle(self) -> bool:
        return self._work is None

    def perform(self, command: Command) -> list[Event]:
        match command:
            case contract.DiscoverSplits(vertex=source):
                failed = contract.DiscoveryFailed(vertex=source, failure=BROKEN, number=0)
                return [failed if self._draw.random() < 0.2 else found(source)]
            case contract.RunStages() | contract.CommitStaged():
                assert self._work is None, "it is busy"
                assert isinstance(command, contract.RunStages) or command.staged == self._staged[command.run]
                self._work = command
            case contract.CancelRun() if self._work is not None:
                run, self._work = self._work.run, None
                return [RunFailed(run=run, failure=HOPELESS)]
        return []

    def end(self) -> Event:
        assert self._work is not None
        work, self._work = self._work, None
        if self._draw.random() < 0.4:
            return RunFailed(run=work.run, failure=self._draw.choice([BROKEN, BROKEN, USERS, HOPELESS]))
        if isinstance(work, contract.CommitStaged):
            return StagedCommitted(run=work.run)
        self._staged[work.run] = (b"%d" % self._draw.randrange(1_000),)
        return StagesRan(run=work.run, staged=self._staged[work.run])


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_it_ends_once_and_the_engine_does_one_thing_at_a_time(seed: int) -> None:
    draw = random.Random(seed)
    driver, engine = Driver(machine(commits=draw.random() < 0.7)), Engine(draw)
    pending: list[Event] = [contract.Started()]
    ended: list[str] = []
    for _ in range(300):
        if not pending and engine.is_idle:
            pending.append(DUE)
        if draw.random() < 0.02:
            pending.append(draw.choice([contract.CancelRequested(), contract.SuspendRequested(reason="end")]))
        if not engine.is_idle and draw.random() < 0.3:
            pending.append(engine.end())
        if pending:
            commands = driver.feed(pending.pop(draw.randrange(len(pending))))
            ended += [command.state for command in of(commands, contract.JobEnded)]
            pending += [event for command in commands for event in engine.perform(command)]
            assert engine.is_idle or not ended
    assert len(ended) == 1
