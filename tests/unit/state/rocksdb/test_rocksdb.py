from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.key_groups import key_group_range, key_groups
from unistream.model.keyed_snapshot import Sharing
from unistream.model.snapshot import NativeHandle, OperatorRestore, OperatorSnapshot, OperatorStateHandle
from unistream.model.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.state.rocksdb import RocksDbStateBackend
from unistream.state.rocksdb.keys import KeyBytes
from unistream.testing.harness import MemoryFiles
from unistream.testing.harness.operators import ManualClock

UID = OperatorUid("op")
GROUPS = 16
KEY = pa.schema([("user", pa.string()), ("n", pa.int64())])
COUNT = ValueStateDescriptor("count", pa.int64())
WORDS = ListStateDescriptor("words", pa.string())
SEEN = MapStateDescriptor("seen", pa.timestamp("ms"), key_type=pa.int32())
SUM = ReducingStateDescriptor("sum", pa.float64(), reduce=lambda one, other: one + other)
ALL: list[StateDescriptor] = [COUNT, WORDS, SEEN, SUM]
DAY = datetime.datetime(2024, 2, 29, 12, 30)  # noqa: DTZ001  a value, not a clock

Make = Callable[..., RocksDbStateBackend]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(tmp_path: Path, clock: ManualClock) -> Iterator[Make]:
    made: list[RocksDbStateBackend] = []

    def backend(
        groups: tuple[int, int] = (0, GROUPS - 1), *, allow_pickled: bool = False
    ) -> RocksDbStateBackend:
        made.append(
            RocksDbStateBackend(
                key_groups=groups,
                max_parallelism=GROUPS,
                folder=tmp_path / f"backend-{len(made)}",
                clock=clock,
                memory_bytes=16 << 20,
                allow_pickled=allow_pickled,
            )
        )
        return made[-1]

    yield backend
    for one in made:
        one.close()
    assert list(tmp_path.glob("backend-*")) == []


def keys(*users: str | None) -> pa.RecordBatch:
    numbers = pa.array(range(len(users)), pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(users, pa.string()), numbers], schema=KEY)


def fill(backend: RocksDbStateBackend, count: int) -> None:
    """Rows of every kind for the keys of this backend's key groups."""
    batch = keys(*[f"user-{n}" for n in range(count)])
    first, last = backend._key_groups
    groups = key_groups(batch, KEY.names, GROUPS)
    batch = batch.filter(pa.array((groups >= first) & (groups <= last)))
    number, words, seen, total = (backend.state(descriptor) for descriptor in ALL)
    for n, key in zip(batch.column(1).to_pylist(), backend.keys_of(batch), strict=True):
        backend.set_current(key)
        number.update(n)
        words.add_all([f"w{n}", "x"])
        words.add("y")
        seen.put(n, DAY)
        seen.put(-n, DAY + datetime.timedelta(hours=1))
        total.add(n)
        total.add(0.5)


def contents(backend: RocksDbStateBackend) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Key -> what all states have under it."""
    states = [backend.state(descriptor) for descriptor in ALL]
    found = {}
    for key in list(backend.keys("count")):
        batch = pa.RecordBatch.from_arrays([pa.array([key[0]]), pa.array([key[1]], pa.int64())], schema=KEY)
        backend.set_current(backend.keys_of(batch)[0])
        found[key] = (states[0].value(), states[1].get(), dict(states[2].items()), states[3].get())
    return found


def expected(count: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    late = DAY + datetime.timedelta(hours=1)
    return {
        (f"user-{n}", n): (n, (f"w{n}", "x", "y"), {n: DAY, -n: late} if n else {0: late}, n + 0.5)
        for n in range(count)
    }


def stored(
    backend: RocksDbStateBackend,
    number: int,
    files: MemoryFiles,
    *,
    native: bool,
    sharing: Sharing = Sharing.FORWARD_BACKWARD,
) -> OperatorStateHandle:
    snapshot = OperatorSnapshot(state=backend.snapshot(CheckpointId(number)))
    task, _ = write_task_snapshot({UID: snapshot}, files, finished=False, native=native, sharing=sharing)
    return task.operators[UID]


def restored(
    make: Make, tmp_path: Path, files: MemoryFiles, handles: list[OperatorStateHandle], to: int
) -> list[RocksDbStateBackend]:
    """Backends of `to` subtasks, each with its share."""
    from unistream.model.snapshot import KeyedShare

    backends = []
    for index in range(to):
        first, last = key_group_range(GROUPS, to, index)
        keyed = []
        for handle in (table for old in handles for table in old.keyed):
            inside = [n for n, group in enumerate(handle.key_groups) if first <= group <= last]
            if inside:
                keyed.append(KeyedShare(handle=handle, start=inside[0], stop=inside[-1] + 1))
        native = [
            one
            for old in handles
            for one in old.native
            if one.key_groups[0] <= last and first <= one.key_groups[1]
        ]
        restore = OperatorRestore(keyed=tuple(keyed), native=tuple(native))
        state = read_operator_state(restore, CheckpointId(1), files, tmp_path)
        backend = make((first, last))
        backend.restore(state.state)
        backends.append(backend)
    assert list(tmp_path.glob("restored-*")) == []
    return backends


# --- keys -----------------------------------------------------------------------------------------

TYPES = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "string": (pa.string(), st.text(alphabet=st.sampled_from("a\0\x01ü\U0001f600"), max_size=5)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
}


@given(st.data(), st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
def test_keys_come_back_from_their_bytes_and_lie_in_their_order(
    data: st.DataObject, names: list[str]
) -> None:
    schema = pa.schema([(f"c{n}", TYPES[name][0]) for n, name in enumerate(names)])
    row = st.tuples(*[st.none() | TYPES[name][1] for name in names])
    wanted = data.draw(st.lists(row, min_size=1, max_size=8))
    arrays = [
        pa.array(column, field.type) for column, field in zip(zip(*wanted, strict=True), schema, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    codec = KeyBytes(schema, GROUPS)
    encoded = codec.encode(batch)
    assert codec.decode(encoded).to_pylist() == batch.to_pylist()
    assert [codec.end(key + b"\0\0more") for key in encoded] == [len(key) for key in encoded]
    plain = [tuple((value is not None, value) for value in one) for one in wanted]
    for one, a in zip(plain, encoded, strict=True):
        for other, b in zip(plain, encoded, strict=True):
            if a[:2] == b[:2] and "string" not in names:
                assert (a < b) == _less(one, other)


def _less(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    for a, b in zip(one, other, strict=True):
        if a != b:
            return a < b if a[0] == b[0] and a[0] else a[0] < b[0]
    return False


def test_all_nans_are_one_key() -> None:
    strange = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    schema = pa.schema([("x", pa.float64())])
    one, other = KeyBytes(schema, GROUPS).encode(pa.record_batch([pa.array(strange)], schema=schema))
    assert one == other


def test_a_slice_with_nulls_is_encoded_as_it_is() -> None:
    codec = KeyBytes(KEY, GROUPS)
    batch = keys("a", None, "c\0d", "e")
    assert codec.encode(batch.slice(1, 2)) == codec.encode(batch)[1:3]


# --- snapshots and restores -----------------------------------------------------------------------


@pytest.mark.parametrize("native", [False, True], ids=["tables", "files"])
@pytest.mark.parametrize(("old", "new"), [(1, 1), (1, 3), (3, 1), (2, 4), (4, 3), (3, 3)])
def test_state_of_every_kind_survives_with_any_parallelism(
    make: Make, tmp_path: Path, *, native: bool, old: int, new: int
) -> None:
    files = MemoryFiles("d", {})
    olds = [make(key_group_range(GROUPS, old, index)) for index in range(old)]
    for backend in olds:
        fill(backend, 60)
    handles = [stored(backend, 1, files, native=native) for backend in olds]
    for backend in olds:
        fill(backend, 5)  # later changes do not show
    news = restored(make, tmp_path, files, handles, new)
    parts = [contents(backend) for backend in news]
    assert {key: value for part in parts for key, value in part.items()} == expected(60)
    assert sum(len(part) for part in parts) == 60


@pytest.mark.parametrize("native", [False, True], ids=["tables", "files"])
def test_a_restored_backend_goes_on(make: Make, tmp_path: Path, *, native: bool) -> None:
    files = MemoryFiles("d", {})
    first = make()
    fill(first, 20)
    (second,) = restored(make, tmp_path, files, [stored(first, 1, files, native=native)], 1)
    again = stored(second, 2, files, native=native)  # of states that nobody asked for
    (third,) = restored(make, tmp_path, files, [again], 1)
    words = third.state(WORDS)
    third.set_current(third.keys_of(keys("user-0"))[0])
    words.add("z")
    assert words.get() == ("w0", "x", "y", "z")
    assert len(list(third.keys("count"))) == 20


@pytest.mark.parametrize("native", [False, True], ids=["tables", "files"])
def test_what_was_written_row_by_row_goes_on_in_columns(make: Make, tmp_path: Path, *, native: bool) -> None:
    files = MemoryFiles("d", {})
    first = make()
    fill(first, 20)
    found = {}
    for part in restored(make, tmp_path, files, [stored(first, 1, files, native=native)], 2):
        mine = sorted(part.keys("count"), key=lambda key: int(str(key[1])))
        columns = list(zip(*mine, strict=True))
        batch = pa.RecordBatch.from_arrays(
            [pa.array(columns[0]), pa.array(columns[1], pa.int64())], schema=KEY
        )
        at = part.keys_of(batch)
        number, words, seen, total = (part.column(descriptor) for descriptor in ALL)
        number.put(at, number.get(at))
        words.add(at, pa.array(["z"] * len(at)))
        total.add(at, pa.array([1.0] * len(at)))
        seen.remove(
            at, pa.array([-int(str(n)) for _, n in mine if n], pa.int64()), np.flatnonzero(columns[1])
        )
        found |= contents(part)
    late = DAY + datetime.timedelta(hours=1)
    assert found == {
        key: (number, (*words, "z"), {number: DAY} if number else {0: late}, total + 1)
        for key, (number, words, _, total) in expected(20).items()
    }


def test_a_widened_type_is_converted_from_files_too(make: Make, tmp_path: Path) -> None:
    files = MemoryFiles("d", {})
    first = make()
    number = first.state(ValueStateDescriptor("count", pa.int32()))
    first.set_current(first.keys_of(keys("a"))[0])
    number.update(7)
    (second,) = restored(make, tmp_path, files, [stored(first, 1, files, native=True)], 1)
    with pytest.raises(ConfigError, match="'count'"):
        second.state(ValueStateDescriptor("count", pa.string()))
    ttl = StateOptions(ttl=StateTtl("1 s"), renamed_from=("count",))
    number = second.state(ValueStateDescriptor("renamed", pa.float64(), options=ttl))
    second.set_current(second.keys_of(keys("a"))[0])
    assert (number.value(), type(number.value())) == (7.0, float)


def test_foreign_files_are_refused_and_removed(make: Make, tmp_path: Path) -> None:
    files = MemoryFiles("d", {})
    first = make()
    fill(first, 3)
    handle = stored(first, 1, files, native=True).native[0]
    foreign = NativeHandle(
        format="other-1", key_groups=handle.key_groups, files=handle.files, descriptors=handle.descriptors
    )
    with pytest.raises(ConfigError, match="other-1"):
        restored(make, tmp_path, files, [OperatorStateHandle(native=(foreign,))], 1)
    assert list(tmp_path.glob("restored-*")) == []


def test_a_damaged_file_is_never_opened(make: Make, tmp_path: Path) -> None:
    files = MemoryFiles("d", {})
    first = make()
    fill(first, 3)
    handle = stored(first, 1, files, native=True)
    name = next(file.ref.path for file in handle.native[0].files if file.key_groups)
    content = files.stored[f"shared/{name}"]
    files.stored[f"shared/{name}"] = content[:40] + b"?" + content[41:]
    with pytest.raises(CorruptSnapshot, match=name):
        restored(make, tmp_path, files, [handle], 1)
    assert list(tmp_path.glob("restored-*")) == []


def test_pickled_state_is_refused_unless_it_is_allowed(make: Make, tmp_path: Path) -> None:
    files = MemoryFiles("d", {})
    descriptor = ValueStateDescriptor("any", pa.binary(), options=StateOptions(pickled=True))
    first = make()
    value = first.state(descriptor)
    first.set_current(first.keys_of(keys("a"))[0])
    value.update({1, 2})
    assert value.value() == {1, 2}
    for native in (True, False):
        handle = stored(first, 1 + native, files, native=native)
        with pytest.raises(ConfigError, match="allow-pickled-state"):
            restored(make, tmp_path, files, [handle], 1)
        restore = OperatorRestore(keyed=tuple(_whole(table) for table in handle.keyed), native=handle.native)
        state = read_operator_state(restore, CheckpointId(1), files, tmp_path)
        backend = make(allow_pickled=True)
        backend.restore(state.state)
        again = backend.state(descriptor)
        backend.set_current(backend.keys_of(keys("a"))[0])
        assert again.value() == {1, 2}


def _whole(handle: Any) -> Any:
    from unistream.model.snapshot import KeyedShare

    return KeyedShare(handle=handle, start=0, stop=len(handle.key_groups))


def test_what_has_expired_is_in_no_snapshot_and_is_removed_when_it_is_met(
    make: Make, tmp_path: Path, clock: ManualClock
) -> None:
    files = MemoryFiles("d", {})
    options = StateOptions(ttl=StateTtl(1000))
    descriptor = ValueStateDescriptor("v", pa.int64(), options=options)
    backend = make()
    value = backend.state(descriptor)
    one, other = backend.keys_of(keys("a", "b"))
    backend.set_current(one)
    value.update(1)
    clock.now_ms += 600
    backend.set_current(other)
    value.update(2)
    clock.now_ms += 600
    assert [key[0] for key in backend.keys("v")] == ["b"]
    assert stored(backend, 1, files, native=False).keyed[0].rows == 1
    (again,) = restored(make, tmp_path, files, [stored(backend, 2, files, native=True)], 1)
    value = again.state(descriptor)
    again.set_current(again.keys_of(keys("a", "b"))[0])
    assert value.value() is None
    again.set_current(again.keys_of(keys("a", "b"))[1])
    assert value.value() == 2
    clock.now_ms += 400
    assert value.value() is None


# --- incremental ----------------------------------------------------------------------------------


def _uploaded(handle: OperatorStateHandle) -> dict[str, str]:
    return {file.name: file.ref.path for file in handle.native[0].files if file.ref.shared}


def test_files_are_stored_once_after_a_checkpoint_that_names_them_is_complete(make: Make) -> None:
    files = MemoryFiles("d", {})
    backend = make()
    fill(backend, 50)
    first = _uploaded(stored(backend, 1, files, native=True))
    second = _uploaded(stored(backend, 2, files, native=True))
    assert first.keys() == second.keys()
    assert set(first.values()).isdisjoint(second.values()), "checkpoint 1 may be aborted"
    backend.notify_complete(CheckpointId(2))
    backend.notify_complete(CheckpointId(1))  # late: it was replaced
    before = files.bytes_written
    third = stored(backend, 3, files, native=True)
    assert _uploaded(third) == second
    assert all(not file.ref.shared for file in third.native[0].files if file.key_groups is None)
    assert files.bytes_written - before < 60_000, "metadata only"


def test_a_savepoint_between_checkpoints_changes_nothing(make: Make) -> None:
    files = MemoryFiles("d", {})
    backend = make()
    fill(backend, 50)
    first = _uploaded(stored(backend, 1, files, native=True))
    backend.notify_complete(CheckpointId(1))
    savepoint = stored(backend, 2, files, native=False)
    assert savepoint.native == ()
    assert {table.name for table in savepoint.keyed} == {descriptor.name for descriptor in ALL}
    backend.notify_complete(CheckpointId(2))
    assert _uploaded(stored(backend, 3, files, native=True)) == first


def test_a_native_savepoint_is_whole_and_checkpoints_know_nothing_of_it(make: Make, tmp_path: Path) -> None:
    files = MemoryFiles("d", {})
    backend = make()
    fill(backend, 50)
    first = _uploaded(stored(backend, 1, files, native=True))
    backend.notify_complete(CheckpointId(1))
    savepoint = stored(backend, 2, files, native=True, sharing=Sharing.NO_SHARING)
    assert _uploaded(savepoint) == {}, "neither files that a checkpoint has stored nor files for others"
    backend.notify_complete(CheckpointId(2))  # of a stop: tasks hear of it
    assert _uploaded(stored(backend, 3, files, native=True)) == first
    own = MemoryFiles("moved", {k: v for k, v in files.stored.items() if not k.startswith("shared/")})
    news = restored(make, tmp_path, own, [savepoint], 2)
    assert {key: value for one in news for key, value in contents(one).items()} == expected(50)


def test_a_full_checkpoint_stores_everything_anew_for_those_that_follow(make: Make, tmp_path: Path) -> None:
    files = MemoryFiles("d", {})
    backend = make()
    fill(backend, 50)
    first = _uploaded(stored(backend, 1, files, native=True))
    backend.notify_complete(CheckpointId(1))
    full = stored(backend, 2, files, native=True, sharing=Sharing.FORWARD)
    assert _uploaded(full).keys() == first.keys() != set()
    assert set(_uploaded(full).values()).isdisjoint(first.values())
    before_it_is_complete = _uploaded(stored(backend, 3, files, native=True))
    assert before_it_is_complete == first, "it may yet be aborted"
    backend.notify_complete(CheckpointId(2))
    assert _uploaded(stored(backend, 4, files, native=True)) == _uploaded(full)
    news = restored(make, tmp_path, files, [full], 2)
    assert {key: value for one in news for key, value in contents(one).items()} == expected(50)


def test_after_a_restore_everything_is_stored_anew(make: Make, tmp_path: Path) -> None:
    files = MemoryFiles("d", {})
    backend = make()
    fill(backend, 50)
    handle = stored(backend, 1, files, native=True)
    (again,) = restored(make, tmp_path, files, [handle], 1)
    assert set(_uploaded(stored(again, 2, files, native=True)).values()).isdisjoint(
        _uploaded(handle).values()
    )


def test_files_tell_the_key_groups_of_their_rows(make: Make) -> None:
    backend = make()
    fill(backend, 1)
    group = int(key_groups(keys("user-0"), KEY.names, GROUPS)[0])
    snapshot = backend.snapshot(CheckpointId(1))
    found = snapshot.files()
    assert found is not None
    assert {file.key_groups for file in found.files} == {(group, group), None}
    snapshot.release()
    snapshot.release()


# --- life -----------------------------------------------------------------------------------------


def test_a_backend_without_state_has_an_empty_snapshot_and_makes_no_folder(
    make: Make, tmp_path: Path
) -> None:
    backend = make()
    snapshot = backend.snapshot(CheckpointId(1))
    assert (list(snapshot.tables()), snapshot.files()) == ([], None)
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_that_is_released_late_leaves_nothing_behind(make: Make, tmp_path: Path) -> None:
    backend = make()
    fill(backend, 3)
    snapshot = backend.snapshot(CheckpointId(1))
    tables = list(snapshot.tables())
    backend.close()
    snapshot.release()
    assert tables
    assert list(tmp_path.iterdir()) == []
