"""Runs a user's pipeline under faults, seed by seed, and compares its rows with an undisturbed run's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from unistream.api.environment import Environment
from unistream.base.config import STATE_BACKEND, Configuration
from unistream.base.errors import ConfigError, UserCodeError
from unistream.state.backends import IN_MEMORY
from unistream.testing.sim.faults import Faults
from unistream.testing.sim.story import StoryLine
from unistream.testing.simulation.job import Inputs, Pipeline, UserJob, user_job
from unistream.testing.simulation.report import (
    Difference,
    OutputRows,
    SeedFailure,
    SimulationReport,
    comparable,
    difference,
)
from unistream.testing.simulation.run import QUIET, Draw, PreparedUserJob, RunResult, draw, readable, run_job
from unistream.testing.simulation.truth import judged

Output = Callable[[], "pa.Table | Iterable[object]"]
Check = Callable[[Mapping[str, pa.Table]], object]

SLOWER: Final = (
    "kill_every_ms",
    "pause_every_ms",
    "master_every_ms",
    "drain_every_ms",
)  # twice the value is half of them


def simulate(
    pipeline: Pipeline | Environment,
    seeds: Iterable[int] = range(100),
    config: Configuration | Mapping[str, str] | None = None,
    faults: Faults | None = None,
    *,
    inputs: Inputs | None = None,
    check: Check | None = None,
    keep_sinks: bool = False,
    outputs: Mapping[str, Output] | None = None,
    reset: Callable[[], object] | None = None,
    rescale: bool = False,
    story: bool = False,
) -> SimulationReport:
    """Searches for rows that a pipeline loses or doubles when workers die or messages are lost.

    A whole cluster runs in this thread, on virtual time; a seed is a run. The rows of each sink have to be
    those of a run without faults, in any order.

    Args:
        pipeline: A function that takes an `Environment`, or makes and returns one; or the environment itself.
        seeds: The runs.
        config: Options of the pipeline's environment. The simulation sets intervals, timeouts and restarts;
            it runs a stream unless `execution.runtime-mode` is BATCH, and keeps state in the `hashmap`
            backend unless `state.backend.type` is given here.
        faults: The faults of all runs, instead of those that each seed draws.
        inputs: Rows of sources by uid (or name), as a table or dicts: required for each unbounded source,
            such as Kafka; for others they replace its rows.
        check: Gets the rows of each sink, by uid, in each run, also the undisturbed one; raises
            AssertionError (or returns False) if they are wrong. It replaces the comparison, for pipelines
            whose result varies.
        keep_sinks: The pipeline's own sinks write, and `outputs` read their rows. An output with the uid of a
            sink must show the rows that reach that sink: the run without faults is compared with another in
            which tables in memory replace the sinks (not with `check`).
        outputs: Name -> reads external results after a run: rows as a table, dicts, or any values. Compared
            as sinks are.
        reset: Called before each run, so that `outputs` are empty.
        rescale: Another parallelism of a vertex is requested during the run.
        story: The report has the story of the last run, also if no run failed.

    Raises:
        ConfigError: the pipeline cannot be simulated, or there is no seed.
        UserCodeError: the pipeline fails without any fault.

    >>> import unistream as us
    >>> def pipeline(env):
    ...     numbers = us.DatagenSource({"n": us.datagen.RandomInt(0, 3)}, rows=100)
    ...     rows = env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "numbers")
    ...     rows.sink_to(us.BlackholeSink()).uid("out")
    >>> us.testing.simulate(pipeline, seeds=range(3)).ok
    True
    """
    runs = _checked(seeds)
    options = config.to_dict() if isinstance(config, Configuration) else dict(config or {})
    if keep_sinks and not outputs:
        raise ConfigError(
            "simulate: keep_sinks needs outputs={'name': function}, which read the rows of the sinks"
        )
    job = user_job(pipeline, options, inputs or {}, keep_sinks=keep_sinks)
    truth = user_job(pipeline, options, inputs or {}, keep_sinks=False) if keep_sinks and not check else None
    prepared = PreparedUserJob(job, options.get(STATE_BACKEND.key, IN_MEMORY))
    judge = _Judge(prepared, dict(outputs or {}), reset, check, truth)
    draws = ((seed, draw(seed, faults, rescale=rescale)) for seed in runs)
    return _report(judge, draws, job.replaced, story=story)


def _checked(seeds: object) -> Iterator[int]:
    """The seeds as numbers, of which there is at least one: a test without seeds could not fail. Raises
    ConfigError."""
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise ConfigError(
            f"simulate: seeds is {seeds!r}; it must be whole numbers, such as range(100) or [17]"
        )
    found = iter(seeds)
    first = [_seed(seed) for seed in islice(found, 1)]
    if not first:
        raise ConfigError("simulate: seeds is empty, so no run would be made; pass some, such as range(100)")
    return map(_seed, chain(first, found))


def _seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"simulate: seed {seed!r} is not a whole number")
    return seed


def _report(
    judge: _Judge, draws: Iterable[tuple[int, Draw]], replaced: tuple[str, ...], *, story: bool
) -> SimulationReport:
    """Performs the runs; the first failure is shrunk."""
    began = time.perf_counter()
    wrong = judge.learn()
    failures = [] if wrong is None else [wrong]
    count = restarts = 0
    last: tuple[StoryLine, ...] = ()
    for seed, drawn in draws if wrong is None else ():
        failure, run = judge.try_seed(seed, drawn)
        count += 1
        restarts += _begun(run) - judge.tasks
        if failure is not None:
            failures.append(failure if failures else judge.shrunk(failure, seed, drawn))
        last = readable(judge.prepared, run) if story else ()
    return SimulationReport(
        seeds=count,
        failures=tuple(failures),
        replaced=replaced,
        restarts=max(0, restarts),
        seconds=time.perf_counter() - began,
        lines=last,
        compared=judge.compared,
    )


@dataclass(slots=True)
class _Judge:
    """Compares runs with the undisturbed one.

    Attributes:
        reference: The same job with tables in place of its sinks, to be compared with; None: do not.
    """

    prepared: PreparedUserJob
    outputs: Mapping[str, Output]
    reset: Callable[[], object] | None
    check: Check | None
    reference: UserJob | None
    tasks: int = 0
    compared: tuple[str, ...] = ()
    _truth: dict[str, OutputRows] = field(default_factory=dict)

    def learn(self) -> SeedFailure | None:
        """The undisturbed run. Returns its failure, if its sinks show wrong rows.

        Raises:
            UserCodeError: it does not finish, or `check` refuses it.
        """
        reached = None if self.reference is None else self._reached(self.reference)
        run, shown = self._run(0, QUIET)
        _require_end(run)
        self.prepared.rows.update(run.counted)
        self._truth = shown
        self.tasks = _begun(run)
        refused = self._refused(shown, run)
        if refused is not None:
            raise UserCodeError(f"simulate: check fails in the run without faults: {refused}")
        if reached is None or self.reference is None:
            return None
        verdict = judged(self.reference.sinks, reached, shown)
        self.compared = tuple(verdict.compared)
        if not verdict.wrong:
            return None
        return SeedFailure(
            seed=None,
            reason="\n".join(verdict.wrong),
            faults=QUIET.faults,
            differences=tuple(verdict.differences),
        )

    def _reached(self, job: UserJob) -> dict[str, OutputRows]:
        """The rows that reach each sink."""
        run = self._run_job(PreparedUserJob(job), 0, QUIET)
        _require_end(run)
        return _rows_of(run)

    def try_seed(self, seed: int, drawn: Draw) -> tuple[SeedFailure | None, RunResult]:
        """One run under faults, and its failure."""
        run, shown = self._run(seed, drawn)
        differences: tuple[Difference, ...] = ()
        reason = run.violation
        if reason is None and self.check is not None:
            reason = self._refused(shown, run)
        elif reason is None:
            differences = self._compared(shown)
            reason = "\n".join(map(str, differences)) or None
        if reason is None:
            return None, run
        return SeedFailure(seed=seed, reason=reason, faults=drawn.faults, differences=differences), run

    def shrunk(self, failure: SeedFailure, seed: int, drawn: Draw) -> SeedFailure:
        """The same seed with the fewest kinds of faults, as rare as possible, that still make it fail."""
        best, faults = failure, drawn.faults
        for name in [one.name for one in fields(Faults)]:
            value = getattr(faults, name)
            if not value:
                continue
            smaller = [0.0, 4 * value, 2 * value] if name in SLOWER else [0.0]
            for other in smaller:
                fewer = replace(faults, **{name: other})
                again, _ = self.try_seed(seed, replace(drawn, faults=fewer))
                if again is not None and bool(again.differences) == bool(failure.differences):
                    best, faults = again, fewer
                    break
        _, run = self.try_seed(seed, replace(drawn, faults=faults))
        return replace(best, lines=readable(self.prepared, run))

    # --- one run ----------------------------------------------------------------------------------

    def _run_job(self, prepared: PreparedUserJob, seed: int, drawn: Draw) -> RunResult:
        if self.reset is not None:
            self.reset()
        return run_job(prepared, seed, drawn)

    def _run(self, seed: int, drawn: Draw) -> tuple[RunResult, dict[str, OutputRows]]:
        run = self._run_job(self.prepared, seed, drawn)
        shown = _rows_of(run)
        for name, read in self.outputs.items():
            if name in shown:
                raise ConfigError(
                    f"simulate: outputs contains {name!r}, which is the uid of a simulated sink"
                )
            shown[name] = _read(read())
        return run, shown

    def _compared(self, shown: Mapping[str, OutputRows]) -> tuple[Difference, ...]:
        nothing = OutputRows((), ())
        found = []
        for name in {**self._truth, **shown}:
            want, have = (comparable(one.get(name, nothing)) for one in (self._truth, shown))
            differs = difference(name, want.columns or have.columns, want.rows, have.rows)
            if differs is not None:
                found.append(differs)
        return tuple(found)

    def _refused(self, shown: Mapping[str, OutputRows], run: RunResult) -> str | None:
        """The reason why `check` refuses the rows."""
        if self.check is None:
            return None
        tables = {name: _table(one, run.schemas.get(name)) for name, one in shown.items()}
        try:
            answer = self.check(tables)
        except AssertionError as error:
            return f"check: {error}"
        return "check returned False" if answer is False else None


def _begun(run: RunResult) -> int:
    """How often a task began."""
    return sum(line.text.endswith(" begins") for line in run.lines)


def _require_end(run: RunResult) -> None:
    if run.violation is not None:
        raise UserCodeError(f"simulate: the pipeline fails without any fault: {run.violation}")


def _rows_of(run: RunResult) -> dict[str, OutputRows]:
    return {uid: OutputRows(tuple(run.schemas[uid].names), rows) for uid, rows in run.rows.items()}


def _read(found: pa.Table | Iterable[object]) -> OutputRows:
    if isinstance(found, pa.Table):
        columns = [column.to_pylist() for column in found.columns]
        return OutputRows(tuple(found.schema.names), list(zip(*columns, strict=True)))
    values: list[Any] = list(found)
    if values and all(isinstance(value, Mapping) for value in values):
        names = tuple(values[0])
        return OutputRows(names, [tuple(value.get(name) for name in names) for value in values])
    return OutputRows((), [value if isinstance(value, tuple) else (value,) for value in values])


def _table(shown: OutputRows, schema: pa.Schema | None) -> pa.Table:
    names = shown.columns or tuple(f"f{place}" for place in range(len(shown.rows[0]) if shown.rows else 0))
    columns = list(zip(*shown.rows, strict=True)) or [()] * len(names)
    types = [None] * len(names) if schema is None else schema.types
    return pa.table(
        [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)], names=names
    )
