"""Rows that a state is made of: whatever form they have, and refused where no job could start from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.modes import STREAMING
from unistream.base.errors import ConfigError
from unistream.core.restore import StateOutcome
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import (
    EXPIRES_COLUMN,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.operator.process import EVENT_TIMERS, PROCESSING_TIMERS
from unistream.savepoint.plan import plan

HOUR = StateOptions(ttl=StateTtl("1 h"))
VALUE = ValueStateDescriptor("s", pa.int64())
LIST = ListStateDescriptor("s", pa.int64())
MAP = MapStateDescriptor("s", pa.int64(), key_type=pa.float64())
NAN = float("nan")
LISTS = pa.list_(pa.int64())
PLAIN = pa.table({"k": ["a", "b"], "value": [1, 2]})


def stored(folder: Path, state: StateDescriptor | str, rows: Any, *, keys: Any = ("k",)) -> pa.Table:
    made = us.SavepointWriter().with_state("op", state, rows, keys=keys).write(folder / "sp")
    return us.read_savepoint(made).table("op", "s").sort_by("k")


# --- the form in which they come --------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(PLAIN, id="a Table"),
        pytest.param(PLAIN.to_batches()[0], id="a RecordBatch"),
        pytest.param({"k": ["a", "b"], "value": [1, 2]}, id="a dictionary"),
    ],
)
def test_all_that_is_a_table_is_taken(tmp_path: Path, rows: Any) -> None:
    assert stored(tmp_path, VALUE, rows).select(["k", "value"]).to_pylist() == PLAIN.to_pylist()
    tables = us.SavepointWriter().with_table("op", "t", rows, keys=["k"]).write(tmp_path / "tables")
    assert us.read_savepoint(tables).table("op", "t").num_rows == 2


@pytest.mark.parametrize(
    "rows",
    [
        *(pytest.param(rows, id=repr(rows)) for rows in (None, 5, "k", [1, 2], {"k": [1], "value": [1, 2]})),
        pytest.param(pa.array([1]), id="an array"),
    ],
)
@pytest.mark.parametrize("write", ["with_state", "with_table", "with_timers"])
def test_what_is_none_is_refused(rows: Any, write: str) -> None:
    names = () if write == "with_timers" else ("s",)
    with pytest.raises(ConfigError, match=r"give a pyarrow Table or RecordBatch, or a pandas DataFrame$"):
        getattr(us.SavepointWriter(), write)("op", *names, rows=rows, keys=["k"])


def test_a_name_of_two_columns_is_refused() -> None:
    rows = pa.table([["a"], [1], [2]], names=["k", "value", "value"])
    with pytest.raises(ConfigError, match="state 's': column 'value' appears twice; rename or drop one"):
        us.SavepointWriter().with_state("op", VALUE, rows, keys=["k"])


def test_one_key_column_may_be_a_name_alone(tmp_path: Path) -> None:
    rows = pa.table({"user": ["ann"], "value": [1]})
    made = us.SavepointWriter().with_state("op", VALUE, rows, keys="user").write(tmp_path / "sp")
    assert us.read_savepoint(made).table("op", "s").column("user").to_pylist() == ["ann"]


# --- nulls, and keys that are the same ----------------------------------------------------------------


def add(one: int, other: int) -> int:
    return one + other


REDUCING = ReducingStateDescriptor("s", pa.int64(), reduce=add)
AGGREGATING = AggregatingStateDescriptor("s", pa.int64(), aggregate=None)  # type: ignore[arg-type]  # never asked


def with_times(state: type[StateDescriptor], times: list[Any], values: list[Any]) -> tuple[Any, pa.Table]:
    rows = {"k": ["a", "b"], "value": values, EXPIRES_COLUMN: times}
    return state("s", pa.int64(), options=HOUR), pa.table(rows)


@pytest.mark.parametrize(
    ("state", "columns", "text"),
    [
        *(
            pytest.param(state, {"k": ["a", "b"], "value": [1, None]}, "key k='b': the value is null", id=id)
            for state, id in ((VALUE, "value"), (REDUCING, "reduced"), (AGGREGATING, "accumulator"))
        ),
        pytest.param(
            LIST,
            {"k": ["a", "b"], "value": pa.array([[], None], LISTS)},
            "key k='b': the list is null; make it empty, or drop the row",
            id="list",
        ),
        pytest.param(
            LIST,
            {"k": ["a", "b", "c"], "value": pa.array([[], [1], [2, None]], LISTS)},
            "key k='c': a value of the list is null; leave it out",
            id="element of a list",
        ),
        pytest.param(
            LIST,
            {"k": ["x", "a", "b"], "value": pa.array([[None], [1], [2, None]], LISTS).slice(0)},
            "key k='x': a value of the list is null",
            id="element of the first list",
        ),
        pytest.param(
            MAP,
            {"k": ["a", "b"], "map_key": [1.0, None], "value": [1, 2]},
            "key k='b': the key of an entry is null; drop the entry",
            id="key of a map",
        ),
        pytest.param(
            MAP,
            {"k": ["a", "b"], "map_key": [1.0, 2.0], "value": [1, None]},
            "key k='b', map_key=2.0: the value is null; drop the row",
            id="value of a map",
        ),
        pytest.param(VALUE, {"k": [0.0, -0.0], "value": [1, 2]}, "key k=0.0 appears more", id="both zeros"),
        pytest.param(VALUE, {"k": [NAN, -NAN], "value": [1, 2]}, "key k=nan appears more", id="two NaN"),
        pytest.param(VALUE, {"k": [None, None], "value": [1, 2]}, "key k=None appears more", id="two nulls"),
        pytest.param(
            MAP,
            {"k": ["a", "a"], "map_key": [0.0, -0.0], "value": [1, 2]},
            "the key k='a', map_key=0.0 appears more than once",
            id="both zeros in a map",
        ),
        pytest.param(
            MAP,
            {"k": ["a", "a"], "map_key": [NAN, -NAN], "value": [1, 2]},
            "the key k='a', map_key=nan appears more than once",
            id="two NaN in a map",
        ),
        pytest.param(
            VALUE,
            {"k": [[1], [1]], "value": [1, 2]},
            r"the key k='\[1\]' appears more than once",
            id="a list twice",
        ),
    ],
)
def test_what_no_job_could_restore_is_refused_by_name(
    state: StateDescriptor, columns: dict[str, Any], text: str
) -> None:
    rows = pa.table(columns)
    if rows.schema.field("k").type == pa.null():
        rows = rows.set_column(0, "k", rows.column("k").cast(pa.string()))
    with pytest.raises(ConfigError, match=f"^state 's': .*{text}"):
        us.SavepointWriter().with_state("op", state, rows, keys=["k"])
    in_pieces = pa.concat_tables([rows.slice(row, 1) for row in range(rows.num_rows)])
    with pytest.raises(ConfigError, match=f"^state 's': .*{text}"):
        us.SavepointWriter().with_state("op", state, in_pieces, keys=["k"])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param(
            with_times(ValueStateDescriptor, [5, None], [1, 2]), "k='b': __expires_at is null", id="a value"
        ),
        pytest.param(
            with_times(ListStateDescriptor, [[5], [5]], [[1], [1, 2]]),
            "k='b': __expires_at must have",
            id="few",
        ),
        pytest.param(
            with_times(ListStateDescriptor, [[5], [None]], [[1], [2]]),
            "k='b': __expires_at must have",
            id="null",
        ),
    ],
)
def test_every_value_with_a_time_to_live_has_its_time(given: tuple[Any, pa.Table], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        us.SavepointWriter().with_state("op", given[0], given[1], keys=["k"])


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        pytest.param(VALUE, {"k": pa.array([None, 1.5]), "value": [1, 2]}, id="a null key"),
        pytest.param(LIST, {"k": ["a", "b"], "value": [[], [1]]}, id="an empty list"),
        pytest.param(MAP, {"k": ["a", "b"], "map_key": [0.0, -0.0], "value": [1, 2]}, id="zeros of two maps"),
    ],
)
def test_what_a_job_can_restore_is_taken(tmp_path: Path, state: Any, columns: dict[str, Any]) -> None:
    assert stored(tmp_path, state, pa.table(columns)).num_rows == 2


VIEWS = pa.array(["b", "", "longer than twelve bytes"], pa.string_view())
KEYS = ["x", "y", "z"]


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        pytest.param(ValueStateDescriptor("s", pa.string_view()), {"k": KEYS, "value": VIEWS}, id="value"),
        pytest.param(
            ListStateDescriptor("s", pa.string_view()),
            {
                "k": KEYS,
                "value": pa.array([[text] for text in VIEWS.to_pylist()], pa.list_(pa.string_view())),
            },
            id="list",
        ),
        pytest.param(
            MapStateDescriptor("s", pa.binary_view(), key_type=pa.string_view()),
            {"k": ["x"] * 3, "map_key": VIEWS, "value": VIEWS.cast(pa.binary_view())},
            id="map",
        ),
    ],
)
def test_views_of_texts_are_texts(tmp_path: Path, state: Any, columns: dict[str, Any]) -> None:
    """Some libraries give no others."""
    given = pa.table(columns)
    path = us.SavepointWriter().with_state("op", state, given, keys=["k"]).write(tmp_path / "sp")
    found = us.read_savepoint(path).table("op", "s")
    assert found.select(given.schema.names).schema.types == given.schema.types
    kept = sorted(map(repr, found.select(given.schema.names).to_pylist()))
    assert kept == sorted(map(repr, given.to_pylist()))


def test_a_view_that_comes_twice_is_told() -> None:
    twice = pa.table({"k": ["x"] * 2, "map_key": pa.array(["a", "a"], pa.string_view()), "value": [1, 2]})
    descriptor = MapStateDescriptor("s", pa.int64(), key_type=pa.string_view())
    with pytest.raises(ConfigError, match="map_key='a' appears more than once"):
        us.SavepointWriter().with_state("op", descriptor, twice, keys=["k"])


def test_keys_are_stored_in_the_one_form_that_a_job_gives_them(tmp_path: Path) -> None:
    rows = pa.table({"k": [-0.0, 1.0], "value": [1, 2]})
    assert [str(key) for key in stored(tmp_path, VALUE, rows).column("k").to_pylist()] == ["0.0", "1.0"]


def test_so_are_keys_of_a_map(tmp_path: Path) -> None:
    made = stored(tmp_path, MAP, pa.table({"k": ["a"], "map_key": [-0.0], "value": [1]}))
    assert str(made.column("map_key")[0].as_py()) == "0.0"


def test_a_key_of_nested_values_is_refused_when_it_is_written(tmp_path: Path) -> None:
    writer = us.SavepointWriter().with_state("op", VALUE, {"k": [[1], [2]], "value": [1, 2]}, keys=["k"])
    with pytest.raises(ConfigError, match="cannot be a key"):
        writer.write(tmp_path / "sp")


@pytest.mark.parametrize(
    ("keys", "text"), [([], "name the key columns"), (["k", "k"], "key column 'k' is named twice")]
)
def test_bad_keys(keys: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        us.SavepointWriter().with_state("op", VALUE, PLAIN, keys=keys)


# --- one key for an operator --------------------------------------------------------------------------


def by(column: str, values: list[Any]) -> dict[str, list[Any]]:
    return {column: values, "value": [1, 2]}


Second = Callable[[us.SavepointWriter], us.SavepointWriter]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(lambda w: w.with_state("op", "t", by("j", ["a", "b"]), keys=["j"]), id="another column"),
        pytest.param(lambda w: w.with_state("op", "t", by("k", [1, 2]), keys=["k"]), id="another type"),
        pytest.param(
            lambda w: w.with_timers("op", {"k": [1], "__timestamp": [5]}, keys=["k"]),
            id="timers of another type",
        ),
    ],
)
@pytest.mark.parametrize("is_kept", [False, True], ids=["both new", "one of the old savepoint"])
def test_states_of_one_operator_have_one_key(tmp_path: Path, second: Second, is_kept: bool) -> None:
    writer = us.SavepointWriter().with_state("op", VALUE, PLAIN, keys=["k"])
    if is_kept:
        writer = us.SavepointWriter.change(writer.write(tmp_path / "old"))
    with pytest.raises(ConfigError, match=r"operator uid 'op': the key of state '.+' is \(.+\), that of"):
        second(writer).write(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_all_states_of_an_operator_may_get_another_key_together(tmp_path: Path) -> None:
    old = us.SavepointWriter().with_state("op", VALUE, PLAIN, keys=["k"]).write(tmp_path / "old")
    writer = us.SavepointWriter.change(old).with_state("op", "s", by("k", [1, 2]), keys=["k"])
    made = us.read_savepoint(
        writer.with_state("op", "t", by("k", [1, 2]), keys=["k"]).write(tmp_path / "new")
    )
    assert made.table("op", "s").schema.field("k").type == pa.int64()


# --- timers -------------------------------------------------------------------------------------------

TIMES = {"k": ["a", "b", "a"], "__timestamp": [5, 7, 9]}


class Waits(us.KeyedProcessFunction):
    def process_element(self, row: Any, context: Any, out: Any) -> None:
        raise AssertionError("a plan starts nothing")


@pytest.mark.parametrize(
    ("write", "name"),
    [
        pytest.param(lambda w: w.with_timers("op", TIMES, keys=["k"]), EVENT_TIMERS, id="event time"),
        pytest.param(
            lambda w: w.with_timers("op", TIMES, keys=["k"], time_domain="processing"),
            PROCESSING_TIMERS,
            id="processing time",
        ),
        pytest.param(
            lambda w: w.with_table("op", EVENT_TIMERS, TIMES, keys=["k"]), EVENT_TIMERS, id="as a table"
        ),
    ],
)
def test_timers_are_stored_as_a_job_stores_them(tmp_path: Path, write: Second, name: str) -> None:
    made = us.read_savepoint(write(us.SavepointWriter()).write(tmp_path / "sp"))
    [state] = made.operator("op").states
    assert (state.name, state.kind, state.rows) == (name, "timers", 3)
    assert made.table("op", name).schema.names == [KEY_GROUP_COLUMN, "k", "__timestamp"]
    env = us.Environment(STREAMING)
    source = us.StaticSource(pa.table({"k": ["a"]}))
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.key_by("k").process(Waits(), returns={"k": pa.string()}).uid("op").print()
    found = plan(made, *env.job_graph(), env.config)
    [timers] = next(op.states for op in found.operators if op.uid == "op")
    assert (timers.state, timers.outcome) == (name, StateOutcome.KEPT)


@pytest.mark.parametrize(
    ("rows", "keys", "text"),
    [
        ({"k": ["a"]}, ["k"], "there is no column '__timestamp' among k"),
        ({**TIMES, "value": [1, 2, 3]}, ["k"], "column 'value' belongs neither to the key nor to the state"),
        ({"k": ["a"], "__timestamp": ["noon"]}, ["k"], "column '__timestamp': string cannot become int64"),
        ({"k": ["a", "b"], "__timestamp": [1, None]}, ["k"], "key k='b': the time is null"),
        ({"k": ["a", "a"], "__timestamp": [1, 1]}, ["k"], "key k='a', __timestamp=1 appears more than once"),
        (TIMES, ["__timestamp"], "'__timestamp' is their time, not a key column"),
    ],
)
def test_bad_timers(rows: dict[str, Any], keys: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        us.SavepointWriter().with_timers("op", rows, keys=keys)


def test_there_are_two_clocks() -> None:
    with pytest.raises(ConfigError, match="time_domain 'noon' is neither 'event' nor 'processing'"):
        us.SavepointWriter().with_timers("op", TIMES, keys=["k"], time_domain="noon")


def test_timers_are_no_values() -> None:
    with pytest.raises(ConfigError, match="timers are written by with_timers"):
        us.SavepointWriter().with_state("op", EVENT_TIMERS, PLAIN, keys=["k"], kind=StateKind.TIMERS)
