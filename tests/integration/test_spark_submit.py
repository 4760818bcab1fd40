"""Programs that `spark-submit` starts. In deploy mode cluster, on YARN and Kubernetes, the JVM of the driver
starts them in the same way."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.integration.spark_cluster import HOME

pytestmark = pytest.mark.spark

PROGRAM = """
    import sys

    from pyspark import SparkContext

    import unistream as us
    from unistream.base.config import Configuration
    from unistream.client.embedded.embedded_cluster import EmbeddedCluster
    from unistream.model.submission import SubmitRequest
    from unistream.worker.code import pack

    config = {"jobmanager.bind-host": "0.0.0.0", "parallelism.default": "1"}
    env = us.Environment({"execution.runtime-mode": sys.argv[1], **config})
    env.from_collection([{"n": n} for n in range(3)]).sink_to(us.BlackholeSink()).uid("out")
    graph, code = env.job_graph("three")
    with EmbeddedCluster("spark", Configuration(config), rest=False) as cluster:
        context = SparkContext._active_spark_context
        print("SPARK", context.master, context.getConf().get("spark.driver.host"))
        print("JOBMANAGER", cluster.dispatcher.control_address)
        print("NOTES", cluster.dispatcher.notes())
        request = SubmitRequest(graph=graph, artifact=pack(code), config=env.config.to_dict())
        result = cluster.submit(request).wait(600)
        print("ENDED", result.state, result.failure)
"""


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_a_program_has_the_master_and_the_address_that_spark_submit_was_given(
    mode: str, tmp_path: Path
) -> None:
    """Executors reach the JobManager where they reach the driver."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    given = {
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.authenticate": "true",
        "spark.authenticate.secret": "known to both",
    }
    words = [word for key, value in given.items() for word in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [str(HOME / "bin/spark-submit"), "--master", "local-cluster[1,1,1024]", *words, str(program), mode],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "UNISTREAM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.split(" ", 1)[0].isupper())
    assert said["SPARK"] == "local-cluster[1,1,1024] localhost", done.stderr
    assert said["JOBMANAGER"].startswith("grpc+tls://jobmanager@localhost:"), done.stderr
    assert "speak plain text (spark.network.crypto.enabled is off), so others on their" in said["NOTES"]
    assert "spark.authenticate" not in said["NOTES"]
    assert said["ENDED"] == "FINISHED None", done.stderr
