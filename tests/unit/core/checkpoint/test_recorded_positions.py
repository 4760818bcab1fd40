"""Which positions of sources go into the manifest, for sinks to record them with their commits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, VertexId
from unistream.core.checkpoint.phased_assignment import PhasedAssigner
from unistream.core.checkpoint.positions import read_positions, recorded_positions, sources_before
from unistream.core.checkpoint.split_assignment import SplitAssigner
from unistream.core.restore import assign_state
from unistream.model.graph import HISTORY, LIVE, JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.in_flight import InFlightHandle, InFlightRun
from unistream.model.messages import Split
from unistream.model.positions import POSITIONS_MAX, SourcePositions
from unistream.model.snapshot import FileRef, Manifest, TaskSnapshot, VertexSnapshot
from unistream.model.snapshot_kind import SnapshotKind

TOPIC = SourceInfo(connector="kafka", options={}, bounded=False, pull=False, recorded_as="flights")
FILES = SourceInfo(connector="file", options={}, bounded=True, pull=True)
HYBRID = SourceInfo(connector="hybrid", options={}, bounded=False, pull=False, phases=(FILES, TOPIC))
SOURCE, COMMITTER = OperatorUid("topic"), OperatorUid("lake-committer")
ASIDE = EdgeId("aside")


def vertex(name: str, *operators: OperatorInfo, source: SourceInfo | None = None) -> JobVertex:
    return JobVertex(
        id=VertexId(name), name=name, operators=operators, parallelism=2, max_parallelism=128, source=source
    )


def graph(source: SourceInfo = TOPIC, *, records: bool = True, mode: str = "EXACTLY_ONCE") -> JobGraph:
    """source ─► writer ─► committer, and from the source something else."""
    committer = OperatorInfo(uid=COMMITTER, name="", records=(SOURCE,) if records else ())
    ways = [("in", "source", "writer"), ("done", "writer", "committer"), (ASIDE, "source", "window")]
    return JobGraph(
        name="job",
        vertices=(
            vertex("source", OperatorInfo(uid=SOURCE, name=""), source=source),
            vertex("writer", OperatorInfo(uid=OperatorUid("lake"), name="")),
            vertex("committer", committer),
            vertex("window", OperatorInfo(uid=OperatorUid("w"), name="")),
        ),
        edges=tuple(
            JobEdge(id=EdgeId(edge), source=VertexId(a), target=VertexId(b), ship=Ship.REBALANCE)
            for edge, a, b in ways
        ),
        config={"execution.checkpointing.mode": mode},
    )


def split(partition: int, offset: int = 0, phase: int = HISTORY) -> Split:
    return Split(id=f"live:flights-{partition}", data=b"", phase=phase, recorded=(str(partition), offset))


def assigner(known: int, given: int, *, source: SourceInfo = TOPIC) -> SplitAssigner:
    """Of `known` partitions, of which subtask 0 has `given`; the others are with nobody."""
    found = SplitAssigner(source, 1)
    found.discovered([split(p) for p in range(given)], origin="id")
    found.ready(0)
    found.take()
    found.discovered([split(p, 50 + p) for p in range(known)], origin="id")
    return found


def task(*held: Split, overtaken: str = "") -> TaskSnapshot:
    run = InFlightRun(edge=EdgeId(overtaken), producer=0, consumer=0, start=0, stop=1)
    file = FileRef(path="f", size=1, sha256="")
    return TaskSnapshot(
        positions={SOURCE: {one.id: one.recorded for one in held if one.recorded is not None}}
        if held
        else {},
        in_flight=InFlightHandle(file=file, inputs=(run,)) if overtaken else None,
    )


def snapshots(
    coordinator: bytes | None, *readers: TaskSnapshot | None, others: str = ""
) -> Sequence[VertexSnapshot]:
    def of(name: str, *tasks: TaskSnapshot | None) -> VertexSnapshot:
        return VertexSnapshot(
            vertex=VertexId(name), name=name, operators=(), parallelism=2, max_parallelism=128, subtasks=tasks
        )

    source = structs.replace(of("source", *readers), coordinator=coordinator)
    more = task(overtaken=others)
    return [source, of("writer", more), of("committer", more), of("window", more)]


def positions(**offsets: int) -> SourcePositions:
    by_partition = {name.removeprefix("p"): offset for name, offset in offsets.items()}
    return SourcePositions(uid=SOURCE, connector="kafka", name="flights", origin="id", offsets=by_partition)


TWO = assigner(2, 2).snapshot(1)


@pytest.mark.parametrize(
    ("stored", "then"),
    [
        pytest.param(
            snapshots(TWO, task(split(0, 7)), task(split(1, 9))),
            positions(p0=7, p1=9),
            id="all are with readers",
        ),
        pytest.param(
            snapshots(TWO, task(split(0, 7), split(1, 9)), task()),
            positions(p0=7, p1=9),
            id="one reader has all",
        ),
        pytest.param(
            snapshots(assigner(3, 2).snapshot(1), task(split(0, 7)), task(split(1, 9))),
            positions(p0=7, p1=9, p2=52),
            id="one that no reader has is where it begins",
        ),
        pytest.param(snapshots(TWO, task(split(0, 7)), task()), None, id="one has finished"),
        pytest.param(snapshots(TWO, task(split(0, 7)), None), None, id="a reader has finished"),
        pytest.param(snapshots(None, None, None), None, id="the source has finished"),
        pytest.param(
            snapshots(SplitAssigner(TOPIC, 1).snapshot(1), task(), task()), None, id="nothing was found yet"
        ),
        pytest.param(
            snapshots(TWO, task(split(0, 7)), task(split(1, 9)), others="in"),
            None,
            id="rows are on their way",
        ),
        pytest.param(
            snapshots(TWO, task(split(0, 7), overtaken="in"), task(split(1, 9))),
            None,
            id="rows are in an output of the source",
        ),
        pytest.param(
            snapshots(TWO, task(split(0, 7)), task(split(1, 9)), others=ASIDE),
            positions(p0=7, p1=9),
            id="rows are on their way to somewhere else",
        ),
    ],
)
def test_positions_are_recorded_if_the_commit_has_exactly_the_rows_before_them(
    stored: Sequence[VertexSnapshot], then: SourcePositions | None
) -> None:
    assert recorded_positions(graph(), stored) == ({} if then is None else {COMMITTER: (then,)})


@pytest.mark.parametrize(
    ("given", "is_recorded"),
    [
        pytest.param(graph(), True, id="exactly once"),
        pytest.param(
            graph(mode="AT_LEAST_ONCE"), False, id="at least once, rows from behind a barrier come too"
        ),
        pytest.param(graph(records=False), False, id="the sink may not record them"),
    ],
)
def test_the_job_decides_whether_positions_are_recorded(given: JobGraph, is_recorded: bool) -> None:
    stored = snapshots(TWO, task(split(0, 7)), task(split(1, 9)))
    assert bool(recorded_positions(given, stored)) is is_recorded


@pytest.mark.parametrize("count", [POSITIONS_MAX, POSITIONS_MAX + 1])
def test_a_source_of_very_many_partitions_is_not_recorded(count: int) -> None:
    stored = snapshots(assigner(count, 0).snapshot(1), task(), task())
    assert bool(recorded_positions(graph(), stored)) is (count == POSITIONS_MAX)


@pytest.mark.parametrize(
    ("stored", "then"),
    [
        pytest.param(
            snapshots(TWO, task(split(0, 7)), task(split(1, 9)), others="in"),
            (positions(p0=7, p1=9),),
            id="also if rows are on their way",
        ),
        pytest.param(snapshots(TWO, task(split(0, 7)), None), (), id="not if a reader has finished"),
    ],
)
def test_what_was_read_is_known_of_each_source(
    stored: Sequence[VertexSnapshot], then: tuple[SourcePositions, ...]
) -> None:
    for given in (graph(), graph(records=False), graph(mode="AT_LEAST_ONCE")):
        assert read_positions(given, stored) == then
    assert read_positions(graph(), ()) == ()


SEVERAL = structs.replace(TOPIC, recorded_as="a, b-c", recorded_by_name=True)


def of_several(*recorded: tuple[str, int]) -> list[Split]:
    return [Split(id=f"split-{i}", data=b"", recorded=one) for i, one in enumerate(recorded)]


@pytest.mark.parametrize(
    ("splits", "then"),
    [
        pytest.param(
            of_several(("a-0", 7), ("b-c-10", 9), ("a-1", 8)),
            [("a", "id-a", {"0": 7, "1": 8}), ("b-c", "", {"10": 9})],
            id="each with its own partitions",
        ),
        pytest.param(of_several(("a-0", 7), ("0", 9)), [], id="one was found by a source of one thing"),
    ],
)
def test_a_source_that_reads_several_things_records_each(
    splits: list[Split], then: list[tuple[str, str, dict[str, int]]]
) -> None:
    found = SplitAssigner(SEVERAL, 1)
    found.discovered(splits, origins={"a": "id-a"})
    stored = snapshots(found.snapshot(1), task(), task())
    expected = tuple(
        SourcePositions(uid=SOURCE, connector="kafka", name=name, origin=origin, offsets=of_it)
        for name, origin, of_it in then
    )
    assert recorded_positions(graph(SEVERAL), stored) == ({COMMITTER: expected} if expected else {})
    assert read_positions(graph(SEVERAL), stored) == expected


@pytest.mark.parametrize(
    ("name", "before"),
    [("source", {SOURCE}), ("committer", {SOURCE}), ("window", {SOURCE}), ("other", set())],
)
def test_sources_before_a_vertex(name: str, before: set[OperatorUid]) -> None:
    given = graph()
    other = vertex(
        "other", OperatorInfo(uid=OperatorUid("o"), name=""), source=TOPIC if name != "other" else None
    )
    given = structs.replace(given, vertices=(*given.vertices, other))
    assert sources_before(given, VertexId(name)) == before


def hybrid(*, is_read: bool) -> bytes:
    found = PhasedAssigner(HYBRID, 1, separated=True)
    found.discovered([Split(id="history:a", data=b""), split(0, 40, LIVE), split(1, 41, LIVE)], origin="id")
    found.ready(0)
    found.request(0)
    found.take()
    if is_read:
        found.request(0, LIVE)
    return found.snapshot(1)


@pytest.mark.parametrize(
    ("state", "then"),
    [
        pytest.param(hybrid(is_read=False), None, id="some history is not read"),
        pytest.param(hybrid(is_read=True), positions(p0=40, p1=41), id="all of it is read"),
    ],
)
def test_a_history_is_read_before_positions_of_the_live_source_are_recorded(
    state: bytes, then: SourcePositions | None
) -> None:
    found = recorded_positions(graph(HYBRID), snapshots(state, task(), task()))
    assert found == ({} if then is None else {COMMITTER: (then,)})


def test_a_committer_is_restored_with_the_positions_of_its_checkpoint() -> None:
    """A commit that is repeated says the same."""
    given, at = graph(), (positions(p0=7, p1=9),)
    stored = [
        structs.replace(one, operators=tuple(operator.uid for operator in vertex.operators))
        for one, vertex in zip(snapshots(TWO, task(), task()), given.vertices, strict=True)
    ]
    manifest = Manifest(
        job=JobId("job"),
        job_name="job",
        lineage=LineageId("lineage"),
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.CHECKPOINT,
        timestamp_ms=0,
        positions={COMMITTER: at},
        vertices=tuple(stored),
    )
    restores = assign_state(manifest, "/chk-1", given, allow_non_restored=False)
    found = {uid: one.positions for restore in restores.values() for uid, one in restore.operators.items()}
    assert found == {SOURCE: (), OperatorUid("lake"): (), COMMITTER: at, OperatorUid("w"): ()}
