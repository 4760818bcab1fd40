"""What functions count is in the status of their job, on both engines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.dagster.run.metadata import job_metadata

ROWS = 1_000


class Parity(us.KeyedProcessFunction):
    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        context.metrics.count("odd" if row["id"] % 2 else "even")


@pytest.mark.parametrize(
    ("target", "mode"),
    [("local", "STREAMING"), ("local", "BATCH"), pytest.param("spark", "BATCH", marks=pytest.mark.spark)],
)
def test_counters_of_all_subtasks_are_added_up(target: str, mode: str) -> None:
    env = us.Environment({"execution.runtime-mode": mode, "parallelism.default": "2"}, target=target)
    table = pa.table({"id": list(range(ROWS)), "key": [i % 7 for i in range(ROWS)]})
    rows = env.from_collection(table, name="rows").uid("rows").key_by("key")
    rows.process(Parity(), returns=table.schema).uid("parity").sink_to(us.BlackholeSink()).uid("sink")
    with env.execute_async("parity") as job:
        assert job.wait().is_success
        info = job.status()
    counted = {name: n for name, n in info.metrics.items() if ".user." in name}
    assert sorted(counted.values()) == [ROWS // 2, ROWS // 2], counted
    assert {name.partition(".user.")[2] for name in counted} == {"odd", "even"}
    in_dagster = job_metadata(info, info.submitted_ms)["unistream/metrics"].data
    assert in_dagster == {name.replace(".user.", ": "): n for name, n in counted.items()}
