"""What a change takes over from the old savepoint, and which savepoints and operators cannot be changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import unistream as us
from tests.modes import STREAMING
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, VertexId
from unistream.core.restore import StateOutcome
from unistream.model.elements import Batch
from unistream.model.in_flight import InFlightHandle, InFlightRun, InFlightShare
from unistream.model.keyed_snapshot import StateKind
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import Manifest, TaskSnapshot, VertexSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import (
    EXPIRES_COLUMN,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.operator.process import EVENT_TIMERS
from unistream.savepoint.inspection import inspection
from unistream.savepoint.plan import plan
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.state_files import FsStateReader, FsStateWriter
from unistream.worker.exchange import Gathered, RestoredRows, Run, write_in_flight

SOON, LATE = 5, 10**14
HOUR = StateOptions(ttl=StateTtl("1 h"))
PICKLED = StateOptions(pickled=True)
INT = pa.int64()
COUNT = ValueStateDescriptor("count", INT)


def add(one: int, other: int) -> int:
    return one + other


def columns(**more: list[Any]) -> dict[str, list[Any]]:
    return {"k": ["a", "b"], **more}


# --- what a name alone stands for ---------------------------------------------------------------------

VALUES = columns(value=[1, 2])
STATES = [
    pytest.param(ValueStateDescriptor("s", INT), VALUES, id="value"),
    pytest.param(ReducingStateDescriptor("s", INT, reduce=add), VALUES, id="reducing"),
    pytest.param(AggregatingStateDescriptor("s", INT, aggregate=None), VALUES, id="aggregating"),  # type: ignore[arg-type]  # never asked
    pytest.param(ListStateDescriptor("s", INT), columns(value=[[1], [2, 3]]), id="list"),
    pytest.param(MapStateDescriptor("s", INT, key_type=INT), columns(map_key=[1, 1], value=[1, 2]), id="map"),
    pytest.param(
        ValueStateDescriptor("s", INT, options=HOUR),
        columns(value=[1, 2], **{EXPIRES_COLUMN: [SOON, LATE]}),
        id="value with a time to live",
    ),
    pytest.param(
        ReducingStateDescriptor("s", INT, options=HOUR, reduce=add),
        columns(value=[1, 2], **{EXPIRES_COLUMN: [SOON, LATE]}),
        id="reducing with a time to live",
    ),
    pytest.param(
        ListStateDescriptor("s", INT, options=HOUR),
        columns(value=[[1], [2, 3]], **{EXPIRES_COLUMN: [[SOON], [SOON, LATE]]}),
        id="list with a time to live",
    ),
    pytest.param(
        MapStateDescriptor("s", INT, options=HOUR, key_type=INT),
        columns(map_key=[1, 1], value=[1, 2], **{EXPIRES_COLUMN: [SOON, LATE]}),
        id="map with a time to live",
    ),
    pytest.param(
        ValueStateDescriptor("s", INT, options=PICKLED), columns(value=[b"1", b"2"]), id="pickled values"
    ),
]


def old_with(folder: Path, state: StateDescriptor, rows: Any) -> us.Savepoint:
    writer = us.SavepointWriter().with_state("op", state, rows, keys=["k"])
    return us.read_savepoint(writer.write(folder / "old"))


@pytest.mark.parametrize("dropped_first", [False, True], ids=["in its place", "after all was left out"])
@pytest.mark.parametrize(("state", "rows"), STATES)
def test_a_state_that_is_written_back_by_its_name_is_what_it_was(
    tmp_path: Path, state: StateDescriptor, rows: dict[str, list[Any]], dropped_first: bool
) -> None:
    old = old_with(tmp_path, state, rows)
    writer = us.SavepointWriter.change(old)
    if dropped_first:
        writer.without("op")
    writer.with_state("op", "s", old.table("op", "s"), keys=["k"])
    made = us.read_savepoint(writer.write(tmp_path / "new"))
    assert made.table("op", "s").equals(old.table("op", "s"))
    [was], [is_] = old.operator("op").states, made.operator("op").states
    assert (is_.kind, is_.pickled) == (was.kind, was.pickled) == (state.kind.value, state.options.pickled)


class Reads(us.KeyedProcessFunction):
    def __init__(self, state: StateDescriptor) -> None:
        self.state = state

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        raise AssertionError("a plan starts nothing")


@pytest.mark.parametrize(("state", "rows"), STATES)
def test_a_job_takes_it_as_it_would_have_taken_the_old_one(
    tmp_path: Path, state: StateDescriptor, rows: dict[str, list[Any]]
) -> None:
    old = old_with(tmp_path, state, rows)
    writer = us.SavepointWriter.change(old).with_state("op", "s", old.table("op", "s"), keys=["k"])
    env = us.Environment({**STREAMING, "execution.state-recovery.allow-pickled-state": "true"})
    source = us.StaticSource(pa.table({"k": ["a"]}))
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    stream.key_by("k").process(Reads(state), returns={"k": pa.string()}).uid("op").print()
    graph, code = env.job_graph()
    found = plan(us.read_savepoint(writer.write(tmp_path / "new")), graph, code, env.config)
    [kept] = next(op.states for op in found.operators if op.uid == "op")
    assert (kept.outcome, kept.why) == (StateOutcome.KEPT, "")


@pytest.mark.parametrize(
    ("state", "rows", "text"),
    [
        pytest.param(
            "s",
            VALUES,
            "state 's' has a time to live: keep the column '__expires_at' of its table, or give a descriptor",
            id="a name, without times",
        ),
        pytest.param(
            ValueStateDescriptor("s", INT),
            columns(value=[1, 2], **{EXPIRES_COLUMN: [SOON, LATE]}),
            "column '__expires_at' would be lost, since it is declared without a time to live",
            id="times, declared without",
        ),
    ],
)
def test_a_time_to_live_is_never_lost_unseen(tmp_path: Path, state: Any, rows: Any, text: str) -> None:
    values = columns(value=[1, 2], **{EXPIRES_COLUMN: [SOON, LATE]})
    old = old_with(tmp_path, ValueStateDescriptor("s", INT, options=HOUR), values)
    with pytest.raises(ConfigError, match=text):
        us.SavepointWriter.change(old).with_state("op", state, rows, keys=["k"])


def test_it_can_be_given_up_or_begun_anew_by_a_descriptor(tmp_path: Path) -> None:
    values = columns(value=[1, 2], **{EXPIRES_COLUMN: [SOON, LATE]})
    old = old_with(tmp_path, ValueStateDescriptor("s", INT, options=HOUR), values)
    for options, names in ((StateOptions(), ["value"]), (HOUR, ["value", EXPIRES_COLUMN])):
        state = ValueStateDescriptor("s", INT, options=options)
        writer = us.SavepointWriter.change(old).with_state("op", state, VALUES, keys=["k"])
        made = us.read_savepoint(writer.write(tmp_path / f"new {len(names)}")).table("op", "s")
        assert made.schema.names[2:] == names
        assert SOON not in (made.column(EXPIRES_COLUMN).to_pylist() if len(names) > 1 else [])


def test_another_kind_is_one_that_is_named(tmp_path: Path) -> None:
    old = old_with(tmp_path, ReducingStateDescriptor("s", INT, reduce=add), VALUES)
    writer = us.SavepointWriter.change(old)
    writer.with_state("op", "s", VALUES, keys=["k"], kind=StateKind.AGGREGATING)
    assert us.read_savepoint(writer.write(tmp_path / "new")).operator("op").states[0].kind == "aggregating"


@pytest.mark.parametrize(
    ("write", "text"),
    [
        pytest.param(
            lambda w: w.with_table("op", "s", VALUES, keys=["k"]),
            "state 's' of operator uid 'op' is reducing state: it is written by with_state",
            id="values as a table",
        ),
        pytest.param(
            lambda w: w.with_state("op", "own", VALUES, keys=["k"]),
            "a table of kind 'table' is written by with_table",
            id="a table as values",
        ),
        pytest.param(
            lambda w: w.with_state("op", EVENT_TIMERS, VALUES, keys=["k"]),
            "timers are written by with_timers",
            id="timers as values",
        ),
    ],
)
def test_a_state_is_written_as_what_it_is(
    tmp_path: Path, write: Callable[[us.SavepointWriter], object], text: str
) -> None:
    writer = us.SavepointWriter().with_table("op", "own", columns(n=[1, 2]), keys=["k"])
    writer.with_state("op", ReducingStateDescriptor("s", INT, reduce=add), VALUES, keys=["k"])
    writer.with_timers("op", columns(__timestamp=[1, 2]), keys=["k"])
    old = us.read_savepoint(writer.write(tmp_path / "old"))
    with pytest.raises(ConfigError, match=re.escape(text)):
        write(us.SavepointWriter.change(old))


# --- snapshots of jobs ----------------------------------------------------------------------------------

JOB = JobId("0123456789abcdef0123456789abcdef")
EDGE = EdgeId("e")
DONE, RUNS, HALF = OperatorUid("done"), OperatorUid("runs"), OperatorUid("half")


def vertex(uid: OperatorUid, tasks: Sequence[TaskSnapshot | None], finished: int = 0) -> VertexSnapshot:
    return VertexSnapshot(
        vertex=VertexId(msgspec.json.encode(uid).hex()[:32].ljust(32, "0")),
        name=f"task of {uid}",
        operators=(uid,),
        parallelism=len(tasks),
        max_parallelism=16,
        subtasks=tuple(tasks),
        finished_subtasks=tuple(range(finished)),
    )


def snapshot(folder: Path, *vertices: VertexSnapshot, **more: Any) -> us.Savepoint:
    storage = FsCheckpointStorage(str(folder))
    facts = {"kind": SnapshotKind.SAVEPOINT, **more}
    manifest = Manifest(
        job=JOB,
        job_name="counts",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(3),
        timestamp_ms=1,
        vertices=vertices,
        **facts,
    )
    folder.mkdir(exist_ok=True)
    storage.write_manifest(str(folder), manifest)
    return us.read_savepoint(folder)


@pytest.mark.parametrize(
    ("resumable", "text"),
    [("go-on", "; change {here}/go-on$"), (None, "; change an earlier savepoint$")],
)
def test_the_terminal_savepoint_of_a_drain_is_refused(
    tmp_path: Path, resumable: str | None, text: str
) -> None:
    old = snapshot(tmp_path / "end", vertex(RUNS, [None]), kind=SnapshotKind.TERMINATE, resumable=resumable)
    reported = f"{old.path} was taken after the end of a drained job, no job can resume from it"
    with pytest.raises(ConfigError, match=re.escape(reported) + text.format(here=re.escape(str(tmp_path)))):
        us.SavepointWriter.change(old)


def test_the_resumable_one_can_be_changed(tmp_path: Path) -> None:
    old = snapshot(tmp_path / "go-on", vertex(RUNS, [None]), resumes_after=CheckpointId(4))
    made = us.read_savepoint(us.SavepointWriter.change(old).write(tmp_path / "new"))
    assert made.manifest.restores_as == 4, "sinks have committed up to there"


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda w, uid: w.with_state(uid, COUNT, VALUES, keys=["k"]), id="state"),
        pytest.param(lambda w, uid: w.with_table(uid, "own", columns(n=[1, 2]), keys=["k"]), id="table"),
        pytest.param(lambda w, uid: w.with_timers(uid, columns(__timestamp=[1, 2]), keys=["k"]), id="timers"),
        pytest.param(lambda w, uid: w.with_list(uid, "l", [b"1"]), id="list"),
    ],
)
def test_an_operator_that_had_finished_takes_no_state(tmp_path: Path, write: Any) -> None:
    tasks = [TaskSnapshot(finished=True), None]
    old = snapshot(
        tmp_path / "old", vertex(DONE, [None, None], 2), vertex(HALF, tasks, 1), vertex(RUNS, [None])
    )
    writer = us.SavepointWriter.change(old)
    with pytest.raises(ConfigError, match=f"operator uid 'done' had finished when {re.escape(old.path)}"):
        write(writer, DONE)
    for uid in (HALF, RUNS, OperatorUid("new")):
        write(writer, uid)
    made = us.read_savepoint(writer.write(tmp_path / "new"))
    assert {op.uid for op in made.operators if op.states} == {HALF, RUNS, "new"}


# --- rows on their way ----------------------------------------------------------------------------------


def run(producer: int, values: list[int]) -> Run:
    records = pa.record_batch({"n": pa.array(values, pa.int64())})
    return Run(EDGE, producer, 0, [Batch(records, None)])


def unaligned(folder: Path) -> us.Savepoint:
    """Two producers whose rows had been overtaken at their outputs, one consumer with some at its input."""
    folder.mkdir()
    writer = FsStateWriter(str(folder))
    stored = [
        write_in_flight(Gathered(outputs=[run(0, [5, 6])]), writer),
        write_in_flight(Gathered(outputs=[run(1, [7])]), writer),
        write_in_flight(Gathered(restored=[run(0, [1])], inputs=[run(0, [2, 3]), run(1, [4])]), writer),
    ]
    sends = vertex(OperatorUid("sends"), [TaskSnapshot(in_flight=one) for one in stored[:2]])
    counts = vertex(RUNS, [TaskSnapshot(in_flight=stored[2])])
    return snapshot(folder, sends, counts, kind=SnapshotKind.CHECKPOINT)


def handles(savepoint: us.Savepoint) -> list[InFlightHandle]:
    tasks = [task for one in savepoint.manifest.vertices for task in one.subtasks]
    return [task.in_flight for task in tasks if task is not None and task.in_flight is not None]


def rows_of(savepoint: us.Savepoint) -> list[list[int]]:
    """What a task that was restored with all of it would read, by file."""

    def read(handle: InFlightHandle) -> list[int]:
        runs: list[InFlightRun] = [*handle.restored, *handle.inputs, *handle.outputs]
        shares = [InFlightShare(file=handle.file, run=one, input_index=0, same_channel=True) for one in runs]
        restored = RestoredRows(shares, lambda: FsStateReader(savepoint.path))
        found: list[int] = []
        while (piece := restored.next()) is not None:
            assert isinstance(piece[1], Batch)
            found += piece[1].records.column("n").to_pylist()
        return found

    return [read(handle) for handle in handles(savepoint)]


def test_rows_on_their_way_are_taken_over(tmp_path: Path) -> None:
    old = unaligned(tmp_path / "chk-3")
    writer = us.SavepointWriter.change(old).with_state(RUNS, COUNT, VALUES, keys=["k"])
    path = writer.write(tmp_path / "new")
    shutil.rmtree(old.path)
    made = us.read_savepoint(path)
    assert rows_of(made) == [[5, 6], [7], [1, 2, 3, 4]]
    assert made.in_flight == old.in_flight
    assert {
        (Path(path) / ref.path).stat().st_size == ref.size for ref in referenced_files(made.manifest)
    } == {True}


def test_damaged_ones_are_noticed_and_nothing_is_written(tmp_path: Path) -> None:
    old = unaligned(tmp_path / "chk-3")
    file = Path(old.path) / handles(old)[1].file.path
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    with pytest.raises(us.UnistreamError, match=re.escape(file.name)):
        us.SavepointWriter.change(old).write(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_is_made_of_a_checkpoint_is_a_savepoint(tmp_path: Path) -> None:
    made = us.read_savepoint(us.SavepointWriter.change(unaligned(tmp_path / "chk-3")).write(tmp_path / "new"))
    assert inspection(made, 5).meaning == "savepoint: the job continued"
    stopped = snapshot(tmp_path / "stopped", vertex(RUNS, [None]), kind=SnapshotKind.SUSPEND)
    again = us.read_savepoint(us.SavepointWriter.change(stopped).write(tmp_path / "again"))
    assert again.kind is SnapshotKind.SUSPEND


def test_they_are_told_by_task_and_edge(tmp_path: Path) -> None:
    old = unaligned(tmp_path / "chk-3")
    found = inspection(old, 5).in_flight
    sizes = [handle.file.size for handle in handles(old)]
    assert [(one.vertex, one.edge) for one in found] == [("task of sends", EDGE), ("task of runs", EDGE)]
    assert [one.size for one in found] == [sizes[0] + sizes[1], sizes[2]]
    assert inspection(snapshot(tmp_path / "aligned", vertex(RUNS, [None])), 5).in_flight == ()
