"""Which of a backend's own files a new subtask reads."""

from __future__ import annotations

import pytest

from unistream.core.restore.state_assignment import native_share
from unistream.model.file_ref import FileRef
from unistream.model.snapshot import NativeFile, NativeHandle

REF = FileRef(path="state-x", size=1, sha256="0")
SHARDS = [(0, 15), (16, 31), (32, 47), (48, 63)]
SHARDED = [NativeFile(name=f"s{first}", ref=REF, shard=(first, last)) for first, last in SHARDS]
WHOLE = [NativeFile(name="rows", ref=REF, key_groups=(3, 40)), NativeFile(name="list", ref=REF)]


@pytest.mark.parametrize(
    ("files", "wanted", "names"),
    [
        pytest.param(SHARDED, (0, 63), ["s0", "s16", "s32", "s48"], id="all for who has all key groups"),
        pytest.param(SHARDED, (32, 63), ["s32", "s48"], id="half of them at twice the parallelism"),
        pytest.param(SHARDED, (16, 31), ["s16"], id="a quarter at four times"),
        pytest.param(SHARDED, (31, 32), ["s16", "s32"], id="whole shards where they are cut"),
        pytest.param(SHARDED, (60, 100), ["s48"], id="what lies beyond is another's"),
        pytest.param(SHARDED, (64, 127), None, id="nothing of one without common key groups"),
        pytest.param(WHOLE, (50, 63), ["rows", "list"], id="all files that say nothing of shards"),
        pytest.param([*SHARDED, WHOLE[1]], (0, 3), ["s0", "list"], id="what is needed for all by everyone"),
    ],
)
def test_a_subtask_reads_the_files_of_its_shards(
    files: list[NativeFile], wanted: tuple[int, int], names: list[str] | None
) -> None:
    handle = NativeHandle(format="f", key_groups=(0, 63), files=tuple(files), descriptors=b"d")
    share = native_share(handle, wanted)
    assert (None if share is None else [file.name for file in share.files]) == names
    if share is not None:
        assert (share.format, share.key_groups, share.descriptors) == ("f", (0, 63), b"d")
