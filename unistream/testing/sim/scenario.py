"""The run of a seed: the jobs, the cluster, the user's requests and the intensities of faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from unistream.base.limits import BUNDLE_MESSAGES_MAX
from unistream.model.graph import JobType
from unistream.model.snapshot_kind import SnapshotKind
from unistream.testing.sim.faults import Faults, draw
from unistream.testing.sim.pipeline import Input

MAX_PARALLELISM: Final = 8  # key groups: few, so that snapshots are small
HEARTBEAT_MS: Final = 2_000
HEARTBEAT_TIMEOUT_MS: Final = 7_000

SHAPES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "chained": (("source", "map", "writer", "committer"),),
    "keyed": (("source", "map"), ("count", "writer", "committer")),
    "global": (("source",), ("map", "count", "writer"), ("committer",)),
    "long": (("source",), ("map",), ("count", "writer"), ("committer",)),
}
"""Vertices of a pipeline, each the roles that are chained in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPipeline:
    """Source to sink.

    Attributes:
        name: Name of its sink, and prefix of all its other names.
        parallelism: Of each vertex.
        blocking: Places of vertices with blocking inputs.
        checkpointed: Its job takes checkpoints; else sinks commit once, at the end of their input.
        merge_at: Most files per subtask, if its counts are in files that checkpoints share. None: they are in
            memory, and every checkpoint stores them all.
        holds: Its maps hold rows back until some are together; the rest comes when they finish.
    """

    name: str
    shape: str
    parallelism: tuple[int, ...]
    contents: Input
    pointwise: bool
    blocking: frozenset[int] = frozenset()
    checkpointed: bool = True
    merge_at: int | None = None
    holds: bool = False

    @property
    def has_counts(self) -> bool:
        return self.shape != "chained"

    @property
    def whole(self) -> bool:
        """One committer for all writers."""
        return SHAPES[self.shape][-1] == ("committer",)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequest:
    """A user's request `at_ms` after the start: a snapshot, or (None) to cancel the job."""

    at_ms: float
    kind: SnapshotKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """A user's request of another parallelism for vertices of the first pipeline, by place."""

    at_ms: float
    parallelism: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSharing:
    """A run whose checkpoints share files.

    Attributes:
        removal_ms: Mean time of removing a snapshot.
        claim: Value of `execution.state-recovery.claim-mode`.
        restarts: A canceled job keeps its checkpoints, and another one starts from the newest.
        native: Savepoints have the native format.
    """

    removal_ms: float
    claim: str
    restarts: bool
    native: bool


class ScenarioKind(Enum):
    """What is special in a run."""

    STREAMING = "streaming"
    RESCALED = "rescaled"  # by hand, while it runs
    ADAPTIVE = "adaptive"  # as wide as its workers allow, which come and go
    BATCH = "batch"  # all exchanges are blocking
    MIXED = "mixed"  # some are


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run.

    Attributes:
        kind: See `variants`.
        jobs: Pipelines of each job.
        slots: Of each worker.
        faulty_ms: How long the safety phase takes.
        requests: For the first job.
        resubmits: How often the submission is repeated.
        restarts: A stopped job is started again from its savepoint.
        restarts_as: The parallelism of its vertices then; None: as before.
        rescales: Requests for the first job.
        places: (ms after the start, how many workers the hosts have room for from then on; None: any number).
        bundle: The most messages of one request.
        hurried_ms: From then on the users wait for the next durable checkpoint of the first job; the times of
            their requests are relative to it.
        sharing: None: checkpoints share no files.
    """

    jobs: tuple[tuple[SimPipeline, ...], ...]
    slots: int
    config: Mapping[str, str]
    faults: Faults
    faulty_ms: float
    requests: tuple[UserRequest, ...]
    resubmits: int
    restarts: bool
    kind: ScenarioKind = ScenarioKind.STREAMING
    restarts_as: tuple[int, ...] | None = None
    rescales: tuple[Rescale, ...] = ()
    places: tuple[tuple[float, int | None], ...] = ()
    bundle: int = 1
    hurried_ms: float | None = None
    sharing: FileSharing | None = None

    @property
    def job_type(self) -> JobType:
        return JobType.BATCH if self.kind is ScenarioKind.BATCH else JobType.STREAMING

    def text(self) -> str:
        """The whole scenario on one line."""
        jobs = "; ".join(
            " + ".join(
                f"{p.shape}{p.parallelism} {p.contents.splits}x{p.contents.rows} rows"
                f"{'' if p.contents.bounded else ' unbounded'}{' pull' if p.contents.pull else ''}"
                f"{f' blocking {sorted(p.blocking)}' if p.blocking else ''}"
                f"{f' files {p.merge_at}' if p.merge_at else ''}"
                for p in job
            )
            for job in self.jobs
        )
        requests = ", ".join(f"{w.kind.value if w.kind else 'cancel'}@{w.at_ms:.0f}" for w in self.requests)
        more = "".join(f", rescale {dict(r.parallelism)}@{r.at_ms:.0f}" for r in self.rescales)
        more += "".join(f", {n} workers@{at_ms:.0f}" for at_ms, n in self.places)
        requests = (requests + more).removeprefix(", ")
        sharing = "" if self.sharing is None else f" | {self.sharing}"
        return (
            f"{self.kind.value} jobs: {jobs} | slots {self.slots} | bundles of {self.bundle} "
            f"| requests: {requests or 'none'}{sharing} | faults: {self.faults.text()}"
        )


def bundle_of(seed: int) -> int:
    """The most messages of a request in this run. From a generator of its own, so that runs without bundles
    stay the same."""
    return Random(f"bundle of {seed}").choice((1, 2, 3, 10, BUNDLE_MESSAGES_MAX))  # noqa: S311  repeatable


def scenario_of(random: Random) -> Scenario:
    """Draws a run."""
    faults = draw(random)
    jobs: list[tuple[SimPipeline, ...]] = []
    first = 0
    for job in range(2 if random.random() < 0.15 else 1):
        pipelines: list[SimPipeline] = []
        bounded = random.random() < 0.75
        for place in range(2 if random.random() < 0.25 else 1):
            pipeline = _pipeline(random, f"s{job}{place}", first, bounded=bounded)
            first += pipeline.contents.splits
            pipelines.append(pipeline)
        jobs.append(tuple(pipelines))
    return Scenario(
        jobs=tuple(jobs),
        slots=random.choice((1, 1, 2, 3)),
        config=_config(random),
        faults=faults,
        faulty_ms=random.choice((4_000, 7_000, 10_000, 16_000)),
        requests=_requests(random),
        resubmits=random.choice((0, 0, 1, 3)),
        restarts=random.random() < 0.7,
    )


def _pipeline(random: Random, name: str, first: int, *, bounded: bool) -> SimPipeline:
    shape = random.choice(tuple(SHAPES))
    widths = (1, 1, 2, 2, 3)
    vertices = SHAPES[shape]
    parallelism = [random.choice(widths) for _ in vertices]
    if vertices[-1] == ("committer",):
        parallelism[-1] = 1
    contents = Input(
        first=first,
        splits=random.choice((1, 2, 3)),
        rows=random.choice((4, 8, 16)),
        batch=random.choice((1, 3, 6)),
        pace_ms=random.choice((100, 300, 800)),
        keys=random.choice((1, 3, 8)),
        bounded=bounded,
        pull=bounded and random.random() < 0.4,
    )
    return SimPipeline(
        name=name,
        shape=shape,
        parallelism=tuple(parallelism),
        contents=contents,
        pointwise=random.random() < 0.4,
    )


def _config(random: Random) -> dict[str, str]:
    return {
        "pipeline.auto-watermark-interval": "1 h",
        "execution.buffer-timeout.interval": random.choice(("0 ms", "20 ms", "200 ms")),
        "execution.checkpointing.interval": random.choice(("400 ms", "1 s", "2 s")),
        "execution.checkpointing.timeout": random.choice(("2 s", "5 s")),
        "execution.checkpointing.min-pause": random.choice(("0 ms", "0 ms", "500 ms")),
        "execution.checkpointing.tolerable-failed-checkpoints": random.choice(("0", "2", "100")),
        "execution.checkpointing.num-retained": random.choice(("1", "1", "3")),
        "restart-strategy.type": random.choice(("fixed-delay", "exponential-delay")),
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.exponential-delay.initial-backoff": "100 ms",
        "restart-strategy.exponential-delay.max-backoff": "3 s",
        "restart-strategy.fixed-delay.delay": random.choice(("0 ms", "100 ms", "1 s")),
        "slot.request.timeout": random.choice(("3 s", "20 s")),
        "heartbeat.interval": f"{HEARTBEAT_MS} ms",
        "heartbeat.timeout": f"{HEARTBEAT_TIMEOUT_MS} ms",
        "task.cancellation.timeout": "5 s",
        "taskmanager.network.partition-request-timeout": "3 s",
        "sink.committer.retries": "2",
    }


def _requests(random: Random) -> tuple[UserRequest, ...]:
    drawn = random.random()
    at_ms = 1_000 + 12_000 * random.random()
    if drawn < 0.6:
        return ()
    if drawn < 0.7:
        return (UserRequest(at_ms=at_ms, kind=None),)
    requests = [UserRequest(at_ms=at_ms, kind=SnapshotKind.SAVEPOINT)]
    if drawn >= 0.78:
        kind = random.choice((SnapshotKind.SUSPEND, SnapshotKind.TERMINATE))
        requests.append(UserRequest(at_ms=at_ms + 4_000 * random.random(), kind=kind))
    return tuple(requests)
