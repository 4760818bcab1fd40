"""Barriers that overtake, barriers that never wait, and redistributed in-flight rows: as tables."""

from __future__ import annotations

import pytest
from msgspec import structs

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, SubtaskId, VertexId
from unistream.core.restore import with_in_flight
from unistream.core.task import (
    Abort,
    AlternatingAligner,
    BarrierAligner,
    BarrierSettings,
    BarrierTracker,
    Prioritize,
    StartPersisting,
    StopPersisting,
    Trigger,
)
from unistream.core.task.barriers import AbortReason
from unistream.model.codec import decode_event, encode_event
from unistream.model.elements import AlignmentType, CheckpointBarrier
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.in_flight import InFlightHandle, InFlightRun
from unistream.model.snapshot import Manifest, TaskRestore, TaskSnapshot, VertexSnapshot
from unistream.model.snapshot_kind import SnapshotKind

MODE = "execution.checkpointing.mode"
UNALIGNED = "execution.checkpointing.unaligned.enabled"
TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"


def barrier(
    number: int, alignment: AlignmentType = AlignmentType.ALIGNED, timeout: int | None = None
) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(number), 0, alignment=alignment, timeout_ms=timeout)


@pytest.mark.parametrize(
    ("config", "handler", "sent"),
    [
        pytest.param({}, BarrierAligner, barrier(1), id="aligned"),
        pytest.param({MODE: "AT_LEAST_ONCE"}, BarrierTracker, barrier(1), id="at least once"),
        pytest.param(
            {UNALIGNED: "true"}, AlternatingAligner, barrier(1, AlignmentType.UNALIGNED), id="unaligned"
        ),
        pytest.param(
            {UNALIGNED: "true", TIMEOUT: "2 s"}, AlternatingAligner, barrier(1, timeout=2_000), id="in time"
        ),
        pytest.param({TIMEOUT: "2 s"}, BarrierAligner, barrier(1), id="a timeout alone does nothing"),
    ],
)
def test_options_choose_the_handler_and_the_barrier(
    config: dict[str, str], handler: type, sent: CheckpointBarrier
) -> None:
    settings = BarrierSettings.of(Configuration(config))
    assert type(settings.handler(2)) is handler
    assert settings.stamped(barrier(1)) == sent
    savepoint = CheckpointBarrier(CheckpointId(1), 0, SnapshotKind.SAVEPOINT)
    assert settings.stamped(savepoint) == savepoint


@pytest.mark.parametrize(
    ("config", "handler"),
    [
        pytest.param({}, BarrierAligner, id="aligned"),
        pytest.param({MODE: "AT_LEAST_ONCE"}, BarrierAligner, id="at least once"),
        pytest.param({UNALIGNED: "true"}, AlternatingAligner, id="unaligned, where they keep their place"),
    ],
)
def test_barriers_behind_committables_are_aligned_in_any_mode(config: dict[str, str], handler: type) -> None:
    settings = BarrierSettings.of(Configuration(config))
    assert type(settings.handler(2, committables=True)) is handler


def test_unaligned_at_least_once_is_refused() -> None:
    with pytest.raises(ConfigError, match=rf"{UNALIGNED} is true and {MODE} is AT_LEAST_ONCE"):
        BarrierSettings.of(Configuration({MODE: "AT_LEAST_ONCE", UNALIGNED: "true"}))


@pytest.mark.parametrize(
    ("given", "there", "behind"),
    [
        (barrier(1), AlignmentType.ALIGNED, AlignmentType.ALIGNED),
        (barrier(1, AlignmentType.UNALIGNED), AlignmentType.FORCED, AlignmentType.UNALIGNED),
        (barrier(1, timeout=5), AlignmentType.FORCED, AlignmentType.ALIGNED),
    ],
)
def test_a_barrier_keeps_its_place_on_an_edge_and_goes_on_as_before(
    given: CheckpointBarrier, there: AlignmentType, behind: AlignmentType
) -> None:
    assert given.in_place().alignment is there
    assert not given.in_place().may_time_out
    assert given.in_place().resumed().alignment is behind
    assert decode_event(encode_event(given.in_place())) == given.in_place()


def test_an_abort_from_outside_ends_what_is_persisted() -> None:
    handler = AlternatingAligner(2)
    handler.on_barrier(0, barrier(1, AlignmentType.UNALIGNED), 0)
    assert [handler.persists(0), handler.persists(1)] == [False, True]
    cancelled = Abort(CheckpointId(1), AbortReason.CANCELLED)
    assert handler.cancel(CheckpointId(1)) == [StopPersisting(CheckpointId(1)), cancelled]
    assert not handler.persists(1)
    assert handler.cancel(CheckpointId(1)) == []
    assert handler.on_barrier(1, barrier(1, AlignmentType.UNALIGNED), 0) == []


def test_an_announced_barrier_overtakes_at_the_timeout_and_not_before() -> None:
    handler = AlternatingAligner(2)
    assert handler.on_announcement(0, barrier(1, timeout=100)) == []
    assert handler.deadline_ms == 100
    assert handler.on_time(99) == []
    assert handler.on_time(100) == [Prioritize(0)]
    assert handler.deadline_ms is None


def test_an_announced_barrier_that_waits_for_nothing_overtakes_at_once() -> None:
    handler = AlternatingAligner(2)
    overtaking = barrier(1, AlignmentType.UNALIGNED)
    assert handler.on_announcement(0, overtaking) == [Prioritize(0)]
    assert handler.on_announcement(1, overtaking) == [Prioritize(1)]
    assert handler.on_barrier(0, overtaking, 0) == [StartPersisting(CheckpointId(1)), Trigger(overtaking)]
    assert handler.on_barrier(1, overtaking, 0) == [StopPersisting(CheckpointId(1))]


def test_at_least_once_a_checkpoint_that_the_master_gave_up_is_not_triggered() -> None:
    tracker = BarrierTracker(2)
    tracker.on_barrier(0, barrier(1), 0)
    assert tracker.cancel(CheckpointId(1)) == [Abort(CheckpointId(1), AbortReason.CANCELLED)]
    assert tracker.on_barrier(1, barrier(1), 0) == []
    assert tracker.pending is None


# --- dealt out ------------------------------------------------------------------------------------


def graph(ship: Ship, sources: int, targets: int) -> JobGraph:
    def vertex(name: str, width: int, inputs: int) -> JobVertex:
        operators = (OperatorInfo(uid=OperatorUid(name), name=name),)
        return JobVertex(
            id=VertexId(name),
            name=name,
            operators=operators,
            parallelism=width,
            max_parallelism=8,
            inputs=inputs,
        )

    edge = JobEdge(id=EdgeId("e"), source=VertexId("a"), target=VertexId("b"), ship=ship, key_columns=("k",))
    return JobGraph(name="j", vertices=(vertex("a", sources, 0), vertex("b", targets, 1)), edges=(edge,))


def manifest(sources: int, targets: int) -> Manifest:
    """Every channel has a run at the producer, one at the consumer, and what the consumer had restored."""

    def run(producer: int, consumer: int, age: int) -> InFlightRun:
        return InFlightRun(edge=EdgeId("e"), producer=producer, consumer=consumer, start=age, stop=9)

    def task(vertex: str, index: int) -> TaskSnapshot:
        file = FileRef(path=f"{vertex}{index}", size=9, sha256="")
        if vertex == "a":
            outputs = tuple(run(index, consumer, 2) for consumer in range(targets))
            return TaskSnapshot(in_flight=InFlightHandle(file=file, outputs=outputs))
        restored = tuple(run(producer, index, 0) for producer in range(sources))
        inputs = tuple(run(producer, index, 1) for producer in range(sources))
        return TaskSnapshot(in_flight=InFlightHandle(file=file, restored=restored, inputs=inputs))

    return Manifest(
        job=JobId("j"),
        job_name="j",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.CHECKPOINT,
        timestamp_ms=0,
        vertices=tuple(
            VertexSnapshot(
                vertex=VertexId(name),
                name=name,
                operators=(OperatorUid(name),),
                parallelism=width,
                max_parallelism=8,
                subtasks=tuple(task(name, index) for index in range(width)),
            )
            for name, width in (("a", sources), ("b", targets))
        ),
    )


def dealt(ship: Ship, old: tuple[int, int], new: tuple[int, int]) -> dict[int, list[str]]:
    """For each new consumer: age, producer>consumer, and the key groups that it keeps."""
    wanted = graph(ship, *new)
    none = TaskRestore(root="dir", checkpoint_id=CheckpointId(1))
    restores = {SubtaskId(VertexId("b"), index): none for index in range(new[1])}
    found = with_in_flight(restores, manifest(*old), "dir", wanted, allow_non_restored=False)
    return {
        subtask.index: [
            f"{share.run.start}:{share.run.producer}>{share.run.consumer}"
            + (f" {share.only.first}-{share.only.last}" if share.only else "")
            for share in restore.in_flight
        ]
        for subtask, restore in found.items()
    }


@pytest.mark.parametrize(
    ("ship", "old", "new", "then"),
    [
        pytest.param(
            Ship.HASH,
            (1, 2),
            (1, 2),
            {0: ["0:0>0", "1:0>0", "2:0>0"], 1: ["0:0>1", "1:0>1", "2:0>1"]},
            id="same",
        ),
        pytest.param(
            Ship.HASH,
            (1, 1),
            (2, 2),
            {0: ["0:0>0 0-3", "1:0>0 0-3", "2:0>0 0-3"], 1: ["0:0>0 4-7", "1:0>0 4-7", "2:0>0 4-7"]},
            id="keys are filtered",
        ),
        pytest.param(
            Ship.REBALANCE,
            (1, 2),
            (1, 1),
            {0: ["0:0>0", "0:0>1", "1:0>0", "1:0>1", "2:0>0", "2:0>1"]},
            id="older rows of all first",
        ),
        pytest.param(
            Ship.FORWARD,
            (1, 1),
            (1, 1),
            {0: ["0:0>0", "1:0>0", "2:0>0"]},
            id="forward at the same parallelism",
        ),
    ],
)
def test_rows_in_flight_find_their_subtask(
    ship: Ship, old: tuple[int, int], new: tuple[int, int], then: dict[int, list[str]]
) -> None:
    assert dealt(ship, old, new) == then


@pytest.mark.parametrize("ship", [Ship.FORWARD, Ship.RESCALE, Ship.BROADCAST])
def test_rows_that_are_bound_to_a_subtask_are_refused_at_another_parallelism(ship: Ship) -> None:
    with pytest.raises(ConfigError, match=rf"'a' -> 'b' \({ship.value}\), which cannot be redistributed"):
        dealt(ship, (1, 1), (2, 2))


def test_an_edge_that_is_gone_is_named_unless_its_rows_may_be_dropped() -> None:
    without = JobGraph(name="j", vertices=graph(Ship.HASH, 1, 1).vertices, edges=())
    with pytest.raises(ConfigError, match="on edge 'e', which the job does not have"):
        with_in_flight({}, manifest(1, 1), "dir", without, allow_non_restored=False)
    assert with_in_flight({}, manifest(1, 1), "dir", without, allow_non_restored=True) == {}


@pytest.mark.parametrize(
    ("ship", "sent_by", "text"),
    [
        pytest.param(Ship.HASH, ("k",), None, id="the same key"),
        pytest.param(Ship.HASH, None, None, id="not recorded"),
        pytest.param(Ship.REBALANCE, ("k",), None, id="no key any more: anybody may have them"),
        pytest.param(Ship.HASH, ("j",), r"sent by key \(j\), and would be sent by key \(k\)", id="another"),
        pytest.param(Ship.HASH, (), r"'a' -> 'b', which were sent not by key, and", id="none before"),
    ],
)
@pytest.mark.parametrize("targets", [2, 3], ids=["same parallelism", "another parallelism"])
def test_rows_that_were_sent_by_another_key_are_refused(
    ship: Ship, sent_by: tuple[str, ...] | None, text: str | None, targets: int
) -> None:
    """They would be with a subtask that does not have the state of their key."""
    known = {} if sent_by is None else {EdgeId("e"): sent_by}
    stored = structs.replace(manifest(2, 2), in_flight_keys=known)
    wanted = graph(ship, 2, targets)
    if text is None:
        with_in_flight({}, stored, "dir", wanted, allow_non_restored=False)
        return
    with pytest.raises(ConfigError, match=text):
        with_in_flight({}, stored, "dir", wanted, allow_non_restored=True)
