"""The journal of a backfill: found again, replaced atomically, for one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from unistream.backfill.journal import (
    JOURNAL,
    BackfillJournal,
    BackfillOrder,
    JobLock,
    unfinished,
    unfinished_into,
)
from unistream.backfill.staging import Staging
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import OperatorUid
from unistream.core.backfill import BackfillPhase, StagedFile, begun
from unistream.model.time_range import TimeRange

ORDER = BackfillOrder(
    id="0123456789ab",
    job_name="flights / live",
    range=TimeRange(begin_ms=1, end_ms=2),
    sink="lake",
    table="/lake",
    column="at",
    pipeline="m:f",
    config={"a": "b"},
    target="local",
    job="ab" * 16,
)


def test_it_is_found_by_the_name_and_the_id_of_the_job_until_it_has_ended(tmp_path: Path) -> None:
    journal = BackfillJournal.create(tmp_path / "state", ORDER, begun(stops_job=True))
    progress = structs.replace(begun(stops_job=True), phase=BackfillPhase.STOPPED, savepoint="s")
    journal.record(progress)
    for name in ("flights / live", "abab", "ab" * 16):
        again = unfinished(tmp_path / "state", name)
        assert again is not None
        assert (again.order, again.progress, again.folder) == (ORDER, progress, journal.folder)
    assert unfinished(tmp_path / "state", "other") is None
    assert [one.name for one in journal.folder.iterdir()] == [JOURNAL], "nothing temporary is left"
    assert journal.folder.stat().st_mode & 0o077 == 0, "options may hold passwords"
    journal.record(structs.replace(progress, phase=BackfillPhase.ENDED))
    assert unfinished(tmp_path / "state", "flights / live") is None


@pytest.mark.parametrize(
    ("name", "writes", "is_found"),
    [
        pytest.param("flights / live", {"lake": ["file:///lake"]}, True, id="its table"),
        pytest.param("another", {"lake": ["file:///other", "file:///lake"]}, True, id="under another name"),
        pytest.param("flights / live", {"lake": ["file:///other"]}, False, id="another table, of the name"),
        pytest.param("flights / live", {"sink": ["file:///lake"]}, False, id="another sink"),
        pytest.param("flights / live", {}, True, id="the name alone is known"),
        pytest.param("another", {}, False, id="another name"),
    ],
)
def test_whose_start_one_keeps_back(
    tmp_path: Path, name: str, writes: dict[OperatorUid, list[str]], is_found: bool
) -> None:
    journal = BackfillJournal.create(tmp_path, ORDER, begun(stops_job=True))
    assert (unfinished_into(tmp_path, name, writes) is not None) is is_found
    journal.record(structs.replace(journal.progress, phase=BackfillPhase.ENDED))
    assert unfinished_into(tmp_path, name, writes) is None


def test_a_damaged_one_is_not_skipped(tmp_path: Path) -> None:
    journal = BackfillJournal.create(tmp_path, ORDER, begun(stops_job=True))
    (journal.folder / JOURNAL).write_bytes(b"{")
    with pytest.raises(CorruptSnapshot, match="unreadable"):
        unfinished(tmp_path, "flights / live")


def test_one_of_another_version_is_not_read(tmp_path: Path) -> None:
    BackfillJournal.create(tmp_path, structs.replace(ORDER, format=99), begun(stops_job=True))
    with pytest.raises(CorruptSnapshot, match="format 99"):
        unfinished(tmp_path, "flights / live")


def test_one_process_at_a_time_works_on_a_job(tmp_path: Path) -> None:
    with JobLock(tmp_path / "state", "flights"):
        with pytest.raises(ConfigError, match="another process works on a backfill of job 'flights'"):
            JobLock(tmp_path / "state", "flights")
        JobLock(tmp_path / "state", "other").close()
    JobLock(tmp_path / "state", "flights").close()


def test_a_staged_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path), {})
    with pytest.raises(ConfigError, match="is missing or has changed"):
        staging.new_rows((StagedFile(path="part-0.parquet", size=1, rows=1),))
    assert staging.files() == ()
