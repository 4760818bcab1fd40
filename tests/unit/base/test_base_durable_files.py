"""Local files that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fault_fs import PowerCut
from unistream.base import durable_files


def test_a_file_is_there_whole_with_all_its_folders(tmp_path: Path) -> None:
    power = PowerCut(tmp_path)
    folder = tmp_path / "a" / "b"
    durable_files.make_folders(folder, power.fsync)
    assert durable_files.create(str(folder / "x"), b"first", fsync=power.fsync)
    power.cut()
    assert (folder / "x").read_bytes() == b"first"
    assert os.listdir(folder) == ["x"]


def test_what_is_there_is_kept_and_durable(tmp_path: Path) -> None:
    """Its creator may have died before it had synced the folder."""
    power = PowerCut(tmp_path)
    durable_files.write(tmp_path / "hidden", b"first", power.fsync)
    os.link(tmp_path / "hidden", tmp_path / "x")
    assert not durable_files.create(str(tmp_path / "x"), b"second", fsync=power.fsync)
    power.cut()
    assert (tmp_path / "x").read_bytes() == b"first"


def test_folders_that_another_has_made_are_durable_up_to_the_root(tmp_path: Path) -> None:
    power = PowerCut(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    durable_files.create(str(tmp_path / "a" / "b" / "x"), b"1", str(tmp_path), power.fsync)
    power.cut()
    assert (tmp_path / "a" / "b" / "x").read_bytes() == b"1"


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fails(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        durable_files.create(str(tmp_path / "x"), b"1", fsync=fails)
    assert os.listdir(tmp_path) == []
