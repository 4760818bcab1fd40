"""The room of a folder: of its disk, or unknown; never zero because nobody knows."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from unistream.storage import room
from unistream.storage.room import room_at


@pytest.mark.parametrize("form", ["{}", "file://{}", "local://{}"])
def test_a_folder_has_the_room_of_its_disk_also_before_it_is_there(tmp_path: Path, form: str) -> None:
    found = room_at(form.format(tmp_path / "not" / "yet"))
    assert found is not None
    assert found.total_bytes == shutil.disk_usage(tmp_path).total
    assert 0 <= found.free_bytes <= found.total_bytes


@pytest.mark.parametrize(
    "url", ["s3://b/c", "S3A://b", "memory://x", "hdfs://n:1/x", "abfss://c@a/x", "gs://b"]
)
def test_of_an_object_store_nobody_knows_it(url: str) -> None:
    assert room_at(url) is None


def test_a_disk_that_hangs_keeps_one_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    def hangs(folder: str) -> str:
        asked.set()
        answers.wait(WAIT_S)
        return folder

    monkeypatch.setattr(room, "_existing", hangs)
    found: list[object] = []
    first = threading.Thread(target=lambda: found.append(room_at(str(tmp_path))))
    first.start()
    assert asked.wait(WAIT_S)
    assert room_at(str(tmp_path)) is None
    answers.set()
    first.join(WAIT_S)
    assert found != [None]
