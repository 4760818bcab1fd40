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
from unistream.master.job_setup import JobSetup, prepare
from unistream.model.graph import JobGraph, JobType
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


def streaming(job: JobGraph) -> JobGraph:
    return job


def prepared(cluster: Cluster, job: JobGraph, chosen: str, *, on_spark: bool) -> JobSetup:
    services = replace(cluster.services(), create_engine=never if on_spark else None)
    config = {"execution.batch.engine": chosen} if chosen else {}
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
