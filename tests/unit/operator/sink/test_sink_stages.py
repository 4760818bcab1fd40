"""What stands before and behind a committer, joint commits, and results of commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from unistream.base.errors import ProtocolError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.elements import Batch
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import OperatorState
from unistream.operator.sink import CommittableStageOperator, CommitterOperator, OnCommitOperator
from unistream.operator.sink.committables import NOTHING_MORE, announce
from unistream.operator.sink.committer import StageCommitter
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    CommittableStage,
    Committer,
    SinkContext,
    SinkWriter,
)
from unistream.testing.harness import OperatorHarness, restore_state


@dataclass
class OneByOne:
    """Notes every commit; `answers`: results of the next ones."""

    calls: list[Any] = field(default_factory=list)
    answers: list[CommitResult] = field(default_factory=list)
    closed: int = 0

    def open(self, context: SinkContext) -> None: ...

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        self.calls.append((request.checkpoint_id, *(p.decode() for p in request.committables)))
        return self.answers.pop(0) if self.answers else CommitResult(CommitOutcome.COMMITTED)

    def close(self) -> None:
        self.closed += 1


class Together(OneByOne):
    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        self.calls.append([(r.checkpoint_id, *(p.decode() for p in r.committables)) for r in requests])
        return self.answers.pop(0) if self.answers else CommitResult(CommitOutcome.COMMITTED)


@dataclass
class Sink:
    committer: Committer
    name: str = "sink"
    global_committer: bool = True

    def check(self, schema: pa.Schema | None) -> None: ...

    def create_writer(self) -> SinkWriter:
        raise AssertionError("not used")

    def create_committer(self) -> Committer:
        return self.committer


@dataclass
class Joined:
    """A stage that makes one committable of all."""

    seen: list[int] = field(default_factory=list)

    def open(self, context: SinkContext) -> None: ...

    def process(self, checkpoint_id: CheckpointId, committables: Sequence[bytes]) -> Sequence[bytes]:
        self.seen.append(checkpoint_id)
        return [b"+".join(committables)]

    def close(self) -> None: ...


def rows(harness: OperatorHarness) -> list[tuple[int, int | None, bytes | None]]:
    """(checkpoint, count, payload) that came out."""
    found = [(r["checkpoint_id"], r["count"], r["payload"]) for r in harness.rows()]
    harness.clear()
    return found


def committer(made: Committer, **options: Any) -> OperatorHarness:
    return OperatorHarness(CommitterOperator(Sink(made)), **options).open()


def test_the_checkpoints_of_one_notice_go_together_to_a_committer_that_can() -> None:
    made = Together()
    harness = committer(made)
    harness.process(announce(1, 0, 1, [b"a"]))
    harness.operator.notify_checkpoint_aborted(CheckpointId(1))
    harness.process(announce(2, 0, 1, []))
    harness.process(announce(3, 0, 1, [b"b", b"c"]))
    harness.complete(3)
    assert made.calls == [[(1, "a"), (3, "b", "c")]]
    assert harness.commits == [(3, 0, None)]


@pytest.mark.parametrize("make", [OneByOne, Together])
def test_restored_checkpoints_are_committed_before_anything_else(make: Callable[[], OneByOne]) -> None:
    first = committer(OneByOne())
    first.process(announce(1, 0, 1, [b"a"]))
    first.process(announce(2, 0, 1, [b"b"]))
    state = restore_state([first.snapshot(2)], 2)
    made = make()
    harness = committer(made, state=state)
    assert made.calls == ([[(1, "a"), (2, "b")]] if isinstance(made, Together) else [(1, "a"), (2, "b")])
    assert rows(harness) == [(1, 1, None), (1, None, b"a"), (2, 1, None), (2, None, b"b")]


def test_only_what_is_unfinished_is_tried_again() -> None:
    again = CommitResult(CommitOutcome.RETRY, rows=1, again=(b"c", b"b2"))
    made = OneByOne(answers=[again, CommitResult(CommitOutcome.COMMITTED, rows=2)])
    harness = committer(made)
    harness.process(announce(1, 0, 1, [b"a", b"b", b"c"]))
    harness.complete(1)
    assert made.calls == [(1, "a", "b", "c"), (1, "c", "b2")]
    assert harness.commits == [(1, 3, None)]
    assert harness.metrics.counts["retriedCommittables"] == 2


def test_what_failed_for_a_known_reason_is_dropped_counted_and_not_announced() -> None:
    made = OneByOne(answers=[CommitResult(CommitOutcome.COMMITTED, failed=(b"b",), reason="gone")])
    harness = committer(made)
    harness.process(announce(1, 0, 1, [b"a", b"b"]))
    harness.complete(1)
    assert rows(harness) == [(1, 1, None), (1, None, b"a")]
    assert harness.metrics.counts["failedCommittables"] == 1
    assert harness.snapshot(2).is_empty


def test_a_whole_request_can_fail_for_a_known_reason() -> None:
    made = OneByOne(answers=[CommitResult(CommitOutcome.FAILED, reason="gone")])
    harness = committer(made)
    harness.process(announce(1, 0, 1, [b"a", b"b"]))
    harness.complete(1)
    assert rows(harness) == [(1, 0, None)]
    assert harness.metrics.counts["failedCommittables"] == 2


class Background:
    """Runs when it is requested."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def __call__(self, action: Callable[[], None], then: Callable[[], None]) -> None:
        self.waiting.append((action, then))

    def run(self) -> None:
        action, then = self.waiting.pop(0)
        action()
        then()


def in_background(made: Committer, background: Background) -> OperatorHarness:
    harness = OperatorHarness(CommitterOperator(Sink(made)))
    object.__setattr__(harness.context, "run_in_background", background)
    return harness.open()


def test_a_second_notice_waits_for_the_first_and_barriers_for_neither() -> None:
    made, background = OneByOne(), Background()
    harness = in_background(made, background)
    for number in (1, 2, 3):
        harness.process(announce(number, 0, 1, [b"%d" % number]))
        assert not harness.snapshot(number).is_empty  # also what is being committed
        harness.complete(number)
    assert (made.calls, len(background.waiting)) == ([], 1)
    background.run()
    assert (made.calls, len(background.waiting)) == ([(1, "1")], 1)
    background.run()
    assert made.calls == [(1, "1"), (2, "2"), (3, "3")]
    assert background.waiting == []
    assert harness.snapshot(4).is_empty


class Recording(Together):
    """`recorded`: the offsets of each permit."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[list[int]] = []

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        self.recorded.append([one.offsets["0"] for one in permit.positions])
        return super().commit_all(permit, requests)


def positions(offset: int) -> tuple[SourcePositions, ...]:
    return (SourcePositions(uid=OperatorUid("in"), connector="kafka", name="t", offsets={"0": offset}),)


def test_a_commit_has_the_positions_of_the_newest_notice_that_it_covers() -> None:
    made, background = Recording(), Background()
    harness = in_background(made, background)
    for number in (1, 2, 3):
        harness.process(announce(number, 0, 1, [b"%d" % number]))
        context = harness.context
        permit = CommitPermit(
            lineage=context.lineage,
            checkpoint_id=CheckpointId(number),
            epoch=context.epoch,
            positions=positions(10 * number),
        )
        harness.operator.notify_checkpoint_complete(permit)
    background.run()
    background.run()
    assert made.calls == [[(1, "1")], [(2, "2"), (3, "3")]]
    assert made.recorded == [[10], [30]]


def test_a_restored_checkpoint_is_committed_with_its_positions() -> None:
    first = committer(OneByOne())
    first.process(announce(2, 0, 1, [b"b"]))
    state = replace(restore_state([first.snapshot(2)], 2), positions=positions(20))
    made = Recording()
    committer(made, state=state)
    assert made.calls == [[(2, "b")]]
    assert made.recorded == [[20]]


def test_a_committer_is_closed_behind_the_commit_that_is_going_on() -> None:
    background = Background()

    class Slow(OneByOne):
        def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
            harness.close()
            assert self.closed == 0
            return super().commit(permit, request)

    made = Slow()
    harness = in_background(made, background)
    harness.process(announce(1, 0, 1, [b"a"]))
    harness.complete(1)
    background.waiting[0][0]()
    assert made.closed == 1


def test_those_behind_are_told_of_every_notice_and_of_the_end() -> None:
    harness = committer(OneByOne())
    harness.complete(1)
    harness.process(announce(2, 0, 1, [b"a"]))
    harness.operator.end_input(0)
    harness.complete(4)
    assert rows(harness) == [
        (1, 0, None),
        (2, 1, None),
        (2, None, b"a"),
        (4, 0, None),
        (NOTHING_MORE, 0, None),
    ]


# --- before the committer ---------------------------------------------------------------------------


def test_a_stage_before_the_committer_acts_at_the_barrier() -> None:
    function = Joined()
    stage = CommittableStage(name="compact", create=lambda: function, parallel=False)
    harness = OperatorHarness(CommittableStageOperator(Sink(OneByOne()), stage)).open()
    harness.process(announce(1, 0, 2, [b"a"], 30))
    harness.process(announce(1, 1, 2, [b"b"], 20))
    harness.process(announce(2, 0, 2, [b"c"]))  # its producer is ahead
    assert rows(harness) == []
    harness.snapshot(1)
    assert [row["watermark"] for row in harness.rows()] == [20, None], "it goes through"
    assert rows(harness) == [(1, 1, None), (1, None, b"a+b")]
    harness.process(announce(2, 1, 2, []))
    harness.operator.end_input(0)
    assert rows(harness) == [(2, 1, None), (2, None, b"c")]


def test_a_stage_refuses_a_barrier_before_what_was_announced() -> None:
    stage = CommittableStage(name="compact", create=Joined)
    harness = OperatorHarness(CommittableStageOperator(Sink(OneByOne()), stage)).open()
    summary = announce(1, 0, 1, [b"a", b"b"]).slice(0, 2)
    harness.process(summary)
    with pytest.raises(ProtocolError, match="1 committables have arrived of 2"):
        harness.snapshot(1)


# --- behind the committer ---------------------------------------------------------------------------


def on_commit(made: Committer, *, single: bool = False, **options: Any) -> OperatorHarness:
    operator = OnCommitOperator(Sink(OneByOne()), lambda: made, single_producer=single)
    return OperatorHarness(operator, **options).open()


def test_a_global_committer_waits_for_all_committers_of_a_checkpoint() -> None:
    made = OneByOne()
    harness = on_commit(made)
    harness.process(announce(1, 0, 2, [b"a"]))
    harness.process(announce(2, 0, 2, []))
    assert made.calls == []
    harness.process(announce(1, 1, 2, [b"b"]))
    assert made.calls == [(1, "a", "b")]


def test_a_committer_that_passes_over_a_checkpoint_holds_up_nothing() -> None:
    made = OneByOne()
    harness = on_commit(made)
    harness.process(announce(1, 0, 2, [b"a"]))
    harness.process(announce(2, 1, 2, [b"b"]))  # had no part in checkpoint 1, which was aborted
    assert made.calls == [(1, "a")]
    harness.process(announce(NOTHING_MORE, 0, 2, []))  # ended early
    assert made.calls == [(1, "a"), (2, "b")]


def test_a_stage_beside_each_committer_looks_at_no_other() -> None:
    function = Joined()
    stage = CommittableStage(name="note", create=lambda: function)
    harness = on_commit(StageCommitter(stage), single=True, index=1, parallelism=2)
    harness.process(announce(1, 1, 2, [b"a", b"b"]))
    harness.process(announce(NOTHING_MORE, 1, 2, []))
    assert function.seen == [1]
    assert rows(harness) == [(1, 1, None), (1, None, b"a+b"), (NOTHING_MORE, 0, None)]
    assert harness.commits == []


def test_a_restored_part_is_completed_by_what_is_committed_again() -> None:
    first = on_commit(OneByOne())
    first.process(announce(1, 0, 2, [b"a"]))
    state = restore_state([first.snapshot(2)], 2)
    made = OneByOne()
    harness = on_commit(made, state=state)
    harness.process(announce(1, 1, 2, [b"b"]))
    harness.process(announce(2, 1, 2, []))
    assert made.calls == []
    harness.process(announce(2, 0, 2, []))
    assert made.calls == [(1, "a", "b")]


def test_what_was_restored_behind_finished_committers_is_not_waited_for() -> None:
    first = on_commit(OneByOne())
    first.process(announce(1, 0, 2, [b"a"]))
    made = OneByOne()
    harness = on_commit(made, state=restore_state([first.snapshot(2)], 2))
    harness.operator.end_input(0)
    assert made.calls == [(1, "a")]


def test_nothing_was_restored() -> None:
    made = OneByOne()
    harness = on_commit(made, state=OperatorState(checkpoint_id=CheckpointId(3)))
    harness.operator.process_batch(Batch(announce(3, 0, 1, [])), 0)
    assert made.calls == []
