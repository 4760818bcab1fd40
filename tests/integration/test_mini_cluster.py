"""A MiniCluster takes what a user has: an environment, or a job graph and its code."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.eventually import WAIT_S
from unistream.base.errors import ConfigError
from unistream.testing import MiniCluster


def pipeline(folder: Path) -> us.Environment:
    env = us.Environment({"execution.runtime-mode": "BATCH"}, target="local")
    numbers = us.StaticSource(pa.table({"n": [1, 2, 3]}))
    stream = env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream.sink_to(us.FileSink(str(folder))).uid("files")
    return env


def rows_of(folder: Path) -> list[int]:
    return sorted(pa.concat_tables(map(pq.read_table, folder.glob("*.parquet")))["n"].to_pylist())


def test_an_environment_is_run_to_its_end_and_a_graph_is_started(tmp_path: Path) -> None:
    with MiniCluster(task_managers=1, slots=2) as cluster:
        result = cluster.execute(pipeline(tmp_path / "run"), "numbers")
        assert (result.state, rows_of(tmp_path / "run")) == ("FINISHED", [1, 2, 3])
        env = pipeline(tmp_path / "started")
        graph, code = env.job_graph("numbers")
        started = cluster.execute(graph, code, config=env.config.to_dict())
        assert started.wait(WAIT_S).state == "FINISHED"
        assert rows_of(tmp_path / "started") == [1, 2, 3]


def test_anything_else_is_refused_with_what_to_write(tmp_path: Path) -> None:
    graph, _ = pipeline(tmp_path).job_graph("numbers")
    with MiniCluster(task_managers=1, slots=1) as cluster:
        with pytest.raises(ConfigError, match=r"execute\(\*env.job_graph\('name'\)\)"):
            cluster.execute(graph)  # type: ignore[call-overload]
        with pytest.raises(ConfigError, match="takes an Environment, or a job graph and its code"):
            cluster.execute((graph,), b"")  # type: ignore[call-overload]
