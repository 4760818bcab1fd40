"""Lines that were dead letters, read again by a source that is right now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError
from unistream.connector.catalogue import create_discovery
from unistream.connector.file import FileSource
from unistream.port.source import Rows

WRONG = pa.schema([("id", pa.int64()), ("fare", pa.int64())])
RIGHT = pa.schema([("id", pa.int64()), ("fare", pa.float64())])


def csv_line(i: int) -> bytes:
    return b"%d,%s" % (i, b"x,y" if i % 10 == 7 else b"%d.5" % i if i % 3 == 1 else b"%d" % i)


def json_line(i: int) -> bytes:
    if i % 10 == 7:
        return b'{"id": %d, "fare": "%s"}' % (i, "§".encode() * i)
    return b'{"id": %d, "fare": %s}' % (i, b"%d.5" % i if i % 3 == 1 else b"%d" % i)


FORMATS: dict[str, tuple[Any, bytes]] = {"json": (json_line, b""), "csv": (csv_line, b"id,fare\n")}


def written(folder: Path, kind: str, name: str, numbers: range) -> str:
    line, head = FORMATS[kind]
    path = folder / f"{name}.{kind}"
    path.write_bytes(head + b"".join(line(i) + b"\r\n" for i in numbers))
    return str(path)


def source(path: str, kind: Any, schema: pa.Schema, on_bad: Any = "dead-letter", **more: Any) -> FileSource:
    return FileSource(
        path, format=kind, schema=schema, quoted_newlines=False, on_bad_record=on_bad, block_bytes=99, **more
    )


def read(source: FileSource) -> tuple[list[int], pa.Table]:
    """Ids of its rows, and its letters."""
    ids: list[int] = []
    letters = []
    with SourceDriver(source, create_discovery(source.info()).discover(), timeout_s=60) as driver:
        for polled in driver.polled():
            if isinstance(polled, Rows):
                ids += polled.records.column("id").to_pylist()
                letters += [] if polled.dead_letters is None else [polled.dead_letters]
    return ids, pa.Table.from_batches(letters)


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_rows_and_letters_and_what_these_give_are_all_lines(tmp_path: Path, kind: str) -> None:
    written(tmp_path, kind, "a", range(30))
    written(tmp_path, kind, "b", range(30, 60))
    ids, letters = read(source(str(tmp_path), kind, WRONG))
    assert sorted(ids) == [i for i in range(60) if i % 3 != 1 and i % 10 != 7]
    mended = source(str(tmp_path), kind, RIGHT, "fail")
    assert mended.own_letters(letters).to_pylist() == [True] * letters.num_rows
    found = mended.read_letters(letters)
    rows = [row for one in found.rows if one is not None for row in one.to_pylist()]
    assert rows == [{"id": i, "fare": i + 0.5} for i in range(60) if i % 3 == 1 and i % 10 != 7]
    assert len(found.reasons) == letters.num_rows - len(rows) == 6
    assert {at for at, one in enumerate(found.rows) if one is None} == set(found.reasons)
    assert all(found.reasons.values())
    assert set(found.times) == {None}


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_only_the_columns_that_the_pipeline_uses(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind, "a", range(6))
    _, letters = read(source(path, kind, WRONG))
    found = source(path, kind, RIGHT).reading(frozenset({"fare"})).read_letters(letters)
    assert [one.to_pylist() for one in found.rows if one is not None] == [[{"fare": 1.5}], [{"fare": 4.5}]]


def test_columns_of_csv_are_those_of_the_header_of_each_file(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", "a", range(5))
    (tmp_path / "b.csv").write_bytes(b"fare,id\n7.5,1\n")
    _, letters = read(source(str(tmp_path), "csv", WRONG))
    mended = source(str(tmp_path), "csv", RIGHT)
    found = mended.read_letters(letters)
    assert [one.to_pylist()[0] for one in found.rows if one is not None] == [
        {"id": 1, "fare": 1.5},
        {"id": 4, "fare": 4.5},
        {"id": 1, "fare": 7.5},
    ]
    Path(path).unlink()
    with pytest.raises(ConfigError, match=r"the header of .*a\.csv names the columns .* does not exist"):
        mended.read_letters(letters)


@pytest.mark.parametrize(
    ("paths", "own"),
    [
        (["in/2013-01/a.json"], True),
        (["in"], True),
        (["in/2013-*/*.json"], True),
        (["other", "in/**"], True),
        (["i"], False),
        (["in/*.json"], False),
        (["in/2013-01/a.csv"], False),
    ],
)
def test_letters_are_of_the_source_of_their_path(tmp_path: Path, paths: list[str], own: bool) -> None:
    letters = pa.table(
        {
            "path": [str(tmp_path / "in/2013-01/a.json")],
            "line": [1],
            "byte": [0],
            "reason": ["no"],
            "raw": [b"{"],
        }
    )
    found = FileSource([str(tmp_path / path) for path in paths], format="json", schema=RIGHT)
    assert found.own_letters(letters).to_pylist() == [own]
    assert found.own_letters(letters.drop_columns(["raw"])).to_pylist() == [False]
