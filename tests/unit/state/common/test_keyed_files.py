from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from unistream.base.errors import CorruptSnapshot, ProtocolError, Transient
from unistream.model.file_ref import FileRef
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN, KeyedHandle, KeyedShare
from unistream.state.common import read_keyed_share, write_keyed_table
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.growing_file import SPOOL_BYTES_MAX
from unistream.storage.state_files import FsStateReader, FsStateWriter
from unistream.testing.harness import MemoryFiles

SCHEMA = pa.schema([(KEY_GROUP_COLUMN, pa.uint16()), ("key", pa.int64()), ("value", pa.string())])


def rows(groups: list[int]) -> pa.RecordBatch:
    n = len(groups)
    columns = [
        pa.array(groups, pa.uint16()),
        pa.array(range(n), pa.int64()),
        pa.array([f"v{g}" for g in groups]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def table(*batches: pa.RecordBatch, kind: StateKind = StateKind.VALUE) -> StateTable:
    schema = batches[0].schema if batches else SCHEMA
    return StateTable(name="counts", kind=kind, pickled=True, schema=schema, batches=iter(batches))


def written(files: MemoryFiles, *batches: pa.RecordBatch) -> KeyedHandle:
    handle = write_keyed_table(table(*batches), files)
    assert handle is not None
    return handle


def share(handle: KeyedHandle, start: int = 0, stop: int | None = None) -> KeyedShare:
    return KeyedShare(handle=handle, start=start, stop=len(handle.key_groups) if stop is None else stop)


def groups_in(part: StateTable) -> list[int]:
    return [group for batch in part.batches for group in batch.column(0).to_pylist()]


def test_batches_are_cut_where_the_key_group_changes_and_keep_what_they_are_called() -> None:
    files = MemoryFiles("d", {})
    handle = written(files, rows([1, 1, 4]), rows([]), rows([4, 9]))
    assert handle.key_groups == (1, 4, 4, 9)
    assert (handle.rows, handle.kind, handle.pickled) == (5, StateKind.VALUE, True)
    part = read_keyed_share(share(handle, 1, 3), files)
    assert (part.name, part.kind, part.pickled, part.schema) == ("counts", StateKind.VALUE, True, SCHEMA)
    assert [batch.to_pydict()["value"] for batch in part.batches] == [["v4"], ["v4"]]


def test_the_file_is_an_arrow_file_that_anyone_can_read() -> None:
    files = MemoryFiles("d", {})
    handle = written(files, rows([1, 1, 4]))
    whole = pa.ipc.open_file(pa.BufferReader(files.read(handle.file))).read_all()
    assert whole.column(KEY_GROUP_COLUMN).to_pylist() == [1, 1, 4]


def test_nothing_is_stored_for_a_table_without_rows() -> None:
    files = MemoryFiles("d", {})
    assert write_keyed_table(table(rows([])), files) is None
    assert files.stored == {}


def test_batches_with_different_dictionaries_are_stored_as_their_values() -> None:
    files = MemoryFiles("d", {})
    batches = [
        rows([group]).set_column(2, "value", pa.array([text]).dictionary_encode())
        for group, text in ((1, "a"), (2, "b"))
    ]
    handle = written(files, *batches)
    part = read_keyed_share(share(handle), files)
    assert part.schema.field("value").type == pa.string()
    assert [batch.column(2).to_pylist() for batch in part.batches] == [["a"], ["b"]]


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([rows([2, 1])], id="within a batch"),
        pytest.param([rows([1, 2]), rows([1])], id="between batches"),
    ],
)
def test_rows_out_of_order_are_refused_and_leave_no_file(batches: list[pa.RecordBatch]) -> None:
    files = MemoryFiles("d", {})
    with pytest.raises(ProtocolError, match="order of their key groups"):
        write_keyed_table(table(*batches), files)
    assert files.stored == {}


def _truncated(content: bytes, _handle: KeyedHandle) -> bytes | None:
    return content[:-1]


def _missing(_content: bytes, _handle: KeyedHandle) -> bytes | None:
    return None


def _flipped_in_schema(content: bytes, handle: KeyedHandle) -> bytes | None:
    return _flip(content, handle.offsets[0] // 2)


def _flipped_in_batch(content: bytes, handle: KeyedHandle) -> bytes | None:
    return _flip(content, handle.offsets[2] - 9)


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


@pytest.mark.parametrize("damage", [_truncated, _missing, _flipped_in_schema, _flipped_in_batch])
def test_damage_is_noticed_and_names_the_file(damage: object) -> None:
    files = MemoryFiles("d", {})
    handle = written(files, rows([1, 1, 4, 9]))
    content = damage(files.stored.pop(handle.file.path), handle)  # type: ignore[operator]
    if content is not None:
        files.stored[handle.file.path] = content
    with pytest.raises(CorruptSnapshot, match=handle.file.path):
        groups_in(read_keyed_share(share(handle, 1, 2), files))


def test_damage_is_told_with_the_place_of_the_file_among_all_snapshots(tmp_path: Path) -> None:
    chk = tmp_path / "chk-7"
    chk.mkdir()
    handle = write_keyed_table(table(rows([1, 4])), FsStateWriter(str(chk)))
    assert handle is not None
    path = chk / handle.file.path
    path.write_bytes(_flip(path.read_bytes(), handle.offsets[0] + 60))
    with pytest.raises(CorruptSnapshot, match=f"in file://{path} cannot be read"):
        groups_in(read_keyed_share(share(handle), FsStateReader(str(chk))))


def test_damage_in_rows_of_others_is_theirs_to_notice() -> None:
    files = MemoryFiles("d", {})
    handle = written(files, rows([1, 1, 4, 9]))
    files.stored[handle.file.path] = _flipped_in_batch(files.stored[handle.file.path], handle) or b""
    assert groups_in(read_keyed_share(share(handle, 2, 3), files)) == [9]


def test_every_byte_of_a_file_is_covered_by_a_checksum_of_some_share() -> None:
    files = MemoryFiles("d", {})
    handle = written(files, rows([1, 1, 4, 9]))
    whole = files.stored[handle.file.path]
    for place in range(len(whole)):
        files.stored[handle.file.path] = _flip(whole, place)
        with pytest.raises(CorruptSnapshot, match=handle.file.path):
            groups_in(read_keyed_share(share(handle), files))


def test_a_damaged_footer_is_noticed_by_who_reads_the_last_rows() -> None:
    files = MemoryFiles("d", {})
    handle = written(files, rows([1, 1, 4, 9]))
    whole = files.stored[handle.file.path]
    files.stored[handle.file.path] = _flip(whole, handle.offsets[-1] + 20)
    with pytest.raises(CorruptSnapshot, match="does not match its checksum"):
        groups_in(read_keyed_share(share(handle, 2, 3), files))
    assert groups_in(read_keyed_share(share(handle, 0, 2), files)) == [1, 1, 4]


def test_the_footer_of_an_older_file_is_not_trusted() -> None:
    """Its handle has no checksum of it: whatever is in it, each row read is one that was written."""
    files = MemoryFiles("d", {})
    handle = msgspec.structs.replace(written(files, rows([1, 1, 4, 9])), footer_checksum=None)
    whole = files.stored[handle.file.path]
    footer = slice(handle.offsets[-1], len(whole) - len(b"ARROW1"))
    nonsense = b"\xff" * (footer.stop - footer.start)
    files.stored[handle.file.path] = whole[: footer.start] + nonsense + whole[footer.stop :]
    assert groups_in(read_keyed_share(share(handle), files)) == [1, 1, 4, 9]
    assert groups_in(read_keyed_share(share(handle, 1, 2), files)) == [4]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"checksums": (1, 2)}, id="too few checksums"),
        pytest.param({"offsets": (8, 4, 2, 1)}, id="offsets that go back"),
        pytest.param({"key_groups": (1, 4, 8)}, id="other key groups"),
    ],
)
def test_a_handle_that_lies_is_not_believed(change: dict[str, object]) -> None:
    files = MemoryFiles("d", {})
    handle = msgspec.structs.replace(written(files, rows([1, 4, 9])), **change)
    with pytest.raises(CorruptSnapshot, match=handle.file.path):
        groups_in(read_keyed_share(share(handle), files))


def test_each_of_two_subtasks_reads_no_more_than_its_share(tmp_path: Path) -> None:
    groups = np.sort(np.arange(400_000) % 128).tolist()
    writer, whole = FsStateWriter(str(tmp_path)), rows(groups)
    batches = [whole.slice(start, 10_000) for start in range(0, 400_000, 10_000)]
    handle = write_keyed_table(table(*batches), writer)
    assert handle is not None
    middle = next(i for i, group in enumerate(handle.key_groups) if group >= 64)
    for start, stop in ((0, middle), (middle, len(handle.key_groups))):
        reader = FsStateReader(str(tmp_path))
        assert len(groups_in(read_keyed_share(share(handle, start, stop), reader))) == 200_000
        assert reader.bytes_read <= 1.1 * handle.file.size / 2
    assert writer.bytes_written == handle.file.size


def _many(count: int) -> Iterator[pa.RecordBatch]:
    text = "x" * 1000
    for group in range(count):
        columns = [pa.array([group] * 1000, pa.uint16()), pa.array(range(1000)), pa.array([text] * 1000)]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_a_table_that_does_not_fit_into_memory_is_written_and_read_bit_by_bit(tmp_path: Path) -> None:
    writer, reader = FsStateWriter(str(tmp_path)), FsStateReader(str(tmp_path))
    big = StateTable(name="b", kind=StateKind.VALUE, pickled=False, schema=SCHEMA, batches=_many(24))
    handle = write_keyed_table(big, writer)
    assert handle is not None
    assert handle.file.size > 2 * SPOOL_BYTES_MAX
    assert [path.name for path in tmp_path.iterdir()] == [handle.file.path]
    assert sum(batch.num_rows for batch in read_keyed_share(share(handle), reader).batches) == 24_000
    reader.read(handle.file)  # and its checksum is that of the whole


@pytest.mark.parametrize("count", [2, 24], ids=["small", "large"])
def test_a_full_disk_leaves_no_partial_file(tmp_path: Path, count: int) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = FsStateWriter(str(tmp_path), fs=DurableLocalFileSystem(fsync=full))
    big = StateTable(name="b", kind=StateKind.VALUE, pickled=False, schema=SCHEMA, batches=_many(count))
    with pytest.raises(Transient, match="No space left"):
        write_keyed_table(big, writer)
    assert list(tmp_path.iterdir()) == []


def test_a_source_of_rows_that_fails_leaves_no_partial_file(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from _many(12)
        raise RuntimeError("user code")

    broken = StateTable(name="b", kind=StateKind.VALUE, pickled=False, schema=SCHEMA, batches=failing())
    with pytest.raises(RuntimeError, match="user code"):
        write_keyed_table(broken, FsStateWriter(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_handle_without_offsets_is_read_as_a_whole() -> None:
    files = MemoryFiles("d", {})
    handle = msgspec.structs.replace(written(files, rows([1, 4])), offsets=(), checksums=())
    assert groups_in(read_keyed_share(share(handle, 1, 2), files)) == [4]
    assert files.bytes_read == handle.file.size


def test_a_range_outside_of_a_file_is_refused(tmp_path: Path) -> None:
    ref = FsStateWriter(str(tmp_path)).write("x", b"12345678")
    longer = FileRef(path=ref.path, size=20, sha256=ref.sha256)
    with pytest.raises(CorruptSnapshot, match="truncated"):
        FsStateReader(str(tmp_path)).read_range(longer, 4, 12)
    with pytest.raises(CorruptSnapshot, match="no bytes"):
        FsStateReader(str(tmp_path)).read_range(ref, 4, 12)
