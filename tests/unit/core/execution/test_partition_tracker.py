"""Which partitions exist, and when nobody needs them any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from unistream.base.ids import AttemptId, EdgeId, JobId, PartitionId, SubtaskId, TaskManagerId, VertexId
from unistream.core.contract import Send
from unistream.core.execution import PartitionTracker
from unistream.core.execution.partition_tracker import RELEASES_MAX
from unistream.core.graph import Link, Pattern, Topology, build_regions
from unistream.model.messages import ReleasePartitions
from unistream.model.partition_type import PartitionType

JOB = JobId("0" * 32)
TM1, TM2 = TaskManagerId("tm-1"), TaskManagerId("tm-2")


def _link(
    name: str,
    pattern: Pattern = Pattern.ALL_TO_ALL,
    kind: PartitionType = PartitionType.BLOCKING,
    dataset: str | None = None,
) -> Link:
    """`name`: source, target."""
    return Link(
        id=EdgeId(name),
        source=VertexId(name[0]),
        target=VertexId(name[1]),
        pattern=pattern,
        partition=kind,
        dataset=None if dataset is None else EdgeId(dataset),
    )


def _tracker(parallelism: dict[str, int], *links: Link) -> PartitionTracker:
    topology = Topology([(VertexId(v), p) for v, p in parallelism.items()], links)
    return PartitionTracker(JOB, build_regions(topology))


def _subtask(text: str) -> SubtaskId:
    """``"a0"``."""
    return SubtaskId(VertexId(text[0]), int(text[1:]))


def _attempt(text: str, number: int = 0) -> AttemptId:
    return AttemptId(JOB, VertexId(text[0]), int(text[1:]), number)


def _partition(text: str) -> PartitionId:
    """``"a0>ab"``."""
    producer, _, edge = text.partition(">")
    return PartitionId(_subtask(producer), EdgeId(edge))


def _releases(sends: list[Send]) -> list[str]:
    """As ``tm-1 a0.0>ab``, sorted."""
    out = []
    for send in sends:
        assert isinstance(send.message, ReleasePartitions)
        assert send.message.job == JOB
        out += [f"{send.task_manager} {a.subtask}.{a.attempt}>{edge}" for a, edge in send.message.partitions]
    return sorted(out)


Step = Callable[[PartitionTracker], object]


def _produced(text: str, attempt: int = 0, at: TaskManagerId = TM1) -> Step:
    return lambda tracker: _releases(tracker.produced(_attempt(text, attempt), at))


def _finished(text: str) -> Step:
    return lambda tracker: _releases(tracker.finished(_subtask(text)))


def _restarted(*texts: str, attempt: int = 1) -> Step:
    return lambda tracker: _releases(tracker.restarted([_attempt(text, attempt) for text in texts]))


def _will_restart(*texts: str) -> Step:
    return lambda tracker: tracker.will_restart([_subtask(text) for text in texts])


def _lost(task_manager: TaskManagerId) -> Step:
    return lambda tracker: sorted(str(p) for p in tracker.lost(task_manager))


def _unreadable(text: str) -> Step:
    return lambda tracker: _releases(tracker.unreadable(_partition(text)))


def _end(tracker: PartitionTracker) -> object:
    return _releases(tracker.release_all())


A2B2 = ({"a": 2, "b": 2}, _link("ab"))
POINTWISE = ({"a": 2, "b": 4}, _link("ab", Pattern.POINTWISE))
CHAIN = ({"a": 1, "b": 1, "c": 1}, _link("ab"), _link("bc", kind=PartitionType.PIPELINED_BOUNDED))
TWO_READERS = ({"a": 1, "b": 1, "c": 1}, _link("ab", dataset="d"), _link("ac", dataset="d"))


@pytest.mark.parametrize(
    ("graph", "given", "then", "available"),
    [
        pytest.param(A2B2, [_produced("a0")], [], ["a0>ab"], id="a partition is there once it is produced"),
        pytest.param(
            A2B2, [_produced("a0"), _produced("a0")], [], ["a0>ab"], id="a repeated report changes nothing"
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _produced("a1", at=TM2), _finished("b0")],
            [],
            ["a0>ab", "a1>ab"],
            id="one of two consumers is not all",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _produced("a1", at=TM2), _finished("b0"), _finished("b1")],
            ["tm-1 a#0.0>ab", "tm-2 a#1.0>ab"],
            [],
            id="when all consumers have finished everything they read is released, wherever it lies",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _finished("b0"), _will_restart("b0"), _finished("b1")],
            [],
            ["a0>ab"],
            id="a consumer that has finished and waits for its restart reads it once more",
        ),
        pytest.param(
            A2B2,
            [
                *(_produced("a0"), _finished("b0"), _will_restart("b0"), _finished("b1")),
                *(_restarted("b0"), _finished("b0")),
            ],
            ["tm-1 a#0.0>ab"],
            [],
            id="and then it is not needed any more",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _finished("b0"), _finished("b0")],
            [],
            ["a0>ab"],
            id="a consumer that is reported twice is one",
        ),
        pytest.param(
            POINTWISE,
            [_produced("a0"), _produced("a1"), _finished("b0"), _finished("b1")],
            ["tm-1 a#0.0>ab"],
            ["a1>ab"],
            id="pointwise: only what the finished ones have read",
        ),
        pytest.param(
            CHAIN,
            [_produced("a0"), _finished("b0")],
            [],
            ["a0>ab"],
            id="a finished task whose region still runs may have to read again",
        ),
        pytest.param(
            CHAIN,
            [_produced("a0"), _finished("b0"), _finished("c0")],
            ["tm-1 a#0.0>ab"],
            [],
            id="a region that has finished is finished for good",
        ),
        pytest.param(
            TWO_READERS,
            [_produced("a0"), _finished("b0")],
            [],
            ["a0>d"],
            id="a data set with two readers waits for both",
        ),
        pytest.param(
            TWO_READERS,
            [_produced("a0"), _finished("b0"), _finished("c0")],
            ["tm-1 a#0.0>d"],
            [],
            id="a data set is released once",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _restarted("a0")],
            ["tm-1 a#0.0>ab"],
            [],
            id="a restarted producer's old output is released",
        ),
        pytest.param(
            A2B2,
            [_restarted("a0"), _produced("a0")],
            ["tm-1 a#0.0>ab"],
            [],
            id="a report of an attempt that is not current is released at once",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _produced("a0", 1, TM2)],
            ["tm-1 a#0.0>ab"],
            ["a0>ab"],
            id="a newer attempt takes the place of an older one",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _finished("b0"), _restarted("b0"), _finished("b1")],
            [],
            ["a0>ab"],
            id="a consumer that runs again reads again",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _finished("b0"), _restarted("b0"), _finished("b1"), _finished("b0")],
            ["tm-1 a#0.0>ab"],
            [],
            id="and has finished when it has finished again",
        ),
        pytest.param(
            A2B2,
            [_finished("b0"), _finished("b1"), _produced("a0", 1)],
            ["tm-1 a#0.1>ab"],
            [],
            id="what nobody will read is released as soon as it is there",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _produced("a1", at=TM2), _lost(TM1)],
            ["a#0>ab"],
            ["a1>ab"],
            id="a lost worker takes its partitions along",
        ),
        pytest.param(A2B2, [_produced("a0"), _lost(TM1), _lost(TM1)], [], [], id="a worker is lost once"),
        pytest.param(
            A2B2, [_lost(TM1), _produced("a0")], [], [], id="a late report from a lost worker is not believed"
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _lost(TM1), _finished("b0"), _finished("b1")],
            [],
            [],
            id="nothing is asked of a lost worker",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _unreadable("a0>ab")],
            ["tm-1 a#0.0>ab"],
            [],
            id="an unreadable partition is not available, and its rest is released",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _unreadable("a0>ab"), _produced("a0")],
            ["tm-1 a#0.0>ab"],
            [],
            id="a repeated report does not bring an unreadable partition back",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _unreadable("a0>ab"), _produced("a0", 1)],
            [],
            ["a0>ab"],
            id="a new attempt does",
        ),
        pytest.param(A2B2, [_unreadable("a0>ab")], [], [], id="unreadable and unknown: nothing to do"),
        pytest.param(
            ({"a": 1, "b": 1}, _link("ab", kind=PartitionType.PIPELINED_BOUNDED)),
            [_produced("a0")],
            [],
            [],
            id="a pipelined partition leaves with its consumer and is not tracked",
        ),
        pytest.param(
            A2B2,
            [_produced("a0"), _produced("a1", at=TM2), _end],
            ["tm-1 a#0.0>ab", "tm-2 a#1.0>ab"],
            [],
            id="a job that ends leaves nothing",
        ),
        pytest.param(
            A2B2, [_end, _produced("a0")], ["tm-1 a#0.0>ab"], [], id="nor does what is late for its end"
        ),
        pytest.param(
            ({"a": 1, "b": 1}, _link("ab", kind=PartitionType.BLOCKING_PERSISTENT)),
            [_produced("a0"), _finished("b0"), _end],
            [],
            ["a0>ab"],
            id="a persistent partition outlives its readers and its job",
        ),
    ],
)
def test_tracker(
    graph: tuple[dict[str, int], Link], given: list[Step], then: list[str], available: list[str]
) -> None:
    parallelism, *links = graph
    tracker = _tracker(parallelism, *links)
    result: object = []
    for step in given:
        result = step(tracker)
        tracker.validate()
    assert result == then
    assert [p for p in available if not tracker.is_available(_partition(p))] == []
    assert sum(len(held) for held in tracker._held.values()) == len(available)


def test_a_worker_stays_as_long_as_something_there_is_needed() -> None:
    tracker = _tracker(*A2B2)
    assert TM1 not in tracker.holders
    tracker.produced(_attempt("a0"), TM1)
    assert TM1 in tracker.holders
    assert tracker.holders == {TM1}
    tracker.finished(_subtask("b0"))
    tracker.finished(_subtask("b1"))
    assert TM1 not in tracker.holders
    assert tracker.holders == frozenset()


def test_one_message_never_outgrows_a_frame() -> None:
    tracker = _tracker({"a": RELEASES_MAX + 1, "b": 1}, _link("ab"))
    for index in range(RELEASES_MAX + 1):
        tracker.produced(_attempt(f"a{index}"), TM1)
    sends = tracker.finished(_subtask("b0"))
    assert [len(send.message.partitions) for send in sends] == [RELEASES_MAX, 1]  # type: ignore[union-attr]


LINKS = (
    _link("ab"),
    _link("ac", Pattern.POINTWISE),
    _link("bd", Pattern.POINTWISE, PartitionType.PIPELINED_BOUNDED),
    _link("de"),
    _link("ce", Pattern.POINTWISE),
)
PARALLELISM = {"a": 3, "b": 2, "c": 3, "d": 2, "e": 2}


class TrackerMachine(RuleBasedStateMachine):
    """Against a model that asks of each copy who still reads it."""

    subtasks = st.sampled_from([f"{v}{i}" for v, p in PARALLELISM.items() for i in range(p)])
    workers = st.sampled_from([f"tm-{i}" for i in range(6)]).map(TaskManagerId)

    def __init__(self) -> None:
        super().__init__()
        self.tracker = _tracker(PARALLELISM, *LINKS)
        self.regions = self.tracker._regions
        self.copies: dict[PartitionId, tuple[int, TaskManagerId]] = {}
        self.current: dict[SubtaskId, int] = {}
        self.finished: set[SubtaskId] = set()
        self.gone: set[TaskManagerId] = set()
        self.damaged: set[tuple[PartitionId, int]] = set()

    def _needed(self, partition: PartitionId) -> bool:
        (link,) = (link for link in LINKS if link.id == partition.edge)
        consumers = self.regions.topology.consumers(link, partition.producer.index)
        regions = [self.regions.of(SubtaskId(link.target, i)) for i in consumers]
        return any(not self.finished.issuperset(region.subtasks) for region in regions)

    def _check(self, sends: list[Send], expected: set[tuple[TaskManagerId, int, PartitionId]]) -> None:
        found = [
            (send.task_manager, attempt.attempt, PartitionId(attempt.subtask, edge))
            for send in sends
            for attempt, edge in send.message.partitions  # type: ignore[union-attr]
        ]
        assert len(found) == len(set(found)), "nothing is released twice by one event"
        assert set(found) == expected

    def _forget(self, drop: Callable[[PartitionId], bool]) -> set[tuple[TaskManagerId, int, PartitionId]]:
        dropped = {p: copy for p, copy in self.copies.items() if drop(p)}
        for partition in dropped:
            del self.copies[partition]
        return {(worker, attempt, partition) for partition, (attempt, worker) in dropped.items()}

    @rule(text=subtasks, worker=workers, ahead=st.integers(-1, 1))
    def produce(self, text: str, worker: TaskManagerId, ahead: int) -> None:
        subtask = _subtask(text)
        number = max(0, self.current.get(subtask, 0) + ahead)
        sends = self.tracker.produced(_attempt(text, number), worker)
        made = [
            PartitionId(subtask, link.id)
            for link in LINKS
            if link.source == subtask.vertex and link.partition is PartitionType.BLOCKING
        ]
        expected: set[tuple[TaskManagerId, int, PartitionId]] = set()
        if made and worker not in self.gone:
            late = number < self.current.get(subtask, 0)
            if not late:
                self.current[subtask] = number
                expected |= self._forget(lambda p: p in made and self.copies[p][0] < number)
            for partition in made:
                if late or not self._needed(partition) or (partition, number) in self.damaged:
                    expected.add((worker, number, partition))
                elif partition not in self.copies:
                    self.copies[partition] = (number, worker)
        self._check(sends, expected)

    @rule(text=subtasks)
    def finish(self, text: str) -> None:
        sends = self.tracker.finished(_subtask(text))
        self.finished.add(_subtask(text))
        self._check(sends, self._forget(lambda p: not self._needed(p)))

    @rule(texts=st.lists(subtasks, unique=True, max_size=4))
    def restart(self, texts: list[str]) -> None:
        attempts = [_attempt(t, self.current.get(_subtask(t), 0) + 1) for t in texts]
        sends = self.tracker.restarted(attempts)
        for attempt in attempts:
            self.current[attempt.subtask] = attempt.attempt
            self.finished.discard(attempt.subtask)
        again = {attempt.subtask for attempt in attempts}
        self._check(sends, self._forget(lambda p: p.producer in again))

    @rule(texts=st.lists(subtasks, unique=True, max_size=4))
    def announce_restart(self, texts: list[str]) -> None:
        self.tracker.will_restart([_subtask(text) for text in texts])
        self.finished.difference_update(_subtask(text) for text in texts)

    @rule(worker=workers)
    def lose(self, worker: TaskManagerId) -> None:
        lost = self.tracker.lost(worker)
        self.gone.add(worker)
        assert set(lost) == {p for _, _, p in self._forget(lambda p: self.copies[p][1] == worker)}

    @rule(text=subtasks, link=st.sampled_from(LINKS))
    def damage(self, text: str, link: Link) -> None:
        partition = PartitionId(_subtask(text), link.id)
        sends = self.tracker.unreadable(partition)
        if partition in self.copies:
            self.damaged.add((partition, self.copies[partition][0]))
        self._check(sends, self._forget(lambda p: p == partition))

    @invariant()
    def the_books_agree(self) -> None:
        self.tracker.validate()
        assert set(self.tracker._copies) == set(self.copies)
        assert self.tracker.holders == {worker for _, worker in self.copies.values()}


def test_what_lies_behind_a_checkpoint_is_released_and_counts_as_available() -> None:
    tracker = _tracker(*A2B2)
    for name in ("a0", "a1"):
        tracker.produced(_attempt(name), TM1)
    assert _releases(tracker.passed(_subtask("a0"))) == ["tm-1 a#0.0>ab"]
    assert tracker.passed(_subtask("a0")) == [], "once"
    assert tracker.has_passed(_partition("a0>ab"))
    assert not tracker.has_passed(_partition("a1>ab"))
    assert tracker.lost(TM1) == (_partition("a1>ab"),), "only what somebody will read is missed"
    assert tracker.is_available(_partition("a0>ab"))
    assert not tracker.is_available(_partition("a1>ab"))
    assert tracker.restarted([_attempt("a0", 1)]) == []
    assert _releases(tracker.produced(_attempt("a0", 1), TM2)) == ["tm-2 a#0.1>ab"], "nobody needs it"
    tracker.validate()


def test_a_result_that_outlives_the_job_stays_behind_a_checkpoint() -> None:
    tracker = _tracker({"a": 1, "b": 1}, _link("ab", kind=PartitionType.BLOCKING_PERSISTENT))
    tracker.produced(_attempt("a0"), TM1)
    assert tracker.passed(_subtask("a0")) == []
    assert TM1 in tracker.holders


TestTrackerMachine = TrackerMachine.TestCase
TestTrackerMachine.settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
