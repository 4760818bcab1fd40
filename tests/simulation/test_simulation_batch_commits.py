"""A BATCH job with a committer for each writer, in a simulated cluster: each row once, whatever dies."""

from __future__ import annotations

import pyarrow as pa
import pytest

import unistream as us

ROWS = 200
DOUBLED = [28, 65]  # seeds whose rows were doubled while workers stored the committables
CONFIG = {"execution.runtime-mode": "BATCH"}
FULL = {"jobmanager.execution.failover-strategy": "full"}


def pipeline(env: us.Environment) -> None:
    """Splits go to the subtasks that ask first, so a writer that ran again would have other rows."""
    env.set_parallelism(3)
    rows = us.StaticSource(pa.table({"id": pa.array(range(ROWS), pa.int64())}), splits=3)
    read = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows")
    read.sink_to(us.CollectSink("out")).uid("out")


def check(outputs: dict[str, pa.Table]) -> None:
    [out] = outputs.values()
    assert sorted(out["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize("config", [CONFIG, CONFIG | FULL], ids=["region", "full"])
def test_each_row_is_committed_once(config: dict[str, str]) -> None:
    """No change of the master: nothing that a BATCH job has done outlives it."""
    faults = us.testing.Faults(loss=0.03, duplicate=0.2, kill_every_ms=2_000, start_fail=0.2)
    report = us.testing.simulate(
        pipeline, seeds=range(15), faults=faults, config=config, check=lambda outputs: check(dict(outputs))
    )
    report.raise_for_failures()


def test_seeds_that_doubled_rows_when_workers_stored_the_committables() -> None:
    report = us.testing.simulate(
        pipeline, seeds=DOUBLED, config=CONFIG, check=lambda outputs: check(dict(outputs))
    )
    report.raise_for_failures()
