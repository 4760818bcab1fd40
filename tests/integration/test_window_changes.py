"""A job with open windows is stopped; what its pipeline may then be changed to, and what is refused, by a
plan and by a restore alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.connector.collect import read_collected
from unistream.core.restore import StateOutcome
from unistream.savepoint.plan import plan
from unistream.testing.mini_cluster import MiniCluster

ROWS = 6_000
KEYS = 10
SLOW = 300.0  # rows/s: 20 s to the end, and it is stopped after a third
FAST = 1e6
CONFIG = {
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "10 ms",
}
OTHER_KEY = "column 'user': a key of int64 cannot become string: it would belong to another key group"


def as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index("user")
    return batch.set_column(place, "user", batch.column(place).cast(pa.string()))


def pipeline(
    out: Path,
    *,
    size: str = "10 s",
    rate: float = FAST,
    user: str = "int64",
    n: str = "int32",
    undeclared: bool = False,
    uid: str = "windows",
) -> us.Environment:
    """Counts and highest numbers by user, in windows of 1,000 rows if they are of 10 s."""
    env = us.Environment({**STREAMING, "parallelism.default": "2", "pipeline.max-parallelism": "16"})
    columns = {
        "user": us.datagen.RandomInt(0, KEYS),
        "n": us.datagen.Sequential(),
        "at": us.datagen.EventTime(start_ms=0, step_ms=10, disorder_ms=0),
    }
    source = us.DatagenSource(columns, rows=ROWS, rows_per_second=rate, splits=2)
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    rows = env.from_source(source, times, "rows").uid("rows")
    rows = rows.select(
        "at", user=us.col("user").cast(pa.type_for_alias(user)), n=us.col("n").cast(pa.type_for_alias(n))
    )
    if undeclared:
        rows = rows.map_batches(as_text)
    windows = rows.key_by("user").window(us.TumblingEventTimeWindows.of(size))
    counts = windows.aggregate(count=us.count(), highest=us.max("n")).uid(uid)
    counts.sink_to(us.CollectSink(str(out))).uid(f"to {out.name}")
    return env


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_managers=1, slots=2) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("windows")


def stop_early(cluster: MiniCluster, folder: Path, out: str, *, drain: bool = False) -> str:
    """The savepoint to go on from."""
    job = cluster.submit(*pipeline(folder / out, rate=SLOW).job_graph("windows"), config=CONFIG)
    job.wait_for(lambda info: info.metrics.get("records_in", 0) > ROWS // 3, WAIT_S)
    job.stop(drain=drain, target=str(folder / "savepoints"))
    savepoint = job.wait(WAIT_S).resumable_savepoint
    assert savepoint is not None
    return savepoint


@pytest.fixture(scope="module")
def stopped(cluster: MiniCluster, folder: Path) -> str:
    return stop_early(cluster, folder, "first")


def outcome(savepoint: str, env: us.Environment) -> tuple[StateOutcome, str]:
    """Of the contents of its windows."""
    found = plan(us.read_savepoint(savepoint), *env.job_graph(), Configuration(), allow_non_restored=True)
    states = {(op.uid, one.state): one for op in found.operators for one in op.states}
    contents = states["windows", "window-contents"]
    return contents.outcome, contents.why


def collected(*outs: Path) -> list[tuple[int, int]]:
    """(count, highest) of all windows that were ever written."""
    tables = [read_collected(str(out)) for out in outs]
    rows = [row for table in tables for row in table.to_pylist()]
    return [(row["count"], row["highest"]) for row in rows]


@dataclass(frozen=True)
class Change:
    """Arguments of `pipeline`, what a plan says, and why."""

    to: dict[str, Any]
    planned: StateOutcome
    why: str


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            Change(
                {"size": "20 s"},
                StateOutcome.REFUSED,
                "it was made by tumbling windows of 10000 ms, and the pipeline now has tumbling windows of "
                "20000 ms; go back to the former, or give the operator another uid",
            ),
            id="other windows",
        ),
        pytest.param(Change({"user": "string"}, StateOutcome.REFUSED, OTHER_KEY), id="another key"),
        pytest.param(
            Change({"undeclared": True}, StateOutcome.UNKNOWN, OTHER_KEY), id="one that is not declared"
        ),
        pytest.param(
            Change({"n": "int16"}, StateOutcome.REFUSED, "column 'max(n)': int32 cannot become int16"),
            id="a narrower column",
        ),
    ],
)
def test_a_change_that_does_not_fit_is_refused_once(
    cluster: MiniCluster, folder: Path, stopped: str, change: Change
) -> None:
    env = pipeline(folder / "refused", **change.to)
    found, reported = outcome(stopped, env)
    assert found is change.planned
    assert reported.startswith(change.why) or found is StateOutcome.UNKNOWN
    job = cluster.submit(*env.job_graph("changed"), config=CONFIG, savepoint=stopped, allow_non_restored=True)
    result = job.wait(WAIT_S)
    assert (result.state, result.restarts) == ("FAILED", 0)
    assert result.failure is not None
    assert result.failure.kind == "ConfigError"
    assert f"state 'window-contents': {change.why}" in result.failure.message


@pytest.mark.parametrize(
    ("n", "planned"),
    [
        pytest.param("int32", (StateOutcome.KEPT, ""), id="unchanged"),
        pytest.param(
            "int64", (StateOutcome.MIGRATED, "column 'max(n)': int32 to int64"), id="a wider column"
        ),
    ],
)
def test_open_windows_go_on(
    cluster: MiniCluster, folder: Path, stopped: str, n: str, planned: tuple[StateOutcome, str]
) -> None:
    env = pipeline(folder / f"on with {n}", n=n)
    assert outcome(stopped, env) == planned
    job = cluster.submit(*env.job_graph("on"), config=CONFIG, savepoint=stopped, allow_non_restored=True)
    assert job.wait(WAIT_S).state == "FINISHED"
    found = collected(folder / "first", folder / f"on with {n}")
    assert len(found) == KEYS * (ROWS // 1_000)  # each window once
    assert sum(count for count, _ in found) == ROWS
    assert max(highest for _, highest in found) == ROWS - 1


def test_after_a_drain_other_windows_begin_under_another_uid(cluster: MiniCluster, folder: Path) -> None:
    """What the refusal advises: what was open has fired, and every row is counted once."""
    savepoint = stop_early(cluster, folder, "drained", drain=True)
    env = pipeline(folder / "longer", size="20 s", uid="longer windows")
    job = cluster.submit(
        *env.job_graph("longer"), config=CONFIG, savepoint=savepoint, allow_non_restored=True
    )
    assert job.wait(WAIT_S).state == "FINISHED"
    found = collected(folder / "drained", folder / "longer")
    assert sum(count for count, _ in found) == ROWS
