"""Records that cannot be read, from Kafka to a table of their own: each once, like the good ones.

Good and bad records are published in turns while the job runs, so that every checkpoint has some of both.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.crash_runs import Crashes
from tests.support.servers.kafka_tools import produce_values
from unistream.client.remote.rest_client import Poll
from unistream.dagster.sensor.judging import SourceRows, source_rows
from unistream.model.job_info import JobInfo

pytestmark = pytest.mark.kafka

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROUNDS = 6
ROUND_ROWS = 300
START_MS = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BAD = (b"not json", b'{"id": "seven"}', b"[1, 2]", b"\xff\xfe\x00", b'{"id": 1} {"id": 2}', b"null")


def value(i: int) -> bytes:
    """Every third one is bad, in one way or another."""
    if i % 3 == 1:
        return BAD[i // 3 % len(BAD)] + b" " * (i % 5)
    return json.dumps({"id": i, "name": f"n{i}"}).encode()


def publish(kafka: str, topic: str, numbers: range) -> None:
    """Even numbers to partition 0, odd ones to partition 1."""
    produce_values(
        kafka,
        topic,
        [value(i) for i in numbers],
        partitions=[i % 2 for i in numbers],
        timestamps_ms=[START_MS + i for i in numbers],
    )


def start(kafka: str, topic: str, tmp_path: Path, *, short: bool) -> us.JobClient:
    env = us.Environment(
        {
            "parallelism.default": "2",
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
            "execution.checkpointing.savepoint-dir": (tmp_path / "savepoints").as_uri(),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "100 ms",
        },
        target="local",
    )
    source = us.KafkaSource(bootstrap_servers=kafka, topic=topic, schema=SCHEMA, on_bad_record="dead-letter")
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "flights").uid("flights")
    rows.sink_to(us.DeltaSink(str(tmp_path / "rows"))).uid("rows")
    letters = us.DeltaSink(str(tmp_path / "letters"))
    if short:
        rows.dead_letters_to(letters)
    else:
        rows.get_side_output("dead-letters").sink_to(letters).uid("letters")
    return env.execute_async("dead letters")


def count(table: Path) -> int:
    return DeltaTable(str(table)).count() if (table / "_delta_log").exists() else 0


def run(kafka: str, topic: str, tmp_path: Path, *, short: bool = False) -> JobInfo:
    """Publishes in rounds, each when a checkpoint has followed the last; drains the job; its end."""
    total = ROUNDS * ROUND_ROWS
    with start(kafka, topic, tmp_path, short=short) as job:
        for number in range(ROUNDS):
            done = job.status().checkpoints_completed
            publish(kafka, topic, range(number * ROUND_ROWS, (number + 1) * ROUND_ROWS))
            job.wait_for(lambda info, done=done: info.checkpoints_completed > done, WAIT_S)
        poll = Poll(WAIT_S)
        while count(tmp_path / "rows") + count(tmp_path / "letters") < total:
            assert poll.next(), f"not all of the {total} records came: {job.status()}"
        job.wait_for(lambda info: info.state == "RUNNING", WAIT_S)
        job.stop(drain=True)
        job.wait(WAIT_S)
        return job.status()


def check(topic: str, tmp_path: Path) -> None:
    numbers = range(ROUNDS * ROUND_ROWS)
    rows = DeltaTable(str(tmp_path / "rows")).to_pyarrow_table().to_pylist()
    good = [i for i in numbers if i % 3 != 1]
    assert sorted((r["id"], r["name"]) for r in rows) == [(i, f"n{i}") for i in good]
    found = DeltaTable(str(tmp_path / "letters")).to_pyarrow_table().to_pylist()
    letters = {(r["partition"], r["offset"]): r for r in found}
    assert len(letters) == len(found), "one letter for each record"
    bad = [i for i in numbers if i % 3 == 1]
    assert set(letters) == {(i % 2, i // 2) for i in bad}
    for i in bad:
        letter = letters[i % 2, i // 2]
        assert (letter["topic"], letter["raw"]) == (topic, value(i))
        assert letter["timestamp"] == EPOCH + timedelta(milliseconds=START_MS + i)
        assert letter["reason"]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("snapshot.uploaded:6", id="in the middle of a snapshot"),
        pytest.param("delta.staged:2", id="after output was staged"),
        pytest.param("sink.before_commit:2", id="between checkpoint and commit"),
        pytest.param("delta.appended:2", id="after one of the tables took the commit"),
    ],
)
def test_a_killed_worker_loses_and_doubles_no_dead_letter(
    kafka: str, topic: str, tmp_path: Path, crashes: Crashes, point: str
) -> None:
    crashes.arm(point)
    result = run(kafka, topic, tmp_path)
    check(topic, tmp_path)
    assert result.restarts >= 1
    crashes.assert_happened()


def test_the_short_form(kafka: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    result = run(kafka, topic, tmp_path, short=True)
    check(topic, tmp_path)
    bad = sum(i % 3 == 1 for i in range(ROUNDS * ROUND_ROWS))
    assert result.sinks["flights-dead-letters"].rows == bad
    assert result.restarts == 0, result.exceptions
    assert source_rows(result) == [SourceRows("flights", ROUNDS * ROUND_ROWS - bad, bad)]
