"""A stream that a bounded table joins through a stored exchange, with real processes.

Checkpoints begin when the table is read, and behind one of them it is never read again.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import unistream as us
from tests.eventually import WAIT_S
from tests.integration import tapped_rows
from tests.integration.tapped_rows import SliceSink, Tap, committed, times_seen
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

TABLE_ROWS = 20_000
FACT_ROWS = 9_000
CONFIG = {
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "20 s",
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def table_and_facts(cluster: EmbeddedCluster, folder: Path) -> EmbeddedJobClient:
    """Rows -1 … of a table, stored, and rows 0 … of facts go through one function to a sink."""
    env = us.Environment({**STREAMING, "parallelism.default": "2"})

    def numbers(name: str, rows: int, rate: int | None) -> us.DataStream:
        source = us.DatagenSource(
            {"id": us.datagen.Sequential()}, rows=rows, bounded=True, rows_per_second=rate, splits=2
        )
        return env.from_source(source, us.WatermarkStrategy.no_watermarks(), name).uid(name)

    def below_zero(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"id": pc.subtract(-1, batch.column("id"))})

    schema = pa.schema([("id", pa.int64())])
    table = numbers("table", TABLE_ROWS, None).map_batches(below_zero, returns=schema).uid("below")
    stored = table.exchange_mode(us.StreamExchangeMode.BATCH).rebalance()
    facts = numbers("facts", FACT_ROWS, 1_500).rebalance()
    both = stored.union(facts).map_batches(Tap("both", folder / "taps"), returns=schema)
    both.uid("both").name("both").sink_to(SliceSink(folder / "out")).uid("out")
    graph, code = env.job_graph("table and facts")
    artifact = pack(code, by_value=[tapped_rows])
    return cluster.submit(SubmitRequest(graph=graph, artifact=artifact, config=CONFIG))


def attempts(info: JobInfo, name: str) -> set[int]:
    return {task.attempt for task in info.subtasks if name in task.vertex_name}


def test_a_table_that_lies_behind_a_checkpoint_is_not_read_again(tmp_path: Path) -> None:
    with EmbeddedCluster("local", Configuration(CONFIG), workdir=tmp_path / "cluster", rest=False) as cluster:
        job = table_and_facts(cluster, tmp_path)
        info = job.wait_for(lambda i: i.state == "RUNNING" and i.checkpoints_completed >= 2, WAIT_S)
        consumer = next(task for task in info.subtasks if "both" in task.vertex_name)
        victim = next(w.pid for w in info.task_managers if w.id == consumer.task_manager)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        job.wait_for(lambda i: i.restarts == 1 and i.state == "RUNNING", WAIT_S)
        assert job.wait(WAIT_S).state == "FINISHED"
        info = job.status()
    assert attempts(info, "table") == {0}, "the table was read once and for all"
    assert attempts(info, "both") == {1}
    assert committed(tmp_path / "out") == list(range(-TABLE_ROWS, FACT_ROWS))
    seen = times_seen("both", tmp_path / "taps")
    assert {seen[row] for row in range(-TABLE_ROWS, 0)} == {1}
    assert [entry.kind for entry in info.exceptions] == ["TaskManagerLost"]
