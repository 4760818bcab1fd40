"""A job that reads a real Kafka, in a real Chromium: a worker dies, and what an operator does then."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.web_ui import check_case, fails, missing, running_case
from tests.eventually import WAIT_S
from tests.integration.copied_topic import Flow
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = [pytest.mark.timeout(900), pytest.mark.kafka]

NARROW = {"size": {"width": 400, "height": 800}, "colorScheme": "dark"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    why = missing()
    if why is not None:
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def flow(tmp_path: Path, kafka: str, topic: str) -> Iterator[Flow]:
    with Flow(tmp_path, kafka, topic) as flow:
        yield flow


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_a_job_is_followed_through_a_kill_and_all_that_is_done_then(
    cluster: EmbeddedCluster, flow: Flow, window: dict[str, object]
) -> None:
    job = cluster.submit(flow.request(execution_checkpointing_interval="1 s")).job_id
    flow.await_commits()
    url = cluster.rest_url
    assert url is not None
    with running_case("kafka", "throughAll", url, job=str(job), **window) as await_word:
        await_word("ready")
        os.kill(cluster.dispatcher.job(job).task_managers[0].pid, signal.SIGKILL)
    flow.assert_exact()


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_the_cause_of_a_failure_is_found(
    cluster: EmbeddedCluster, tmp_path: Path, window: dict[str, object]
) -> None:
    graph, code = fails(tmp_path).job_graph("refused")
    job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})).job_id
    assert cluster.dispatcher.wait(job, WAIT_S)
    check_case("kafka", "failed", cluster.rest_url, job=str(job), message="fare 7 is none", **window)
