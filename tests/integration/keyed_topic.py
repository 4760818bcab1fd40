"""A topic that is being filled, and the job that counts its rows by key into a Delta table.

Workers get this module by value, since they cannot import it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

import unistream as us
from tests.integration import copied_topic
from tests.integration.copied_topic import JOB, SCHEMA, Counting, Flow
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

KEYS = 20
OUT = {"i": pa.int64(), "name": pa.string(), "key": pa.int64(), "count": pa.int64()}


class CountedRow(us.KeyedProcessFunction):
    """Each row, with how many of its key there have been."""

    def open(self, context: us.ProcessContext) -> None:
        self.count = context.state("count", pa.int64())

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        self.count.update((self.count.value() or 0) + 1)
        out.emit({**row, "count": self.count.value()})


class KeyedFlow(Flow):
    """As `Flow`, of a job with keyed state, whose rows go from each worker to each."""

    def request(self, request_id: str = "once", **config: str) -> SubmitRequest:
        values = {**JOB, **{key.replace("_", "."): value for key, value in config.items()}}
        env = us.Environment(values)
        source = us.KafkaSource(bootstrap_servers=self._kafka, topic=self._topic, schema=SCHEMA)
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "topic").uid("topic")
        passed = rows.map_batches(Counting(self.counts), returns=SCHEMA).uid("passed")
        keyed = passed.with_columns(key=us.col("i") % KEYS).uid("keyed").key_by("key")
        counted = keyed.process(CountedRow(), returns=OUT).uid("counted")
        counted.sink_to(us.DeltaSink(str(self.table))).uid("table")
        graph, code = env.job_graph("counted")
        artifact = pack(code, by_value=[sys.modules[__name__], copied_topic])
        return SubmitRequest(graph=graph, artifact=artifact, config=values, request_id=request_id)

    def assert_exact(self) -> None:
        super().assert_exact()
        counts = defaultdict[int, list[int]](list)
        for row in DeltaTable(str(self.table)).to_pyarrow_table(columns=["key", "count"]).to_pylist():
            counts[row["key"]].append(row["count"])
        assert len(counts) == KEYS
        assert all(sorted(found) == list(range(1, len(found) + 1)) for found in counts.values())
