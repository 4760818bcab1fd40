"""How long does a commit to an Iceberg table take, by the files and snapshots that it has?

    python -m benchmarks.iceberg_commit                          10,000 files in 100 snapshots
    python -m benchmarks.iceberg_commit --files 1000 --snapshots 1000

Fills a table on the local disk, in a SQLite catalog, and makes ten commits of two files each. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Final

COMMITS: Final = 10
FILES: Final = 2  # of each of them


def context() -> Any:
    from unistream.base.ids import AttemptId, JobId, LineageId, OperatorUid, VertexId
    from unistream.port.sink import SinkContext
    from unistream.testing.harness.operators import CountingMetrics

    job = JobId("0" * 32)
    return SinkContext(
        job=job,
        lineage=LineageId("benchmark"),
        sink_uid=OperatorUid("table"),
        attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
        index=0,
        parallelism=1,
        restored=None,
        metrics=CountingMetrics(),
    )


def measure(folder: str, files: int, snapshots: int) -> dict[str, Any]:
    import pyarrow as pa

    import unistream as us
    from unistream.base.ids import CheckpointId, LeaderEpoch
    from unistream.model.elements import Batch
    from unistream.port.operator import CommitPermit
    from unistream.port.sink import CommitRequest

    lake = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake"}
    sink = us.IcebergSink("lake.rows", catalog_properties=lake, partition_by="part")
    writer, committer = sink.create_writer(), sink.create_committer()
    assert committer is not None
    where = context()
    writer.open(where, [])
    committer.open(where)

    def commit(checkpoint: int, parts: int) -> float:
        id_ = CheckpointId(checkpoint)
        writer.write(Batch(pa.record_batch({"part": pa.array(range(parts)), "n": pa.array(range(parts))})))
        writer.flush(end_of_input=False)
        request = CommitRequest(id_, tuple(writer.prepare_commit(id_)))
        permit = CommitPermit(lineage=where.lineage, checkpoint_id=id_, epoch=LeaderEpoch(1))
        began = time.perf_counter()
        committer.commit(permit, request)
        return time.perf_counter() - began

    filling = [commit(one + 1, files // snapshots) for one in range(snapshots)]
    seconds = sorted(commit(snapshots + one + 1, FILES) for one in range(COMMITS))
    committer.close()
    writer.close()
    return {
        "commit_ms_p50": round(1_000 * seconds[len(seconds) // 2]),
        "commit_ms_max": round(1_000 * seconds[-1]),
        "filling_ms_max": round(1_000 * max(filling)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--snapshots", type=int, default=100)
    options = parser.parse_args(arguments)
    labels = {"benchmark": "iceberg_commit", "files": options.files, "snapshots": options.snapshots}
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({**labels, **measure(folder, options.files, options.snapshots)}), flush=True)


if __name__ == "__main__":
    main()
