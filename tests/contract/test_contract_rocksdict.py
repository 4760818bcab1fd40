"""What the rocksdb backend relies on in the package `rocksdict`; a new version must pass this first."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Final

import pytest

from unistream.base.errors import CorruptSnapshot, Transient
from unistream.state.rocksdb.api import MEMORY_BYTES_MIN, RocksDb, database_files, rows_from

MERGED_S: Final = 30.0  # far longer than it takes


@pytest.fixture
def database(tmp_path: Path) -> RocksDb:
    return RocksDb(tmp_path / "db", MEMORY_BYTES_MIN)


def test_rows_are_bytes_in_the_order_of_bytes(database: RocksDb) -> None:
    family = database.family("a")
    database.write("a", [(b"\x00\x02", b"2"), (b"\x00\x01\xff", b""), (b"\x7f", b"3")])
    assert family.get(b"\x00\x02") == b"2"
    assert family.get([b"\x00\x02", b"none"]) == [b"2", None]
    assert list(rows_from(family, b"\x00")) == [(b"\x00\x01\xff", b""), (b"\x00\x02", b"2")]
    assert list(rows_from(family, b"\x00\x02", b"\x7f")) == [(b"\x00\x02", b"2")]


def test_the_last_of_two_writes_in_a_batch_wins_and_none_deletes(database: RocksDb) -> None:
    family = database.family("a")
    database.write("a", [(b"k", b"1"), (b"k", b"2"), (b"gone", b"1"), (b"gone", None)])
    del family[b"never there"]
    assert list(rows_from(family, b"")) == [(b"k", b"2")]


def test_an_iterator_does_not_see_later_changes(database: RocksDb) -> None:
    family = database.family("a")
    database.write("a", [(bytes([n]), b"") for n in range(5)])
    rows = rows_from(family, b"")
    first = next(rows)
    for n in range(5):
        del family[bytes([n])]
    assert [first, *rows] == [(bytes([n]), b"") for n in range(5)]


def test_an_iterator_over_a_snapshot_shows_the_newest_data(database: RocksDb) -> None:
    """The reason why snapshots are checkpoints; if this fails, the package was mended."""
    family = database.family("a")
    family[b"k"] = b"1"
    snapshot = family.snapshot()
    del family[b"k"]
    assert list(snapshot.items()) == []


def test_a_checkpoint_holds_what_was_written_without_a_log(database: RocksDb, tmp_path: Path) -> None:
    family = database.family("a")
    family[b"\x00\x05k"] = b"1"
    database.checkpoint(tmp_path / "links")
    family[b"\x00\x05k"] = b"2"
    rows, metadata = database_files(tmp_path / "links")
    assert [path.suffix for path in rows] == [".sst"]
    assert {path.name.partition("-")[0] for path in metadata} == {"CURRENT", "MANIFEST", "OPTIONS"}
    assert database.file_ranges()[rows[0].name] == (b"\x00\x05k", b"\x00\x05k")
    for path in (tmp_path / "links").iterdir():
        if path not in rows and path not in metadata:
            path.unlink()
    copy = RocksDb(tmp_path / "links", MEMORY_BYTES_MIN, read_only=True)
    assert list(rows_from(copy.family("a"), b"")) == [(b"\x00\x05k", b"1")]
    copy.close()
    opened = RocksDb(tmp_path / "links", MEMORY_BYTES_MIN)
    opened.family("a")[b"\x00\x06"] = b"more"
    assert len(list(rows_from(opened.family("a"), b""))) == 2
    opened.close()


def test_rows_outside_of_a_range_are_gone_also_in_a_checkpoint(database: RocksDb, tmp_path: Path) -> None:
    family = database.family("a")
    for n in range(6):
        family[bytes([0, n, 1])] = b""
    database.clip(bytes([0, 2]), bytes([0, 4]))
    assert [key[1] for key, _ in rows_from(family, b"")] == [2, 3]
    database.checkpoint(tmp_path / "links")
    copy = RocksDb(tmp_path / "links", MEMORY_BYTES_MIN, read_only=True)
    assert [key[1] for key, _ in rows_from(copy.family("a"), b"")] == [2, 3]
    copy.close()


def test_every_row_that_is_put_or_deleted_is_counted(database: RocksDb) -> None:
    family = database.family("a")
    before = database.written()
    database.write("a", [(bytes([n]), b"") for n in range(10)])
    family[b"k"] = b"1"
    family[b"k"] = b"2"
    del family[b"k"]
    del family[b"never there"]
    list(rows_from(family, b""))
    family.flush(True)
    assert database.written() - before == 14


def test_files_of_what_was_deleted_go_without_waiting_for_more(database: RocksDb, tmp_path: Path) -> None:
    """Two files are too few to be merged for their number; half of what is in them is deletions."""
    rows = [n.to_bytes(4, "big") for n in range(3_000)]
    for number, value in enumerate((b"1", None)):
        database.write("a", [(key, value) for key in rows])
        database.checkpoint(tmp_path / f"links-{number}")
    pause, waited_s = Event(), 0.0
    while database.file_ranges() and waited_s < MERGED_S:  # RocksDB does not tell when it has merged files
        pause.wait(0.02)
        waited_s += 0.02
    assert database.file_ranges() == {}


def test_a_dropped_family_is_gone(database: RocksDb) -> None:
    database.family("a")[b"k"] = b"1"
    database.drop("a")
    assert not database.has("a")
    assert list(rows_from(database.family("a"), b"")) == []


def test_files_that_cannot_be_opened_are_corrupt(database: RocksDb, tmp_path: Path) -> None:
    database.family("a")[b"k"] = b"1"
    database.checkpoint(tmp_path / "links")
    rows, _ = database_files(tmp_path / "links")
    rows[0].unlink()
    with pytest.raises(CorruptSnapshot, match="links"):
        RocksDb(tmp_path / "links", MEMORY_BYTES_MIN)


def test_a_checkpoint_that_cannot_be_made_is_transient(database: RocksDb, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Transient, match="checkpoint"):
        database.checkpoint(tmp_path / "file" / "links")


def test_closing_twice_is_fine_and_the_folder_can_be_opened_again(database: RocksDb, tmp_path: Path) -> None:
    database.family("a")[b"k"] = b"1"
    database.close()
    database.close()
    again = RocksDb(tmp_path / "db", MEMORY_BYTES_MIN)
    assert again.family("a").get(b"k") == b"1"
    again.close()
