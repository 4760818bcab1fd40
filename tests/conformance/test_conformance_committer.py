"""What writer and committer of a sink do, as Flink's tests tell it in words (`committerOperator`)."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

import unistream as us
from tests.support.conformance.sink_traces import TracingSink
from unistream.base.config import COMMITTER_RETRIES
from unistream.base.errors import ProtocolError, Transient
from unistream.base.ids import CheckpointId
from unistream.model.snapshot import OperatorState
from unistream.operator.sink import COMMITTER_STATE, CommitterOperator, SinkWriterOperator
from unistream.operator.sink.committables import COMMITTABLES
from unistream.port.sink import Committer
from unistream.testing.harness import OperatorHarness, restore_state

RETRY = "-> retryLater"


class WriterOnly(TracingSink):
    def create_committer(self) -> Committer | None:
        return None


def announced(checkpoint: int, subtask: int, count: int | None, *payloads: bytes) -> pa.RecordBatch:
    """A summary (unless `count` is None) and committables, as one of 10 writers sends them."""
    rows = [*([] if count is None else [(count, None)]), *((None, payload) for payload in payloads)]
    columns = {
        "checkpoint_id": [checkpoint] * len(rows),
        "subtask": [subtask] * len(rows),
        "of": [None if count is None else 10 for count, _ in rows],
        "count": [count for count, _ in rows],
        "watermark": [None for _ in rows],
        "payload": [payload for _, payload in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=COMMITTABLES)


def committer(sink: TracingSink, **options: Any) -> OperatorHarness:
    return OperatorHarness(CommitterOperator(sink), **options).open()


def commits(sink: TracingSink) -> list[str]:
    return [call.removeprefix("committer ") for call in sink.log if call.startswith("committer commit[")]


def test_committables_are_committed_once_and_shown_to_what_follows() -> None:
    sink = TracingSink([], [])
    harness = committer(sink, index=3, parallelism=10)
    harness.process(announced(1, 7, 1, b"a"))
    assert commits(sink) == []
    for _ in range(2):
        harness.complete(1)
        assert commits(sink) == ["commit[a]"]
    shown = [(r["checkpoint_id"], r["subtask"], r["count"], r["payload"]) for r in harness.rows()]
    assert shown[:2] == [(1, 3, 1, None), (1, 3, None, b"a")]
    assert not any(payload for *_, payload in shown[2:]), "nor are they shown twice"
    env = us.Environment()
    rows = env.from_source(us.StaticSource(pa.table({"n": [1]})), us.WatermarkStrategy.no_watermarks(), "n")
    rows.sink_to(sink)
    graph = env.stream_graph("job")
    [last] = [node.id for node in graph.nodes if isinstance(node.operator, CommitterOperator)]
    assert last not in {edge.source for edge in graph.edges}, "without more stages nobody hears of it"


def test_restored_committables_are_committed_before_anything_else() -> None:
    """Both at once, as of the checkpoint they were made for; what follows sees them as this subtask's."""
    snapshots = []
    for index in range(2):
        before = committer(TracingSink([], []), index=index, parallelism=2)
        before.process(announced(0, index, 1, f"c{index}".encode()))
        snapshots.append(before.snapshot(0))
    sink = TracingSink([], [], global_committer=True)
    operator = CommitterOperator(sink)
    harness = OperatorHarness(operator, state=restore_state(snapshots, 0), index=9, parallelism=10)
    operator.setup(harness.context, harness.output)
    operator.initialize_state(restore_state(snapshots, 0))
    assert commits(sink) == ["commit[c0,c1]"]
    operator.open()
    assert commits(sink) == ["commit[c0,c1]"]
    shown = {(r["checkpoint_id"], r["subtask"]) for r in harness.rows() if r["payload"] is not None}
    assert shown == {(0, 9)}


@pytest.mark.parametrize(
    ("config", "asked", "fails"),
    [
        pytest.param({COMMITTER_RETRIES.key: "0"}, 1, True, id="none"),
        pytest.param({COMMITTER_RETRIES.key: "1"}, 1, False, id="one"),
        pytest.param({}, 10, False, id="by default ten"),
        pytest.param({}, 11, True, id="by default not eleven"),
    ],
)
def test_a_commit_is_tried_again_as_often_as_the_option_says(
    config: dict[str, str], asked: int, fails: bool
) -> None:
    sink = TracingSink([], [RETRY] * asked)
    harness = committer(sink, config=config)
    harness.process(announced(1, 0, 1, b"a"))
    if fails:
        with pytest.raises(Transient, match="failed to commit 1 committables"):
            harness.complete(1)
    else:
        harness.complete(1)
    tried = [call for call in sink.log if "commit[a" in call]
    assert len(tried) == asked + (0 if fails else 1), "at once, in a loop"


def test_a_second_summary_is_refused() -> None:
    sink = TracingSink([], [])
    harness = committer(sink)
    harness.process(announced(1, 0, 1, b"a"))
    harness.process(announced(1, 1, 1, b"b"))
    harness.process(announced(2, 0, 1, b"c"))
    with pytest.raises(ProtocolError, match="announced twice"):
        harness.process(announced(1, 0, 1))
    assert commits(sink) == []


@pytest.mark.parametrize("later", [False, True])
def test_more_committables_than_announced_are_refused(later: bool) -> None:
    sink = TracingSink([], [])
    harness = committer(sink)
    if later:
        harness.process(announced(1, 0, 1, b"a"))
    with pytest.raises(ProtocolError, match="more committables than the 1"):
        harness.process(announced(1, 0, None, b"b") if later else announced(1, 0, 1, b"a", b"b"))
    assert commits(sink) == []


@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_writer_at_its_end_flushes_sends_all_and_takes_nothing_more(checkpointing: bool) -> None:
    sink = TracingSink([], [])
    state = OperatorState(checkpoint_id=CheckpointId(4)) if checkpointing else None
    harness = OperatorHarness(SinkWriterOperator(sink), state=state, checkpointing=checkpointing).open()
    harness.process({"n": [1]})
    harness.operator.end_input(0)
    assert sink.log[-2:] == ["writer flush(endOfInput=true)", "writer prepareCommit->[txn0.0.0]"]
    sent = [(row["checkpoint_id"], row["count"], row["payload"]) for row in harness.rows()]
    last = 5 if checkpointing else 1
    assert sent == [(last, 1, None), (last, None, b"txn0.0.0")], "the id after the last one that it knows"
    harness.clear()
    log = list(sink.log)
    harness.operator.prepare_snapshot_pre_barrier(CheckpointId(last))
    assert harness.rows() == []
    assert sink.log == log
    with pytest.raises(ProtocolError, match="after the end of input"):
        harness.process({"n": [1]})


def test_a_writer_without_a_committer_flushes_and_sends_nothing() -> None:
    sink = WriterOnly([], [])
    harness = OperatorHarness(SinkWriterOperator(sink)).open()
    harness.process({"n": [1]})
    harness.operator.prepare_snapshot_pre_barrier(CheckpointId(1))
    assert sink.log[-1] == "writer flush(endOfInput=false)"
    assert harness.batches() == []


def test_what_is_restored_names_its_checkpoint() -> None:
    """The state of a committer is as many lists as checkpoints wait, so that any subtask can commit one."""
    harness = committer(TracingSink([], []))
    for checkpoint in (1, 2):
        harness.process(announced(checkpoint, 0, 1, b"a"))
    parts = [
        part["checkpoint_id"]
        for item in harness.snapshot(2).lists[COMMITTER_STATE].items
        for part in msgspec.msgpack.decode(item)
    ]
    assert sorted(parts) == [1, 2]
