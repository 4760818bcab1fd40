"""The engines: each runs a pipeline, and gives the rows of its sinks."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

import unistream as us
from tests.equality.build import build
from tests.equality.functions import rows_of
from tests.equality.model import expected
from tests.equality.pipelines import Pipeline, name_of
from tests.equality.plain import text
from tests.eventually import WAIT_S
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.submission import SubmitRequest
from unistream.testing import simulate
from unistream.testing.mini_cluster import MiniCluster
from unistream.worker.code import pack

Found: TypeAlias = Mapping[str, list[tuple]]
"""Rows by the name of the sink."""

STREAMING = {
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "100 ms",
    "pipeline.auto-watermark-interval": "20 ms",  # there are some before the end; of virtual time, too
}
BATCH = {
    "execution.runtime-mode": "BATCH",
    "execution.batch-shuffle.write-buffer.size": "1 kb",  # some tens of rows, so that they come by bucket
}
RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "2",
    "restart-strategy.fixed-delay.delay": "1 ms",
}


def simulated(
    pipeline: Pipeline, config: Mapping[str, str], seed: int, *, rescale: bool = False
) -> tuple[Found, Found]:
    """Rows of a run without faults, and of one with those of `seed`: both in one thread, on virtual time.
    `rescale`: in the second one a vertex gets another parallelism."""
    found: list[Found] = []

    def look(tables: Mapping[str, pa.Table]) -> None:
        found.append({name.removesuffix(" out"): tuples(table) for name, table in tables.items()})

    with tempfile.TemporaryDirectory() as folder:

        def built(env: us.Environment) -> None:
            build(pipeline, Path(folder), {}, env=env)

        simulate(built, seeds=[seed], config=config, check=look, rescale=rescale).raise_for_failures()
    quiet, disturbed = found
    return quiet, disturbed


def on_workers(cluster: MiniCluster, pipeline: Pipeline, config: Mapping[str, str]) -> Found:
    """Rows of a run of the built-in runtime, with real threads, exchanges and checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        env = build(pipeline, Path(folder), config)
        graph, code = env.job_graph("equality")
        result = cluster.submit(graph, code, config=env.config.to_dict()).wait(WAIT_S)
        assert result.state == "FINISHED", f"{result.failure}\n\n{pipeline}"
        assert result.late_rows == {}, f"late rows: {result.late_rows}\n\n{pipeline}"
        assert result.out_of_order_rows == {}, f"out of order: {result.out_of_order_rows}\n\n{pipeline}"
        return read(pipeline, Path(folder))


def on_spark(cluster: EmbeddedCluster, pipeline: Pipeline, config: Mapping[str, str]) -> Found:
    """Rows of a run as one Spark job."""
    with tempfile.TemporaryDirectory() as folder:
        env = build(pipeline, Path(folder), config)
        graph, code = env.job_graph("equality")
        request = SubmitRequest(graph=graph, artifact=pack(code), config=env.config.to_dict())
        job = cluster.submit(request)
        result = job.wait(WAIT_S)
        assert result.state == "FINISHED", f"{result.failure}\n\n{pipeline}"
        assert job.status().engine == "spark"
        return read(pipeline, Path(folder))


def read(pipeline: Pipeline, folder: Path) -> Found:
    return {name_of(number): rows_of(folder / f"{name_of(number)} out") for number in pipeline.written()}


def tuples(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


# --- equality -------------------------------------------------------------------------------------


def assert_equal(pipeline: Pipeline, engine: str, found: Found, *, once: bool = True) -> None:
    """The rows of each sink are those of the model, in any order; NaN is NaN, and -0.0 is not 0.0. `once`:
    False: those that the model has may come more often."""
    wrong = []
    for name, rows in expected(pipeline).items():
        want, have = Counter(map(text, rows)), Counter(map(text, found.get(name, [])))
        wrong += [f"{name}: {count} x missing: {row}" for row, count in sorted((want - have).items())]
        more = {row: n for row, n in (have - want).items() if once or row not in want}
        wrong += [f"{name}: {count} x too many: {row}" for row, count in sorted(more.items())]
    assert not wrong, f"{engine} differs from the model:\n" + "\n".join(wrong) + f"\n\n{pipeline}"
