"""A topic as a sink, on a real broker: kills at the named places, restarts, rewinds, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

import unistream as us
from tests.contract.sinks.case import batch, context, permit, request
from tests.eventually import eventually
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import (
    OF_KAFKA_SINK,
    RECOVERING,
    WAIT_S,
    Crashes,
    in_the_gate,
    points_in_code,
    run_to_end,
    submit,
)
from tests.integration.kafka_parts import Parts, numbers
from tests.support.servers.kafka_tools import (
    add_partitions,
    delete_topic,
    end_offsets,
    open_transactions,
    read_committed,
    recreate_topic,
)
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Fenced, Transient, Unreachable, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.connector.catalogue import committer_of
from unistream.connector.kafka import KafkaSink
from unistream.connector.kafka.broker.wire import Producing
from unistream.connector.kafka.record.transactions import decode_committable
from unistream.connector.kafka.sink.sink_committer import KafkaCommitter
from unistream.model.elements import Batch
from unistream.port.sink import CommitOutcome
from unistream.testing.devtools.kafka_tools import admin_client, create_topic
from unistream.testing.devtools.stack import LocalStack, status

pytestmark = pytest.mark.kafka

BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}
OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}


def to_topic(servers: str, topic: str, **options: Any) -> Callable[[us.Environment, Path], None]:
    """40,000 rows in some 3 s."""

    def build(env: us.Environment, lake: Path) -> None:
        sink = us.KafkaSink(
            bootstrap_servers=servers, topic=topic, key="key", transactional_id_prefix=topic, **options
        )
        rows_of(env, 16_000).sink_to(sink).uid("topic")

    return build


KILLS = {
    "before a transaction has rows": ("kafka.begun:2",),
    "with all rows written": ("kafka.flushed:2",),
    "behind the record of the commit": ("kafka.recorded:2",),
    "before the rows are acknowledged": ("kafka.before_flush:2",),
    "in the middle of what a dead one has left": ("kafka.recorded:2", "kafka.left_aborted"),
    "after the state was written, before it was acknowledged": ("snapshot.uploaded:6",),
    "between checkpoint and commit": ("committer.before_commit:2",),
    "in the middle of the claim of the line": ("kafka.line_written:2",),
    "between the claim and the commit": ("kafka.claimed:2",),
    "while the commit is repeated": (
        *("committer.before_commit:2", "restore.before_commit", "restore.committed"),
    ),
    "after the commit, before anyone heard of it": ("committer.committed:2",),
}


def test_every_named_place_of_the_sink_has_a_row_here() -> None:
    killed = {point.partition(":")[0] for points in KILLS.values() for point in points}
    own = {point for point in killed if point.startswith(OF_KAFKA_SINK)}
    assert own == set(points_in_code(OF_KAFKA_SINK))


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 4, 7, 10))
def test_a_topic_loses_and_doubles_nothing(
    tmp_path: Path, crashes: Crashes, kafka: str, topic: str, what: str
) -> None:
    crashes.arm(*KILLS[what])
    result = run_to_end(tmp_path, crashes, to_topic(kafka, topic), OFTEN)
    assert numbers(kafka, topic) == list(range(ROWS))
    assert open_transactions(kafka, topic) == [], "what the dead one has left was aborted"
    assert result.sinks["topic"].rows == ROWS


@pytest.mark.parametrize("delivery", ["at-least-once", "none"])
def test_without_transactions_rows_come_at_once_and_without_kills_once(
    tmp_path: Path, kafka: str, topic: str, delivery: str
) -> None:
    run_to_end(tmp_path, None, to_topic(kafka, topic, delivery=delivery), OFTEN)
    assert numbers(kafka, topic) == list(range(ROWS))
    assert open_transactions(kafka, topic) == []


AT_LEAST_ONCE_KILLS = {
    "with rows written that no checkpoint covers": "snapshot.uploaded:2",
    "before its rows are acknowledged": "kafka.before_flush:2",
}


@pytest.mark.parametrize("what", AT_LEAST_ONCE_KILLS)
def test_at_least_once_a_killed_worker_loses_nothing(
    tmp_path: Path, crashes: Crashes, kafka: str, topic: str, what: str
) -> None:
    """Rows wait in the worker for their broker: a checkpoint waits until they are there."""
    crashes.arm(AT_LEAST_ONCE_KILLS[what])
    run_to_end(tmp_path, crashes, to_topic(kafka, topic, delivery="at-least-once"), OFTEN)
    assert sorted(set(numbers(kafka, topic))) == list(range(ROWS))
    assert open_transactions(kafka, topic) == []


def test_in_batch_all_rows_come_at_the_end(tmp_path: Path, kafka: str, topic: str) -> None:
    env = us.Environment(BATCH, target="local")
    to_topic(kafka, topic)(env, tmp_path)
    assert env.execute("batch").state == "FINISHED"
    assert numbers(kafka, topic) == list(range(ROWS))
    assert open_transactions(kafka, topic) == []


# --- savepoints -----------------------------------------------------------------------------------------


KEY = 1  # not of the first subtask of four


class Passing(us.KeyedProcessFunction):
    """Passes rows on, in the subtask of their key."""

    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        out.emit({"id": row["id"]})


class Jobs:
    """Jobs of one line, which write numbers to one topic."""

    def __init__(self, cluster: EmbeddedCluster, servers: str, topic: str) -> None:
        self._cluster, self._servers, self._topic = cluster, servers, topic

    def start(self, parallelism: int = 2, savepoint: str | None = None, **options: Any) -> EmbeddedJobClient:
        env = us.Environment({"parallelism.default": str(parallelism)})
        source = us.DatagenSource(
            {"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=2_000
        )
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        sink = us.KafkaSink(
            bootstrap_servers=self._servers, topic=self._topic, transactional_id_prefix=self._topic, **options
        )
        rows.rebalance().sink_to(sink).uid("topic")
        return submit(self._cluster, env, OFTEN, savepoint)

    def start_few(self, parallelism: int, savepoint: str | None = None) -> EmbeddedJobClient:
        """All rows have one key, so one subtask has rows."""
        env = us.Environment({"parallelism.default": str(parallelism)})
        columns = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(KEY, KEY + 1)}
        source = us.DatagenSource(columns, rows=None, bounded=False, rows_per_second=500, splits=1)
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        sink = us.KafkaSink(
            bootstrap_servers=self._servers, topic=self._topic, transactional_id_prefix=self._topic
        )
        passed = rows.key_by("key").process(Passing(), returns={"id": pa.int64()}).uid("passing")
        passed.sink_to(sink).uid("topic")
        return submit(self._cluster, env, OFTEN, savepoint, by_value=[sys.modules[__name__]])

    def stop_after(self, job: EmbeddedJobClient, more: int) -> str:
        before = len(numbers(self._servers, self._topic))
        eventually(
            lambda: len(numbers(self._servers, self._topic)) >= before + more, "rows come", WAIT_S, 0.3
        )
        return job.stop()

    def assert_exact(self) -> int:
        found = numbers(self._servers, self._topic)
        assert found == list(range(len(found)))
        assert open_transactions(self._servers, self._topic) == []
        return len(found)


@pytest.fixture
def jobs(tmp_path: Path, kafka: str, topic: str) -> Iterator[Jobs]:
    values = Configuration({"heartbeat.interval": "200 ms"})
    with EmbeddedCluster("local", values, workdir=tmp_path / "cluster", rest=False) as cluster:
        yield Jobs(cluster, kafka, topic)


def test_a_job_goes_on_from_a_savepoint_at_any_width_and_from_no_older_one(jobs: Jobs) -> None:
    savepoint = jobs.stop_after(jobs.start(2), 1_000)
    first, rows = savepoint, jobs.assert_exact()
    for width in (3, 1):
        savepoint = jobs.stop_after(jobs.start(width, savepoint), 1_000)
        assert jobs.assert_exact() > rows
        rows = jobs.assert_exact()
    refused = jobs.start(2, first)
    end = refused.wait(WAIT_S)
    assert end.state == "FAILED"
    assert end.failure is not None
    assert "but the job was restored from checkpoint" in end.failure.message
    assert "on_rewind='allow_duplicates'" in end.failure.message
    assert jobs.assert_exact() == rows
    again = jobs.start(2, first, on_rewind="allow_duplicates")
    jobs.stop_after(again, 1_000)


def test_a_rewind_is_refused_whichever_subtask_had_the_rows(jobs: Jobs, kafka: str, topic: str) -> None:
    first = jobs.stop_after(jobs.start_few(1), 300)
    jobs.stop_after(jobs.start_few(4, first), 300)
    rows = jobs.assert_exact()
    with admin_client(kafka) as admin:
        groups = [group["group_id"] for group in admin.list_groups()]
        of_subtasks = {name.rpartition(".")[2] for name in groups if name.startswith(topic)}
    assert len(of_subtasks - {"0", "line"}) == 1, "the first subtask has the rows: choose another KEY"
    end = jobs.start_few(4, first).wait(WAIT_S)
    assert end.state == "FAILED"
    assert end.failure is not None
    assert "but the job was restored from checkpoint" in end.failure.message
    assert jobs.assert_exact() == rows


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path, delivery: str) -> None:
    """In the middle of transactions; the job need not even restart."""
    values = Configuration({"heartbeat.interval": "200 ms"})
    folder, topic = tmp_path / "stack", "numbers"
    with (
        ExitStack() as stacks,
        EmbeddedCluster("local", values, workdir=tmp_path / "cluster", rest=False) as cluster,
    ):
        stack = stacks.enter_context(LocalStack(folder, ["kafka"]))
        address = stack.address("kafka")
        create_topic(address, topic, partitions=2)
        jobs = Jobs(cluster, address, topic)
        job = jobs.start(delivery=delivery)
        eventually(lambda: len(numbers(address, topic)) > 500, "rows come", WAIT_S, 0.3)
        for number in (signal.SIGKILL, signal.SIGTERM):
            [pid] = [one.pid for one in status(folder) if one.name == "kafka"]
            assert pid is not None
            os.kill(pid, number)
            stack.close()
            stack = stacks.enter_context(LocalStack(folder, ["kafka"]))
            assert stack.address("kafka") == address
            rows = len(numbers(address, topic))
            eventually(lambda rows=rows: len(numbers(address, topic)) > rows + 500, "more", WAIT_S, 0.3)
        job.stop()
        found = sorted(set(numbers(address, topic)))
        assert found == list(range(len(found)))
        if delivery == "exactly-once":
            jobs.assert_exact()


# --- one writer, one committer ----------------------------------------------------------------------------


@pytest.fixture
def parts(kafka: str, topic: str) -> Iterator[Parts]:
    made = Parts(kafka, topic)
    yield made
    for one in made.made:
        one.close()


def test_what_a_dead_writer_has_left_is_aborted_by_the_next_at_its_first_barrier(parts: Parts) -> None:
    dead = parts.writer()
    [listed] = parts.prepared(dead, 1, 1, 2)
    parts.prepared(dead, 2, 3)  # checkpoint 2 is never complete
    dead.write(batch(4))
    dead.flush(end_of_input=False)
    assert len(open_transactions(parts.servers, parts.topic)) == 3
    committer = parts.committer(restored=1)
    committer.commit(permit(1), request(1, listed))
    heir = parts.writer(attempt=1, restored=1)
    committable = parts.prepared(heir, 3, 3, 4)
    assert open_transactions(parts.servers, parts.topic) == [
        decode_committable(committable[0]).transactional_id
    ]
    committer.commit(permit(3), request(3, *committable))
    assert numbers(parts.servers, parts.topic) == [1, 2, 3, 4]
    with pytest.raises(Fenced, match="another writer has taken over"):
        parts.prepared(dead, 3, 5)
    assert numbers(parts.servers, parts.topic) == [1, 2, 3, 4]


def test_an_input_that_ends_before_the_committer_is_restored_takes_nothing_from_it(parts: Parts) -> None:
    """At the end of input a writer prepares without a barrier."""
    [listed] = parts.prepared(parts.writer(), 1, 1, 2)
    heir = parts.writer(attempt=1, restored=1)
    heir.write(batch(3))
    heir.flush(end_of_input=True)
    last = list(heir.prepare_commit(CheckpointId(2)))
    committer = parts.committer(restored=1)
    committer.commit(permit(1), request(1, listed))
    heir.snapshot_state(CheckpointId(2))
    committer.commit(permit(2), request(2, *last))
    assert numbers(parts.servers, parts.topic) == [1, 2, 3]


def test_a_transaction_that_the_broker_has_aborted_fails_the_job_or_is_dropped(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.connector.kafka.sink.sink_committer.RECORDED_WITHIN_S", 0.5)
    [lost] = parts.prepared(parts.writer(), 1, 1, 2)
    parts.lose(lost)
    with pytest.raises(ConfigError, match=r"2 rows of checkpoint 1 are lost: .* on_lost='drop'"):
        parts.committer().commit(permit(1), request(1, lost))
    drops = parts.committer(parts.sink(on_lost="drop"), restored=1)
    result = drops.commit(permit(1), request(1, lost))
    assert (result.outcome, result.rows, result.failed) == (CommitOutcome.COMMITTED, 0, (lost,))
    assert numbers(parts.servers, parts.topic) == []


def test_a_transaction_that_was_open_for_too_long_restarts_the_job(parts: Parts) -> None:
    """Before its barrier: nothing of it was promised."""
    writer = parts.writer(parts.sink(transaction_timeout="1 s"))
    writer.write(batch(1))
    writer.flush(end_of_input=False)
    eventually(lambda: open_transactions(parts.servers, parts.topic) == [], "the broker ends it", WAIT_S, 0.5)
    writer.write(batch(2))
    with pytest.raises(Transient, match=r"has aborted transaction .* no checkpoint was complete for so long"):
        writer.flush(end_of_input=False)
    assert numbers(parts.servers, parts.topic) == []


def leave_unmarked(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on coordinators pass over the partitions of transactions; here: they are not told of them."""
    admin = KafkaAdminClient(bootstrap_servers=parts.servers)
    unchecked = {"transaction.partition.verification.enable": "false"}
    [broker] = [str(one["broker_id"]) for one in admin.describe_cluster()["brokers"]]
    admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, broker, configs=unchecked)])
    admin.close()

    async def not_told(*arguments: object) -> None:
        pass

    monkeypatch.setattr(Producing, "add", not_told)


def test_a_commit_that_a_broker_has_not_marked_is_marked_after_a_restore(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator has passed over a partition without leader."""
    leave_unmarked(parts, monkeypatch)
    listed = parts.prepared(parts.writer(), 1, *range(100))
    parts.committer().commit(permit(1), request(1, *listed))
    assert numbers(parts.servers, parts.topic) == []
    monkeypatch.setattr("unistream.connector.kafka.broker.hanging.OFFSETS", "not-to-be-seen")  # by this user
    again = parts.committer(restored=1).commit(permit(1), request(1, *listed))
    assert again.outcome is CommitOutcome.ALREADY_COMMITTED
    assert numbers(parts.servers, parts.topic) == list(range(100))


def test_a_commit_that_a_broker_has_not_marked_is_marked_while_the_job_runs(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the sink has no more rows. Until then the id of that transaction is not used again: were the
    next one under it aborted, its marker would abort these rows, too."""
    leave_unmarked(parts, monkeypatch)
    writer, committer = parts.writer(), parts.committer()
    listed = parts.prepared(writer, 1, *range(100))
    monkeypatch.undo()
    committer.commit(permit(1), request(1, *listed))
    next_one = parts.prepared(writer, 2, 100)
    ids = [decode_committable(one).transactional_id for one in (*listed, *next_one)]
    assert len(set(ids)) == 2
    parts.lose(next_one[0])
    assert numbers(parts.servers, parts.topic) == []
    assert isinstance(committer, KafkaCommitter)
    committer._look_s = 0.0  # half a minute later
    committer.empty_checkpoint(permit(2))
    assert numbers(parts.servers, parts.topic) == list(range(100))
    last = parts.prepared(writer, 3, 101)
    assert decode_committable(last[0]).transactional_id == ids[0], "it is marked, and may be used again"
    committer.commit(permit(3), request(3, *last))
    assert numbers(parts.servers, parts.topic) == [*range(100), 101]


def test_nothing_of_a_checkpoint_is_committed_if_a_part_of_it_is_lost(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.connector.kafka.sink.sink_committer.RECORDED_WITHIN_S", 0.5)
    sink = parts.sink(transaction_timeout="2 s")
    [there] = parts.prepared(parts.writer(sink, index=0), 1, 1, 2)
    [lost] = parts.prepared(parts.writer(sink, index=1), 1, 3)
    parts.lose(lost)
    time.sleep(1.1)  # half of the timeout: from then on it is asked
    with pytest.raises(ConfigError, match=r"1 rows of checkpoint 1 are lost"):
        parts.committer(sink).commit(permit(1), request(1, there, lost))
    assert numbers(parts.servers, parts.topic) == []
    drops = parts.committer(parts.sink(on_lost="drop"), restored=1)
    drops.commit(permit(1), request(1, there, lost))
    assert numbers(parts.servers, parts.topic) in ([1, 2], []), "unless the broker has aborted it meanwhile"


def test_in_batch_a_transaction_that_was_open_for_too_long_ends_the_job(parts: Parts) -> None:
    """Another attempt would take as long. Also if its rows were all written, and others were not."""
    sink = parts.sink(transaction_timeout="1 s")
    bounded = replace(context(), checkpointing=False)
    writer, committer = parts.opened(sink, bounded)
    writer.write(batch(1))
    writer.flush(end_of_input=True)
    prepared = list(writer.prepare_commit(CheckpointId(1)))
    slow, _ = parts.opened(sink, replace(context(index=1), checkpointing=False))
    slow.write(batch(2))
    slow.flush(end_of_input=False)
    eventually(lambda: open_transactions(parts.servers, parts.topic) == [], "the broker ends it", WAIT_S, 0.5)
    for act in (
        lambda: committer.commit(permit(1), request(1, *prepared)),
        lambda: (slow.write(batch(3)), slow.flush(end_of_input=True)),
    ):
        with pytest.raises(
            ConfigError, match=r"nothing was written: a job in BATCH .* aborted that after 1 s"
        ):
            act()
    assert numbers(parts.servers, parts.topic) == []


def test_a_commit_is_known_when_its_id_was_used_again(parts: Parts) -> None:
    writer, committer = parts.writer(), parts.committer()
    made = []
    for checkpoint in range(1, 5):
        made.append(parts.prepared(writer, checkpoint, checkpoint))
        committer.commit(permit(checkpoint), request(checkpoint, *made[-1]))
        assert numbers(parts.servers, parts.topic) == list(range(1, checkpoint + 1))  # and it is ended
    ids = [decode_committable(one).transactional_id for [one] in made]
    assert len(set(ids)) < len(ids), "else the broker has to remember one for each checkpoint"
    again = parts.committer(restored=4).commit(permit(4), request(1, *made[0]))
    assert (again.outcome, again.rows) == (CommitOutcome.ALREADY_COMMITTED, 0)
    assert numbers(parts.servers, parts.topic) == [1, 2, 3, 4]


def test_a_savepoint_s_commits_need_no_code_of_the_user(parts: Parts) -> None:
    prepared = parts.prepared(parts.writer(), 1, 1, 2)
    committer = committer_of("kafka", prepared)
    parts.made.append(committer)
    committer.open(context(restored=1))
    assert committer.commit(permit(1), request(1, *prepared)).rows == 2
    assert numbers(parts.servers, parts.topic) == [1, 2]


def test_a_topic_that_was_created_again_is_another_one(parts: Parts) -> None:
    writer = parts.writer()
    parts.prepared(writer, 1, 1)
    state = list(writer.snapshot_state(CheckpointId(1)))
    recreate_topic(parts.servers, parts.topic, partitions=2)
    with pytest.raises(ConfigError, match="was deleted and created again since the snapshot"):
        parts.writer(states=state, attempt=1, restored=1)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_that_is_created_again_while_a_job_writes_to_it(parts: Parts, delivery: str) -> None:
    """The broker takes the batches: it compares names."""
    writer = parts.writer(parts.sink(delivery=delivery))
    writer.write(batch(1, 2))
    writer.flush(end_of_input=False)
    recreate_topic(parts.servers, parts.topic, partitions=2)
    writer.write(batch(3, 4))
    with pytest.raises(ConfigError, match=r"was deleted and created again since this job .* another uid"):
        writer.flush(end_of_input=False)
    writer.close()
    if delivery == "exactly-once":
        assert numbers(parts.servers, parts.topic) == []


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_that_is_removed_while_a_job_writes_to_it(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    for module in ("send", "sink_topic"):
        monkeypatch.setattr(f"unistream.connector.kafka.sink.{module}.REMOVED_AFTER_S", 1.0)
    writer = parts.writer(parts.sink(delivery=delivery))
    writer.write(batch(1, 2))
    writer.flush(end_of_input=False)
    state = list(writer.snapshot_state(CheckpointId(1)))
    delete_topic(parts.servers, parts.topic)
    writer.write(batch(3, 4))
    with pytest.raises(ConfigError, match=r"has been removed: .* another uid"):
        writer.flush(end_of_input=False)
    with pytest.raises(ConfigError, match=r"has been removed: .* another uid"):
        parts.writer(states=state, attempt=1, restored=1)


@pytest.mark.parametrize("named", [False, True], ids=["by key", "by the column"])
def test_partitions_that_are_added_while_a_job_writes_get_rows(parts: Parts, named: bool) -> None:
    def rows(*ids: int) -> Batch:
        return Batch(pa.record_batch({"id": list(ids), "part": [id % 4 if named else 0 for id in ids]}))

    sink = parts.sink(key="id", **({"partition_column": "part"} if named else {}))
    writer, committer = parts.writer(sink), parts.committer(sink)
    first, ids = (0, 1, 4, 5), range(1_000)
    for checkpoint, given in ((1, rows(*first)), (2, rows(*ids)), (3, rows(*ids))):
        if checkpoint == 2:
            add_partitions(parts.servers, parts.topic, 4)
        writer.write(given)
        writer.flush(end_of_input=False)
        prepared = writer.prepare_commit(CheckpointId(checkpoint))
        committer.commit(permit(checkpoint), request(checkpoint, *prepared))
    assert numbers(parts.servers, parts.topic) == sorted([*first, *ids, *ids])
    assert min(end_offsets(parts.servers, parts.topic).values()) > 100


def test_a_commit_of_which_the_broker_knows_nothing_fails_the_job_or_is_dropped(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets transactions and groups that nobody has used for a week."""
    monkeypatch.setattr("unistream.connector.kafka.sink.sink_committer.RECORDED_WITHIN_S", 0.5)
    [listed] = parts.prepared(parts.writer(), 1, 1, 2)
    never = f"{decode_committable(listed).transactional_id}9"
    forgotten = msgspec.structs.replace(decode_committable(listed), transactional_id=never).encoded()
    with pytest.raises(ConfigError, match=r"whether 2 rows of checkpoint 1 were committed .* on_lost='drop'"):
        parts.committer(restored=1).commit(permit(1), request(1, forgotten))
    drops = parts.committer(parts.sink(on_lost="drop"), restored=1)
    result = drops.commit(permit(1), request(1, forgotten))
    assert (result.outcome, result.rows, result.failed) == (CommitOutcome.COMMITTED, 0, (forgotten,))


@pytest.mark.parametrize("index", [0, 1])
def test_a_writer_refuses_a_rewind_by_itself(parts: Parts, index: int) -> None:
    prepared = parts.prepared(parts.writer(index=index), 2, 1)
    parts.committer().commit(permit(2), request(2, *prepared))
    with pytest.raises(ConfigError, match=r"checkpoint 2\b.*restored from checkpoint 1"):
        parts.writer(index=index, restored=1)
    allowed = parts.sink(on_rewind="allow_duplicates")
    parts.committer(allowed, restored=1)
    again = parts.prepared(parts.writer(allowed, index=index, restored=1), 2, 1)
    parts.committer(allowed, restored=2).commit(permit(2), request(2, *again))
    assert numbers(parts.servers, parts.topic) == [1, 1]


# --- records ----------------------------------------------------------------------------------------------


def written(parts: Parts, sink: KafkaSink, rows: pa.RecordBatch, times: list[int] | None = None) -> list[Any]:
    """The records, by partition and offset."""
    writer = parts.writer(sink)
    writer.write(Batch(rows, None if times is None else pa.array(times, pa.int64())))
    writer.flush(end_of_input=False)
    prepared = list(writer.prepare_commit(CheckpointId(1)))
    parts.committer(sink).commit(permit(1), request(1, *prepared))
    read_committed(parts.servers, parts.topic, parts.topic)
    consumer = KafkaConsumer(bootstrap_servers=parts.servers, isolation_level="read_committed")
    try:
        partitions = [TopicPartition(parts.topic, p) for p in (0, 1)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        found: list[Any] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < rows.num_rows and time.monotonic() < deadline:
            found += [one for records in consumer.poll(timeout_ms=200).values() for one in records]
        return sorted(found, key=lambda one: (one.partition, one.offset))
    finally:
        consumer.close()


def test_key_value_headers_and_time_of_a_record(parts: Parts) -> None:
    rows = pa.record_batch(
        {
            "carrier": ["UA", "DL", None],
            "delay": [1, None, 3],
            "origin": ["JFK", "LGA", None],
            "at": pa.array([1_000, 2_000, 3_000], pa.timestamp("ms")),
        }
    )
    sink = parts.sink(key="carrier", headers={"from": "origin"}, timestamp_column="at")
    found = {one.key: one for one in written(parts, sink, rows)}
    assert {key: json.loads(one.value) for key, one in found.items()} == {
        b"UA": {"carrier": "UA", "delay": 1, "at": "1970-01-01T00:00:01"},
        b"DL": {"carrier": "DL", "delay": None, "at": "1970-01-01T00:00:02"},
        None: {"carrier": None, "delay": 3, "at": "1970-01-01T00:00:03"},
    }
    assert {key: (one.headers, one.timestamp) for key, one in found.items()} == {
        b"UA": ([("from", b"JFK")], 1_000),
        b"DL": ([("from", b"LGA")], 2_000),
        None: ([("from", None)], 3_000),
    }


def test_bytes_tombstones_event_times_and_named_partitions(parts: Parts) -> None:
    rows = pa.record_batch({"raw": [b"\x00", None, b"b"], "part": [1, 0, 1], "k": [7, 8, 9]})
    sink = parts.sink(value_format="bytes", value_columns=["raw"], key=["k", "part"], partition_column="part")
    found = written(parts, sink, rows, times=[5, 6, 7])
    assert [(one.partition, one.key, one.value, one.timestamp) for one in found] == [
        (0, b'{"k":8,"part":0}', None, 6),
        (1, b'{"k":7,"part":1}', b"\x00", 5),
        (1, b'{"k":9,"part":1}', b"b", 7),
    ]


def test_a_partition_that_there_is_not(parts: Parts) -> None:
    writer = parts.writer(parts.sink(partition_column="id"))
    writer.write(batch(1, 2))
    with pytest.raises(UserCodeError, match="names partition 2, and the topic has 2"):
        writer.flush(end_of_input=False)


# --- what is refused ----------------------------------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ns", pa.timestamp("ns"))])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "nowhere"}, "topic 'nowhere' does not exist at "),
        ({"transaction_timeout": "16 min"}, r"960,000 ms, and the broker allows 900,000 ms"),
        ({"key": "no"}, "there is no column 'no' among id, name, ns"),
        ({}, "column 'ns' is timestamp.ns., which JSON cannot hold"),
        ({"value_format": "bytes"}, "takes one column of text or bytes, not id, name, ns"),
        ({"value_columns": ["id"], "headers": {"h": "id"}}, "header 'h' is made of column 'id'"),
        ({"value_columns": ["id"], "timestamp_column": "id"}, "column 'id' is int64, not a time"),
        ({"value_columns": ["id"], "partition_column": "name"}, "is string, not a number of a partition"),
        (
            {"bootstrap_servers": "127.0.0.1:1", "properties": {"bootstrap.timeout.ms": "300"}},
            "did not answer within",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_a_job_starts(
    parts: Parts, options: dict[str, Any], text: str
) -> None:
    given = {**({} if text.startswith("column 'ns'") else {"value_columns": ["id"]}), **options}
    if options.get("value_format"):
        del given["value_columns"]
    with pytest.raises((ConfigError, Unreachable), match=text):
        parts.sink(**given).check(SCHEMA)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delivery": "twice"}, "delivery must be one of exactly-once, at-least-once, none"),
        ({"value_format": "xml"}, "value_format must be one of json, bytes"),
        ({"compression": "rar"}, "compression must be one of"),
        ({"on_lost": "x"}, "on_lost must be one of fail, drop"),
        ({"transactional_id_prefix": "a.b"}, "must not be empty, nor have a dot"),
        ({"topic": "a b"}, "is not the name of a Kafka topic"),
        ({"bootstrap_servers": "x"}, "is not host:port"),
        ({"properties": {"acks": "1"}}, "unknown Kafka property 'acks'"),
        ({"properties": {"security.protocl": "SSL"}}, "did you mean 'security.protocol'"),
    ],
)
def test_arguments_that_are_wrong(parts: Parts, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parts.sink(**options)


def test_a_record_larger_than_the_topic_takes_is_named(kafka: str) -> None:
    name = f"small-{time.time_ns()}"
    create_topic(kafka, name, config={"max.message.bytes": "2000"})
    parts = Parts(kafka, name)
    writer = parts.writer()
    try:
        rows = [{"id": i, "name": "x" * 100} for i in range(100)]
        writer.write(Batch(pa.RecordBatch.from_pylist(rows)))
        writer.flush(end_of_input=False)
        writer.write(Batch(pa.RecordBatch.from_pylist([{"id": 1, "name": "x" * 5_000}])))
        with pytest.raises(UserCodeError, match=r"is larger than topic .* takes, which are 2,000"):
            writer.flush(end_of_input=False)
    finally:
        writer.close()
