"""Writer and committer operators against what Flink's Sink V2 was seen to do, and their own rules."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from unistream.base.errors import CorruptSnapshot, OutcomeUnknown, ProtocolError, Transient
from unistream.base.ids import CheckpointId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.snapshot import ListMode, OperatorSnapshot, OperatorState
from unistream.operator.sink import COMMITTER_STATE, TARGET_STATE, CommitterOperator, SinkWriterOperator
from unistream.operator.sink.committables import COMMITTABLES
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    Committer,
    SinkContext,
    SinkWriter,
)
from unistream.testing.harness import OperatorHarness, restore_state


@dataclass
class TracingSink:
    """Logs every call in the words of the recorded traces. `answers`: outcomes of the next commits."""

    log: list[str]
    attempt: int = 0
    answers: list[CommitOutcome | Exception] = field(default_factory=list)
    transactional: bool = True
    global_committer: bool = False
    payloads: int = 1
    name: str = "traced"

    def check(self, schema: pa.Schema | None) -> None: ...

    def create_writer(self) -> SinkWriter:
        return TracingWriter(self)

    def create_committer(self) -> Committer | None:
        return TracingCommitter(self) if self.transactional else None


class TracingWriter:
    def __init__(self, sink: TracingSink) -> None:
        self.sink, self.count, self.written = sink, 0, 0

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self.index = context.index
        states = ",".join(state.decode() for state in restored)
        self.sink.log.append(
            "writer createWriter" if context.restored is None else f"writer restoreWriter[{states}]"
        )

    def write(self, batch: Batch) -> None:
        if not self.written:
            self.sink.log.append("writer write(first)")
        self.written += batch.num_rows

    def flush(self, end_of_input: bool) -> None:
        self.sink.log.append(f"writer flush(endOfInput={str(end_of_input).lower()})")

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        names = [f"txn{self.index}.{self.sink.attempt}.{self.count + n}" for n in range(self.sink.payloads)]
        self.count += len(names)
        self.sink.log.append(f"writer prepareCommit->[{','.join(names)}]")
        return [name.encode() for name in names]

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        self.sink.log.append(f"writer snapshotWriter({checkpoint_id})")
        return [f"ws{self.index}".encode()]

    def close(self) -> None:
        self.sink.log.append("writer closeWriter")


class TracingCommitter:
    def __init__(self, sink: TracingSink) -> None:
        self.sink, self.tries = sink, 0
        self.permits: list[CommitPermit] = []

    def open(self, context: SinkContext) -> None:
        restored = "-" if context.restored is None else str(context.restored)
        self.sink.log.append(f"committer createCommitter(restoredCheckpoint={restored})")

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        assert request.checkpoint_id <= permit.checkpoint_id
        names = ",".join(payload.decode() for payload in request.committables)
        retry = f"(retry {self.tries})" if self.tries else ""
        self.sink.log.append(f"committer commit[{names}{retry}]")
        answer = self.sink.answers.pop(0) if self.sink.answers else CommitOutcome.COMMITTED
        if isinstance(answer, Exception):
            self.sink.log.append("-> signalFailedWithUnknownReason")
            raise answer
        if answer is CommitOutcome.RETRY:
            self.tries += 1
            self.sink.log.append("-> retryLater")
        else:
            self.tries = 0
        return CommitResult(answer, rows=len(request.committables), table_version=7)

    def close(self) -> None:
        self.sink.log.append("committer closeCommitter")


class SinkTask:
    """A writer and its committer as one subtask of a chain."""

    def __init__(
        self, sink: TracingSink, states: tuple[OperatorState, OperatorState] | None = None, **where: Any
    ):
        writer_state, committer_state = states or (None, None)
        self.sink = sink
        self.latest = 0
        self.writer = OperatorHarness(SinkWriterOperator(sink), state=writer_state, **where)
        self.committer = OperatorHarness(CommitterOperator(sink), state=committer_state, **where)

    def open(self) -> None:
        self.committer.open()
        self.writer.open()

    def hand_over(self) -> None:
        for batch in self.writer.batches():
            self.committer.operator.process_batch(batch, 0)
        self.writer.clear()

    def checkpoint(self, number: int) -> tuple[OperatorSnapshot, OperatorSnapshot]:
        self.writer.operator.prepare_snapshot_pre_barrier(CheckpointId(number))
        self.hand_over()
        committer = self.committer.snapshot(number)
        return self.writer.operator.snapshot_state(CheckpointId(number)), committer

    def end_writer(self) -> None:
        self.writer.operator.end_input(0)
        self.hand_over()


CASES = Path(__file__).parents[3] / "conformance" / "two_phase_commit.json"
RECORDED: dict[str, Any] = {
    trace["id"]: trace["segments"] for trace in json.loads(CASES.read_text())["observedTraces"]
}


def story(trace: str, subtask: int) -> list[str]:
    """All calls that one subtask saw."""
    return [
        call for segment in RECORDED[trace] for call in segment["perSubtask"].get(f"subtask{subtask}", [])
    ]


def stimuli(calls: list[str]) -> list[str]:
    """What a task must have done to an operator that made these calls: one word for each stimulus."""
    found: list[str] = []
    for call in calls:
        last = found[-1] if found else ""
        if call.startswith("committer createCommitter"):
            found.append("start")
        elif call == "writer write(first)":
            found.append("rows")
        elif call == "writer flush(endOfInput=true)":
            found.append("end")
        elif number := re.match(r"writer snapshotWriter\((\d+)\)", call):
            found.append(f"checkpoint {number[1]}")
        elif call.startswith("committer commit") and last not in ("start", "complete"):
            found.append("complete")
        elif call == "committer closeCommitter":
            found.append("close")
    return found


def replay(task: SinkTask, words: list[str]) -> list[tuple[OperatorSnapshot, OperatorSnapshot]]:
    """Does to `task` what `words` say; returns its snapshots. The words end before the next start."""
    snapshots = []
    for word in words:
        match word.split():
            case ["start"]:
                task.open()
            case ["rows"]:
                task.writer.process({"n": [1]}, [0])
            case ["end"]:
                task.end_writer()
            case ["checkpoint", text]:
                task.latest = int(text)
                snapshots.append(task.checkpoint(task.latest))
            case ["complete"]:
                task.committer.complete(task.latest)
            case ["close"]:
                task.committer.close()
                task.writer.close()
    return snapshots


def states(
    snapshots: list[tuple[OperatorSnapshot, OperatorSnapshot]], checkpoint: int, index: int, parallelism: int
) -> tuple[OperatorState, OperatorState]:
    writer, committer = zip(*snapshots, strict=True)
    return (
        restore_state(writer, checkpoint, index=index, parallelism=parallelism),
        restore_state(committer, checkpoint, index=index, parallelism=parallelism),
    )


def test_trace_d_then_e_savepoint_stop_and_scale_up() -> None:
    last = []
    for index in range(2):
        sink = TracingSink([])
        task = SinkTask(sink, index=index, parallelism=2)
        last.append(replay(task, stimuli(story("d", index)))[-1])
        assert sink.log == story("d", index)
    for index in range(3):
        sink = TracingSink([])
        task = SinkTask(sink, states(last, 3, index, 3), index=index, parallelism=3)
        replay(task, stimuli(story("e", index)))
        assert sink.log == story("e", index)


@pytest.mark.parametrize("trace", ["h"])
def test_trace_of_a_retry(trace: str) -> None:
    sink = TracingSink([], answers=[CommitOutcome.RETRY])
    replay(SinkTask(sink), stimuli(story(trace, 0)))
    assert sink.log == story(trace, 0)


def test_trace_j_an_unknown_outcome_fails_the_task_and_is_asked_again_after_the_restore() -> None:
    words = stimuli(story("j", 0))
    restart = words.index("start", 1)
    sink = TracingSink([], answers=[OutcomeUnknown("who knows")])
    task = SinkTask(sink)
    failing = words.index("complete")
    snapshots = replay(task, words[:failing])
    with pytest.raises(OutcomeUnknown):
        replay(task, ["complete"])
    replay(task, ["close"])
    again = TracingSink(sink.log, attempt=1)
    replay(SinkTask(again, states(snapshots, 1, 0, 1)), words[restart:])
    assert sink.log == story("j", 0)


def test_trace_c_without_checkpoints_the_end_of_input_commits() -> None:
    sink = TracingSink([])
    task = SinkTask(sink, checkpointing=False)
    task.writer.open()
    task.writer.process({"n": [1]}, [0])
    task.end_writer()
    task.writer.close()
    task.committer.open()
    for batch in task.writer.batches():
        task.committer.operator.process_batch(batch, 0)
    task.committer.operator.end_input(0)
    task.committer.close()
    expected = [call for call in story("c", 0) if "createCommitter" not in call]
    assert [call for call in sink.log if "createCommitter" not in call] == expected


def announce(
    checkpoint: int, subtask: int, count: int | None, *payloads: bytes, watermark: int | None = None
) -> pa.RecordBatch:
    """A summary (unless `count` is None) and committables, as a writer sends them."""
    head = [] if count is None else [(count, None)]
    rows = [*head, *((None, payload) for payload in payloads)]
    columns = {
        "checkpoint_id": [checkpoint] * len(rows),
        "subtask": [subtask] * len(rows),
        "of": [None if row[0] is None else 1 for row in rows],
        "count": [row[0] for row in rows],
        "watermark": [None if row[0] is None else watermark for row in rows],
        "payload": [row[1] for row in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=COMMITTABLES)


def committer(**options: Any) -> tuple[TracingSink, OperatorHarness]:
    sink = TracingSink([])
    harness = OperatorHarness(CommitterOperator(sink), **options).open()
    sink.log.clear()
    return sink, harness


def test_nothing_to_commit_is_announced_and_not_committed() -> None:
    sink = TracingSink([], payloads=0)
    task = SinkTask(sink)
    task.open()
    task.writer.operator.prepare_snapshot_pre_barrier(CheckpointId(1))
    assert task.writer.batches()[0].records.equals(announce(1, 0, 0, watermark=MIN_WATERMARK))
    task.hand_over()
    task.committer.complete(1)
    assert not [call for call in sink.log if "commit[" in call]


def test_a_sink_without_a_committer_is_flushed_and_sends_nothing() -> None:
    sink = TracingSink([], transactional=False)
    with OperatorHarness(SinkWriterOperator(sink)) as harness:
        harness.snapshot(1)
        harness.end()
        assert harness.batches() == []
    assert [call for call in sink.log if "flush" in call] == [
        "writer flush(endOfInput=false)",
        "writer flush(endOfInput=true)",
    ]


def test_the_end_of_input_takes_the_id_after_the_last_checkpoint_and_comes_once() -> None:
    with OperatorHarness(SinkWriterOperator(TracingSink([]))) as harness:
        harness.snapshot(4)
        harness.clear()
        harness.operator.end_input(0)
        harness.operator.end_input(0)
        harness.operator.prepare_snapshot_pre_barrier(CheckpointId(5))
        assert [row["checkpoint_id"] for row in harness.rows()] == [5, 5]
        with pytest.raises(ProtocolError, match="after the end of input"):
            harness.process({"n": [1]})


def test_a_restored_writer_counts_on_from_the_restored_checkpoint() -> None:
    state = OperatorState(checkpoint_id=CheckpointId(8))
    with OperatorHarness(SinkWriterOperator(TracingSink([])), state=state) as harness:
        harness.operator.end_input(0)
        assert harness.rows()[0]["checkpoint_id"] == 9


def test_committables_of_all_writers_go_in_one_call_per_checkpoint_in_order() -> None:
    sink, harness = committer()
    harness.process(announce(2, 0, 1, b"c"))
    harness.process(announce(1, 1, 1, b"b"))
    harness.process(announce(1, 0, 2, b"a1", b"a2"))
    harness.complete(1)
    assert sink.log == ["committer commit[b,a1,a2]"]
    harness.complete(3)
    harness.complete(3)
    assert sink.log == ["committer commit[b,a1,a2]", "committer commit[c]"]
    assert harness.commits == [(1, 3, 7), (2, 1, 7)]


@pytest.mark.parametrize(
    ("of_subtasks", "expected"),
    [
        pytest.param([30, 20], 20, id="the lowest"),
        pytest.param([30, None], 30, id="an idle one does not count"),
        pytest.param([30, MIN_WATERMARK], None, id="one that has none yet does, so there is none"),
        pytest.param([None, None], None, id="all are idle"),
    ],
)
def test_a_commit_has_the_watermark_of_its_writers(
    of_subtasks: list[int | None], expected: int | None
) -> None:
    _, harness = committer()
    for subtask, watermark in enumerate(of_subtasks):
        harness.process(announce(1, subtask, 1, b"a", watermark=watermark))
        harness.process(announce(2, subtask, 1, b"b", watermark=99))
    harness.complete(1)
    assert harness.watermarks == {1: expected}


def test_a_commit_after_a_restore_has_the_watermark_of_its_checkpoint() -> None:
    _, harness = committer()
    harness.process(announce(1, 0, 1, b"a", watermark=20))
    state = restore_state([harness.snapshot(1)], 1)
    _, restored = committer(state=state)
    assert restored.commits == [(1, 1, 7)]
    assert restored.watermarks == {1: 20}


def test_the_watermark_of_a_writer_goes_with_each_checkpoint_until_the_end_of_input() -> None:
    """A drained stream may go on, so the last watermark, that of the end, is of no commit."""
    with OperatorHarness(SinkWriterOperator(TracingSink([]))) as harness:

        def announced() -> object:
            harness.operator.prepare_snapshot_pre_barrier(CheckpointId(1))
            found = harness.rows()
            harness.clear()
            assert [row["watermark"] for row in found[1:]] == [None] * (len(found) - 1)
            return found[0]["watermark"]

        assert announced() == MIN_WATERMARK
        harness.watermark(7_000)
        assert announced() == 7_000
        harness.operator.process_watermark_status(True)
        assert announced() is None
        harness.operator.process_watermark_status(False)
        harness.watermark(MAX_WATERMARK)
        assert announced() == 7_000
        harness.operator.end_input(0)
        assert harness.rows()[0]["watermark"] == 7_000


def test_an_aborted_checkpoint_only_delays() -> None:
    sink, harness = committer()
    harness.process(announce(1, 0, 1, b"a"))
    harness.operator.notify_checkpoint_aborted(CheckpointId(1))
    harness.process(announce(2, 0, 1, b"b"))
    harness.complete(2)
    assert sink.log == ["committer commit[a]", "committer commit[b]"]


@pytest.mark.parametrize(
    ("arrived", "text"),
    [
        pytest.param([announce(1, 0, 2, b"a")], "1 committables have arrived of 2", id="one is missing"),
        pytest.param([announce(1, 0, None, b"a")], "1 committables have arrived of None", id="not announced"),
        pytest.param(
            [announce(1, 0, 1, b"a"), announce(1, 0, 1, b"b")], "announced twice", id="second summary"
        ),
        pytest.param([announce(1, 0, 0, b"a")], "more committables than the 0", id="more than announced"),
    ],
)
def test_incomplete_committables_are_never_committed(arrived: list[pa.RecordBatch], text: str) -> None:
    sink, harness = committer()
    with pytest.raises(ProtocolError, match=text):  # noqa: PT012  it may come at either call
        for records in arrived:
            harness.process(records)
        harness.complete(1)
    assert sink.log == []


@pytest.mark.parametrize(("retries", "fails"), [("0", True), ("1", False)])
def test_retries_are_counted(retries: str, fails: bool) -> None:
    sink, harness = committer(config={"sink.committer.retries": retries})
    sink.answers = [CommitOutcome.RETRY]
    harness.process(announce(1, 0, 1, b"a"))
    if fails:
        with pytest.raises(Transient, match="failed to commit 1 committables"):
            harness.complete(1)
    else:
        harness.complete(1)
        assert harness.commits == [(1, 1, 7)]


def test_a_failed_commit_keeps_its_committables_for_the_next_snapshot() -> None:
    sink, harness = committer()
    sink.answers = [OutcomeUnknown("lost answer")]
    harness.process(announce(1, 0, 1, b"a"))
    with pytest.raises(OutcomeUnknown):
        harness.complete(1)
    assert harness.snapshot(2).lists[COMMITTER_STATE].mode is ListMode.SPLIT
    harness.complete(2)
    assert sink.log[-1] == "committer commit[a]"


def test_scale_down_merges_restored_committables_into_one_call() -> None:
    snapshots = []
    for index in range(2):
        _, harness = committer(index=index, parallelism=2)
        harness.process(announce(1, index, 1, f"c{index}".encode()))
        snapshots.append(harness.snapshot(1))
    sink = TracingSink([])
    OperatorHarness(CommitterOperator(sink), state=restore_state(snapshots, 1)).open()
    assert sink.log == ["committer createCommitter(restoredCheckpoint=1)", "committer commit[c0,c1]"]


@pytest.mark.parametrize(
    ("snapshot", "listed"),
    [
        pytest.param(1, ["a0", "a1"], id="without what is staged for the next checkpoint"),
        pytest.param(2, ["a0", "a1", "b0"], id="with what an older one has left"),
    ],
)
def test_a_snapshot_lists_what_belongs_to_its_checkpoint(snapshot: int, listed: list[str]) -> None:
    """The next committable of writer 0 comes before the barrier of writer 1, if nothing is aligned."""
    _, harness = committer()
    for checkpoint, writer, payload in ((1, 0, b"a0"), (2, 0, b"b0"), (1, 1, b"a1")):
        harness.process(announce(checkpoint, writer, 1, payload))
    items = harness.snapshot(snapshot).lists[COMMITTER_STATE].items
    parts = [part for item in items for part in msgspec.msgpack.decode(item)]
    assert sorted(payload.decode() for part in parts for payload in part["payloads"]) == listed
    harness.complete(1)
    assert COMMITTER_STATE not in harness.snapshot(1).lists


def test_what_an_older_version_listed_of_the_next_checkpoint_is_not_committed() -> None:
    """Its rows are read again, and its writer has removed the file."""
    listed = [
        {"checkpoint_id": number, "subtask": 0, "announced": 1, "payloads": [payload]}
        for number, payload in ((3, b"a"), (4, b"b"))
    ]
    state = OperatorState(
        checkpoint_id=CheckpointId(3), lists={COMMITTER_STATE: [msgspec.msgpack.encode(listed)]}
    )
    sink = TracingSink([])
    with OperatorHarness(CommitterOperator(sink), state=state) as harness:
        harness.process(announce(4, 0, 1, b"again"))
        harness.snapshot(4)
        harness.complete(4)
    assert [call for call in sink.log if "commit[" in call] == [
        "committer commit[a]",
        "committer commit[again]",
    ]


class MemoryCommitter(TracingCommitter):
    """A `StatefulCommitter`."""

    items: Sequence[bytes] = ()

    def restore_state(self, items: Sequence[bytes]) -> None:
        self.items = items

    def snapshot_state(self) -> Sequence[bytes]:
        return self.items


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_committer_knows_what_any_former_one_has_committed_into(parallelism: int) -> None:
    """Those beside each writer commit at their own pace, and the newest of their memories counts."""
    snapshots = []
    for known in (b"3", b"5"):
        sink = TracingSink([])
        operator = CommitterOperator(sink, create=partial(MemoryCommitter, sink))
        state = OperatorState(checkpoint_id=CheckpointId(5), lists={TARGET_STATE: [known]})
        with OperatorHarness(operator, state=state) as harness:
            snapshots.append(harness.snapshot(6))
    for index in range(parallelism):
        made = MemoryCommitter(TracingSink([]))
        operator = CommitterOperator(made.sink, create=lambda made=made: made)
        state = restore_state(snapshots, 6, index=index, parallelism=parallelism)
        OperatorHarness(operator, state=state, index=index, parallelism=parallelism).open()
        assert made.items == [b"3", b"5"]


def test_unreadable_state_is_refused() -> None:
    state = OperatorState(checkpoint_id=CheckpointId(1), lists={COMMITTER_STATE: [b"\xff\x00"]})
    with pytest.raises(CorruptSnapshot):
        OperatorHarness(CommitterOperator(TracingSink([])), state=state).open()


class NamedCommitter(TracingCommitter):
    connector = "traced"


class NamedSink(TracingSink):
    def create_committer(self) -> Committer | None:
        return NamedCommitter(self)


class GlobalSink(NamedSink):
    def create_global_committer(self) -> Committer:
        return NamedCommitter(self)


@pytest.mark.parametrize(
    ("sink", "connector"),
    [(NamedSink([]), "traced"), (TracingSink([]), ""), (GlobalSink([]), "")],
    ids=["named", "not named", "more than the commit is to be done"],
)
def test_a_snapshot_tells_who_commits(sink: TracingSink, connector: str) -> None:
    task = SinkTask(sink)
    task.open()
    _, snapshot = task.checkpoint(1)
    [item] = snapshot.lists[COMMITTER_STATE].items
    [part] = msgspec.msgpack.decode(item)
    assert (part["sink_uid"], part["connector"]) == (task.committer.operator.context.uid, connector)


def test_committables_of_an_older_snapshot_are_committed() -> None:
    old = msgspec.msgpack.encode([{"checkpoint_id": 3, "subtask": 0, "announced": 1, "payloads": [b"txn"]}])
    state = OperatorState(checkpoint_id=CheckpointId(3), lists={COMMITTER_STATE: [old]})
    sink = TracingSink([])
    OperatorHarness(CommitterOperator(sink), state=state).open()
    assert "committer commit[txn]" in sink.log


def test_a_committer_has_its_counter_before_it_has_committed_anything() -> None:
    with OperatorHarness(CommitterOperator(TracingSink([]))).open() as harness:
        assert "committedCommittables" in harness.metrics.counts
