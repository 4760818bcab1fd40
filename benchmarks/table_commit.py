"""How long does a commit to a table take, by the files and commits that it has?

    python -m benchmarks.table_commit                      10,000 files in 100 commits, Delta and Iceberg
    python -m benchmarks.table_commit --table iceberg --files 1000 --commits 1000

Fills a table on the local disk (Iceberg: in a SQLite catalog), and makes ten commits of two files each. One
JSON line for each kind of table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Final

TABLES: Final = ("delta", "iceberg")
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


def sink_of(table: str, folder: str) -> Any:
    import unistream as us

    if table == "delta":
        return us.DeltaSink(f"{folder}/lake", partition_by="part")
    lake = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake"}
    return us.IcebergSink("lake.rows", catalog_properties=lake, partition_by="part")


def measure(sink: Any, files: int, commits: int) -> dict[str, Any]:
    import pyarrow as pa

    from unistream.base.ids import CheckpointId, LeaderEpoch
    from unistream.model.elements import Batch
    from unistream.port.operator import CommitPermit
    from unistream.port.sink import CommitRequest

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

    filling = [commit(one + 1, files // commits) for one in range(commits)]
    seconds = sorted(commit(commits + one + 1, FILES) for one in range(COMMITS))
    committer.close()
    writer.close()
    return {
        "commit_ms_p50": round(1_000 * seconds[len(seconds) // 2]),
        "commit_ms_max": round(1_000 * seconds[-1]),
        "filling_ms_max": round(1_000 * max(filling)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", choices=TABLES, action="append", help="may be repeated; default: all")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=100)
    options = parser.parse_args(arguments)
    for table in options.table or TABLES:
        labels = {
            "benchmark": "table_commit",
            "table": table,
            "files": options.files,
            "commits": options.commits,
        }
        with tempfile.TemporaryDirectory() as folder:
            found = measure(sink_of(table, folder), options.files, options.commits)
            print(json.dumps({**labels, **found}), flush=True)


if __name__ == "__main__":
    main()
