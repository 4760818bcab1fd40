"""Special kinds of runs, drawn last and from generators of their own: ordinary runs stay the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

from unistream.model.snapshot_kind import SnapshotKind
from unistream.testing.sim.faults import Faults
from unistream.testing.sim.pipeline import Input
from unistream.testing.sim.scenario import (
    MAX_PARALLELISM,
    SHAPES,
    FileSharing,
    Rescale,
    Scenario,
    ScenarioKind,
    SimPipeline,
    UserRequest,
    bundle_of,
)

KINDS: tuple[tuple[ScenarioKind, float], ...] = (
    (ScenarioKind.BATCH, 0.1),
    (ScenarioKind.MIXED, 0.08),
    (ScenarioKind.ADAPTIVE, 0.1),
    (ScenarioKind.RESCALED, 0.1),
)
"""Share of the runs of each kind; the others are ordinary."""

LOSSY_MS: Final = 25_000.0
SHARED: Final = 0.35  # share of shared files among the runs that count and take checkpoints
SHARED_NAME: Final = "shared files, 525,"  # chosen so that no seed that had failed before draws it
HOLDING: Final = 0.25  # share of the runs in which functions have state when they finish
HOLDING_NAME: Final = "rows held back, 341,"  # chosen so that no seed that had failed before draws it
DRAINED: Final = 0.1  # share of the runs in which workers are drained
DRAINED_NAME: Final = "drained workers, 12442,"  # chosen so that no seed of a file in tests draws it
HURRIED: Final = 0.1  # share of the runs with simultaneous requests


def varied(scenario: Scenario, seed: int) -> Scenario:
    """`scenario`, or one made of it."""
    scenario = replace(_hurried(scenario, seed), bundle=bundle_of(seed))
    return _drained(_holding(_shared(_of_a_kind(scenario, seed), seed), seed), seed)


def _of_a_kind(scenario: Scenario, seed: int) -> Scenario:
    random = Random(f"kind of {seed}")  # noqa: S311  repeatable, not secret
    drawn = random.random()
    for kind, share in KINDS:
        drawn -= share
        if drawn < 0:
            return _VARIANTS[kind](replace(scenario, kind=kind), random)
    return scenario


def _hurried(scenario: Scenario, seed: int) -> Scenario:
    """Makes several requests come at almost the same time in some runs, when a checkpoint has become durable
    near the end of the input, and some messages late: so tasks end during a savepoint before a stop."""
    random = Random(f"wishes of {seed}")  # noqa: S311  repeatable, not secret
    if random.random() >= HURRIED:
        return scenario
    first = scenario.jobs[0][0]
    shape = random.choice(("keyed", "keyed", "global", "long"))
    wide = (1, *(random.choice((2, 3)) for _ in SHAPES[shape][1:]))
    widths = (*wide[:-1], 1) if SHAPES[shape][-1] == ("committer",) else wide
    contents = replace(first.contents, bounded=True, splits=random.choice((1, 2)))
    pipeline = replace(first, shape=shape, parallelism=widths, contents=contents)
    kinds = [SnapshotKind.SAVEPOINT] * random.choice((1, 1, 2))
    kinds.append(random.choice((SnapshotKind.SUSPEND, SnapshotKind.SUSPEND, SnapshotKind.TERMINATE)))
    at_ms = 800 + contents.splits * _input_ms(pipeline) * random.random() + random.uniform(0, 3_000)
    times = sorted(random.choice((2, 20)) * random.random() for _ in kinds)
    return replace(
        scenario,
        jobs=((pipeline,),),
        slots=1,
        faults=Faults(late=random.choice((0.1, 0.3, 0.3))),
        hurried_ms=at_ms,
        requests=tuple(UserRequest(at_ms=time, kind=kind) for time, kind in zip(times, kinds, strict=True)),
        config={
            **scenario.config,
            "execution.checkpointing.interval": "400 ms",
            "execution.checkpointing.min-pause": "0 ms",
            "execution.checkpointing.tolerable-failed-checkpoints": "100",
        },
    )


# --- shared files -----------------------------------------------------------------------------------


def _shared(scenario: Scenario, seed: int) -> Scenario:
    """Puts counts into files that checkpoints share, in some runs of jobs that count and take checkpoints:
    with several pending and retained checkpoints, slow removals, and jobs that start from a checkpoint of
    another one, claimed or not."""
    random = Random(f"{SHARED_NAME} of {seed}")  # noqa: S311  repeatable, not secret
    counts = any(pipeline.has_counts and pipeline.checkpointed for job in scenario.jobs for pipeline in job)
    if random.random() >= SHARED or not counts:
        return scenario
    merge_at = random.choice((1, 2, 3, 5))
    jobs = tuple(
        tuple(replace(p, merge_at=merge_at) if p.has_counts and p.checkpointed else p for p in job)
        for job in scenario.jobs
    )
    sharing = FileSharing(
        removal_ms=random.choice((1, 30, 30, 500)),
        claim=random.choice(("CLAIM", "NO_CLAIM")),
        restarts=random.random() < 0.5,
        native=random.random() < 0.3,
    )
    requests = scenario.requests
    if sharing.restarts and not requests and random.random() < 0.5:
        requests = (UserRequest(at_ms=random.uniform(1_000, scenario.faulty_ms), kind=None),)
    config = {
        "execution.checkpointing.min-pause": "0 ms",
        "execution.checkpointing.max-concurrent-checkpoints": random.choice(("1", "2", "3")),
        "execution.checkpointing.num-retained": random.choice(("1", "1", "2", "3")),
    }
    if sharing.restarts:
        config["execution.checkpointing.externalized-checkpoint-retention"] = "RETAIN_ON_CANCELLATION"
    config = {**scenario.config, **config}
    return replace(scenario, jobs=jobs, sharing=sharing, requests=requests, config=config)


# --- rows that are held back ------------------------------------------------------------------------


def _holding(scenario: Scenario, seed: int) -> Scenario:
    """Lets maps hold rows back until they finish, in some runs of jobs that end by themselves. Not where a
    job is drained: what it emits then comes again when a successor goes on from before."""
    random = Random(f"{HOLDING_NAME} of {seed}")  # noqa: S311  repeatable, not secret
    drained = any(request.kind is SnapshotKind.TERMINATE for request in scenario.requests)
    if random.random() >= HOLDING or drained:
        return scenario
    jobs = tuple(tuple(replace(p, holds=p.holds or _may_hold(p)) for p in job) for job in scenario.jobs)
    return replace(scenario, jobs=jobs)


def _may_hold(pipeline: SimPipeline) -> bool:
    return pipeline.contents.bounded and pipeline.checkpointed and not pipeline.blocking


# --- workers that are drained -----------------------------------------------------------------------


def _drained(scenario: Scenario, seed: int) -> Scenario:
    """Lets users drain workers, in some runs. Not where a batch job has room for few workers: what is stored
    on a drained one keeps it, and there is no place for another."""
    random = Random(f"{DRAINED_NAME} of {seed}")  # noqa: S311  repeatable, not secret
    crowded = scenario.kind is ScenarioKind.BATCH and bool(scenario.places)
    if random.random() >= DRAINED or crowded:
        return scenario
    return replace(scenario, faults=replace(scenario.faults, drain_every_ms=random.uniform(700, 5_000)))


# --- stored results ---------------------------------------------------------------------------------


def _stored(scenario: Scenario, random: Random) -> Scenario:
    """Bounded jobs with blocking exchanges.

    Without checkpoints all sinks have one committer: the names of a committer per writer would change when
    its task runs again.
    """
    jobs = tuple(tuple(_stored_pipeline(p, scenario.kind, random) for p in job) for job in scenario.jobs)
    places: tuple[tuple[float, int | None], ...] = ()
    if scenario.kind is ScenarioKind.BATCH and random.random() < 0.3:
        places = ((0.0, random.choice((1, 1, 2))),)  # tasks may have to run one after the other
    stored = replace(
        scenario,
        jobs=jobs,
        places=places,
        faults=_stored_faults(scenario.faults, random),
        config={
            **scenario.config,
            "jobmanager.execution.failover-strategy": "region" if random.random() < 0.9 else "full",
            "slot.idle.timeout": random.choice(("50 s", "500 ms")),
            "resourcemanager.taskmanager-timeout": random.choice(("30 s", "1 s")),
        },
    )
    return _lossy(stored, random) if random.random() < 0.4 else stored


def _lossy(scenario: Scenario, random: Random) -> Scenario:
    """The only faults are lost messages, for as long as most jobs take: so their last ones are lost, too."""
    return replace(
        scenario,
        faults=Faults(loss=random.uniform(0.03, 0.12)),
        faulty_ms=LOSSY_MS,
        config={**scenario.config, "resourcemanager.taskmanager-timeout": "30 s"},
    )


def _stored_pipeline(pipeline: SimPipeline, kind: ScenarioKind, random: Random) -> SimPipeline:
    shape = random.choice(("global", "long") if kind is ScenarioKind.BATCH else ("keyed", "global", "long"))
    last = len(SHAPES[shape]) - 1
    widths = (1,) if SHAPES[shape][-1] == ("committer",) else (1, 2, 3)
    blocking = frozenset(range(1, last + 1))
    if kind is ScenarioKind.MIXED:
        blocking = frozenset(place for place in blocking if random.random() < 0.5) or frozenset((1,))
    return replace(
        pipeline,
        shape=shape,
        parallelism=(*(random.choice((1, 1, 2, 2, 3)) for _ in range(last)), random.choice(widths)),
        contents=replace(pipeline.contents, bounded=True, pull=random.random() < 0.4),
        blocking=blocking,
        checkpointed=kind is not ScenarioKind.BATCH,
    )


def _stored_faults(faults: Faults, random: Random) -> Faults:
    return replace(
        faults,
        spill_fail=random.uniform(0.02, 0.3) if random.random() < 0.3 else 0.0,
        spill_lost=random.uniform(0.02, 0.2) if random.random() < 0.5 else 0.0,
    )


# --- other parallelism ------------------------------------------------------------------------------


def _rescaled(scenario: Scenario, random: Random) -> Scenario:
    """Users request another parallelism at random moments."""
    first = scenario.jobs[0][0]
    scenario = replace(scenario, rescales=rescales_of(scenario, random, scenario.faulty_ms + 3_000))
    if random.random() < 0.7:
        stop = UserRequest(at_ms=random.uniform(1_000, scenario.faulty_ms), kind=SnapshotKind.SUSPEND)
        requests = scenario.requests or ((stop,) if random.random() < 0.3 else ())
        scenario = replace(scenario, restarts_as=_widened(first, random), requests=requests)
    return scenario


def rescales_of(scenario: Scenario, random: Random, until_ms: float) -> tuple[Rescale, ...]:
    """Requests of users, at random moments."""
    first = scenario.jobs[0][0]
    times = [random.uniform(500, until_ms) for _ in range(random.choice((1, 1, 2, 3)))]
    return tuple(Rescale(at_ms=at_ms, parallelism=_widths(first, random)) for at_ms in sorted(times))


def _widths(pipeline: SimPipeline, random: Random) -> Mapping[int, int]:
    """The new parallelism of one or two vertices; sometimes above the maximum."""
    places = range(len(pipeline.parallelism) - pipeline.whole)
    chosen = sorted(random.sample(places, min(len(places), random.choice((1, 1, 2)))))
    widths = (1, 2, 3, 4) if random.random() < 0.95 else (MAX_PARALLELISM + 1,)
    return {place: random.choice(widths) for place in chosen}


def _widened(pipeline: SimPipeline, random: Random) -> tuple[int, ...]:
    changed = [random.choice((1, 2, 3, 4)) for _ in pipeline.parallelism]
    if pipeline.whole:
        changed[-1] = 1
    return tuple(changed)


def _adaptive(scenario: Scenario, random: Random) -> Scenario:
    """One job; workers are lost, and most times replaced later."""
    first = scenario.jobs[0][0]
    contents: Input = replace(first.contents, splits=random.choice((2, 3, 4)))
    job = (replace(first, parallelism=_widened(first, random), contents=contents),)
    drawn = replace(scenario, jobs=(job,), places=_places(scenario, random), config=_waits(scenario, random))
    if random.random() < 0.4:
        return _rescaled(drawn, random)
    return _losing(drawn, random) if random.random() < 0.8 else drawn


def _losing(scenario: Scenario, random: Random) -> Scenario:
    """Some exchanges are blocking, and workers are lost in quick succession: also with stored results while
    the job waits for slots."""
    pipeline = _stored_pipeline(scenario.jobs[0][0], ScenarioKind.MIXED, random)
    last = pipeline.parallelism[-1] if pipeline.whole else random.choice((2, 3))
    widths = (*(random.choice((2, 3, 4)) for _ in pipeline.parallelism[:-1]), last)
    at_ms = 1_000 + _input_ms(pipeline) + random.uniform(0, 2_000)
    soon_ms = at_ms + random.uniform(50, 2_500)
    return replace(
        scenario,
        jobs=((replace(pipeline, parallelism=widths, blocking=frozenset((1,))),),),
        slots=1,
        places=((at_ms, 2), (soon_ms, 1), (soon_ms + random.uniform(500, 6_000), None)),
        config={
            **scenario.config,
            "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "3 s",
        },
    )


def _input_ms(pipeline: SimPipeline) -> float:
    """The approximate time of reading the input."""
    contents = pipeline.contents
    return contents.rows / contents.batch * contents.pace_ms


def _places(scenario: Scenario, random: Random) -> tuple[tuple[float, int | None], ...]:
    places: list[tuple[float, int | None]] = []
    if random.random() < 0.5:
        places.append((0.0, random.choice((1, 2, 3))))
    at_ms = random.uniform(1_000, scenario.faulty_ms)
    places.append((at_ms, 1))
    if random.random() < 0.3:
        places.append((at_ms + random.uniform(500, 4_000), 2))
    if random.random() < 0.8:
        places.append((at_ms + random.uniform(4_000, 8_000), None))
    return tuple(places)


def _waits(scenario: Scenario, random: Random) -> Mapping[str, str]:
    """`resource-wait-timeout` is long: a job without any slot fails after it, and rightly."""
    prefix = "jobmanager.adaptive-scheduler"
    patient = random.random() < 0.15
    return {
        **scenario.config,
        "jobmanager.scheduler": "adaptive",
        f"{prefix}.submission.resource-wait-timeout": "75 s" if patient else "5 min",
        f"{prefix}.submission.resource-stabilization-timeout": "2 min"
        if patient
        else random.choice(("0 ms", "500 ms", "3 s")),
        f"{prefix}.executing.cooldown-after-rescaling": random.choice(("0 ms", "1 s", "5 s")),
        f"{prefix}.executing.resource-stabilization-timeout": random.choice(("0 ms", "500 ms", "3 s")),
    }


_VARIANTS = {
    ScenarioKind.BATCH: _stored,
    ScenarioKind.MIXED: _stored,
    ScenarioKind.ADAPTIVE: _adaptive,
    ScenarioKind.RESCALED: _rescaled,
}
