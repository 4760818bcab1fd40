"""AT_LEAST_ONCE on real processes: no input waits at its barrier, a worker is killed, nothing is lost, and
twice comes only what had overtaken a barrier.

    fast ──────────────┐
    slow ─ rebalance ─ slow batches ─┴ union ─ key_by ─ Numbered ─ Delta "rows"

`Numbered` counts the rows of each key in its state and writes the number into each row: state and table are
of one piece, so a key's numbers are 1, 2, 3, … without a gap, whatever came twice.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

import unistream as us
from tests.integration import slow_batches
from tests.integration.crash_runs import RECOVERING, WAIT_S, submit
from tests.integration.slow_batches import Slow
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.connector.delta.table import CHECKPOINT_KEY
from unistream.model.job_info import JobInfo
from unistream.savepoint.contents import SplitPosition

FAST_RATE = 6_000  # rows/s
SLOW_RATE = 1_000
SLOW_BATCH_S = 0.03  # more of them come than it can take: its barriers are late
SPLITS = 2
SLOW_FROM = 1_000_000  # ids of the slow input
KEYS = 20
CONFIG = {
    **RECOVERING,
    "execution.checkpointing.mode": "AT_LEAST_ONCE",
    "execution.checkpointing.interval": "300 ms",
    "execution.checkpointing.num-retained": "100",
}


class Numbered(us.KeyedProcessFunction):
    """How manieth row of its key each row is."""

    count = us.ValueStateDescriptor("count", pa.int64())

    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        count = context.state(self.count)
        number = (count.value() or 0) + 1
        count.update(number)
        out.emit({"id": row["id"], "key": row["key"], "number": number})


def source(start: int, rate: int) -> us.DatagenSource:
    columns = {"id": us.datagen.Sequential(start), "key": us.datagen.RandomInt(0, KEYS)}
    return us.DatagenSource(
        columns, rows=None, bounded=False, rows_per_second=rate, splits=SPLITS, seed=start
    )


def pipeline(lake: Path) -> us.Environment:
    env = us.Environment({**STREAMING, "parallelism.default": "2"})
    never = us.WatermarkStrategy.no_watermarks()
    fast = env.from_source(source(0, FAST_RATE), never, "fast").uid("fast")
    slow = env.from_source(source(SLOW_FROM, SLOW_RATE), never, "slow").uid("slow")
    slow = slow.rebalance().map_batches(Slow(SLOW_BATCH_S)).uid("slowly")
    returns = {"id": pa.int64(), "key": pa.int64(), "number": pa.int64()}
    numbered = fast.union(slow).key_by("key").process(Numbered(), returns=returns).uid("numbered")
    numbered.sink_to(us.DeltaSink(str(lake))).uid("table")
    return env


def read_before(positions: list[SplitPosition]) -> set[int]:
    """Ids that the sources had read when they sent their barriers."""
    ids: set[int] = set()
    assert len(positions) == 2 * SPLITS
    for one in positions:
        assert isinstance(one.position, dict)
        start, index = SLOW_FROM if one.uid == "slow" else 0, one.position["index"]
        ids.update(range(start + index % SPLITS, start + index, SPLITS))
    return ids


def rows_until(lake: Path, checkpoint_id: int) -> pa.Table:
    """The table after the commit of that checkpoint."""
    versions = [
        one["version"]
        for one in DeltaTable(str(lake)).history()
        if CHECKPOINT_KEY in one and int(one[CHECKPOINT_KEY]) <= checkpoint_id
    ]
    return DeltaTable(str(lake), version=max(versions)).to_pyarrow_table()


def read_at(info: JobInfo) -> set[int]:
    """Ids that had been read when the newest checkpoint was taken: all that a killed worker had sent on come
    again, sooner or later."""
    assert info.latest_checkpoint is not None
    return read_before(us.read_savepoint(info.latest_checkpoint).positions)


def test_a_kill_loses_nothing_and_doubles_only_what_had_overtaken_a_barrier(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    often = Configuration({"heartbeat.interval": "200 ms"})
    with EmbeddedCluster("local", often, workdir=tmp_path / "work", rest=False) as cluster:
        job = submit(cluster, pipeline(lake), CONFIG, by_value=[sys.modules[__name__], slow_batches])
        info = job.wait_for(lambda i: i.checkpoints_completed >= 2, WAIT_S)
        pid = info.task_managers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        job.wait_for(lambda i: i.restarts == 1 and i.state == "RUNNING", WAIT_S)
        restored = job.checkpoints().latest_restored
        assert restored is not None
        before = read_before(us.read_savepoint(restored.path).positions)
        done = job.status().checkpoints_completed
        overtook = set(rows_until(lake, restored.checkpoint_id)["id"].to_pylist())
        job.wait_for(lambda i: i.checkpoints_completed > done and overtook <= read_at(i), WAIT_S)
        savepoint = job.stop(target=str(tmp_path / "savepoints"))
        assert job.wait(WAIT_S).restarts == 1
    rows = DeltaTable(str(lake)).to_pyarrow_table()
    times = Counter(rows["id"].to_pylist())
    assert set(times) == read_before(us.read_savepoint(savepoint).positions), "lost"
    assert set(times.values()) <= {1, 2}
    twice = {id_ for id_, count in times.items() if count == 2}
    assert twice == overtook - before
    assert twice, "nothing had overtaken a barrier: the inputs were too much alike"
    numbers: dict[int, list[int]] = defaultdict(list)
    for key, number in zip(rows["key"].to_pylist(), rows["number"].to_pylist(), strict=True):
        numbers[key].append(number)
    assert len(numbers) == KEYS
    for found in numbers.values():
        assert sorted(found) == list(range(1, len(found) + 1))
