"""Names and types where SQL is narrower than a savepoint: never the rows of another, always one sentence."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.savepoint.query import query, table_names


def savepoint(folder: Path, *states: tuple[str, str, pa.Array]) -> us.Savepoint:
    """(uid, state, values) by key k."""
    writer = us.SavepointWriter()
    for uid, state, values in states:
        rows = pa.table({"k": pa.array(range(len(values)), pa.int64()), "value": values})
        writer.with_state(uid, state, rows, keys=["k"])
    return us.read_savepoint(writer.write(folder / "sp"))


def values(found: pa.Table) -> list[object]:
    return found.column("value").to_pylist()


@pytest.fixture
def alike(tmp_path: Path) -> us.Savepoint:
    pairs = (("row", "value"), ("row", "Value"), ("Row", "value"), ("row", "other"), ("row", "other-1"))
    return savepoint(tmp_path, *((uid, name, pa.array([at])) for at, (uid, name) in enumerate(pairs)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ('"row/value#1"', 0),
        ('"row/Value#2"', 1),
        ('"Row/value#3"', 2),
        ('"ROW/VALUE#2"', 1),
        ("row_value_2", 1),
        ('"row/other"', 3),
        ('"Row/Other"', 3),
        ("ROW_OTHER", 3),
        ('"row/other-1"', 4),
    ],
)
def test_each_name_is_one_state(alike: us.Savepoint, name: str, value: int) -> None:
    assert values(query(alike, f"SELECT * FROM {name}")) == [value]


@pytest.mark.parametrize("name", ["row/value", "row/Value", "Row/value", "ROW/VALUE"])
def test_a_name_that_could_be_several_is_refused_with_all_of_them(alike: us.Savepoint, name: str) -> None:
    with pytest.raises(ConfigError, match=r'"row/value#1", "row/Value#2", .*"Row/value#3"') as refusal:
        query(alike, f'SELECT * FROM "{name}"')
    same = '"row/value" and "row/Value" and "Row/value" are one name in SQL, so they are numbered'
    assert same in str(refusal.value)


def test_they_can_be_asked_for_together(alike: us.Savepoint) -> None:
    sql = 'SELECT a.value AS a, b.value AS b FROM "row/value#1" a JOIN "row/Value#2" b USING (k)'
    assert query(alike, sql).to_pylist() == [{"a": 0, "b": 1}]


def test_a_number_is_never_somebodys_own_name(tmp_path: Path) -> None:
    one = pa.array([1])
    made = savepoint(tmp_path, ("op#1", "s", one), ("op", "S", one), ("op", "s", one))
    made_names = us.SavepointWriter.change(made).with_list("op", "S#1", [b"x"]).write(tmp_path / "more")
    names = table_names(us.read_savepoint(made_names))
    assert names["op/S#2"] == ("op", "S")
    assert names["op/s#3"] == ("op", "s")
    assert names["op/S#1"] == ("op", "S#1")


def test_columns_that_differ_in_nothing_else_have_numbers_too(tmp_path: Path) -> None:
    rows = pa.table({"Value": [1], "value": [2]})
    made = us.SavepointWriter().with_state("op", "s", rows, keys=["Value"]).write(tmp_path / "sp")
    found = us.read_savepoint(made)
    assert query(found, 'SELECT "Value#1", "value#2" FROM op_s').to_pylist() == [{"Value#1": 1, "value#2": 2}]
    with pytest.raises(ConfigError, match='"value" not found'):
        query(found, "SELECT value FROM op_s")


def test_columns_of_one_name_in_a_result_are_all_there(tmp_path: Path) -> None:
    made = savepoint(tmp_path, ("op", "a", pa.array([1])), ("op", "b", pa.array([2])))
    found = query(made, "SELECT a.value, b.value, 3 AS value_1 FROM op_a a JOIN op_b b USING (k)")
    assert found.to_pylist() == [{"value": 1, "value_2": 2, "value_1": 3}]


def test_a_name_with_quotes(tmp_path: Path) -> None:
    made = savepoint(tmp_path, ('a"b', "s", pa.array([1])))
    assert values(query(made, 'SELECT * FROM "a""b/s"')) == [1]
    with pytest.raises(ConfigError, match='the tables are "a""b/s"'):
        query(made, "SELECT * FROM nothing")


WIDE = pa.array([Decimal("1.25")], pa.decimal256(50, 2))


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        (WIDE, "decimal256(50, 2)"),
        (pa.array([1.5]).cast(pa.float16()), "halffloat"),
        (pa.array([[Decimal("1.25")]], pa.list_(WIDE.type)), "list<item: decimal256(50, 2)>"),
    ],
    ids=str,
)
def test_a_type_that_duckdb_does_not_read_is_one_sentence(
    tmp_path: Path, column: pa.Array, type_: str
) -> None:
    made = savepoint(tmp_path, ("op", "wide", column), ("op", "wide-2", pa.array([1])))
    for name in ('"op/wide"', "op_wide"):
        with pytest.raises(ConfigError) as refusal:
            query(made, f"SELECT * FROM {name}")
        quoted = name if name.startswith('"') else f'"{name}"'
        assert str(refusal.value) == (
            f"{quoted} cannot be queried: DuckDB does not read the type of its column value ({type_}); "
            "read it in Python, by us.read_savepoint(PATH).table(UID, STATE)"
        )
    assert values(query(made, 'SELECT * FROM "op/wide-2"')) == [1], "its name holds that of the other"
    with pytest.raises(ConfigError, match="syntax error"):
        query(made, 'SELECT * FRM "op/wide-2"')
