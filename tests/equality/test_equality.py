"""Whatever the pipeline and its rows, every engine gives the rows that plain Python gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.equality.dimensions import MODES, PARALLELISM, ROWS, WAYS, WIDTHS, Way
from tests.equality.operators import ALL_AT_ONCE, OPERATORS
from tests.equality.pipelines import Pipeline
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
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.testing.mini_cluster import MiniCluster

FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
IN_THE_GATE = settings().derandomize


def examples(gate: int, night: int) -> settings:
    """How many are drawn at each commit; a twentieth of those of a night."""
    number = gate if IN_THE_GATE else night
    return settings(max_examples=number, deadline=None, suppress_health_check=FIXTURES)


OFTEN = {"pipeline.auto-watermark-interval": "1 ms"}
STREAMING_WAYS = [way for way in WAYS if not way.is_batch]
BATCH_WAYS = [way for way in WAYS if way.is_batch]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ways", [STREAMING_WAYS, BATCH_WAYS], ids=["STREAMING", "BATCH"])
@examples(5, 16)
@given(pipelines(), st.integers(0, 1_000), st.integers(0, 1_000))
def test_simulated(ways: Sequence[Way], pipeline: Pipeline, seed: int, way: int) -> None:
    """Without faults, and with those of a seed: killed and paused workers, lost messages, failed storage."""
    assert_agrees(ways[way % len(ways)], pipeline, seed)


@pytest.mark.parametrize(("operator", "mode", "width", "backend", "parallelism"), ROWS)
def test_each_two_dimensions_meet(
    operator: str, mode: str, width: str, backend: str, parallelism: str
) -> None:
    """Whatever is drawn above."""
    assert_agrees(Way(mode, width, backend, parallelism), OPERATORS[operator], 7)


@pytest.mark.parametrize("way", [Way(*way, "hashmap", "2") for way in product(MODES, WIDTHS)], ids=str)
def test_windows_that_overlap_in_each_way(way: Way) -> None:
    """State that is not of keys alone."""
    assert_agrees(way, OPERATORS["windows that overlap"], 7)


def assert_agrees(way: Way, pipeline: Pipeline, seed: int) -> None:
    quiet, disturbed = simulated(pipeline, way.config, seed, rescale=way.rescales)
    assert_equal(pipeline, f"{way}", quiet)
    if way.may_fail(pipeline):
        assert_equal(pipeline, f"{way}, with the faults of seed {seed},", disturbed, once=way.counts_once)


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
@examples(2, 5)
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
@example(ALL_AT_ONCE, "2")
@examples(1, 4)
@given(pipelines() | failing("kills"), st.sampled_from(PARALLELISM))
def test_on_spark(spark: EmbeddedCluster, pipeline: Pipeline, parallelism: str) -> None:
    """Some pipelines have a function that kills its Python worker once."""
    config = {**BATCH, "parallelism.default": parallelism}
    assert_equal(pipeline, f"Spark, at a parallelism of {parallelism},", on_spark(spark, pipeline, config))
