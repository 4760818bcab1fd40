"""Compressed text: the same rows as the text, or a failure that names the file; never a shorter table."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from msgspec import structs

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import decoded_split
from unistream.connector.file import FileSource
from unistream.connector.file.decode import decode
from unistream.connector.file.split import FileSplit
from unistream.port.source import Rows

COMPILES_WITHIN_S: Final = 120.0
ROWS: Final = [{"n": i, "t": f"é{i}"} for i in range(50)]
SCHEMA: Final = pa.schema([("n", pa.int64()), ("t", pa.string())])
TEXTS: Final = {
    "json": "".join(f"{json.dumps(row)}\n" for row in ROWS).encode(),
    "csv": ("n,t\n" + "".join(f"{row['n']},{row['t']}\n" for row in ROWS)).encode(),
}
CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda text: pa.compress(text, codec="zstd", asbytes=True),
}
NAMES: Final = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


def rows_of(source: FileSource) -> list[dict[str, Any]]:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


@pytest.fixture(autouse=True)
def no_text_is_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path_factory.mktemp("texts")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not os.listdir(folder)


@pytest.mark.parametrize("suffix", CODECS)
@pytest.mark.parametrize(
    "options",
    [
        {"format": "json"},
        {"format": "json", "block_bytes": 40},
        {"format": "csv"},
        {"format": "csv", "block_bytes": 40},
        {"format": "csv", "quoted_newlines": False},
    ],
    ids=str,
)
def test_compressed_text_has_the_rows_of_the_text(
    tmp_path: Path, suffix: str, options: dict[str, Any]
) -> None:
    text = TEXTS[options["format"]]
    (tmp_path / f"a.{suffix}").write_bytes(CODECS[suffix](text))
    assert rows_of(FileSource(str(tmp_path), **options)) == ROWS
    two = CODECS[suffix](text[:100]) + CODECS[suffix](text[100:])
    (tmp_path / f"a.{suffix}").write_bytes(two)
    assert rows_of(FileSource(str(tmp_path), schema=SCHEMA, **options)) == ROWS
    (tmp_path / f"a.{suffix}").rename(tmp_path / "a")
    assert rows_of(FileSource(str(tmp_path), compression=NAMES[suffix], **options)) == ROWS


def test_files_of_a_folder_are_compressed_each_as_its_suffix_says(tmp_path: Path) -> None:
    for suffix, compress in CODECS.items():
        (tmp_path / f"b.{suffix}").write_bytes(compress(b'{"n": 1}\n'))
    (tmp_path / "a").write_bytes(b'{"n": 0}\n')
    assert rows_of(FileSource(str(tmp_path), format="json")) == [{"n": 0}, *[{"n": 1}] * 3]


@pytest.mark.parametrize("suffix", CODECS)
@pytest.mark.parametrize("left", [0, 1, 12, 0.5, -1])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_an_archive_that_is_cut_off_has_no_rows_and_is_named(
    tmp_path: Path, suffix: str, left: float, format: Any
) -> None:
    whole = CODECS[suffix](TEXTS[format])
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(whole[: int(left * len(whole)) if left == 0.5 else int(left)])
    source = FileSource(str(path), format=format, schema=SCHEMA)
    seen: list[Any] = []
    splits = create_discovery(source.info()).discover()
    with (
        pytest.raises(UserCodeError, match=rf"a\.{suffix} is (damaged or cut off|no \w+ archive)"),
        SourceDriver(source, splits, COMPILES_WITHIN_S) as driver,
    ):
        seen.extend(driver.polled())
    assert not seen
    with pytest.raises(ConfigError, match=rf"a\.{suffix}: no schema can be inferred"):
        _ = FileSource(str(path), format=format).schema


@pytest.mark.parametrize("suffix", CODECS)
def test_what_is_no_archive_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    for content in (TEXTS["json"], CODECS[suffix](TEXTS["json"]) + b"more"):
        path.write_bytes(content)
        with pytest.raises(UserCodeError, match=rf"a\.{suffix} is damaged or cut off"):
            rows_of(FileSource(str(path), format="json", schema=SCHEMA))
    path.write_bytes(TEXTS["json"])
    assert rows_of(FileSource(str(path), format="json", compression=None)) == ROWS


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_restored_split_continues_behind_its_rows(tmp_path: Path, format: Any) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXTS[format]))
    source = FileSource(str(tmp_path), format=format, schema=SCHEMA, block_bytes=100)
    [split] = create_discovery(source.info()).discover()
    part = decoded_split(split, FileSplit, "file")
    assert structs.asdict(part)["stop"] == (tmp_path / "a.gz").stat().st_size
    chunks = list(decode(part, source._spec()))
    assert len(chunks) > 3
    rows = [chunk.records.to_pylist() for chunk in chunks]
    for number, chunk in enumerate(chunks):
        rest = [row for later in rows[number + 1 :] for row in later]
        assert [row for one in decode(chunk.next, source._spec()) for row in one.records.to_pylist()] == rest


def test_a_bad_line_is_found_in_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b'{"n": 1, "t": "x"}\noops\n'))
    source = FileSource(str(tmp_path), format="json", schema=SCHEMA)
    with pytest.raises(UserCodeError, match=r"a\.gz, line 2 \(byte 19\): .*oops"):
        rows_of(source)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("a.gz", {"format": "json", "split_bytes": 9}, "is read by one subtask, and split_bytes=9 asks for"),
        ("a.lz4", {"format": "json"}, r"a\.lz4: of compressed text only \.gz, \.zst, \.bz2 is read"),
        ("a.zip", {"format": "csv"}, r"a\.zip: of compressed text only"),
        (
            "a",
            {"format": "json", "compression": "lzma"},
            "infer, gzip, zstd, bz2 or None, not 'lzma'",
        ),
        ("a", {"format": "parquet", "compression": "gzip"}, "parquet compresses its own parts"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, options: dict[str, Any], text: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(TEXTS["json"]))
    with pytest.raises(ConfigError, match=text):
        create_discovery(FileSource(str(tmp_path), **options).info()).discover()
