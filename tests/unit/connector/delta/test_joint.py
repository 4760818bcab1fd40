"""An aborted checkpoint that some writers had prepared: no reader of the table sees a gap."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from unistream.base.ids import CheckpointId
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.table import CHECKPOINT_KEY
from unistream.operator.sink import CommitterOperator, SinkWriterOperator
from unistream.testing.harness import OperatorHarness


def test_what_belongs_to_several_checkpoints_of_one_notice_is_one_table_version(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "table"))
    writers = [OperatorHarness(SinkWriterOperator(sink), index=i, parallelism=2).open() for i in range(2)]
    committer = OperatorHarness(CommitterOperator(sink)).open()

    def prepare(writer: int, checkpoint: int) -> None:
        writers[writer].operator.prepare_snapshot_pre_barrier(CheckpointId(checkpoint))
        for batch in writers[writer].batches():
            committer.operator.process_batch(batch, 0)
        writers[writer].clear()

    for writer in range(2):
        writers[writer].process(pa.record_batch({"n": [writer]}))
    prepare(0, 1)  # the other writer hears of the abort before the barrier
    committer.operator.notify_checkpoint_aborted(CheckpointId(1))
    writers[0].process(pa.record_batch({"n": [2]}))
    for writer in range(2):
        prepare(writer, 2)
    committer.complete(2)
    table = DeltaTable(str(tmp_path / "table"))
    versions = [entry for entry in table.history() if CHECKPOINT_KEY in entry]
    assert [entry[CHECKPOINT_KEY] for entry in versions] == ["2"]
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2]
    assert committer.commits == [(1, 1, 1), (2, 2, 1)]
    for harness in (*writers, committer):
        harness.close()
