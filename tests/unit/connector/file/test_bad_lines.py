"""Lines that are no rows: which they are, where they are, and that a restored split has each of them once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB
from unistream.connector.common import RowChunk
from unistream.connector.file import FileSource
from unistream.connector.file import format as file_format
from unistream.connector.file.decode import decode
from unistream.connector.file.format import FileSpec
from unistream.connector.file.letters import read_letters
from unistream.connector.file.split import FileSplit

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
Letter = tuple[int | None, int, bytes]


def json_line(i: int) -> bytes:
    if i % 7 == 3:
        return (b"not json", b'{"id": "x"}', b"[1]", b'{"id": 1.5}', b"null")[i // 7 % 5]
    return b'{"id": %d, "name": "n%d"}' % (i, i)


def csv_line(i: int) -> bytes:
    return (b"x,y", b"1", b"1,2,3")[i // 7 % 3] if i % 7 == 3 else b"%d,n%d" % (i, i)


FORMATS = {"json": (json_line, b""), "csv": (csv_line, b"id,name\n")}


def written(path: Path, kind: str, lines: int, end: bytes = b"\n") -> bytes:
    line, head = FORMATS[kind]
    content = head + b"".join(line(i) + end for i in range(lines))
    path.write_bytes(content)
    return content


def spec(kind: Any, block_bytes: int, on_bad_record: Any = "dead-letter") -> FileSpec:
    return FileSpec(
        format=kind, schema=SCHEMA, block_bytes=block_bytes, options={}, on_bad_record=on_bad_record
    )


def splits_of(path: Path, parts: int) -> list[FileSplit]:
    size = path.stat().st_size
    bounds = [size * i // parts for i in range(parts + 1)]
    return [
        FileSplit(path=str(path), size=size, start=low, stop=high, unit=low, length=high - low)
        for low, high in itertools.pairwise(bounds)
    ]


def found(chunks: Iterable[RowChunk[FileSplit]]) -> tuple[list[int], list[Letter], int]:
    """Ids of the rows, (line, byte, raw) of the letters, lines that were skipped."""
    rows: list[int] = []
    letters: list[Letter] = []
    skipped = 0
    for chunk in chunks:
        rows += chunk.records.column("id").to_pylist()
        skipped += chunk.skipped
        if chunk.dead_letters is not None:
            letters += [(one["line"], one["byte"], one["raw"]) for one in chunk.dead_letters.to_pylist()]
    return rows, letters, skipped


@pytest.mark.parametrize("kind", list(FORMATS))
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    ("block_bytes", "parts"),
    [
        pytest.param(MIB, 1, id="one block"),
        pytest.param(100, 1, id="blocks of a few lines"),
        pytest.param(1, 1, id="blocks of one line, good or bad"),
        pytest.param(100, 3, id="several splits"),
    ],
)
def test_each_line_is_a_row_or_a_letter_with_its_place(
    tmp_path: Path, kind: str, end: bytes, block_bytes: int, parts: int
) -> None:
    path = tmp_path / "lines"
    content = written(path, kind, 100, end)
    rows: list[int] = []
    letters: list[Letter] = []
    for split in splits_of(path, parts):
        more_rows, more, _ = found(decode(split, spec(kind, block_bytes)))
        rows, letters = rows + more_rows, letters + more
    assert rows == [i for i in range(100) if i % 7 != 3]
    line, _ = FORMATS[kind]
    assert [raw for _, _, raw in letters] == [line(i) for i in range(100) if i % 7 == 3]
    for number, byte, raw in letters:
        assert content[byte : byte + len(raw)] == raw
        assert number == content[:byte].count(b"\n") + 1


@pytest.mark.parametrize("kind", list(FORMATS))
@pytest.mark.parametrize("block_bytes", [1, 100, MIB])
def test_a_split_that_is_restored_anywhere_has_each_letter_once(
    tmp_path: Path, kind: str, block_bytes: int
) -> None:
    path = tmp_path / "lines"
    written(path, kind, 60)
    (split,) = splits_of(path, 1)
    every = list(decode(split, spec(kind, block_bytes)))
    whole = found(every)
    for taken in range(1, len(every) + 1):
        before = found(every[:taken])
        after = found(decode(every[taken - 1].next, spec(kind, block_bytes)))
        assert (before[0] + after[0], before[1] + after[1]) == whole[:2]


@pytest.mark.parametrize("kind", list(FORMATS))
def test_skipped_lines_are_counted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lines"
    written(path, kind, 100)
    (split,) = splits_of(path, 1)
    rows, letters, skipped = found(decode(split, spec(kind, 100, "skip")))
    assert (len(rows), letters, skipped) == (86, [], 14)
    with pytest.raises(UserCodeError, match=r"line \d"):
        list(decode(split, spec(kind, 100, "fail")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"format": "parquet"}, "is for lines of text", id="Parquet"),
        pytest.param({"format": "csv"}, "needs quoted_newlines=False", id="CSV with line breaks in values"),
    ],
)
def test_where_bad_records_cannot_be_told_apart(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FileSource("rows", on_bad_record="dead-letter", **options)
    with pytest.raises(ConfigError, match="must be one of fail, skip, dead-letter, not 'drop'"):
        FileSource("rows", format="json", on_bad_record="drop")  # type: ignore[arg-type]


TIMED = pa.schema([("id", pa.int64()), ("at", pa.timestamp("s"))])
UNTIMED = {
    "json": b'{"id": 0, "at": 1}\n{"id": 1}\nbad\n{"id": 3, "at": null}\n{"id": 4, "at": 4}\n',
    "csv": b"id,at\n0,1970-01-01 00:00:01\n1,\nbad\n3,\n4,1970-01-01 00:00:04\n",
}


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_line_without_an_event_time_is_a_bad_line(tmp_path, kind):
    path = tmp_path / f"lines.{kind}"
    path.write_bytes(UNTIMED[kind])
    given = replace(spec(kind, MIB), schema=TIMED, times=("at",))
    [split] = splits_of(path, 1)
    rows, letters, _ = found(decode(split, given))
    head = int(kind == "csv")
    assert rows == [0, 4]
    assert [line for line, _, _ in letters] == [2 + head, 3 + head, 4 + head]
    assert found(decode(split, replace(given, on_bad_record="skip")))[2] == 3
    with pytest.raises(UserCodeError, match=f"line {2 + head} .*the timestamp column 'at' is null"):
        list(decode(split, replace(given, on_bad_record="fail")))
    again = read_letters(
        pa.table({"path": [str(path)] * 2, "raw": [UNTIMED[kind].splitlines()[at + head] for at in (0, 1)]}),
        given,
    )
    assert again.rows[0] is not None
    assert again.reasons[1].startswith("the timestamp column 'at' is null")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_row_without_an_event_time_is_named_where_no_line_is(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    table = pa.table({"id": [0, 1, 2], "at": pa.array([0, 1, None], pa.timestamp("ms"))})
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=2)
    else:
        pa_csv.write_csv(table, path)
    given = replace(spec(kind, MIB, "fail"), schema=table.schema, times=("at",))
    size, stop = path.stat().st_size, 2 if kind == "parquet" else path.stat().st_size
    split = FileSplit(path=str(path), size=size, start=0, stop=stop, unit=0, length=size, whole=kind == "csv")
    where = "row group 1, row 1" if kind == "parquet" else "row 3"
    with pytest.raises(UserCodeError, match=f"{where}: the timestamp column 'at' is null. To go on without"):
        list(decode(split, given))


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_line_that_is_too_long_is_a_bad_line(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(file_format, "LINE_BYTES_MAX", 4_096)
    path = tmp_path / f"long.{kind}"
    line, head = FORMATS[kind]
    long = b'{"id": 1, "name": "' + b"x" * 20_000 + b'"}'
    path.write_bytes(head + b"\n".join([line(0), long, line(2), line(4), b""]))
    for parts in (1, 5):
        read = [found(decode(split, spec(kind, 1_024))) for split in splits_of(path, parts)]
        assert [id for rows, _, _ in read for id in rows] == [0, 2, 4]
        [(_, byte, raw)] = [letter for _, letters, _ in read for letter in letters]
        assert (byte, raw) == (len(head) + len(line(0)) + 1, long)
    with pytest.raises(UserCodeError, match=r"the line at byte \d+ is longer than 4096 B"):
        list(decode(splits_of(path, 1)[0], spec(kind, 1_024, "fail")))
