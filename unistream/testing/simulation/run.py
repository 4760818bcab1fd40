"""One run of a user's job in the simulated cluster: a phase with faults, healing, and its end.

It is `sim.run.SimRun` with another job: invariants of the cluster are checked as there, and the final rows of
the sinks are returned to the caller.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base.config import STATE_BACKEND, Configuration
from unistream.base.config.scheduling import SCHEDULER
from unistream.base.ids import JobId, OperatorUid
from unistream.core.graph import why_no_checkpoints
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.snapshot import Manifest
from unistream.model.submission import SubmitRequest
from unistream.port.operator import CommitPermit
from unistream.port.source import SplitDiscovery
from unistream.state.backends import IN_MEMORY, ON_DISK
from unistream.testing.sim.chaos import plan_faults
from unistream.testing.sim.checkers import VisibleOutputs
from unistream.testing.sim.faults import NONE, Faults, intensity
from unistream.testing.sim.run import LIVENESS_MS, LOOK_EVERY, SimRun, played
from unistream.testing.sim.scenario import Scenario, ScenarioKind, SimPipeline, bundle_of
from unistream.testing.sim.story import StoryLine
from unistream.testing.sim.table import Row
from unistream.testing.sim.users import Users
from unistream.testing.sim.world import EVENTS_MAX, Violation, World
from unistream.testing.simulation.ends import PacedDiscovery, RecordingTable, SourcePace
from unistream.testing.simulation.failures import Failures, reached, said
from unistream.testing.simulation.job import UserJob

REQUEST: Final = "simulated"
RESTARTS: Final = "1000000"  # faults never exhaust the restarts of a job

CONFIG: Final[Mapping[str, str]] = {
    "execution.checkpointing.timeout": "5 s",
    "execution.checkpointing.min-pause": "0 ms",
    "execution.checkpointing.tolerable-failed-checkpoints": "100",
    "execution.checkpointing.num-retained": "1",
    "restart-strategy.type": "fixed-delay",
    "slot.request.timeout": "20 s",
    "heartbeat.interval": "2 s",
    "heartbeat.timeout": "7 s",
    "task.cancellation.timeout": "5 s",
    "taskmanager.network.partition-request-timeout": "3 s",
    "sink.committer.retries": "2",
}
"""Options that make a run short; they override the pipeline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The run of a seed."""

    faults: Faults
    config: Mapping[str, str]
    slots: int
    faulty_ms: float
    pieces: int
    pause_ms: float
    rescales_ms: tuple[float, ...] = ()
    bundle: int = 1


def draw(seed: int, faults: Faults | None, *, rescale: bool) -> Draw:
    """Draws a run from the seed alone; `faults` replace the drawn ones."""
    random = Random(seed)  # noqa: S311  repeatable, not secret
    drawn = draw_faults(random)
    drains = Random(f"drains of {seed}")  # noqa: S311  the others stay as they are
    drawn = replace(drawn, drain_every_ms=intensity(drains, 300, 2_500, 0.3))
    return Draw(
        faults=drawn if faults is None else faults,
        config={
            "execution.buffer-timeout.interval": random.choice(("0 ms", "20 ms")),
            "execution.checkpointing.interval": random.choice(("200 ms", "400 ms", "800 ms")),
            "restart-strategy.fixed-delay.delay": random.choice(("0 ms", "100 ms")),
        },
        slots=random.choice((1, 1, 2, 3)),
        faulty_ms=random.choice((2_000, 4_000, 7_000)),
        pieces=random.choice((6, 10, 16)),
        pause_ms=random.choice((60, 150, 300)),
        rescales_ms=(300 + 3_000 * random.random(),) if rescale else (),
        bundle=bundle_of(seed),
    )


QUIET: Final = Draw(
    faults=NONE,
    config={
        "execution.checkpointing.interval": "1 h",
        "restart-strategy.type": "none",
    },
    slots=1,
    faulty_ms=0,
    pieces=0,
    pause_ms=0,
)
"""The undisturbed run."""


def draw_faults(random: Random) -> Faults:
    """Faults at the rates of a job that takes a few seconds; at least one kind makes it restart."""
    some = partial(intensity, random)
    faults = Faults(
        loss=some(0.01, 0.2, 0.25),
        duplicate=some(0.01, 0.3, 0.4),
        late=some(0.01, 0.05, 0.2),
        kill_every_ms=some(300, 2_500, 0.7),
        pause_every_ms=some(800, 4_000, 0.2),
        pause_ms=random.choice((500, 3_000, 9_000)),
        stream_break=some(0.002, 0.03, 0.3),
        start_fail=some(0.05, 0.4, 0.15),
        store_fail=some(0.02, 0.2, 0.25),
        store_unknown=some(0.05, 0.4, 0.25),
        store_slow_ms=some(50, 600, 0.25),
        file_fail=some(0.01, 0.1, 0.2),
        read_fail=some(0.01, 0.1, 0.2),
        commit_unknown=some(0.05, 0.3, 0.25),
        commit_retry=some(0.05, 0.5, 0.25),
        master_every_ms=some(1_000, 5_000, 0.2),
    )
    if not (faults.kill_every_ms or faults.stream_break or faults.master_every_ms):
        faults = replace(faults, kill_every_ms=800.0)
    return replace(faults, pause_ms=faults.pause_ms if faults.pause_every_ms else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Result of one run.

    Attributes:
        violation: The job did not finish, or an invariant does not hold; None: neither.
        rows: Of each sink of the simulation, by uid.
        counted: Rows of each source, in an undisturbed run.
        job: Its id.
    """

    violation: str | None
    job: str
    rows: Mapping[str, Sequence[tuple[Any, ...]]]
    schemas: Mapping[str, pa.Schema]
    counted: Mapping[str, int]
    lines: Sequence[StoryLine]
    events: int

    @property
    def story(self) -> list[str]:
        """The lines, for people."""
        return [str(line) for line in self.lines]


@dataclass(slots=True)
class PreparedUserJob:
    """What all runs of one job share. `rows`: counts of its sources, once they are known. `backend`: of its
    keyed state."""

    job: UserJob
    backend: str = IN_MEMORY
    splits: dict[str, list[Split]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


def run_job(prepared: PreparedUserJob, seed: int, drawn: Draw) -> RunResult:
    """One run; an error that it raises is part of the result."""
    world = World(seed)
    run = UserRun(world, prepared, drawn)
    error, trace = played(run)
    violation = None
    if error is not None:
        violation = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
    return RunResult(
        violation=violation,
        rows={str(uid): rows for uid, rows in run.table.visible.items()},
        job=str(run.users.jobs[0].id) if run.users.jobs else "",
        schemas={str(uid): schema for uid, schema in run.recorded.schemas.items()},
        counted=dict(run.pace.rows),
        lines=[*world.lines(), *(StoryLine(world.now, line) for line in trace)],
        events=world.events,
    )


def readable(prepared: PreparedUserJob, run: RunResult) -> tuple[StoryLine, ...]:
    """The story, with the names of vertices (of their first operators) instead of ids."""
    names = [(str(vertex.id), vertex.name.partition(" -> ")[0]) for vertex in prepared.job.graph.vertices]
    lines = []
    for line in run.lines:
        text = line.text.replace(f"{run.job}/", "").replace(run.job, "job") if run.job else line.text
        for id_, name in names:
            text = text.replace(id_, name)
        lines.append(msgspec.structs.replace(line, text=text))
    return tuple(lines)


class UserRun(SimRun):
    """A cluster with one user's job."""

    def __init__(self, world: World, prepared: PreparedUserJob, drawn: Draw) -> None:
        self._prepared = prepared
        self._drawn = drawn
        self._failures = Failures()
        self._looked: tuple[object, int] = (None, 0)
        self.commit_lines: dict[OperatorUid, int] = {}
        self.pace = SourcePace(drawn.pieces, drawn.pause_ms, dict(prepared.rows) if drawn.pieces else {})
        super().__init__(world)
        stores = any(edge.partition.is_blocking for edge in prepared.job.graph.edges)
        if stores or prepared.backend in ON_DISK:
            world.scratch = tempfile.mkdtemp(prefix="unistream-sim-")
        self.table = self.recorded = RecordingTable(world, self.outputs)

    def _draw(self) -> Scenario:
        drawn = self._drawn
        adaptive = Configuration(self._prepared.job.graph.config).get(SCHEDULER) == "adaptive"
        return Scenario(
            kind=ScenarioKind.ADAPTIVE if adaptive else ScenarioKind.STREAMING,
            jobs=(),
            slots=drawn.slots,
            config={
                **CONFIG,
                STATE_BACKEND.key: self._prepared.backend,
                "restart-strategy.fixed-delay.attempts": RESTARTS,
                **drawn.config,
            },
            faults=drawn.faults,
            faulty_ms=drawn.faulty_ms,
            requests=(),
            resubmits=0,
            restarts=False,
            bundle=drawn.bundle,
        )

    def _watch(self, pipelines: Mapping[OperatorUid, SimPipeline]) -> VisibleOutputs:
        return _UserOutputs(self.world, checkpointed=why_no_checkpoints(self._prepared.job.graph) is None)

    def _invite(self) -> Users:
        return _Owner(self, self._prepared.job)

    def _discover(self, info: SourceInfo) -> SplitDiscovery:
        return PacedDiscovery(info, self.world, self._prepared.splits)

    def go(self) -> None:
        """Safety phase, healing, liveness phase; it ends with the job."""
        world, drawn = self.world, self._drawn
        world.log(f"slots {drawn.slots} | faults: {drawn.faults.text()}")
        world.faults = drawn.faults
        self.elect()
        self.users.submit(REQUEST, (), None)
        job = self.users.jobs[0]
        for at_ms in drawn.rescales_ms:
            world.at(at_ms, self._rescale)
        plan_faults(self)
        try:
            self._to_the_end(job.id)
        except Violation as violation:
            if world.events <= EVENTS_MAX:
                raise
            raise Violation(f"{violation}{self._failures.most()}") from violation

    def _to_the_end(self, job: JobId) -> None:
        world = self.world
        while job not in self.store.results and world.step(self._drawn.faulty_ms):
            self._look(job, healed=False)
        self._heal()
        bound_ms = world.now + LIVENESS_MS
        while job not in self.store.results:
            if not world.step(bound_ms):
                why = self._failures.most() or f": {self._reason(job)}"
                raise Violation(f"not finished {LIVENESS_MS / 1000:.0f} s after the last fault{why}")
            self._look(job, healed=True)
        result = self.store.results[job]
        world.log(f"{job} ended as {result}")
        if result != "FINISHED":
            raise Violation(f"the job ended as {result}: {self._reason(job)}")

    def _look(self, job: JobId, *, healed: bool) -> None:
        """Raises Violation if the job keeps failing in the same way."""
        if self.world.events % LOOK_EVERY:
            return
        master = None if self.leader is None else self.leader.masters().get(job)
        if master is None or (master, master.journal.version.number) == self._looked:
            return
        self._looked = master, master.journal.version.number
        newest = self.store.newest(job)
        stuck = self._failures.look(
            reversed(master.journal.exceptions),
            0 if newest is None else newest.manifest.checkpoint_id,
            healed=healed,
            reached=None if newest is None else reached(newest.manifest),
        )
        if stuck is not None:
            raise Violation(stuck)

    def _reason(self, job: JobId) -> str:
        master = None if self.leader is None else self.leader.masters().get(job)
        newest = [] if master is None else list(master.journal.exceptions[:1])
        return said(newest[0]) if newest else "no reason is known"

    def _rescale(self) -> None:
        """One vertex, if it can have more than one task."""
        wide = [v for v in self._prepared.job.graph.vertices if v.max_parallelism > 1]
        if wide:
            vertex = self.world.random.choice(wide)
            width = self.world.random.randrange(1, 1 + min(4, vertex.max_parallelism))
            self.users.request_widths(self.users.jobs[0], {vertex.id: width})


class _Owner(Users):
    """Submits the job."""

    def __init__(self, site: UserRun, job: UserJob) -> None:
        super().__init__(site)
        self._run = site
        self._job = job

    def submit(self, name: str, pipelines: tuple[SimPipeline, ...], savepoint: str | None) -> None:
        """The one job."""
        request = SubmitRequest(
            graph=self._job.graph,
            artifact=b"code",
            request_id=name,
            savepoint=savepoint,
            config=dict(self._run.scenario.config),
        )
        self._submit(request, self._job.chains(self._run))


class _UserOutputs(VisibleOutputs):
    """Checks when rows become visible, not which."""

    def __init__(self, world: World, *, checkpointed: bool) -> None:
        super().__init__(world, {})
        self._checkpointed = checkpointed

    def on_manifest(self, manifest: Manifest) -> None:
        self._durable.setdefault(manifest.lineage, set()).add(manifest.checkpoint_id)

    def on_commit(
        self, uid: OperatorUid, permit: CommitPermit, names: Sequence[bytes], rows: Sequence[Row]
    ) -> None:
        if self._checkpointed and permit.checkpoint_id not in self._durable.get(permit.lineage, ()):
            raise self._world.violated(
                f"I2: {uid} commits by checkpoint {permit.checkpoint_id}, which is not durable"
            )
