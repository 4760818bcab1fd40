"""Reading and writing savepoints without a job: what is laid down, what is refused, what the docs say."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
import unistream.savepoint
from unistream.base.errors import ConfigError, NotFound
from unistream.model.key_groups import key_groups
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KEY_GROUP_COLUMN, ListMode
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import (
    EXPIRES_COLUMN,
    ListStateDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.operator.sink import COMMITTER_STATE
from unistream.savepoint import contents
from unistream.savepoint.query import query, table_names
from unistream.worker.task import SPLITS_STATE

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "savepoints.md"
COUNT = ValueStateDescriptor("count", pa.int64())


class Stopped:
    """A clock that stands."""

    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 1_000


def users(**more: Any) -> pa.Table:
    return pa.table({"user": ["ann", "bob", "zoë"], "value": pa.array([1, 2, 3], pa.int64()), **more})


def written(folder: Path, state: StateDescriptor | str = COUNT, rows: pa.Table | None = None) -> us.Savepoint:
    writer = us.SavepointWriter(clock=Stopped())
    writer.with_state("counts", state, users() if rows is None else rows, keys=["user"])
    return us.read_savepoint(writer.write(folder / "sp"))


def test_rows_lie_in_their_key_groups(tmp_path: Path) -> None:
    table = written(tmp_path).table("counts", "count")
    assert table.schema.names == [KEY_GROUP_COLUMN, "user", "value"]
    [batch] = table.select(["user"]).combine_chunks().to_batches()
    assert table.column(KEY_GROUP_COLUMN).to_pylist() == key_groups(batch, ["user"], 128).tolist()
    assert sorted(zip(*table.select(["user", "value"]).to_pydict().values(), strict=True)) == [
        ("ann", 1),
        ("bob", 2),
        ("zoë", 3),
    ]


def test_facts_of_a_new_one(tmp_path: Path) -> None:
    found = written(tmp_path)
    assert (found.kind, found.can_resume, found.taken_ms) == (SnapshotKind.SAVEPOINT, True, 1_000)
    assert found.checkpoint_id == 1
    assert written(tmp_path / "other").manifest.lineage != found.manifest.lineage


def test_no_rows_are_no_state(tmp_path: Path) -> None:
    found = written(tmp_path, rows=users().slice(0, 0))
    assert found.operator("counts").states == ()
    with pytest.raises(NotFound, match="has no state 'count'; it has none"):
        found.table("counts", "count")
    with pytest.raises(NotFound, match="no operator with uid 'x'; it has 'counts'"):
        found.table("x", "count")


def test_values_are_converted_to_what_is_declared(tmp_path: Path) -> None:
    wide = ValueStateDescriptor("count", pa.decimal128(20, 2))
    with pytest.raises(ConfigError, match="column 'value': int64 cannot become decimal"):
        written(tmp_path, wide)
    rows = users().set_column(1, "value", pa.array([1, 2, 3], pa.int8()))
    assert written(tmp_path, COUNT, rows).table("counts", "count").schema.field("value").type == pa.int64()


def test_keys_are_converted_to_a_schema(tmp_path: Path) -> None:
    rows = pa.table({"user": pa.array([1, 2], pa.int32()), "value": pa.array([1, 2], pa.int64())})
    writer = us.SavepointWriter().with_state("c", COUNT, rows, keys=pa.schema([("user", pa.int64())]))
    table = us.read_savepoint(writer.write(tmp_path / "sp")).table("c", "count")
    assert table.schema.field("user").type == pa.int64()


@pytest.mark.parametrize(
    ("state", "rows", "expires"),
    [
        pytest.param(ValueStateDescriptor, users(), [61_000] * 3, id="a value"),
        pytest.param(
            ListStateDescriptor,
            pa.table({"user": ["a", "b"], "value": pa.array([[1, 2], []], pa.list_(pa.int64()))}),
            [[61_000, 61_000], []],
            id="a list has one for each element",
        ),
    ],
)
def test_a_time_to_live_begins_now(tmp_path: Path, state: Any, rows: pa.Table, expires: list[Any]) -> None:
    descriptor = state("count", pa.int64(), options=StateOptions(ttl=StateTtl("1 min")))
    table = written(tmp_path, descriptor, rows).table("counts", "count")
    assert sorted(table.column(EXPIRES_COLUMN).to_pylist()) == sorted(expires)


def test_lists(tmp_path: Path) -> None:
    long = [b"x" * 1_000] * 100
    writer = us.SavepointWriter().with_list("op", "short", [b"a", b"b"], mode=ListMode.UNION)
    made = us.read_savepoint(writer.with_list("op", "long", long).write(tmp_path / "sp"))
    states = {state.name: state for state in made.operator("op").states}
    assert (states["short"].kind, states["short"].rows, states["short"].files) == ("list-union", 2, 0)
    assert (states["long"].kind, states["long"].rows, states["long"].files) == ("list-split", 100, 1)
    assert [item for _, item in made.items("op", "long")] == long
    assert made.table("op", "short").to_pylist() == [
        {"subtask": 0, "item": b"a"},
        {"subtask": 0, "item": b"b"},
    ]
    [file] = (tmp_path / "sp" / "op" / "long").iterdir()
    assert re.fullmatch(r"part-[0-9a-f]+\.msgpack", file.name)


def test_names_of_a_job_are_those_that_are_looked_for() -> None:
    assert contents.SPLITS_STATE == SPLITS_STATE
    assert contents.COMMITTER_STATE == COMMITTER_STATE


@pytest.mark.parametrize(
    ("change", "left"),
    [
        pytest.param(lambda w: w, {("counts", "count"), ("counts", "old"), ("x", "l")}, id="nothing"),
        pytest.param(lambda w: w.without("x"), {("counts", "count"), ("counts", "old")}, id="an operator"),
        pytest.param(lambda w: w.without("counts", "old"), {("counts", "count"), ("x", "l")}, id="a state"),
        pytest.param(
            lambda w: w.without("counts").with_state("counts", "new", users(), keys=["user"]),
            {("counts", "new"), ("x", "l")},
            id="all of an operator for something new",
        ),
        pytest.param(
            lambda w: w.with_state("y", COUNT, users(), keys=["user"]),
            {("counts", "count"), ("counts", "old"), ("x", "l"), ("y", "count")},
            id="one more operator",
        ),
    ],
)
def test_changes(tmp_path: Path, change: Any, left: set[tuple[str, str]]) -> None:
    writer = us.SavepointWriter(max_parallelism=32).with_state("counts", COUNT, users(), keys=["user"])
    writer.with_state("counts", "old", users(), keys=["user"]).with_list("x", "l", [b"1"])
    first = us.read_savepoint(writer.write(tmp_path / "first"))
    made = us.read_savepoint(change(us.SavepointWriter.change(first)).write(tmp_path / "second"))
    assert set(made.table_names) == left
    assert {operator.max_parallelism for operator in made.operators} == {32}
    assert (made.job, made.checkpoint_id) == (first.job, first.checkpoint_id)


@pytest.mark.parametrize(
    ("uid", "state", "text"),
    [("nope", None, "no operator with uid 'nope'"), ("counts", "nope", "no state 'nope'")],
)
def test_what_is_left_out_must_be_there(tmp_path: Path, uid: str, state: str | None, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        us.SavepointWriter.change(written(tmp_path)).without(uid, state)


def test_nothing_is_left_of_one_that_could_not_be_written(tmp_path: Path) -> None:
    """A key column that cannot be hashed is found when the key groups are made."""
    rows = pa.table({"user": pa.array([{"a": 1}]), "value": [1]})
    writer = us.SavepointWriter().with_state("a", COUNT, users(), keys=["user"])
    writer.with_state("b", "s", rows, keys=["user"])
    with pytest.raises(ConfigError):
        writer.write(tmp_path / "sp")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_column_is_refused_not_lost(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'extra' belongs neither to the key nor to the state; drop it"):
        written(tmp_path, rows=users(extra=[1, 2, 3]))


def test_an_own_table_keeps_its_columns(tmp_path: Path) -> None:
    rows = users(extra=[1, 2, 3])
    writer = us.SavepointWriter().with_table("w", "window-contents", rows, keys=["user"])
    made = us.read_savepoint(writer.write(tmp_path / "sp"))
    assert made.table("w", "window-contents").schema.names == [KEY_GROUP_COLUMN, *rows.schema.names]
    assert made.operator("w").states[0].kind == StateKind.TABLE.value


def test_names_in_sql(tmp_path: Path) -> None:
    writer = us.SavepointWriter()
    for uid in ("a-b", "a b", "2nd"):
        writer.with_state(uid, "s", users(), keys=["user"])
    made = us.read_savepoint(writer.write(tmp_path / "sp"))
    assert set(table_names(made)) == {"a-b/s", "a b/s", "2nd/s", "t_2nd_s"}  # a_b_s would be two
    assert query(made, 'SELECT count(*) AS n FROM "a b/s" JOIN t_2nd_s USING (user)').to_pylist() == [
        {"n": 3}
    ]


def test_the_manifest_is_json(tmp_path: Path) -> None:
    written(tmp_path)
    manifest = json.loads((tmp_path / "sp" / "_metadata").read_bytes())["manifest"]
    [keyed] = manifest["vertices"][0]["subtasks"][0]["operators"]["counts"]["keyed"]
    assert keyed["file"]["path"].startswith("counts/count/part-")
    assert (keyed["kind"], keyed["rows"]) == ("value", 3)


def test_a_savepoint_is_read_without_unistream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = GUIDE.parents[1] / "reference" / "savepoint-format.md"
    [block] = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    where = tmp_path / "sp"
    us.SavepointWriter().with_state("counts", "last-seen", users(), keys=["user"]).write(where)
    names: dict[str, object] = {}
    exec(block.replace("savepoint-3f2a9c-8d1e…", str(where)), names)
    assert "__key_group" in capsys.readouterr().out
    assert names["manifest"]["vertices"]  # type: ignore[index]


@pytest.mark.parametrize(
    "module",
    [f"unistream.savepoint.{module.name}" for module in pkgutil.iter_modules(unistream.savepoint.__path__)]
    + ["unistream.model.state_types", "unistream.model.state_files"],
)
def test_examples_in_docstrings_run(module: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("8", "a whole number, not '8'"),
        (8.0, "a whole number, not 8.0"),
        (True, "a whole number, not True"),
        (0, "0 is not between 1 and 32768"),
        (32_769, "32769 is not between 1 and 32768"),
    ],
)
def test_a_number_of_key_groups_that_cannot_be_is_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"max parallelism (is )?{words}"):
        us.SavepointWriter(max_parallelism=given)
