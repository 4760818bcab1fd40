"""Timers of both faces of a keyed function, on every backend: one suite, one table in a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from tests.contract.keyed_states import BACKENDS
from unistream.base.limits import MAX_WATERMARK
from unistream.model.key_groups import key_group_range
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.operator.common import BaseOperator
from unistream.operator.process import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    KeyedBatchOperator,
    KeyedProcessOperator,
)
from unistream.state.backends import make_backend
from unistream.testing.harness import OperatorHarness, restore_state
from unistream.testing.harness.operators import ManualClock

Row = dict[str, Any]
MAX_PARALLELISM = 128


class ByRow(us.KeyedProcessFunction):
    """Does to timers what each row says, and counts how often they came for its key."""

    fired = us.ValueStateDescriptor("fired", pa.int64())

    def process_element(self, row: Row, context: us.ProcessContext, out: us.Collector) -> None:
        getattr(context, f"{row['do']}_{row['clock']}_time_timer")(row["at"])

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        fired = context.state(self.fired)
        fired.update((fired.value() or 0) + 1)
        key = context.key_tuple
        out.emit({"k": key[0], "m": key[-1], "at": timestamp, "clock": context.time_domain})


class ByBatch(us.KeyedBatchFunction):
    """The same in columns."""

    fired = us.ValueStateDescriptor("fired", pa.int64())

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        rows = batch.records
        for start, stop in runs(rows):
            do, clock = rows.column("do")[start].as_py(), rows.column("clock")[start].as_py()
            apply = getattr(context, f"{do}_{clock}_time_timers")
            apply(rows.column("at").slice(start, stop - start), batch.groups[start:stop])

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        fired = context.column(self.fired)
        new = np.bincount(timers.groups, minlength=timers.keys.num_rows)
        fired.put(pa.array(fired.get().fill_null(0).to_numpy() + new))
        keys = timers.keys.take(pa.array(timers.groups))
        columns = {"k": keys.column(0), "m": keys.columns[-1], "at": timers.times}
        columns["clock"] = pa.array([timers.time_domain] * len(timers.times))
        out.emit(pa.record_batch(columns), timers.times)


def runs(rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Rows that say the same."""
    said = list(zip(rows.column("do").to_pylist(), rows.column("clock").to_pylist(), strict=True))
    start = 0
    for place in range(1, len(said) + 1):
        if place == len(said) or said[place] != said[start]:
            yield start, place
            start = place


FACES = {"row": (KeyedProcessOperator, ByRow), "batch": (KeyedBatchOperator, ByBatch)}


class Faces:
    """Operators of one backend, by the name of their face."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._count = 0

    def open(
        self,
        face: str,
        *,
        keys: Sequence[str] = ("k",),
        state: OperatorState | None = None,
        index: int = 0,
        parallelism: int = 1,
    ) -> OperatorHarness:
        make, function = FACES[face]
        operator: BaseOperator = make(function(), list(keys))
        self._count += 1
        backend = make_backend(
            self._kind,
            key_groups=key_group_range(MAX_PARALLELISM, parallelism, index),
            max_parallelism=MAX_PARALLELISM,
            folder=self._folder / str(self._count),
            clock=ManualClock(),
            memory_bytes=16 << 20,
            allow_pickled=False,
        )
        return OperatorHarness(operator, state=state, index=index, parallelism=parallelism, backend=backend)


@pytest.fixture(params=BACKENDS)
def faces(request: pytest.FixtureRequest, tmp_path: Path) -> Faces:
    return Faces(request.param, tmp_path)


every_face = pytest.mark.parametrize("face", FACES)


def words(*said: str) -> dict[str, list[Any]]:
    """Rows from text: ``+a 10`` registers, ``-a 10`` deletes; ``~`` behind it: of processing time."""
    rows: dict[str, list[Any]] = {"k": [], "m": [], "do": [], "clock": [], "at": []}
    for word in said:
        key, at = word[1:].rstrip("~").split()
        rows["k"].append(key)
        rows["m"].append(len(key))
        rows["do"].append("register" if word[0] == "+" else "delete")
        rows["clock"].append("processing" if word.endswith("~") else "event")
        rows["at"].append(int(at))
    return rows


def fired(harness: OperatorHarness) -> list[str]:
    """What has come since the last call."""
    found = [f"{row['k']} {row['at']}" for row in harness.rows()]
    harness.clear()
    return found


@every_face
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param([["+a 10", "+b 20", "+c 21"]], ["a 10", "b 20"], id="due at its time, not before"),
        pytest.param([["+b 20", "+a 10", "+c 15"]], ["a 10", "c 15", "b 20"], id="in the order of times"),
        pytest.param([["+b 10", "+a 10"], ["+c 10"]], ["b 10", "a 10", "c 10"], id="then of registration"),
        pytest.param([["+a 10", "+a 10"], ["+a 10"]], ["a 10"], id="registered twice, fires once"),
        pytest.param([["+a 10", "+a 11"]], ["a 10", "a 11"], id="a key with two times"),
        pytest.param([["+a 10", "-a 10", "+b 10"]], ["b 10"], id="deleted"),
        pytest.param([["-a 10", "+a 10"]], ["a 10"], id="deleted before it was registered"),
        pytest.param([["+a 10"], ["-a 10"], ["+a 10"]], ["a 10"], id="deleted, and registered again"),
        pytest.param([["+a 10", "+b 10", "-a 10", "+a 10"]], ["b 10", "a 10"], id="then it is the newest"),
        pytest.param([["+a 10", "-b 10", "-a 11"]], ["a 10"], id="deleted, though not there"),
        pytest.param([["+a -5", "+b 0"]], ["a -5", "b 0"], id="of the past, and before 1970"),
    ],
)
@pytest.mark.parametrize("clock", ["event", "processing"])
def test_timers_fire(faces: Faces, face: str, clock: str, said: list[list[str]], expected: list[str]) -> None:
    with faces.open(face) as harness:
        for batch in said:
            harness.process(words(*(f"{word}~" if clock == "processing" else word for word in batch)))
        if clock == "event":
            harness.watermark(20)
        else:
            harness.timers.advance(20)
        assert {row["clock"] for row in harness.rows()} == {clock}
        assert harness.timestamps() == [int(word.split()[1]) for word in expected]
        assert fired(harness) == expected


@every_face
def test_a_timer_fires_once_and_the_clocks_do_not_know_each_other(faces: Faces, face: str) -> None:
    with faces.open(face) as harness:
        harness.process(words("+a 10", "+a 10~", "-b 10~", "+b 30~"))
        harness.watermark(15)
        assert fired(harness) == ["a 10"]
        harness.watermark(16)
        harness.timers.advance(9)
        assert fired(harness) == []
        harness.timers.advance(40)
        assert fired(harness) == ["a 10", "b 30"]
        harness.end()
        assert fired(harness) == []


@every_face
@pytest.mark.parametrize("other", FACES)
@pytest.mark.parametrize("keys", [["k"], ["k", "m"]], ids=["one key column", "two"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_move_with_their_key_group_and_between_faces(
    faces: Faces, face: str, other: str, keys: list[str], parallelism: int
) -> None:
    names = [f"user-{n}" for n in range(30)]
    with faces.open(face, keys=keys) as before:
        before.process(words(*(f"+{name} {place}" for place, name in enumerate(names))))
        before.process(words(*(f"+{name} {100 + place}~" for place, name in enumerate(names))))
        before.watermark(9)
        before.process(words(*(f"-{name} {place}" for place, name in enumerate(names[:20]))))
        snapshot = before.snapshot(1)
        before.process(words("+late 50"))
    assert [table.name for table in snapshot.timers] == [EVENT_TIMERS, PROCESSING_TIMERS]
    found, seen = [], {}
    for index in range(parallelism):
        state = restore_state([snapshot], 1, index=index, parallelism=parallelism)
        with faces.open(other, keys=keys, state=state, index=index, parallelism=parallelism) as after:
            after.end_input()
            found += fired(after)
            after.timers.advance(1_000)
            found += fired(after)
            for name in after.context.state.keys("fired"):
                after.context.state.set_current(after.context.state.keys_of(key_row(keys, name))[0])
                fired_state = us.ValueStateDescriptor("fired", pa.int64())
                seen[name[0]] = after.context.state.state(fired_state).value()
    event = [f"{name} {place}" for place, name in enumerate(names) if place >= 20]
    processing = [f"{name} {100 + place}" for place, name in enumerate(names)]
    assert sorted(found) == sorted([*event, *processing])
    assert seen == {name: 2 if place < 10 or place >= 20 else 1 for place, name in enumerate(names)}


def key_row(keys: Sequence[str], values: tuple[object, ...]) -> pa.RecordBatch:
    types = {"k": pa.string(), "m": pa.int64()}
    return pa.record_batch({key: pa.array([v], types[key]) for key, v in zip(keys, values, strict=True)})


def test_the_tables_of_both_faces_are_the_same(faces: Faces) -> None:
    def stored(face: str) -> list[Any]:
        with faces.open(face) as harness:
            harness.process(words("+a 10", "+b 20", "+c 10", "-b 20"))
            snapshot: OperatorSnapshot = harness.snapshot(1)
            (table,) = snapshot.timers
            rows = pa.Table.from_batches(table.batches, table.schema)
            return [table.name, table.kind, table.schema, sorted(map(str, rows.to_pylist()))]

    assert stored("batch") == stored("row")


@every_face
def test_keys_of_other_columns_have_other_timers(faces: Faces, face: str) -> None:
    with faces.open(face) as before:
        before.process(words("+a 10"))
        state = restore_state([before.snapshot(1)], 1)
    with pytest.raises(us.ConfigError, match=r"key columns are|timers were stored by \(k\)"):
        faces.open(face, keys=["k", "m"], state=state).open()


class Chain(us.KeyedBatchFunction):
    """Each timer registers the next one, up to 50, and deletes that of the key "gone"."""

    def process_batch(self, batch: us.KeyedBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        context.register_event_time_timers(10)

    def on_timers(self, timers: us.TimerBatch, context: us.BatchContext, out: us.BatchCollector) -> None:
        out.emit(timers.keys.append_column("n", pa.array(np.bincount(timers.groups))), None)
        later = pa.array([at + 10 if at < 50 else None for at in timers.times.to_pylist()], pa.int64())
        context.register_event_time_timers(later, timers.groups)


def test_what_on_timers_registers_fires_by_the_same_watermark(faces: Faces) -> None:
    operator = KeyedBatchOperator(Chain(), ["k"])
    with OperatorHarness(operator) as harness:
        harness.process({"k": ["a", "b"]})
        harness.watermark(35)
        assert [row["n"] for row in harness.rows()] == [1] * 6
        harness.watermark(MAX_WATERMARK)
        assert [row["n"] for row in harness.rows()] == [1] * 10
