"""A process is killed while it writes a state file, or its checkpoint is removed meanwhile: nobody sees a
part of a file, and nothing is left that nobody removes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import WAIT_S
from unistream.base.crash_points import POINTS_VARIABLE
from unistream.base.errors import Transient
from unistream.base.ids import CheckpointId, JobId
from unistream.model.snapshot_kind import SnapshotKind
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.growing_file import SPOOL_BYTES_MAX
from unistream.storage.state_files import FsStateWriter

JOB = JobId("0123456789abcdef0123456789abcdef")
SMALL, LARGE = 100_001, 3 * SPOOL_BYTES_MAX
WAYS = {
    "write": "writer.write('state', content)",
    "open": """
with writer.open('state') as file:
    for start in range(0, len(content), 1_000_000):
        file.write(content[start:start + 1_000_000])
""",
    "copy": "writer.copy('000012.sst', source, shared=True)",
}
PROGRAM = """
import sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
from unistream.storage.state_files import FsStateWriter

source = Path(sys.argv[2])
content = source.read_bytes()
writer = FsStateWriter(sys.argv[1], fs=LocalFileSystem() if sys.argv[3] else None)
"""


def die_writing(directory: str, folder: Path, way: str, size: int, point: str, *, foreign: bool) -> None:
    """`foreign`: a store that does not give files their names by itself."""
    (folder / "source").write_bytes(bytes(size))
    (folder / "tmp").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM + WAYS[way], directory, folder / "source", "yes" if foreign else ""],
        env={**os.environ, POINTS_VARIABLE: point, "TMPDIR": str(folder / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["snapshot.half_written", "snapshot.unnamed"])
def test_a_killed_writer_leaves_a_hidden_file_that_goes_with_its_snapshot(
    tmp_path: Path, way: str, size: int, point: str
) -> None:
    storage = FsCheckpointStorage(str(tmp_path / "root"))
    directory = storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    die_writing(directory, tmp_path, way, size, point, foreign=False)
    [left] = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert left.name.startswith(".")
    written = left.stat().st_size
    assert written == size if point == "snapshot.unnamed" else 0 < written < size
    if way == "copy":
        assert storage.clean_shared(directory) == 1
    storage.discard(directory)
    assert [path for path in (tmp_path / "root").rglob("*") if path.is_file()] == []


def test_a_writer_to_another_store_that_is_killed_leaves_nothing_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "chk-1").mkdir()
    die_writing(str(tmp_path / "chk-1"), tmp_path, "open", LARGE, "snapshot.half_written", foreign=True)
    assert list((tmp_path / "chk-1").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


class WatchedRemoval(DurableLocalFileSystem):
    """Lets a writer try again when files are about to be removed."""

    writer: FsStateWriter
    refused: list[str]

    def rm(self, path: str, recursive: bool = False, **options: Any) -> None:
        for hint in ("late", "uid/state/part.arrow"):
            try:
                self.writer.write(hint, b"late")
            except Transient:
                self.refused.append(hint)
        super().rm(path, recursive=recursive, **options)


def test_nobody_adds_a_file_to_a_checkpoint_that_is_being_removed(tmp_path: Path) -> None:
    """Otherwise its directory could not be removed, or would be there again."""
    fs = WatchedRemoval()
    storage = FsCheckpointStorage(str(tmp_path), fs=fs)
    directory = storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    fs.writer, fs.refused = FsStateWriter(directory, fs=fs), []
    fs.writer.write("uid/state/part.arrow", b"in time")
    storage.discard(directory)
    assert fs.refused == ["late", "uid/state/part.arrow"]
    assert list((tmp_path / JOB).iterdir()) == []


def test_folders_are_not_made_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    fs = DurableLocalFileSystem()
    with pytest.raises(FileNotFoundError):
        fs.make_folders(str(tmp_path / "chk-1"), "uid/state")
    assert list(tmp_path.iterdir()) == []
