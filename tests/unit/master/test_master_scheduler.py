"""Which scheduler a job gets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from unistream.base.ids import JobId
from unistream.model.graph import JobGraph, JobType
from unistream.rest.flink_json import job_details

ADAPTIVE = {"jobmanager.scheduler": "adaptive"}


@pytest.mark.parametrize(
    ("job_type", "where", "scheduler"),
    [
        pytest.param(JobType.STREAMING, "cluster", "Adaptive", id="a stream adapts"),
        pytest.param(
            JobType.BATCH, "cluster", "Default", id="a batch job does not, whatever its cluster says"
        ),
        pytest.param(JobType.BATCH, "job", "Default", id="nor when it says so itself"),
    ],
)
def test_a_batch_job_has_the_default_scheduler(
    *,
    make_cluster: Callable[..., Any],
    job_graph: Callable[..., JobGraph],
    submission: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    job_type: JobType,
    where: str,
    scheduler: str,
) -> None:
    cluster = make_cluster(config=ADAPTIVE if where == "cluster" else {})
    graph = structs.replace(job_graph(), job_type=job_type)
    own = {} if where == "cluster" else ADAPTIVE
    with caplog.at_level(logging.INFO, logger="unistream"):
        job = JobId(cluster.dispatcher.submit(submission(graph, config=own)))
    reported = [record for record in caplog.records if "event=default_scheduler" in record.getMessage()]
    assert len(reported) == (scheduler == "Default")
    found = cluster.dispatcher.graph(job)
    shown = job_details(cluster.dispatcher.job(job), found, now_ms=0)
    assert isinstance(shown, dict)
    assert shown["schedulerType"] == scheduler
