"""A savepoint that a job has written, read as tables: without us, with us, and after a change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.clock import SystemClock
from unistream.base.config import Configuration
from unistream.core.restore import StateOutcome
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import MapStateDescriptor, ValueStateDescriptor
from unistream.savepoint.inspection import inspection
from unistream.savepoint.plan import plan
from unistream.savepoint.query import query
from unistream.testing.mini_cluster import MiniCluster

KEYS = 50


class Seen(us.KeyedProcessFunction):
    """Counts, counts by parity, and a timer for each key."""

    count = ValueStateDescriptor("count", pa.int64())
    parity = MapStateDescriptor("parity", pa.int64(), key_type=pa.string())

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        count = context.state(self.count)
        count.update((count.value() or 0) + 1)
        parity = context.state(self.parity)
        name = "even" if row["n"] % 2 == 0 else "odd"
        parity.put(name, (parity.get(name) or 0) + 1)
        context.register_event_time_timer(10**15)
        out.emit({"user": row["user"], "n": row["n"]})


def pipeline(results: Path, function: us.KeyedProcessFunction | None = None) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": "2", "pipeline.max-parallelism": "16"})
    columns = {
        "user": us.datagen.RandomInt(0, KEYS),
        "n": us.datagen.Sequential(),
        "at": us.datagen.EventTime(start_ms=0, step_ms=10, disorder_ms=0),
    }
    rows = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=2_000, splits=3)
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    keyed = env.from_source(rows, times, "rows").uid("rows").key_by("user")
    keyed.process(function or Seen(), returns={"user": pa.int64(), "n": pa.int64()}).uid(
        "seen/by user"
    ).sink_to(us.CollectSink(str(results))).uid("out")
    keyed.window(us.TumblingEventTimeWindows.of("1 h")).aggregate(n=us.count()).uid("hours").sink_to(
        us.BlackholeSink()
    ).uid("nowhere")
    return env


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[us.Savepoint]:
    """Of a job that was stopped after some thousand rows."""
    folder = tmp_path_factory.mktemp("job")
    with MiniCluster(task_managers=1, slots=2) as cluster:
        graph, code = pipeline(folder / "rows").job_graph("numbers")
        job = cluster.submit(graph, code, config={"execution.checkpointing.interval": "200 ms"})
        job.wait_for(lambda info: info.metrics.get("records_in", 0) > 4_000, WAIT_S)
        yield us.read_savepoint(job.stop(target=str(folder / "savepoints")))


def test_facts(stopped: us.Savepoint) -> None:
    found = inspection(stopped, SystemClock().wall_ms())
    assert (found.kind, found.can_resume, found.job_name) == ("suspend", True, "numbers")
    assert stopped.kind is SnapshotKind.SUSPEND
    states = {(op.uid, state.name): state for op in found.operators for state in op.states}
    assert states["seen/by user", "count"].kind == "value"
    assert states["seen/by user", "parity"].kind == "map"
    assert states["seen/by user", "__event_timers"].kind == "timers"
    assert states["hours", "window-contents"].kind == "table"
    assert states["seen/by user", "count"].rows == KEYS
    assert {split.uid for split in found.positions} == {"rows"}
    assert len(found.positions) == 3
    assert 0 <= found.age_ms < 10 * WAIT_S * 1000
    newest = max(split.position["index"] for split in found.positions) * 10  # type: ignore[index]
    for uid in ("rows", "seen/by user", "hours", "out"):
        span = stopped.operator(uid).watermark
        assert span is not None, uid
        assert (span.least_ms or 0) <= (span.greatest_ms or 0) <= newest, uid


def test_tables_agree_with_each_other(stopped: us.Savepoint) -> None:
    counts = stopped.table("seen/by user", "count")
    total = sum(counts.column("value").to_pylist())
    parity = 'SELECT sum(value)::BIGINT AS n, count(DISTINCT "user") AS users FROM "seen/by user/parity"'
    assert query(stopped, parity).to_pylist() == [{"n": total, "users": KEYS}]
    timers = stopped.table("seen/by user", "__event_timers")
    assert sorted(timers.column("user").to_pylist()) == sorted(counts.column("user").to_pylist())
    assert set(timers.column("__timestamp").to_pylist()) == {10**15}
    assert counts.column("__key_group").to_pylist() == sorted(counts.column("__key_group").to_pylist())
    assert set(stopped.tables()) == set(stopped.table_names)


def test_files_are_read_by_others_without_us(stopped: us.Savepoint) -> None:
    """One folder for each operator and state; what another reader finds there is the same table."""
    folder = Path(stopped.path) / "seen_x2Fby_x20user" / "count"
    count = ds.dataset(folder, format="ipc")  # noqa: F841  (DuckDB finds it by its name)
    [(rows, total)] = duckdb.sql("SELECT count(*), sum(value)::BIGINT FROM count").fetchall()
    assert rows == KEYS
    assert total == sum(stopped.table("seen/by user", "count").column("value").to_pylist())


def test_the_same_pipeline_is_kept(stopped: us.Savepoint, tmp_path: Path) -> None:
    graph, code = pipeline(tmp_path).job_graph()
    found = plan(stopped, graph, code, Configuration())
    assert not found.is_refused, found
    fates = {(op.uid, state.state): state.outcome for op in found.operators for state in op.states}
    assert set(fates.values()) == {StateOutcome.KEPT}
    assert ("hours", "window-contents") in fates


class Wider(Seen):
    count = ValueStateDescriptor("count", pa.float64())


def test_a_changed_pipeline_is_refused_by_name(stopped: us.Savepoint, tmp_path: Path) -> None:
    graph, code = pipeline(tmp_path, Wider()).job_graph()
    found = plan(stopped, graph, code, Configuration())
    [refused] = [
        state for op in found.operators for state in op.states if state.outcome is StateOutcome.REFUSED
    ]
    assert (refused.state, refused.why) == ("count", "int64 cannot become double")


def test_it_goes_on_after_a_change_of_its_state(stopped: us.Savepoint, tmp_path: Path) -> None:
    """All else (positions, windows, timers) is taken over as it is."""
    table = stopped.table("seen/by user", "count")
    value = table.schema.get_field_index("value")
    changed = table.set_column(value, "value", pa.array([10**9] * table.num_rows, pa.int64()))
    writer = us.SavepointWriter.change(stopped)
    path = writer.with_state("seen/by user", Seen.count, changed, keys=["user"]).write(tmp_path / "changed")
    with MiniCluster(task_managers=1, slots=2) as cluster:
        graph, code = pipeline(Path(stopped.path).parents[1] / "rows").job_graph()
        job = cluster.submit(graph, code, savepoint=path)
        job.wait_for(lambda info: info.metrics.get("records_in", 0) > 500, WAIT_S)
        after = us.read_savepoint(job.stop(target=str(tmp_path / "savepoints")))
    counts = after.table("seen/by user", "count").column("value").to_pylist()
    assert len(counts) == KEYS
    assert min(counts) >= 10**9
    before = {split.split for split in stopped.positions}
    assert {split.split for split in after.positions} == before
    assert after.table("seen/by user", "__event_timers").num_rows == KEYS
