"""State at barriers that are not aligned, and then another parallelism: windows and files of a user's job."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.simulation.found_by import known_first
from tests.support.mutants import plant
from tests.support.mutants_state import MUTANTS
from unistream.testing import Faults, SimulationReport, simulate

SEEDS = int(os.environ.get("UNISTREAM_STATE_SEEDS", "2"))
SKEWED = (8, 25)
"""Seeds in which subtasks are not equally far at the barrier from which a rescaled job goes on."""
BEHIND = 6
"""A seed in which it goes on from a checkpoint of which one writer had prepared the next."""
SEEDS_MAX = 200
ROWS = 300
SIZE, SLIDE = 400, 50
EVENTS = us.DatagenSource(
    {"id": us.datagen.Sequential(), "k": us.datagen.RandomInt(0, 12), "t": us.datagen.EventTime(0, 10, 20)},
    rows=ROWS,
    splits=2,
)
TIMES = us.WatermarkStrategy.for_bounded_out_of_orderness(20).with_timestamp_column("t")
OFTEN = {"pipeline.auto-watermark-interval": "20 ms"}
UNALIGNED = OFTEN | {"execution.checkpointing.unaligned.enabled": "true"}
AT_LEAST_ONCE = OFTEN | {"execution.checkpointing.mode": "AT_LEAST_ONCE"}


def windows(env: us.Environment) -> None:
    """Each subtask is as far as its inputs let it: what fires must not depend on the others."""
    events = env.set_parallelism(2).from_source(EVENTS, TIMES, "events").uid("events")
    counts = events.key_by("k").window(us.SlidingEventTimeWindows.of(SIZE, SLIDE)).aggregate(n=us.count())
    counts.uid("windows").rebalance().sink_to(us.BlackholeSink()).uid("out")


class AtLeast:
    """Checks that each row of the run without faults, the first one, is there, with at least its count."""

    def __init__(self) -> None:
        self._truth: Counter[Any] | None = None

    def __call__(self, sinks: Mapping[str, pa.Table]) -> None:
        found: Counter[Any] = Counter()
        for row in sinks["out"].to_pylist():
            counted = row.pop("n", 1)
            key = tuple(row.values())
            found[key] = max(found[key], counted)
        self._truth = self._truth or found
        assert found >= self._truth, f"{len(self._truth - found)} rows are lost"


def simulated(config: Mapping[str, str], seeds: Iterable[int]) -> SimulationReport:
    """At another parallelism from some moment on."""
    check = AtLeast() if config is AT_LEAST_ONCE else None
    return simulate(windows, seeds=seeds, config=config, rescale=True, check=check)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(OFTEN, id="aligned"),
        pytest.param(UNALIGNED, id="unaligned"),
        pytest.param(AT_LEAST_ONCE, id="at least once"),
    ],
)
def test_windows_that_overlap_are_those_of_an_undisturbed_run(config: Mapping[str, str]) -> None:
    report = simulated(config, [*SKEWED, *range(SEEDS)])
    report.raise_for_failures()
    assert report.restarts


def files_of_pauses(folder: Path, seeds: Iterable[int]) -> SimulationReport:
    """Writers are paused, so some are checkpoints behind others, while the job takes one to go on from at
    another parallelism."""

    def files(env: us.Environment) -> None:
        events = env.set_parallelism(2).from_source(EVENTS, TIMES, "events").uid("events").set_parallelism(1)
        rows = events.rebalance().map(lambda row: row, returns=EVENTS.schema).uid("map")
        rows.sink_to(us.FileSink(str(folder / "out"))).uid("files")

    def rows() -> list[int]:
        parts = sorted((folder / "out").rglob("part-*.parquet"))
        return [number for part in parts for number in pq.read_table(part)["id"].to_pylist()]

    def check(shown: Mapping[str, pa.Table]) -> None:
        missing = set(range(ROWS)) - set(shown["rows"].column(0).to_pylist())
        assert not missing, f"{len(missing)} rows are lost"

    return simulate(
        files,
        seeds=seeds,
        config=AT_LEAST_ONCE | {"execution.checkpointing.max-concurrent-checkpoints": "3"},
        faults=Faults(pause_every_ms=400, pause_ms=2_500, kill_every_ms=3_000),
        rescale=True,
        keep_sinks=True,
        outputs={"rows": rows},
        reset=lambda: shutil.rmtree(folder / "out", ignore_errors=True),
        check=check,
    )


def test_files_of_a_rescaled_job_have_each_row(tmp_path: Path) -> None:
    report = files_of_pauses(tmp_path, [BEHIND, *range(SEEDS)])
    report.raise_for_failures()
    assert report.restarts


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(
    name: str, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    runs = {
        "fired-of-another": partial(simulated, UNALIGNED),
        "lists-the-next": partial(files_of_pauses, tmp_path),
    }
    with plant(MUTANTS[name]):
        for seed in known_first(name, range(SEEDS_MAX)):
            report = runs[name]([seed])
            if not report.ok:
                reason = report.failures[0].reason.replace("\n", " ")
                record_property("planted bug", f"{name:34s} {seed + 1:6d}  {reason[:90]}")
                return
    pytest.fail(f"{MUTANTS[name].lesson}: not found in {SEEDS_MAX} seeds")
