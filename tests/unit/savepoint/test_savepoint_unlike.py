"""A state whose declaration had changed, which not all subtasks had asked for since: read as one table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

import unistream as us
from unistream.base.errors import CorruptSnapshot
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import Manifest
from unistream.model.state import EXPIRES_COLUMN
from unistream.storage.fs import FsCheckpointStorage

SHORT, LONG = pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())])
OLD, NEW = [{"a": 1}], [{"a": 2**40, "b": "x"}]
FORMS = [
    pytest.param((SHORT, OLD), (LONG, NEW), [{"a": 1, "b": None}, *NEW], id="earlier form first"),
    pytest.param((LONG, NEW), (SHORT, OLD), [*NEW, {"a": 1, "b": None}], id="later form first"),
    pytest.param((pa.int32(), [1]), (pa.int64(), [2**40]), [1, 2**40], id="wider"),
    pytest.param((pa.string(), ["a"]), (pa.large_string(), ["b"]), ["a", "b"], id="another layout"),
]


def of_two_subtasks(folder: Path, *parts: pa.Table) -> str:
    """A savepoint in which each of these tables was stored by a subtask of its own."""
    made = []
    for number, rows in enumerate(parts):
        path = folder / f"part-{number}"
        us.SavepointWriter().with_state("op", "s", rows, keys=["user"]).write(path)
        made.append(us.read_savepoint(path).manifest)
        for ref in referenced_files(made[-1]):
            (folder / "sp" / ref.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path / ref.path, folder / "sp" / ref.path)
    tasks = tuple(manifest.vertices[0].subtasks[0] for manifest in made)
    vertex = structs.replace(made[0].vertices[0], parallelism=len(parts), subtasks=tasks)
    together: Manifest = structs.replace(made[0], vertices=(vertex,))
    FsCheckpointStorage(str(folder)).write_manifest(str(folder / "sp"), together)
    return str(folder / "sp")


def rows(user: str, kind: pa.DataType, values: list[Any], **more: Any) -> pa.Table:
    return pa.table({"user": [user], "value": pa.array(values, kind), **more})


@pytest.mark.parametrize(("one", "other", "values"), FORMS)
def test_both_forms_are_one_table(tmp_path: Path, one: Any, other: Any, values: list[Any]) -> None:
    savepoint = us.read_savepoint(of_two_subtasks(tmp_path, rows("a", *one), rows("b", *other)))
    table = savepoint.table("op", "s")
    assert table.select(["user", "value"]).to_pylist() == [
        {"user": user, "value": value} for user, value in zip("ab", values, strict=True)
    ]
    changed = us.SavepointWriter.change(savepoint).with_state("op", "s", table, keys=["user"])
    again = us.read_savepoint(changed.write(tmp_path / "changed")).table("op", "s")
    assert sorted(again.column("user").to_pylist()) == ["a", "b"]


@pytest.mark.parametrize("turned", [False, True])
def test_rows_without_a_time_to_live_have_no_time(tmp_path: Path, *, turned: bool) -> None:
    parts = [rows("a", pa.int64(), [1]), rows("b", pa.int64(), [2], **{EXPIRES_COLUMN: [9]})]
    savepoint = us.read_savepoint(of_two_subtasks(tmp_path, *(parts[::-1] if turned else parts)))
    found = {row["user"]: row[EXPIRES_COLUMN] for row in savepoint.table("op", "s").to_pylist()}
    assert found == {"a": None, "b": 9}


def test_forms_that_have_nothing_in_common_are_told(tmp_path: Path) -> None:
    parts = [rows("a", pa.int64(), [1]), rows("b", pa.string(), ["x"])]
    with pytest.raises(CorruptSnapshot, match="state 's' of operator uid 'op' has different columns in"):
        us.read_savepoint(of_two_subtasks(tmp_path, *parts)).table("op", "s")
