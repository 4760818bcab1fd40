"""What every checkpoint storage promises about rows that an engine stores for a job."""

from __future__ import annotations

import pytest

from tests.contract.test_contract_checkpoint_storage import JOB, OTHER_JOB, Adapter, manifest
from tests.contract.test_contract_checkpoint_storage import adapter as adapter  # noqa: PLC0414  a fixture
from unistream.base.errors import CorruptSnapshot, UnistreamError
from unistream.base.ids import CheckpointId, EdgeId, VertexId
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_rows import StoredRows


def write(adapter: Adapter, folder: str, content: bytes = b"rows") -> StoredRows:
    with adapter.writer(folder).open("edge-0") as file:
        file.write(content)
    return StoredRows(
        edge=EdgeId("edge"),
        vertex=VertexId("v"),
        producer=0,
        folder=folder,
        file=file.ref,
        index_bytes=1,
        index_crc=1,
    )


def read(adapter: Adapter, rows: StoredRows) -> bytes:
    return adapter.reader(rows.folder).read_range(rows.file, 0, rows.file.size)


def is_gone(adapter: Adapter, rows: StoredRows) -> bool:
    with pytest.raises((CorruptSnapshot, UnistreamError)):
        read(adapter, rows)
    return True


def test_each_folder_is_new_and_what_is_not_needed_is_removed(adapter: Adapter) -> None:
    storage = adapter.storage
    first, second = storage.stored_folder(JOB), storage.stored_folder(JOB)
    assert first != second
    lost, won = write(adapter, first, b"lost"), write(adapter, first, b"won")
    old, others = write(adapter, second), write(adapter, storage.stored_folder(OTHER_JOB))
    another = write(adapter, storage.stored_folder(JOB), b"of another leader")
    assert set(storage.stored_folders(JOB)) == {first, second, another.folder}
    storage.keep_stored([first, second], [won])
    assert read(adapter, won) == b"won"
    assert is_gone(adapter, lost)
    assert is_gone(adapter, old)
    assert read(adapter, others) == b"rows"
    storage.keep_stored([first], [])
    storage.keep_stored([first, second], [])
    assert is_gone(adapter, won)
    assert read(adapter, another) == b"of another leader"
    assert list(storage.stored_folders(JOB)) == [another.folder]


def test_checkpoints_stay(adapter: Adapter) -> None:
    storage = adapter.storage
    checkpoint = storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    state = adapter.writer(checkpoint).write("state", b"state")
    storage.write_manifest(checkpoint, manifest(1, state))
    write(adapter, storage.stored_folder(JOB))
    storage.forget(JOB)
    assert adapter.reader(checkpoint).read(state) == b"state"


def test_with_the_job_all_of_it_goes(adapter: Adapter) -> None:
    rows = write(adapter, adapter.storage.stored_folder(JOB))
    adapter.storage.forget(JOB)
    assert is_gone(adapter, rows)
    assert not adapter.storage.stored_folders(JOB)
    adapter.storage.forget(JOB)
