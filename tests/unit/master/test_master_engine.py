"""What runs a BATCH job: Spark's engine or the workers, by option and by what the cluster has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from tests.unit.master.conftest import Cluster, graph, request
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, LeaderEpoch
from unistream.master.job.job_setup import JobSetup, prepare
from unistream.model.graph import Bootstrap, JobGraph, JobType
from unistream.port.engine import BatchEngine
from unistream.port.host import WorkerHost


def never(_host: WorkerHost) -> BatchEngine:
    raise AssertionError("an engine is made when a job runs")


def batch(job: JobGraph) -> JobGraph:
    return structs.replace(job, job_type=JobType.BATCH)


def hybrid(job: JobGraph) -> JobGraph:
    source, *others = job.vertices
    assert source.source is not None
    phases = structs.replace(source.source, phases=(source.source, source.source))
    return batch(structs.replace(job, vertices=(structs.replace(source, source=phases), *others)))


def bootstrap(job: JobGraph) -> JobGraph:
    history = hybrid(job)
    start = Bootstrap(directory="memory://start-of-engine-test", watermarks={history.vertices[0].id: 5})
    return structs.replace(history, bootstrap=start)


def streaming(job: JobGraph) -> JobGraph:
    return job


def with_part(job: JobGraph) -> JobGraph:
    """A stream whose first vertex is its bounded part."""
    first, *others = job.vertices
    return structs.replace(job, vertices=(structs.replace(first, offloaded=True), *others))


def prepared(cluster: Cluster, job: JobGraph, chosen: str, *, on_spark: bool, **more: str) -> JobSetup:
    services = replace(cluster.services(), create_engine=never if on_spark else None)
    config = {"execution.batch.engine": chosen} if chosen else {}
    config |= more
    return prepare(
        request(job, config=config),
        job=JobId("job"),
        cluster=Configuration({}),
        services=services,
        epoch=LeaderEpoch(1),
    )


@pytest.mark.parametrize(
    ("kind", "chosen", "on_spark", "engine"),
    [
        (batch, "", True, "spark"),
        (batch, "spark", True, "spark"),
        (batch, "native", True, "native"),
        (batch, "", False, "native"),
        (batch, "native", False, "native"),
        (hybrid, "", True, "native"),
        (bootstrap, "", True, "spark"),
        (bootstrap, "spark", True, "spark"),
        (streaming, "", True, "native"),
        (streaming, "spark", False, "native"),
    ],
)
def test_the_engine(
    kind: Callable[[JobGraph], JobGraph],
    chosen: str,
    on_spark: bool,
    engine: str,
    make_cluster: Callable[[], Cluster],
) -> None:
    setup = prepared(make_cluster(), kind(graph()), chosen, on_spark=on_spark)
    assert setup.engine == engine
    assert (setup.memory_bytes > 0) is (engine == "spark")
    assert type(setup.machine).__name__ == ("BoundedJobMachine" if engine == "spark" else "JobMachine")


@pytest.mark.parametrize(
    ("kind", "on_spark", "why"),
    [
        (batch, False, "needs a cluster on Spark, and this one has the target mini"),
        (hybrid, True, "spark cannot run this job: source 'source' reads what follows its history"),
    ],
)
def test_spark_is_refused(
    kind: Callable[[JobGraph], JobGraph],
    on_spark: bool,
    why: str,
    make_cluster: Callable[[], Cluster],
) -> None:
    with pytest.raises(ConfigError, match=why):
        prepared(make_cluster(), kind(graph()), "spark", on_spark=on_spark)


@pytest.mark.parametrize(("chosen", "on_spark"), [("", False), ("native", False), ("native", True)])
def test_a_bootstrap_without_spark_is_refused(
    chosen: str, on_spark: bool, make_cluster: Callable[[], Cluster]
) -> None:
    with pytest.raises(ConfigError, match="bootstrap needs Spark's engine: use the target spark"):
        prepared(make_cluster(), bootstrap(graph()), chosen, on_spark=on_spark)


def test_state_of_a_bootstrap_is_in_the_configured_backend(make_cluster: Callable[[], Cluster]) -> None:
    """The state of all keys is there at its end; other BATCH jobs have that of few keys."""
    services = replace(make_cluster().services(), create_engine=never)
    for kind, backend in ((bootstrap, "rocksdb"), (batch, None)):
        setup = prepare(
            request(kind(graph()), config={"state.backend.type": "rocksdb"}),
            job=JobId("job"),
            cluster=Configuration({}),
            services=services,
            epoch=LeaderEpoch(1),
        )
        assert setup.graph.config.get("state.backend.type") == backend


@pytest.mark.parametrize(
    ("chosen", "on_spark", "strategy", "offloads"),
    [
        ("", True, "pipelined-region", True),
        ("spark", True, "pipelined-region", True),
        ("native", True, "pipelined-region", False),
        ("", False, "pipelined-region", False),
        ("", True, "lazy-from-sources", False),
    ],
)
def test_the_bounded_part_of_a_stream(
    chosen: str, on_spark: bool, strategy: str, offloads: bool, make_cluster: Callable[[], Cluster]
) -> None:
    config = {"jobmanager.scheduling-strategy": strategy}
    setup = prepared(make_cluster(), with_part(graph()), chosen, on_spark=on_spark, **config)
    assert (setup.offloads, setup.has_engine, setup.engine) == (offloads, offloads, "native")
    assert (setup.memory_bytes > 0) is offloads
    assert type(setup.machine).__name__ == "JobMachine"
