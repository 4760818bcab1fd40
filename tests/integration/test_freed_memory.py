"""The memory of attempts that a change of parallelism has ended is free for the next ones."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import eventually
from unistream.testing.mini_cluster import MiniCluster

KEYS: Final = 15_000
VALUE_BYTES: Final = 4_000
STATE_BYTES: Final = KEYS * VALUE_BYTES
CONFIG: Final = {
    "parallelism.default": "2",
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "1 h",
}


class Keep(us.KeyedProcessFunction):
    value = us.ValueStateDescriptor("value", pa.binary())

    def process_element(self, row: Any, context: us.KeyedProcessContext, out: us.Collector) -> None:
        state = context.state(self.value)
        if state.value() is None:
            state.update(os.urandom(VALUE_BYTES))
            context.metrics.count("filled")


def pipeline() -> us.Environment:
    """State of every key, and then nothing: its source neither ends nor has more rows."""
    env = us.Environment(CONFIG, target="local")
    keys = us.DatagenSource({"k": us.datagen.Sequential()}, rows=KEYS, splits=2)
    idle = us.DatagenSource(
        {"k": us.datagen.Sequential()}, rows=None, rows_per_second=1, bounded=False, splits=1
    )
    never = us.WatermarkStrategy.no_watermarks()
    rows = env.from_source(keys, never, "keys").uid("keys")
    rows = rows.union(env.from_source(idle, never, "idle").uid("idle"))
    kept = rows.key_by("k").process(Keep(), returns={"k": pa.int64()}).uid("keep")
    kept.sink_to(us.BlackholeSink()).uid("out")
    return env


def held_bytes() -> int:
    """Of this process alone; files that it maps do not count."""
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks Linux, and has glibc's malloc give back")
def test_what_an_attempt_held_is_not_held_besides_that_of_the_next(tmp_path: Path) -> None:
    graph, code = pipeline().job_graph("kept")
    with MiniCluster(slots=2, workdir=tmp_path / "cluster") as cluster:
        job = cluster.submit(graph, code, config=CONFIG)
        eventually(
            lambda: job.status().metrics.get("process Keep.user.filled", 0) >= KEYS, "every key has its value"
        )
        before = held_bytes()
        for parallelism in (
            1,
            2,
        ) * 6:  # what stays each time adds up, what an allocator has in reserve does not
            job.rescale({"keep": parallelism})
            eventually(lambda: job.status().all_tasks_run, "its tasks run again")
        assert held_bytes() - before < 4 * STATE_BYTES  # twice as much with it, eight times without
        job.cancel()
