"""Whatever the pipeline and its rows, every engine gives the rows that plain Python gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.equality.dimensions import MODES, WAYS, Way
from tests.equality.pipelines import Assign, Exchange, Key, Pipeline, Row, Source, Window
from tests.equality.run import (
    BATCH,
    RESTARTS,
    STREAMING,
    assert_equal,
    on_spark,
    on_workers,
    simulated,
)
from tests.equality.strategies import failing, pipelines
from unistream.base.config import Configuration
from unistream.client.embedded import EmbeddedCluster
from unistream.testing.mini_cluster import MiniCluster

FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def examples(number: int) -> settings:
    return settings(max_examples=number, deadline=None, suppress_health_check=FIXTURES)


OFTEN = {"pipeline.auto-watermark-interval": "1 ms"}
PARALLELISM = st.sampled_from(["1", "2", "3"])


SUMS = Window(0, Key(("s",)), 20, 10, 0, (("n", "count", ""), ("v", "sum", "v"), ("f", "sum", "f")))
EARLIER_TIMES = Pipeline(
    (
        Source((tuple(Row(n, 0, "x", 0.0, 0) for n in range(5)),), piece=1),
        SUMS,
        Assign(1),
        replace(SUMS, input=2),
    )
)
"""Windows of rows that are given earlier times; the watermark of the source has passed these."""

IN_TURN = tuple(Row(n, 20 * n, f"key {n * n % 12}", None, n) for n in range(120))
OVERLAPPING = Pipeline(
    (
        Source((IN_TURN[::2], IN_TURN[1::2]), kind="static", piece=2),
        replace(SUMS, size=400, slide=50),
        Exchange(1, "rebalance"),
    )
)
"""Windows that share most of their rows, for long enough that some subtask is further than another."""

STREAMING_WAYS = [way for way in WAYS if way.mode != "batch"]
BATCH_WAYS = [way for way in WAYS if way.mode == "batch"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ways", [STREAMING_WAYS, BATCH_WAYS], ids=["STREAMING", "BATCH"])
@example(EARLIER_TIMES, "1", 0, 0)
@examples(16)
@given(pipelines(), PARALLELISM, st.integers(0, 1_000), st.integers(0, 1_000))
def test_simulated(ways: Sequence[Way], pipeline: Pipeline, parallelism: str, seed: int, way: int) -> None:
    """Without faults, and with those of a seed: killed and paused workers, lost messages, failed storage."""
    assert_agrees(ways[way % len(ways)], pipeline, parallelism, seed)


@pytest.mark.parametrize("way", STREAMING_WAYS, ids=str)
def test_windows_that_overlap_in_each_way(way: Way) -> None:
    """Each mode with each width, whatever is drawn above."""
    assert_agrees(way, OVERLAPPING, "2", 7)


def assert_agrees(way: Way, pipeline: Pipeline, parallelism: str, seed: int) -> None:
    config = {**way.config, "parallelism.default": parallelism}
    quiet, disturbed = simulated(pipeline, config, seed, rescale=way.rescales)
    where = f"{way}, a parallelism of {parallelism}"
    assert_equal(pipeline, where, quiet)
    if way.may_fail(pipeline):
        assert_equal(pipeline, f"{where}, with the faults of seed {seed},", disturbed, once=way.counts_once)


@pytest.fixture(scope="module")
def workers() -> Iterator[MiniCluster]:
    with MiniCluster(task_managers=2, slots=3) as cluster:
        yield cluster


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "config",
    [
        {
            **STREAMING,
            **RESTARTS,
            "execution.checkpointing.interval": "10 ms",
            "parallelism.default": "2",
            **OFTEN,
        },
        {
            **MODES["unaligned"],
            **RESTARTS,
            "state.backend.type": "rocksdb",
            "parallelism.default": "3",
            **OFTEN,
        },
        {**BATCH, **RESTARTS, "execution.batch.engine": "native", "parallelism.default": "2"},
    ],
    ids=["STREAMING", "unaligned with RocksDB", "BATCH"],
)
@examples(5)
@given(pipelines() | failing("raises"))
def test_on_workers(workers: MiniCluster, config: Mapping[str, str], pipeline: Pipeline) -> None:
    """Some pipelines have a function that fails once."""
    assert_equal(pipeline, "the built-in runtime", on_workers(workers, pipeline, config))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = Configuration({"spark.master": "local[2]"})
    with EmbeddedCluster("spark", config, workdir=tmp_path_factory.mktemp("cluster"), rest=False) as cluster:
        yield cluster


@pytest.mark.spark
@pytest.mark.timeout(1800)
@examples(4)
@given(pipelines() | failing("kills"), PARALLELISM)
def test_on_spark(spark: EmbeddedCluster, pipeline: Pipeline, parallelism: str) -> None:
    """Some pipelines have a function that kills its Python worker once."""
    config = {**BATCH, "parallelism.default": parallelism}
    assert_equal(pipeline, f"Spark, at a parallelism of {parallelism},", on_spark(spark, pipeline, config))
