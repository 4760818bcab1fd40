"""A BATCH job with a committer for each writer, in a simulated cluster: each row once, whatever dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pytest

import unistream as us
from tests.simulation.found_by import known_first
from tests.simulation.reached_by import seeds
from tests.support.mutants import Mutant, plant
from unistream.master.store.job_store import JobStore

ROWS = 200
Pipeline: TypeAlias = Callable[[us.Environment], None]
DOUBLED = [28, 65]  # seeds whose rows were doubled while workers stored the committables
CONFIG = {"execution.runtime-mode": "BATCH"}
FULL = {"jobmanager.execution.failover-strategy": "full"}
MASTERS = us.testing.Faults(master_every_ms=500, kill_every_ms=2_000, commit_retry=0.4)
"""Masters die as soon as anything is committed, and the last committers are slow."""
SLOW_COMMITS = us.testing.Faults(master_every_ms=1_500, commit_retry=0.8)
"""Masters live until a stored exchange is read, and die before all is committed."""


def pipeline(env: us.Environment) -> None:
    """Splits go to the subtasks that ask first, so a writer that ran again would have other rows."""
    env.set_parallelism(3)
    rows = us.StaticSource(pa.table({"id": pa.array(range(ROWS), pa.int64())}), splits=3)
    read = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows")
    read.sink_to(us.CollectSink("out")).uid("out")


def rebalanced(env: us.Environment) -> None:
    """The same behind a stored exchange: workers hold results when a leader goes on with what is sealed."""
    env.set_parallelism(3)
    rows = us.StaticSource(pa.table({"id": pa.array(range(ROWS), pa.int64())}), splits=3)
    read = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows")
    read.rebalance().sink_to(us.CollectSink("out")).uid("out")


def check(outputs: dict[str, pa.Table]) -> None:
    [out] = outputs.values()
    assert sorted(out["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize("config", [CONFIG, CONFIG | FULL], ids=["region", "full"])
def test_each_row_is_committed_once(config: dict[str, str]) -> None:
    faults = us.testing.Faults(loss=0.03, duplicate=0.2, kill_every_ms=2_000, start_fail=0.2)
    report = us.testing.simulate(
        pipeline, seeds=seeds(4, 15), faults=faults, config=config, check=lambda outputs: check(dict(outputs))
    )
    report.raise_for_failures()


def test_seeds_that_doubled_rows_when_workers_stored_the_committables() -> None:
    report = us.testing.simulate(
        pipeline, seeds=DOUBLED, config=CONFIG, check=lambda outputs: check(dict(outputs))
    )
    report.raise_for_failures()


@pytest.mark.parametrize("config", [CONFIG, CONFIG | FULL], ids=["region", "full"])
@pytest.mark.parametrize(("build", "faults"), [(pipeline, MASTERS), (rebalanced, SLOW_COMMITS)])
def test_each_row_is_committed_once_though_masters_change(
    build: Pipeline, faults: us.testing.Faults, config: dict[str, str]
) -> None:
    """Also while it commits: what is sealed is durable before the first committer starts."""
    report = us.testing.simulate(
        build, seeds=seeds(8, 40), faults=faults, config=config, check=lambda outputs: check(dict(outputs))
    )
    report.raise_for_failures()


def tried(seed: int) -> us.testing.SimulationReport:
    return us.testing.simulate(
        pipeline, seeds=[seed], faults=MASTERS, config=CONFIG, check=lambda out: check(dict(out))
    )


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        pytest.param("committing", lambda _self, _job: None, id="the next leader starts the job again"),
        pytest.param("set_committing", lambda _self, _job, _sealed: None, id="nothing is durable"),
    ],
)
def test_rows_are_doubled_where_a_leader_does_not_go_on_with_what_is_sealed(
    name: str, replacement: object
) -> None:
    with plant(
        Mutant("a job that has begun to commit begins again", lambda: [(JobStore, name, replacement)])
    ):
        assert any(not tried(seed).ok for seed in known_first("committing-forgotten", range(40)))
