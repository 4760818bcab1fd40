"""How long does a commit to a table take, by the files and commits that it has?

    python -m benchmarks.table_commit                      10,000 files in 100 commits, Delta and Iceberg
    python -m benchmarks.table_commit --table iceberg --files 1000 --commits 1000
    python -m benchmarks.table_commit --table delta --group 4       four of them, in a commit group

Fills a table on the local disk (Iceberg: in a SQLite catalog), and makes ten commits of two files each. One
JSON line for each kind of table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
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


def sink_of(table: str, folder: str, name: str = "rows") -> Any:
    import unistream as us

    if table == "delta":
        return us.DeltaSink(f"{folder}/lake/{name}", partition_by="part")
    lake = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake"}
    return us.IcebergSink(f"lake.{name}", catalog_properties=lake, partition_by="part")


def measure_group(sinks: Mapping[str, Any], location: str, commits: int) -> dict[str, Any]:
    """Commits of all members, each with one file, and the record behind them."""
    import pyarrow as pa

    from unistream.base.ids import CheckpointId, LeaderEpoch, OperatorUid
    from unistream.connector.group import GroupSink
    from unistream.model.elements import Batch
    from unistream.port.group import GroupOptions
    from unistream.port.operator import CommitPermit
    from unistream.port.sink import CommitRequest

    group = GroupSink(
        GroupOptions(name="group", location=location), {OperatorUid(uid): sink for uid, sink in sinks.items()}
    )
    where, committer = context(), group.create_committer()
    writers = {uid: sink.create_writer() for uid, sink in sinks.items()}
    for uid, writer in writers.items():
        writer.open(replace(where, sink_uid=OperatorUid(uid)), [])
    committer.open(where)

    def commit(checkpoint: int) -> float:
        id_, payloads = CheckpointId(checkpoint), []
        for uid, writer in writers.items():
            writer.write(Batch(pa.record_batch({"part": pa.array([0]), "n": pa.array([checkpoint])})))
            writer.flush(end_of_input=False)
            payloads += [group.wrapped(OperatorUid(uid), one) for one in writer.prepare_commit(id_)]
        permit = CommitPermit(lineage=where.lineage, checkpoint_id=id_, epoch=LeaderEpoch(1))
        began = time.perf_counter()
        committer.commit(permit, CommitRequest(id_, tuple(payloads)))
        return time.perf_counter() - began

    seconds = sorted(commit(one + 1) for one in range(commits))
    committer.close()
    for writer in writers.values():
        writer.close()
    return {
        "commit_ms_p50": round(1_000 * seconds[len(seconds) // 2]),
        "commit_ms_max": round(1_000 * seconds[-1]),
    }


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
    parser.add_argument("--group", type=int, default=0, help="members of a commit group; 0: no group")
    options = parser.parse_args(arguments)
    for table in options.table or TABLES:
        labels = {
            "benchmark": "table_commit",
            "table": table,
            "files": options.files,
            "commits": options.commits,
        }
        with tempfile.TemporaryDirectory() as folder:
            if options.group:
                sinks = {f"t{one}": sink_of(table, folder, f"t{one}") for one in range(options.group)}
                found = measure_group(sinks, f"{folder}/records", options.commits)
                labels = {"benchmark": "table_commit", "table": table, "group": options.group}
                print(json.dumps({**labels, **found}), flush=True)
                continue
            found = measure(sink_of(table, folder), options.files, options.commits)
            print(json.dumps({**labels, **found}), flush=True)


if __name__ == "__main__":
    main()
