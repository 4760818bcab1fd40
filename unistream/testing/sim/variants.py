"""Runs of another kind than the usual one: drawn after it and from a generator of their own.

A seed whose kind is the usual one is the run that it always was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from unistream.model.elements import SnapshotKind
from unistream.testing.sim.faults import Faults
from unistream.testing.sim.pipeline import Input
from unistream.testing.sim.scenario import MAX_PARALLELISM, SHAPES, Kind, Pipeline, Rescale, Scenario, Wish

KINDS: tuple[tuple[Kind, float], ...] = (
    (Kind.BATCH, 0.1),
    (Kind.MIXED, 0.08),
    (Kind.ADAPTIVE, 0.1),
    (Kind.RESCALED, 0.1),
)
"""Share of the runs of each kind; the others are of the usual one."""


def varied(scenario: Scenario, seed: int) -> Scenario:
    """`scenario`, or one made of it."""
    random = Random(f"kind of {seed}")  # noqa: S311  repeatable, not secret
    drawn = random.random()
    for kind, share in KINDS:
        drawn -= share
        if drawn < 0:
            return _VARIANTS[kind](replace(scenario, kind=kind), random)
    return scenario


# --- stored results ---------------------------------------------------------------------------------


def _stored(scenario: Scenario, random: Random) -> Scenario:
    """Bounded jobs in which consumers wait for whole results.

    Without checkpoints all sinks have one committer: one beside each writer has no name for what it commits
    that would be the same when its task runs again.
    """
    jobs = tuple(tuple(_stored_pipeline(p, scenario.kind, random) for p in job) for job in scenario.jobs)
    places: tuple[tuple[float, int | None], ...] = ()
    if scenario.kind is Kind.BATCH and random.random() < 0.3:
        places = ((0.0, random.choice((1, 1, 2))),)  # one task after the other, if it must be
    return replace(
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


def _stored_pipeline(pipeline: Pipeline, kind: Kind, random: Random) -> Pipeline:
    shape = random.choice(("global", "long") if kind is Kind.BATCH else ("keyed", "global", "long"))
    last = len(SHAPES[shape]) - 1
    widths = (1,) if SHAPES[shape][-1] == ("committer",) else (1, 2, 3)
    blocking = frozenset(range(1, last + 1))
    if kind is Kind.MIXED:
        blocking = frozenset(place for place in blocking if random.random() < 0.5) or frozenset((1,))
    return replace(
        pipeline,
        shape=shape,
        parallelism=(*(random.choice((1, 1, 2, 2, 3)) for _ in range(last)), random.choice(widths)),
        contents=replace(pipeline.contents, bounded=True, pull=random.random() < 0.4),
        blocking=blocking,
        checkpointed=kind is not Kind.BATCH,
    )


def _stored_faults(faults: Faults, random: Random) -> Faults:
    return replace(
        faults,
        spill_fail=random.uniform(0.02, 0.3) if random.random() < 0.3 else 0.0,
        spill_lost=random.uniform(0.02, 0.2) if random.random() < 0.5 else 0.0,
    )


# --- other parallelism ------------------------------------------------------------------------------


def _rescaled(scenario: Scenario, random: Random) -> Scenario:
    """Somebody asks for another parallelism now and then, at whatever moment."""
    first = scenario.jobs[0][0]
    times = [random.uniform(500, scenario.faulty_ms + 3_000) for _ in range(random.choice((1, 1, 2, 3)))]
    rescales = tuple(Rescale(at_ms=at_ms, parallelism=_widths(first, random)) for at_ms in sorted(times))
    scenario = replace(scenario, rescales=rescales)
    if random.random() < 0.7:
        stop = Wish(at_ms=random.uniform(1_000, scenario.faulty_ms), kind=SnapshotKind.SUSPEND)
        wishes = scenario.wishes or ((stop,) if random.random() < 0.3 else ())
        scenario = replace(scenario, go_on_as=_widened(first, random), wishes=wishes)
    return scenario


def _widths(pipeline: Pipeline, random: Random) -> Mapping[int, int]:
    """For one or two vertices; sometimes one that cannot be."""
    places = range(len(pipeline.parallelism) - pipeline.whole)
    chosen = sorted(random.sample(places, min(len(places), random.choice((1, 1, 2)))))
    widths = (1, 2, 3, 4) if random.random() < 0.95 else (MAX_PARALLELISM + 1,)
    return {place: random.choice(widths) for place in chosen}


def _widened(pipeline: Pipeline, random: Random) -> tuple[int, ...]:
    changed = [random.choice((1, 2, 3, 4)) for _ in pipeline.parallelism]
    if pipeline.whole:
        changed[-1] = 1
    return tuple(changed)


def _adaptive(scenario: Scenario, random: Random) -> Scenario:
    """One job; workers are lost for good, and most times come back later."""
    first = scenario.jobs[0][0]
    contents: Input = replace(first.contents, splits=random.choice((2, 3, 4)))
    job = (replace(first, parallelism=_widened(first, random), contents=contents),)
    drawn = replace(scenario, jobs=(job,), places=_places(scenario, random), config=_waits(scenario, random))
    return _rescaled(drawn, random) if random.random() < 0.4 else drawn


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
    """A job that has no slot at all when `resource-wait-timeout` is over fails, and rightly: it is never so
    short here."""
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
    Kind.BATCH: _stored,
    Kind.MIXED: _stored,
    Kind.ADAPTIVE: _adaptive,
    Kind.RESCALED: _rescaled,
}
