"""BATCH jobs on Spark where pandas is installed: pyarrow finds it in each Python worker."""

from __future__ import annotations

from pathlib import Path

import pytest

import unistream as us
from tests.bounded_pipeline import check_results, pipeline, write_rows
from tests.eventually import WAIT_S
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytest.importorskip(
    "pandas", reason="needs pandas, which only `make test-nightly` adds, for these tests alone"
)


@pytest.mark.spark
def test_the_result_is_the_same(tmp_path: Path) -> None:
    write_rows(tmp_path)
    env = us.Environment({"parallelism.default": "2"})
    pipeline(env, tmp_path)
    graph, code = env.job_graph("bounded")
    config = Configuration({"spark.master": "local[2]"})
    with EmbeddedCluster("spark", config, workdir=tmp_path / "work", rest=False) as cluster:
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=env.config.to_dict()))
        assert job.wait(WAIT_S).state == "FINISHED"
    check_results(tmp_path)
