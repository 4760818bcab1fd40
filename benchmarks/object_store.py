"""What does a checkpoint take on an object store? A counting job on the disk and on an S3 server here.

    python -m benchmarks.object_store              10,000 keys, a checkpoint every second
    python -m benchmarks.object_store --sinks      with a file sink and a Delta table on the store

One JSON line for each place: how long a checkpoint takes (median), and the requests of one (all of the job,
divided by its checkpoints), by kind. The server's own time is small: a store further away adds its latency.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import unistream as us
from tests.s3_proxy import S3Proxy
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.submission import SubmitRequest
from unistream.testing.devtools import S3
from unistream.testing.devtools.object_store import make_bucket, options_of
from unistream.testing.devtools.stack import LocalStack
from unistream.worker.code import pack

ROWS = 200_000
PER_SECOND = 20_000
KEYS = 10_000


def run(name: str, root: str, folder: Path, proxy: S3Proxy, *, sinks: bool) -> None:
    config = {
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"{root}/checkpoints",
        **options_of(proxy.address),
    }
    env = us.Environment(config)
    columns = {
        "id": us.datagen.Sequential(),
        "key": us.datagen.RandomInt(0, KEYS),
        "at": us.datagen.EventTime(start_ms=0, step_ms=1, disorder_ms=0),
    }
    source = us.DatagenSource(columns, rows=ROWS, rows_per_second=PER_SECOND, splits=2)
    watermarks = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    rows = env.from_source(source, watermarks, "rows").uid("rows")
    counts = rows.key_by("key").window(us.TumblingEventTimeWindows.of("1 h")).aggregate(n=us.count())
    counts.uid("window").sink_to(us.BlackholeSink()).uid("counts")
    if sinks:
        rows.sink_to(us.FileSink(f"{root}/files")).uid("files")
        rows.sink_to(us.DeltaSink(f"{root}/table")).uid("table")
    graph, code = env.job_graph("object store")
    with EmbeddedCluster("local", Configuration(config), workdir=folder, rest=False) as cluster:
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config=config))
        del proxy.seen[:]
        result = job.wait(120)
        taken = job.checkpoints()
    if result.state != "FINISHED":
        raise SystemExit(f"the job is {result.state}: {result.failure}")
    line = {
        "place": name,
        "sinks": sinks,
        "checkpoints": result.checkpoints,
        "median_ms": taken.summary["duration_ms"].p50,
        "state_bytes": round(taken.summary["state_bytes"].average),
        "requests": {k: round(n / result.checkpoints, 1) for k, n in sorted(proxy.counts().items())},
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sinks", action="store_true")
    sinks = parser.parse_args().sinks
    with tempfile.TemporaryDirectory() as base:
        os.environ["UNISTREAM_HOME"] = f"{base}/home"
        with LocalStack(Path(base, "stack"), [S3]) as stack, S3Proxy(stack.address(S3)) as proxy:
            make_bucket(stack.address(S3), "unistream")
            for name, root in (("disk", f"{base}/disk"), ("s3", "s3://unistream/job")):
                run(name, root, Path(base, name), proxy, sinks=sinks)


if __name__ == "__main__":
    main()
