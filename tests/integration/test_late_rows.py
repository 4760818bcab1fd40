"""Rows that come behind the watermark and are dropped: everybody who looks at the job hears of them."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from tests.asking import as_owner
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.cli.main import main
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.connector.collect import CollectSink, read_collected
from unistream.dagster.run.metadata import job_metadata
from unistream.model.submission import SubmitRequest
from unistream.testing.mini_cluster import DEFAULTS, MiniCluster, ThreadHost
from unistream.worker.code import pack

HOUR_MS = 3_600_000
TICKS = {**STREAMING, "pipeline.auto-watermark-interval": "1 ms", "heartbeat.interval": "100 ms"}


def one_in_three_is_late(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Row n is of hour n, but each third is of the first millisecond."""
    n = batch.column("n")
    late = pa.array([number % 3 == 2 for number in n.to_pylist()])
    at = pc.if_else(late, 0, pc.multiply(n, HOUR_MS))
    return pa.RecordBatch.from_arrays([n, at], names=["n", "at"])


def pipeline(env: us.Environment, rows: int | None = None) -> None:
    source = us.DatagenSource(
        {"n": us.datagen.Sequential()}, rows=rows, rows_per_second=300, bounded=rows is not None
    )
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    (
        env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        .uid("numbers")
        .map_batches(one_in_three_is_late, returns=pa.schema([("n", pa.int64()), ("at", pa.int64())]))
        .assign_timestamps_and_watermarks(times)
        .key_by("n")
        .window(us.TumblingEventTimeWindows.of("1 h"))
        .aggregate(rows=us.count())
        .uid("per hour")
        .name("per hour, of all")
        .sink_to(us.BlackholeSink())
        .uid("out")
    )


def bounded(env: us.Environment) -> None:
    pipeline(env, rows=300)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    config = Configuration({**DEFAULTS, **TICKS})
    with EmbeddedCluster("mini", config, create_host=ThreadHost, max_workers=1) as cluster:
        yield cluster


def start(cluster: EmbeddedCluster) -> EmbeddedJobClient:
    env = us.Environment(TICKS)
    pipeline(env)
    graph, code = env.job_graph("hours")
    return cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), request_id=uuid.uuid4().hex))


def a_day_earlier(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "at", pc.subtract(batch.column("at"), 24 * HOUR_MS))


def test_times_assigned_anew_are_not_late_by_the_old_ones(tmp_path: Path) -> None:
    rows = 300
    source = us.DatagenSource(
        {"n": us.datagen.Sequential(), "at": us.datagen.Sequential()}, rows=rows, rows_per_second=rows
    )
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    env = us.Environment(TICKS)
    stream = env.from_source(source, times, "numbers").uid("numbers")
    (
        stream.map_batches(a_day_earlier, returns=stream.schema)
        .assign_timestamps_and_watermarks(times)
        .key_by("n")
        .window(us.TumblingEventTimeWindows.of("10 ms"))
        .aggregate(rows=us.count())
        .sink_to(CollectSink(str(tmp_path)))
        .uid("out")
    )
    graph, code = env.job_graph("days")
    with MiniCluster(task_managers=1, slots=1) as cluster:
        result = cluster.submit(graph, code).wait(WAIT_S)
    assert (result.state, result.late_rows) == ("FINISHED", {})
    assert sum(row["rows"] for row in read_collected(str(tmp_path)).to_pylist()) == rows


def test_a_running_job_says_them_by_operator(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    job = start(cluster)
    with caplog.at_level(logging.WARNING, logger="unistream.master"):
        info = job.wait_for(lambda info: sum(info.late_rows.values()) > 2, WAIT_S)
    assert info.late_rows.keys() == {"per hour, of all"}
    warned = [r.getMessage() for r in caplog.records if "late_rows_dropped" in r.getMessage()]
    assert len(warned) == 1
    assert "operator='per hour, of all'" in warned[0]
    metadata = job_metadata(info, info.submitted_ms)
    assert metadata["unistream/late_rows"] == info.late_rows["per hour, of all"]
    assert metadata["unistream/late_rows_by_operator"].data == info.late_rows
    assert main(["info", "hours"]) == 0
    assert "per hour, of all: " in (shown := capsys.readouterr().out)
    assert " late rows dropped" in shown
    [vertex] = {
        s.vertex for s in info.subtasks if s.metrics.user.get("per hour, of all.numLateRecordsDropped")
    }
    url = f"{cluster.rest_url}/jobs/{job.job_id}/vertices/{vertex}"
    with httpx.Client(base_url=url, headers=as_owner(url)) as rest:
        name = "per_hour__of_all.numLateRecordsDropped"
        assert {"id": f"0.{name}"} in rest.get("/metrics").json()
        [one] = rest.get("/metrics", params={"get": f"0.{name},0.unknown"}).json()
        assert (one["id"], int(one["value"]) > 2) == (f"0.{name}", True)
        assert {"id": name} in rest.get("/subtasks/metrics").json()
        [all_] = rest.get("/subtasks/metrics", params={"get": name}).json()
        assert all_["sum"] == all_["max"] > 2
    job.stop(drain=True)
    assert job.result().late_rows["per hour, of all"] >= info.late_rows["per hour, of all"]


def test_metrics_of_an_unknown_vertex_are_none(cluster: EmbeddedCluster) -> None:
    job = start(cluster)
    url = str(cluster.rest_url)
    with httpx.Client(base_url=url, headers=as_owner(url)) as rest:
        assert rest.get(f"/jobs/{job.job_id}/vertices/{'0' * 32}/metrics").json() == []
        assert rest.get(f"/jobs/{'0' * 32}/vertices/{'0' * 32}/metrics").status_code == 404


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "for programs"])
def test_the_end_of_a_run_says_them(
    as_json: bool,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    options = [word for key, value in TICKS.items() for word in ("-D", f"{key}={value}")]
    words = ["run", "test_late_rows:bounded", "-t", "local", *options]
    assert main([*words, "--json"] if as_json else words) == 0
    out, _ = capfd.readouterr()
    if as_json:
        assert json.loads(out)["late_rows"]["per hour, of all"] > 2
    else:
        assert "per hour, of all: " in out
        assert " late rows dropped" in out
    assert len([r for r in caplog.records if "event=late_rows_dropped" in r.getMessage()]) == 1
