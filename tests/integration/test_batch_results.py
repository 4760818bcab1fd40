"""A bounded job counts every row, in whatever order rows come, with the same operators as a stream."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from unistream.base.ids import TaskManagerId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.client.remote.job_client import JobResult
from unistream.connector.collect import CollectSink, read_collected
from unistream.model.job_info import JobInfo
from unistream.testing.mini_cluster import MiniCluster

ROWS = 30_000
KEYS = 200
BATCH = {"execution.runtime-mode": "BATCH", "pipeline.auto-watermark-interval": "1 ms"}
TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")


def rows() -> pa.Table:
    """In no order at all."""
    random = np.random.default_rng(7)
    return pa.table(
        {
            "n": np.arange(ROWS),
            "at": random.integers(0, 3_600_000, ROWS),
            "key": random.integers(0, KEYS, ROWS) ** 2 % KEYS,
        }
    )


def run(folder: Path, build: Any, parallelism: int, **config: str) -> tuple[JobResult, list[dict[str, Any]]]:
    (folder / "in").mkdir()
    for number in range(3):
        pq.write_table(rows().slice(number * ROWS // 3, ROWS // 3), folder / f"in/{number}.parquet")
    env = us.Environment({**BATCH, "parallelism.default": str(parallelism), **config})
    stream = env.from_source(us.FileSource(str(folder / "in")), TIMES, "files").uid("files")
    build(stream).sink_to(CollectSink(str(folder / "out"))).uid("out")
    graph, code = env.job_graph("bounded")
    with MiniCluster(task_managers=2, slots=2) as cluster:
        job = cluster.submit(graph, code)
        result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert result.late_rows == {}
    return result, read_collected(str(folder / "out")).to_pylist()


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("sliding", [False, True])
def test_windows(sliding: bool, parallelism: int, tmp_path: Path) -> None:
    size, slide = 600_000, 200_000 if sliding else 600_000
    window = us.SlidingEventTimeWindows.of(size, slide) if sliding else us.TumblingEventTimeWindows.of(size)

    def count(stream: us.DataStream) -> us.DataStream:
        return stream.key_by("key").window(window).aggregate(rows=us.count(), least=us.min("n")).uid("count")

    _, found = run(tmp_path, count, parallelism)
    truth: Counter[tuple[int, int]] = Counter()
    for row in rows().to_pylist():
        first = row["at"] // slide * slide
        for start in range(first, first - size, -slide):
            truth[row["key"], start] += 1
    counted = {(row["key"], int(row["window_start"].timestamp() * 1000)): row["rows"] for row in found}
    assert len(counted) == len(found)
    assert counted == truth


class Sequence(us.KeyedProcessFunction):
    """Numbers the rows of a key in the order of time; its timers say how many there were."""

    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        assert context.current_watermark() == MIN_WATERMARK
        seen = context.state(self.seen)
        number = (seen.value() or 0) + 1
        seen.update(number)
        if number == 1:
            context.register_processing_time_timer(5)
            context.register_event_time_timer(row["at"] + 10_000_000)
            context.register_event_time_timer(row["at"])
        out.emit({"key": row["key"], "at": row["at"], "number": number, "what": "row"})

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        assert context.current_watermark() == MAX_WATERMARK
        seen = context.state(self.seen).value()
        out.emit({"key": context.key, "at": timestamp, "number": seen, "what": context.time_domain})


SEQUENCE = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("number", pa.int64()), ("what", pa.string())])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_state_and_timers_of_a_function(parallelism: int, tmp_path: Path) -> None:
    """Rows in the order of time, then the timers of each key in their order, with all rows behind them."""
    _, found = run(
        tmp_path, lambda s: s.key_by("key").process(Sequence(), returns=SEQUENCE).uid("numbers"), parallelism
    )
    by_key: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        by_key[row["key"]].append(row)
    times: dict[int, list[int]] = defaultdict(list)
    for row in rows().to_pylist():
        times[row["key"]].append(row["at"])
    assert by_key.keys() == times.keys()
    for key, at in times.items():
        at.sort()
        of_rows = [row for row in by_key[key] if row["what"] == "row"]
        assert [(row["at"], row["number"]) for row in of_rows] == list(
            zip(at, range(1, len(at) + 1), strict=True)
        )
        timers = [(row["what"], row["at"], row["number"]) for row in by_key[key] if row["what"] != "row"]
        assert timers == [
            ("event", at[0], len(at)),
            ("event", at[0] + 10_000_000, len(at)),
            ("processing", 5, len(at)),
        ]


class Slowly(us.KeyedProcessFunction):
    """Counts the rows of a key, slowly enough that a worker can be killed meanwhile."""

    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        time.sleep(0.000_5)
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)
        context.register_event_time_timer(0)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"key": context.key, "rows": context.state(self.seen).value()})


def test_a_lost_worker_costs_no_row_without_any_restart_strategy(tmp_path: Path) -> None:
    """Of the stage that counts; what the stage before it has stored on that worker is made again."""
    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in/0.parquet")
    env = us.Environment({"parallelism.default": "2", "heartbeat.interval": "100 ms"})
    stream = env.from_source(us.FileSource(str(tmp_path / "in")), TIMES, "files").uid("files")
    counts = stream.key_by("key").process(Slowly(), returns={"key": pa.int64(), "rows": pa.int64()})
    counts.uid("counts").name("counts").sink_to(CollectSink(str(tmp_path / "out"))).uid("out")
    graph, code = env.job_graph("bounded")
    with MiniCluster(task_managers=2, slots=2) as cluster:
        job = cluster.submit(graph, code)
        eventually(lambda: counting_on(job.status()), "the second stage runs")
        cluster.kill(counting_on(job.status())[0])
        result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert result.restarts > 0
    found = Counter({row["key"]: row["rows"] for row in read_collected(str(tmp_path / "out")).to_pylist()})
    assert found == Counter(rows().column("key").to_pylist())


def counting_on(info: JobInfo) -> list[TaskManagerId]:
    return [
        task.task_manager
        for task in info.subtasks
        if task.vertex_name.startswith("counts") and task.state == "RUNNING" and task.task_manager is not None
    ]


def test_rows_are_collected_again_by_a_job_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not also by the sink of the first time, in a folder that is gone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = us.Environment({"parallelism.default": "1"}, target="local")
    numbers = env.from_source(us.StaticSource(pa.table({"n": [1, 2]})), us.WatermarkStrategy.no_watermarks())
    small = numbers.filter(us.col("n") < 2)
    for _ in range(2):
        assert numbers.execute_and_collect().to_pydict() == {"n": [1, 2]}
        assert small.execute_and_collect().to_pydict() == {"n": [1]}
    assert list(tmp_path.glob("unistream-collect-*")) == []
    graph, _ = env.job_graph("next")
    assert [len(vertex.operators) for vertex in graph.vertices] == [2], "the source and the filter"


def test_a_look_writes_to_no_sink_and_is_not_spoiled_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = us.Environment({"parallelism.default": "1"}, target="local")
    rows = env.from_collection([{"n": n} for n in range(10)])
    rows.sink_to(us.FileSink("out")).uid("out")
    with pytest.raises(us.UserCodeError, match="ZeroDivisionError") as raised:
        rows.map(lambda row: {"n": 1 // row["n"]}, returns={"n": pa.int64()}).execute_and_collect()
    assert str(raised.value).endswith("at row 0 of the batch: {'n': 0}")
    frames = raised.value.__notes__[0].splitlines()
    assert frames[-1] == "ZeroDivisionError: integer division or modulo by zero"
    assert [line.split(",")[0] for line in frames if "File" in line] == [f'  File "{__file__}"']
    assert rows.filter(us.col("n") > 7).take(1).num_rows == 1
    assert not (tmp_path / "out").exists()
    assert env.execute().sinks["out"].rows == 10
    assert rows.filter(us.col("n") > 7).execute_and_collect().num_rows == 2
    assert pq.read_table(tmp_path / "out").num_rows == 10
