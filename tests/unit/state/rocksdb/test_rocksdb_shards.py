"""Key groups of a subtask in several databases: what a restore reads, adopts, cuts, copies and refuses."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.core.restore.state_assignment import native_share
from unistream.model.key_groups import key_group_range, key_groups
from unistream.model.keyed_snapshot import RestoredFiles
from unistream.model.snapshot import (
    NativeHandle,
    OperatorRestore,
    OperatorSnapshot,
    OperatorStateHandle,
)
from unistream.model.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.state.rocksdb import RocksDbStateBackend
from unistream.state.rocksdb.api import FORMAT, FORMAT_WHOLE, MEMORY_BYTES_MIN, Memory, RocksDbTuning
from unistream.state.rocksdb.keys import group_prefix
from unistream.state.rocksdb.shards import Families, Shards, shard_ranges
from unistream.storage.state_files import FsStateReader, FsStateWriter
from unistream.testing.harness.operators import ManualClock

UID = OperatorUid("op")
GROUPS = 128
KEY = pa.schema([("k", pa.int64())])
COUNT = ValueStateDescriptor("count", pa.int64())
NARROW = ValueStateDescriptor("count", pa.int32())
WIDER = ValueStateDescriptor("count", pa.float64())
GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "rocksdb_1.json"

Groups = tuple[int, int]
Make = Callable[..., RocksDbStateBackend]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[RocksDbStateBackend] = []

    def backend(groups: Groups, *, shards: int = 4, max_parallelism: int = GROUPS) -> RocksDbStateBackend:
        made.append(
            RocksDbStateBackend(
                key_groups=groups,
                max_parallelism=max_parallelism,
                folder=tmp_path / f"backend-{len(made)}",
                clock=ManualClock(),
                memory_bytes=16 << 20,
                tuning=RocksDbTuning(shards=shards),
            )
        )
        return made[-1]

    yield backend
    for one in made:
        one.close()


def keys_in(groups: Groups, count: int) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], schema=KEY)
    found = key_groups(batch, KEY.names, GROUPS)
    return batch.filter(pa.array((found >= groups[0]) & (found <= groups[1])))


def fill(backend: RocksDbStateBackend, groups: Groups, count: int) -> None:
    batch = keys_in(groups, count)
    backend.column(COUNT).put(backend.keys_of(batch), batch.column(0))


def numbers(backend: RocksDbStateBackend) -> list[int]:
    """Keys that it has, each with the value that belongs to it."""
    found: list[Any] = [key[0] for key in backend.keys("count")]
    batch = pa.RecordBatch.from_arrays([pa.array(found, pa.int64())], schema=KEY)
    assert backend.column(COUNT).get(backend.keys_of(batch)).to_pylist() == found
    return sorted(found)


class Stores:
    """Checkpoints in a folder, and what each restore reads of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def store(self, backends: list[RocksDbStateBackend]) -> tuple[str, list[OperatorStateHandle]]:
        self._count += 1
        directory = self._folder / f"job-{self._count}" / "chk-1"
        directory.mkdir(parents=True)
        handles = []
        for backend in backends:
            snapshot = OperatorSnapshot(state=backend.snapshot(CheckpointId(1)))
            writer = FsStateWriter(str(directory))
            task, _ = write_task_snapshot({UID: snapshot}, writer, finished=False, native=True)
            handles.append(task.operators[UID])
        return str(directory), handles

    def restore(
        self, stored: tuple[str, list[OperatorStateHandle]], backend: RocksDbStateBackend, groups: Groups
    ) -> int:
        """Bytes that it read."""
        directory, handles = stored
        shares = [native_share(native, groups) for handle in handles for native in handle.native]
        restore = OperatorRestore(native=tuple(share for share in shares if share is not None))
        reader = FsStateReader(directory)
        backend.restore(read_operator_state(restore, CheckpointId(1), reader, self._folder).state)
        assert list(self._folder.glob("restored-*")) == []
        return reader.bytes_read


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def size(handles: list[OperatorStateHandle]) -> int:
    return sum(file.ref.size for handle in handles for native in handle.native for file in native.files)


def shards_of(backend: RocksDbStateBackend) -> list[Groups]:
    """Of those with rows."""
    snapshot = backend.snapshot(CheckpointId(9))
    found = snapshot.files()
    snapshot.release()
    assert found is not None
    return sorted({file.shard for file in found.files if file.shard is not None})


# --- how key groups are divided -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "shards", "ranges"),
    [
        pytest.param((0, 127), 4, [(0, 31), (32, 63), (64, 95), (96, 127)], id="equal parts"),
        pytest.param((64, 127), 2, [(64, 95), (96, 127)], id="of the second of two subtasks"),
        pytest.param((0, 42), 4, [(0, 10), (11, 21), (22, 31), (32, 42)], id="as of twelve, of one of three"),
        pytest.param((5, 7), 4, [(5, 5), (6, 6), (7, 7)], id="no more than there are key groups"),
        pytest.param((5, 5), 4, [(5, 5)], id="one key group"),
        pytest.param((0, 127), 1, [(0, 127)], id="all in one"),
        pytest.param((3, 11), 2, [(3, 6), (7, 11)], id="a range that no subtask has"),
    ],
)
def test_shards_of_a_subtask(groups: Groups, shards: int, ranges: list[Groups]) -> None:
    assert shard_ranges(groups, GROUPS, shards) == ranges


@pytest.mark.parametrize("max_parallelism", [16, 100, 128, 129, 1000])
@pytest.mark.parametrize("times", [2, 4])
def test_no_shard_is_cut_at_twice_and_four_times_the_parallelism(max_parallelism: int, times: int) -> None:
    for parallelism in range(1, max_parallelism // times + 1):
        for index in range(parallelism):
            own = key_group_range(max_parallelism, parallelism, index)
            ranges = shard_ranges(own, max_parallelism, 4, parallelism)
            assert [g for first, last in ranges for g in range(first, last + 1)] == [
                *range(own[0], own[1] + 1)
            ]
            for part in range(times):
                first, last = key_group_range(max_parallelism, parallelism * times, index * times + part)
                cut = [a for a, b in ranges if a < first <= b or a <= last < b]
                assert cut == [], (parallelism, index, part)


# --- rows over shards -----------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    made = Shards(tmp_path / "db", Memory(MEMORY_BYTES_MIN, databases=3))
    made.fill([(0, 3), (4, 7), (8, 11)])
    yield made
    made.close()


def test_many_rows_are_written_and_read_where_their_key_groups_are(shards: Shards) -> None:
    families = Families(shards, "f")
    rows = [(group_prefix(group) + b"k\0\0", bytes([group])) for group in (9, 0, 5, 11, 4)]
    families.write([*rows, (rows[2][0], b"again"), (rows[3][0], None)])
    families.write([])
    wanted = [b"\x09", b"\0", b"again", None, b"\x04", None]
    assert families.get_many([*[key for key, _ in rows], group_prefix(7)]) == wanted
    assert families.get_many([]) == []
    assert [row[0][1] for row in families.rows((0, 11))] == [0, 4, 5, 9]
    assert [row[0][1] for row in families.rows((4, 8))] == [4, 5]
    assert list(Families(shards, "other").rows((0, 11))) == []


def test_a_shard_without_rows_is_not_opened(shards: Shards, tmp_path: Path) -> None:
    assert list(Families(shards, "f").rows((0, 11))) == []
    assert not (tmp_path / "db").exists()
    families = Families(shards, "f")
    families[group_prefix(5)][group_prefix(5) + b"k"] = b"v"
    assert [path.name for path in (tmp_path / "db").iterdir()] == ["00004-00007"]


def test_rows_of_all_shards_are_those_of_when_one_begins(shards: Shards) -> None:
    families = Families(shards, "f")
    keys = [group_prefix(group) + b"k" for group in (1, 6, 10)]
    families.write([(key, b"") for key in keys])
    rows = families.rows((0, 11))
    first = next(rows)
    families.write([(key, None) for key in keys])
    assert [first, *rows] == [(key, b"") for key in keys]


def test_what_is_left_between_shards_gets_shards_of_its_own(tmp_path: Path) -> None:
    made = Shards(tmp_path, Memory(MEMORY_BYTES_MIN))
    made.add((4, 5))
    made.fill([(0, 3), (4, 7), (8, 11)])
    assert [shard.groups for shard in made] == [(0, 3), (4, 5), (6, 7), (8, 11)]
    assert [made.of_group(group).groups for group in (5, 6)] == [(4, 5), (6, 7)]


# --- what a restore reads -------------------------------------------------------------------------


def test_each_doubling_of_the_parallelism_reads_but_the_share_of_each(make: Make, stores: Stores) -> None:
    """Three times: what has become one shard is divided again on the way."""
    count = 60_000
    olds = [make((0, GROUPS - 1))]
    fill(olds[0], (0, GROUPS - 1), count)
    for parallelism in (2, 4, 8):
        stored = stores.store(olds)
        share = size(stored[1]) / parallelism
        for old in olds:
            old.close()
        ranges = [key_group_range(GROUPS, parallelism, index) for index in range(parallelism)]
        olds = [make(groups) for groups in ranges]
        read = [stores.restore(stored, new, groups) for new, groups in zip(olds, ranges, strict=True)]
        assert max(read) <= 1.1 * share
    assert sorted(n for new in olds for n in numbers(new)) == list(range(count))
    assert [len(shards_of(new)) for new in olds] == [2] * 8


@pytest.mark.parametrize(
    ("old", "new", "shards"),
    [
        pytest.param(1, 1, [4], id="as they were"),
        pytest.param(1, 2, [2, 2], id="whole shards go apart"),
        pytest.param(1, 4, [4, 4, 4, 4], id="one shard is divided again"),
        pytest.param(2, 1, [8], id="whole shards come together"),
        pytest.param(4, 1, [4], id="too many are merged"),
        pytest.param(2, 3, [3, 4, 3], id="shards at the edges are cut"),
        pytest.param(3, 2, [6, 6], id="also when it becomes less"),
    ],
)
def test_restored_shards(make: Make, stores: Stores, old: int, new: int, shards: list[int]) -> None:
    count = 2_000
    ranges = [key_group_range(GROUPS, old, index) for index in range(old)]
    olds = [make(groups) for groups in ranges]
    for backend, groups in zip(olds, ranges, strict=True):
        fill(backend, groups, count)
    stored, found, made = stores.store(olds), [], []
    for index in range(new):
        groups = key_group_range(GROUPS, new, index)
        backend = make(groups)
        stores.restore(stored, backend, groups)
        made.append(len(shards_of(backend)))
        assert numbers(backend) == keys_in(groups, count).column(0).to_pylist()
        found += numbers(backend)
    assert sorted(found) == list(range(count))
    assert made == shards


def test_rows_that_several_subtasks_stored_differently_come_together(make: Make, stores: Stores) -> None:
    """One has rewritten its state in a wider type, the other not yet."""
    ranges = [key_group_range(GROUPS, 2, index) for index in range(2)]
    first, second = make(ranges[0]), make(ranges[1])
    for backend, groups in ((first, ranges[0]), (second, ranges[1])):
        batch = keys_in(groups, 300)
        backend.column(NARROW).put(backend.keys_of(batch), batch.column(0))
    stored = stores.store([first])
    again = make(ranges[0])
    stores.restore(stored, again, ranges[0])
    again.column(WIDER)
    both = make((0, GROUPS - 1))
    stores.restore(stores.store([again, second]), both, (0, GROUPS - 1))
    batch = keys_in((0, GROUPS - 1), 300)
    values = both.column(WIDER).get(both.keys_of(batch))
    assert values.to_pylist() == [float(n) for n in range(300)]


def test_a_shard_that_does_not_list_its_files_is_corrupt(make: Make, stores: Stores) -> None:
    backend = make((0, GROUPS - 1))
    fill(backend, (0, GROUPS - 1), 100)
    directory, [handle] = stores.store([backend])
    [native] = handle.native
    files = tuple(file for file in native.files if not file.name.startswith("00000-00031.MANIFEST"))
    assert len(files) == len(native.files) - 1
    broken = OperatorStateHandle(native=(msgspec.structs.replace(native, files=files),))
    with pytest.raises(CorruptSnapshot, match="00000-00031"):
        stores.restore((directory, [broken]), make((0, GROUPS - 1)), (0, GROUPS - 1))


def test_a_description_that_is_none_is_corrupt(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "restored-x"
    folder.mkdir()
    part = RestoredFiles(format=FORMAT, folder=folder, descriptors=b"?", key_groups=(0, 127))
    with pytest.raises(CorruptSnapshot, match="description"):
        make((0, GROUPS - 1)).restore([part])
    assert not folder.exists()


# --- files of before ------------------------------------------------------------------------------


@pytest.fixture
def golden(tmp_path: Path) -> tuple[str, NativeHandle]:
    """A checkpoint that the version without shards has written: its directory, and what its manifest said."""
    files = {name: base64.b64decode(text) for name, text in json.loads(GOLDEN.read_text()).items()}
    for name, content in files.items():
        path = tmp_path / "golden" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zlib.decompress(content))
    handle = (tmp_path / "golden" / "handle.msgpack").read_bytes()
    return str(tmp_path / "golden" / "chk-1"), msgspec.msgpack.decode(handle, type=NativeHandle)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_files_of_one_database_for_all_key_groups_are_still_read(
    make: Make, stores: Stores, golden: tuple[str, NativeHandle], parallelism: int
) -> None:
    directory, handle = golden
    assert handle.format == FORMAT_WHOLE
    stored = (directory, [OperatorStateHandle(native=(handle,))])
    found = {}
    for index in range(parallelism):
        groups = key_group_range(16, parallelism, index)
        backend = make(groups, max_parallelism=16)
        stores.restore(stored, backend, groups)
        count = backend.state(COUNT)
        words = backend.state(ListStateDescriptor("words", pa.string()))
        seen = backend.state(MapStateDescriptor("seen", pa.int64(), key_type=pa.string()))
        for (user,) in list(backend.keys("count")):
            batch = pa.record_batch({"user": pa.array([user])})
            backend.set_current(backend.keys_of(batch)[0])
            found[user] = (count.value(), words.get(), dict(seen.items()))
        assert len(shards_of(backend)) > 1, "it is divided from now on"
    assert found == {f"user-{n}": (n, (f"w{n}", "x"), {"a": n}) for n in range(20)}


def test_keys_of_a_column_may_come_in_any_order(make: Make) -> None:
    backend = make((0, GROUPS - 1))
    fill(backend, (0, GROUPS - 1), 500)
    order = np.random.default_rng(1).permutation(600)
    batch = pa.RecordBatch.from_arrays([pa.array(order, pa.int64())], schema=KEY)
    values = backend.column(COUNT).get(backend.keys_of(batch)).to_pylist()
    assert values == [n if n < 500 else None for n in order.tolist()]
