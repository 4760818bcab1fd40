"""Whether checkpoints can be stored somewhere: reported before a job starts, and nothing stays behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault_fs import Fault, FaultFileSystem, FaultKind
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.probe import ATTEMPTS


def everything_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize(
    ("below", "says"),
    [
        pytest.param("file", "it is a file, or below one", id="a file"),
        pytest.param("file/of/it", "it is a file, or below one", id="a directory below a file"),
        pytest.param("link", "it is a file, or below one", id="a link to a file"),
        pytest.param("nowhere", "it is a file, or below one", id="a link that leads nowhere"),
        pytest.param("/proc/nope", "No such file or directory", id="where nothing can be made"),
    ],
)
def test_what_can_never_be_written_is_refused_and_leaves_nothing(
    tmp_path: Path, below: str, says: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "far")
    before = everything_below(tmp_path)
    root = str(tmp_path / below)
    with pytest.raises(ConfigError, match=says) as caught:
        FsCheckpointStorage(root).check_writable()
    assert f"cannot store snapshots in {root}: " in str(caught.value)
    assert everything_below(tmp_path) == before


def raising(error: Exception, times: int, operation: str = "pipe_file") -> Fault:
    return Fault(kind=FaultKind.RAISE_BEFORE, operation=operation, times=times, error=error)


@pytest.mark.parametrize(
    ("fault", "expected", "attempts"),
    [
        pytest.param(
            raising(PermissionError(13, "Permission denied"), 9), ConfigError, 1, id="no permission"
        ),
        pytest.param(raising(FileNotFoundError("no such bucket"), 9), ConfigError, 1, id="no bucket"),
        pytest.param(raising(TimeoutError("no answer"), 9), Unreachable, ATTEMPTS, id="no answer"),
        pytest.param(raising(OSError(28, "No space left on device"), 9), Unreachable, ATTEMPTS, id="full"),
        pytest.param(raising(TimeoutError("no answer"), ATTEMPTS - 1), None, ATTEMPTS, id="a late answer"),
        pytest.param(raising(TimeoutError("no answer"), 1, "rm_file"), None, 1, id="a probe that stays"),
    ],
)
def test_a_store_that_refuses(
    tmp_path: Path, fault: Fault, expected: type[UnistreamError] | None, attempts: int
) -> None:
    fs = FaultFileSystem(DurableLocalFileSystem())
    fs.inject(fault)
    pauses: list[float] = []
    storage = FsCheckpointStorage(str(tmp_path / "a" / "b"), fs=fs, pause=pauses.append)
    if expected is None:
        storage.check_writable()
    else:
        with pytest.raises(expected, match=str(fault.error)[-12:]):
            storage.check_writable()
        assert everything_below(tmp_path) == set()
    assert (len(pauses), pauses) == (attempts - 1, sorted(pauses))


@pytest.mark.parametrize("make", [str, lambda path: f"file://{path}", lambda path: f"memory://{path.name}"])
def test_what_can_be_written_is_fine_any_number_of_times(tmp_path: Path, make: Callable[[Path], str]) -> None:
    storage = FsCheckpointStorage(make(tmp_path / "a" / "b"))
    storage.check_writable()
    storage.check_writable()
    assert not [name for _, _, names in os.walk(tmp_path) for name in names]
