"""A Delta table whose rows are replaced by key: kills around the merge, and keys that are deleted again."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end
from tests.support.servers.kafka_tools import produce_values
from unistream.testing.devtools.kafka_tools import create_topic

OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}
BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}


class Seen(us.KeyedProcessFunction):
    """Each row changes the count of its key; every second one says that the key is gone."""

    count = us.ValueStateDescriptor("count", pa.int64())

    def process_element(self, row: Any, context: us.ProcessContext, out: us.Collector) -> None:
        count = context.state(self.count)
        count.update((count.value() or 0) + 1)
        out.emit({"key": row["key"], "seen": count.value(), "odd": count.value() % 2 == 1})


def counted(env: us.Environment, lake: Path, rows_per_second: int | None = 16_000) -> None:
    rows = rows_of(env, rows_per_second)
    rows.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")
    columns = {"key": pa.int64(), "seen": pa.int64(), "odd": pa.bool_()}
    seen = rows.key_by("key").process(Seen(), returns=columns).uid("seen")
    table = us.DeltaSink(str(lake / "keys"), mode="upsert", key="key", delete_when=us.col("odd"))
    seen.sink_to(table).uid("keys")


def check(lake: Path) -> None:
    counts = Counter(DeltaTable(str(lake / "rows")).to_pyarrow_table()["key"].to_pylist())
    assert sum(counts.values()) == ROWS
    keys = DeltaTable(str(lake / "keys")).to_pyarrow_table().to_pylist()
    assert sorted((one["key"], one["seen"]) for one in keys) == sorted(
        (key, count) for key, count in counts.items() if count % 2 == 0
    )


KILLS = {
    "before the merge": ("delta.before_append:3",),
    "behind the merge": ("delta.appended:4",),
    "while it is repeated": ("committer.before_commit:3", "restore.before_commit", "restore.committed"),
    "with rows staged": ("delta.staged:5",),
}


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 1))
def test_each_key_has_its_last_row(tmp_path: Path, crashes: Crashes, what: str) -> None:
    crashes.arm(*KILLS[what])
    run_to_end(tmp_path, crashes, counted, OFTEN)
    check(tmp_path / "lake")


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_in_batch_it_is_one_merge(tmp_path: Path, target: str) -> None:
    env = us.Environment(BATCH, target=target)
    counted(env, tmp_path / "lake", None)
    result = env.execute("batch")
    check(tmp_path / "lake")
    assert result.sinks["keys"].rows == ROWS


@pytest.mark.kafka
def test_a_table_is_the_copy_of_another_by_its_changes(tmp_path: Path, kafka: str) -> None:
    """Created, changed, deleted, created again; the changes of a row are in one partition, as Debezium writes
    them."""
    topic = f"changes-{uuid.uuid4().hex[:8]}"
    create_topic(kafka, topic, partitions=2)
    image: dict[int, str] = {}
    values, partitions = [], []
    for step in range(2_000):
        id, name = (step * 7) % 300, f"name {step}"
        op = "d" if id in image and step % 3 == 0 else "u" if id in image else "c"
        row = {"id": id, "name": name}
        before = {"id": id, "name": image[id]} if id in image else None
        change = {"before": before, "after": None if op == "d" else row, "op": op, "ts_ms": step}
        values.append(json.dumps(change).encode())
        partitions.append(id % 2)
        if op == "d":
            del image[id]
        else:
            image[id] = name
    produce_values(kafka, topic, values, partitions=partitions)
    env = us.Environment({**OFTEN, "parallelism.default": "2"}, target="local")
    changes = us.KafkaSource(
        bootstrap_servers=kafka,
        topic=topic,
        format="debezium-json",
        schema=pa.schema([("id", pa.int64()), ("name", pa.string())]),
        metadata={"op": "op"},
        bounded=True,
    )
    rows = env.from_source(changes, us.WatermarkStrategy.no_watermarks(), "changes").uid("changes")
    copy = us.DeltaSink(str(tmp_path / "copy"), mode="upsert", key="id", delete_when=us.col("op") == "d")
    rows.sink_to(copy).uid("copy")
    assert env.execute("copy").state == "FINISHED"
    found = DeltaTable(str(tmp_path / "copy")).to_pyarrow_table().to_pylist()
    assert {one["id"]: one["name"] for one in found} == image
    assert len(found) == len(image) > 100
