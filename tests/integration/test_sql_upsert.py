"""A table of a database whose rows are replaced by key and deleted again: within a checkpoint, over several,
under kills, and as the copy of another by Debezium's changes."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.contract.sinks.case import permit, request
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import RECOVERING, Crashes, in_the_gate, run_to_end
from tests.integration.test_delta_upsert import Seen
from tests.integration.test_sql_sink import Parts, of_columns, query, staged, url
from tests.support.servers.kafka_tools import produce_values
from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.elements import Batch
from unistream.testing import MiniCluster
from unistream.testing.devtools.kafka_tools import create_topic

__all__ = ["url"]  # the fixture

OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}
BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}
UPSERT: dict[str, Any] = {"mode": "upsert", "key": ("a", "b"), "delete_when": us.col("op") == "d"}


@pytest.fixture
def parts(url: str) -> Iterator[Parts]:
    made = Parts(url)
    yield made
    for one in made.made:
        one.close()


def changes(*rows: tuple[int, str, str]) -> Batch:
    """(a, value, op), all with the same b."""
    return of_columns(
        a=[row[0] for row in rows],
        b=["x"] * len(rows),
        value=[row[1] for row in rows],
        op=[row[2] for row in rows],
    )


def found(parts: Parts) -> list[tuple[Any, ...]]:
    return query(parts.url, "SELECT a, value, op FROM rows ORDER BY a")


def test_the_last_row_of_a_key_in_a_checkpoint_decides(parts: Parts) -> None:
    sink = parts.sink(**UPSERT)
    writer, committer = parts.writer(sink), parts.committer(sink)
    first = changes((1, "kept", "c"), (2, "gone", "c"), (2, "gone", "d"), (3, "old", "d"), (3, "new", "c"))
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, first)))
    assert found(parts) == [(1, "kept", "c"), (3, "new", "c")]
    second = changes((1, "kept", "d"), (2, "back", "c"), (9, "never there", "d"))
    result = committer.commit(permit(2), request(2, *parts.prepared(writer, 2, second)))
    assert found(parts) == [(2, "back", "c"), (3, "new", "c")]
    assert (result.rows, staged(parts.url)) == (3, 0)


def test_a_checkpoint_of_nothing_but_deletes_and_a_repeated_one(parts: Parts) -> None:
    sink = parts.sink(**UPSERT)
    writer, committer = parts.writer(sink), parts.committer(sink)
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, changes((1, "one", "d")))))
    assert found(parts) == []
    listed = parts.prepared(writer, 2, changes((1, "one", "c"), (2, "two", "c")))
    committer.commit(permit(2), request(2, *listed))
    third = parts.prepared(writer, 3, changes((1, "one", "d")))
    committer.commit(permit(3), request(3, *third))
    again = parts.committer(sink, restored=3)
    again.commit(permit(3), request(3, *third))
    again.commit(permit(3), request(2, *listed))
    assert found(parts) == [(2, "two", "c")]


def test_what_other_programs_have_written_is_deleted_by_its_key(parts: Parts) -> None:
    query(parts.url, "CREATE TABLE rows (b VARCHAR(9), a INT, value TEXT, op TEXT, PRIMARY KEY (a, b))")
    query(parts.url, "INSERT INTO rows VALUES ('x', 1, 'theirs', ''), ('y', 1, 'theirs', '')")
    sink = parts.sink(**UPSERT)
    sink.check(changes((1, "one", "d")).records.schema)
    prepared = parts.prepared(parts.writer(sink), 1, changes((1, "one", "d")))
    parts.committer(sink).commit(permit(1), request(1, *prepared))
    assert query(parts.url, "SELECT a, b FROM rows") == [(1, "y")]


def test_a_key_of_one_column_and_conditions_that_are_null(parts: Parts) -> None:
    """Neither true nor false is no delete."""
    sink = parts.sink(mode="upsert", key="id", delete_when=us.col("gone"))
    writer, committer = parts.writer(sink), parts.committer(sink)
    rows = of_columns(id=[1, 2, 3], gone=pa.array([False, None, True], pa.bool_()))
    committer.commit(permit(1), request(1, *parts.prepared(writer, 1, rows)))
    assert query(parts.url, "SELECT id FROM rows ORDER BY id") == [(1,), (2,)]
    with pytest.raises(UserCodeError, match="a row without 'id', which is in the key of rows"):
        parts.prepared(writer, 2, of_columns(id=pa.array([None], pa.int64()), gone=[True]))


def test_rows_of_a_sink_that_deletes_are_committed_by_a_savepoint_s_committer(parts: Parts) -> None:
    """Whose sink has no such option, or another one: what was staged says it."""
    sink = parts.sink(**UPSERT)
    parts.committer(sink).commit(
        permit(1), request(1, *parts.prepared(parts.writer(sink), 1, changes((1, "one", "c"))))
    )
    prepared = parts.prepared(parts.writer(sink, restored=1, attempt=1), 2, changes((1, "one", "d")))
    plain = parts.sink(mode="upsert", key=("a", "b"))
    parts.committer(plain, restored=1).commit(permit(2), request(2, *prepared))
    assert found(parts) == []


def test_a_deleted_row_need_not_fit_the_columns(parts: Parts) -> None:
    """It is not written: Debezium may know no more than its key. Without a key nothing can be deleted."""
    query(
        parts.url, "CREATE TABLE rows (a INT, b TEXT, value VARCHAR(3) NOT NULL, op TEXT, PRIMARY KEY (a, b))"
    )
    rows = of_columns(
        a=pa.array([1, 2, None], pa.int32()),
        b=["x"] * 3,
        value=pa.array([None] * 3, pa.string()),
        op=["d", "c", "d"],
    )
    check = parts.sink(**UPSERT).create_row_check()
    check.open()
    assert {row: reason.partition(",")[0] for row, reason in check.refused(rows).items()} == {
        1: "null in 'value'",
        2: "null in 'a'",
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delete_when": us.col("a") == 1}, "delete_when needs mode='upsert' and a key"),
        ({**UPSERT, "delete_when": "op = 'd'"}, "delete_when is an expression"),
    ],
)
def test_options_that_cannot_be(parts: Parts, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parts.sink(**options)


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        (us.col("nobody") == 1, "delete_when=.*nobody"),
        (us.col("a"), "delete_when=a is int64, and has to be true or false"),
    ],
)
def test_conditions_that_do_not_fit_the_rows(parts: Parts, condition: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parts.sink(**{**UPSERT, "delete_when": condition}).check(changes((1, "", "")).records.schema)


def counted(env: us.Environment, url: str, rows_per_second: int | None) -> None:
    rows = rows_of(env, rows_per_second)
    rows.sink_to(us.SqlSink(url, "raw")).uid("raw")
    columns = {"key": pa.int64(), "seen": pa.int64(), "odd": pa.bool_()}
    seen = rows.key_by("key").process(Seen(), returns=columns).uid("seen")
    seen.sink_to(us.SqlSink(url, "keys", mode="upsert", key="key", delete_when=us.col("odd"))).uid("keys")


def check(url: str) -> None:
    counts = Counter(key for (key,) in query(url, "SELECT key FROM raw"))
    assert sum(counts.values()) == ROWS
    assert query(url, "SELECT key, seen FROM keys ORDER BY key") == sorted(
        (key, count) for key, count in counts.items() if count % 2 == 0
    )
    assert staged(url) == 0


KILLS = {
    "in the transaction": ("sql.before_commit:3",),
    "behind the transaction": ("sql.committed:3",),
    "while it is repeated": ("committer.before_commit:3", "restore.before_commit", "restore.committed"),
    "with rows staged": ("sql.staged:5",),
}


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 1))
def test_each_key_has_its_last_row(tmp_path: Path, crashes: Crashes, url: str, what: str) -> None:
    crashes.arm(*KILLS[what])
    run_to_end(tmp_path, crashes, lambda env, _: counted(env, url, 16_000), OFTEN)
    check(url)


def test_in_batch_it_is_one_transaction(url: str) -> None:
    env = us.Environment(BATCH)
    counted(env, url, None)
    with MiniCluster(slots=2) as cluster:
        cluster.execute(env, "batch")
    check(url)


@pytest.mark.kafka
def test_a_table_is_the_copy_of_another_by_its_changes(url: str, kafka: str) -> None:
    """Created, changed, deleted, created again; the changes of a row are in one partition, as Debezium writes
    them."""
    topic = f"changes-{uuid.uuid4().hex[:8]}"
    create_topic(kafka, topic, partitions=2)
    image: dict[int, str] = {}
    values, partitions = [], []
    for step in range(2_000):
        id, name = (step * 7) % 300, f"name {step}"
        op = "d" if id in image and step % 3 == 0 else "u" if id in image else "c"
        before = {"id": id, "name": image[id]} if id in image else None
        change = {"before": before, "after": None if op == "d" else {"id": id, "name": name}, "op": op}
        values.append(json.dumps({**change, "ts_ms": step}).encode())
        partitions.append(id % 2)
        if op == "d":
            del image[id]
        else:
            image[id] = name
    produce_values(kafka, topic, values, partitions=partitions)
    env = us.Environment({**OFTEN, "parallelism.default": "2"}, target="local")
    source = us.KafkaSource(
        bootstrap_servers=kafka,
        topic=topic,
        format="debezium-json",
        schema=pa.schema([("id", pa.int64()), ("name", pa.string())]),
        metadata={"op": "op"},
        bounded=True,
    )
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "changes").uid("changes")
    copy = us.SqlSink(url, "copy", mode="upsert", key="id", delete_when=us.col("op") == "d")
    rows.sink_to(copy).uid("copy")
    assert env.execute("copy").state == "FINISHED"
    assert query(url, "SELECT id, name FROM copy ORDER BY id") == sorted(image.items())
    assert len(image) > 100
