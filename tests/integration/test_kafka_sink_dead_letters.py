"""Records that are larger than a topic takes become dead letters before they are sent."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.support.servers.kafka_tools import read_committed
from unistream.connector.kafka import KafkaSink
from unistream.model.elements import Batch
from unistream.operator.common import decoded_row
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = pytest.mark.kafka

LIMIT = 2_000


def test_records_of_every_size(kafka: str, topic: str, tmp_path: Path) -> None:
    """The check and the broker agree about each of them, with and without a compression."""
    create_topic(kafka, f"{topic}-small", config={"max.message.bytes": str(LIMIT)})
    name = f"{topic}-small"
    texts = ["x" * size for size in range(1_850, 2_000, 3)] + ["\0" * 300, "\0" * 340, "y" * 5_000]
    env = us.Environment(
        {"parallelism.default": "1", "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri()},
        target="local",
    )
    rows = env.from_collection([{"id": i, "text": text} for i, text in enumerate(texts)])
    target = KafkaSink(bootstrap_servers=kafka, topic=name, key="id", transactional_id_prefix=topic)
    sink = rows.sink_to(target, on_error="dead-letter").uid("records")
    sink.dead_letters_to(us.DeltaSink(str(tmp_path / "refused")))
    result = env.execute("sizes")
    written = sorted(json.loads(value or b"")["id"] for value in read_committed(kafka, name, topic))
    letters = DeltaTable(str(tmp_path / "refused")).to_pyarrow_table().to_pylist()
    refused = sorted(decoded_row(one["row_ipc"]).column("id")[0].as_py() for one in letters)
    assert sorted(written + refused) == list(range(len(texts)))
    assert {len(texts) - 2, len(texts) - 1} <= set(refused)
    assert len(texts) - 3 in written
    assert 10 < len(refused) < 45, "the limit is among the sizes"
    assert result.dead_letters == {f"Kafka: {name} rows": len(refused)}
    assert f"larger than topic '{name}' takes, which are 2,000 (max.message.bytes)" in letters[0]["error"]


def test_a_record_that_fits_when_it_is_compressed(kafka: str, topic: str) -> None:
    create_topic(kafka, f"{topic}-small", config={"max.message.bytes": str(LIMIT)})
    rows = Batch(pa.record_batch({"id": [1], "text": ["x" * 5_000]}))
    for compression, refused in (("none", [0]), ("gzip", [])):
        sink = KafkaSink(bootstrap_servers=kafka, topic=f"{topic}-small", compression=compression)  # type: ignore[arg-type]
        check = sink.create_row_check()
        check.open()
        assert list(check.refused(rows)) == refused
