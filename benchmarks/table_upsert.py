"""How long does it take to commit rows that replace others by key, by the files that have the keys?

    python -m benchmarks.table_upsert                     a million rows in 20 files, Delta and Iceberg
    python -m benchmarks.table_upsert --table iceberg --rows 10000000 --keys 100000

Fills a table on the local disk (Iceberg: in a SQLite catalog) with rows of some 100 bytes, in files of
ascending ids, and makes five commits each of two kinds: the keys are next to each other ("together"), or
anywhere in the table ("spread"). One JSON line for each kind of table and of keys.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.table_commit import TABLES, context

COMMITS: Final = 5
FILES: Final = 20
PAYLOAD: Final = "x" * 80


def sink_of(table: str, folder: str) -> Any:
    import unistream as us

    if table == "delta":
        return us.DeltaSink(f"{folder}/lake/rows", mode="upsert", key="id")
    lake = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake"}
    return us.IcebergSink("lake.rows", catalog_properties=lake, mode="upsert", key="id")


class Writing:
    """One sink: rows in, seconds of their commit out."""

    def __init__(self, sink: Any) -> None:
        self._writer, self._committer = sink.create_writer(), sink.create_committer()
        self._last = 0
        self._writer.open(context(), [])
        self._committer.open(context())

    def commit(self, ids: Sequence[int]) -> float:
        import pyarrow as pa

        from unistream.base.ids import CheckpointId, LeaderEpoch
        from unistream.model.elements import Batch
        from unistream.port.operator import CommitPermit
        from unistream.port.sink import CommitRequest

        self._last += 1
        id_ = CheckpointId(self._last)
        columns = {
            "id": pa.array(ids, pa.int64()),
            "n": pa.array([self._last] * len(ids), pa.int64()),
            "payload": pa.array([f"{one}{PAYLOAD}" for one in ids]),
        }
        self._writer.write(Batch(pa.record_batch(columns)))
        self._writer.flush(end_of_input=False)
        request = CommitRequest(id_, tuple(self._writer.prepare_commit(id_)))
        permit = CommitPermit(lineage=context().lineage, checkpoint_id=id_, epoch=LeaderEpoch(1))
        began = time.perf_counter()
        self._committer.commit(permit, request)
        return time.perf_counter() - began

    def close(self) -> None:
        self._committer.close()
        self._writer.close()


def measure(sink: Any, rows: int, keys: int) -> dict[str, dict[str, Any]]:
    """By kind of keys."""
    writing, chance = Writing(sink), random.Random(7)
    each = rows // FILES
    for first in range(0, rows, each):
        writing.commit(range(first, first + each))
    filled = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {}
    for kind in ("together", "spread"):
        seconds = []
        for _ in range(COMMITS):
            first = chance.randrange(rows - keys)
            ids = range(first, first + keys) if kind == "together" else chance.sample(range(rows), keys)
            seconds.append(writing.commit(ids))
        seconds.sort()
        found[kind] = {
            "commit_ms_p50": round(1_000 * seconds[COMMITS // 2]),
            "commit_ms_max": round(1_000 * seconds[-1]),
            "more_memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - filled) // 1024,
        }
    writing.close()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", choices=TABLES, action="append", help="may be repeated; default: all")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    options = parser.parse_args(arguments)
    for table in options.table or TABLES:
        with tempfile.TemporaryDirectory() as folder:
            for kind, found in measure(sink_of(table, folder), options.rows, options.keys).items():
                labels = {"benchmark": "table_upsert", "table": table, "rows": options.rows}
                print(json.dumps({**labels, "keys": options.keys, "kind": kind, **found}), flush=True)


if __name__ == "__main__":
    main()
