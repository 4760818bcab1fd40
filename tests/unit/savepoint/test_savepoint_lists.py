"""State of operators without keys as tables: read, written, changed, and restored by a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.cli.main import main
from unistream.connector.collect import read_collected
from unistream.model.snapshot import ListMode
from unistream.model.state import MapStateDescriptor, OperatorListDescriptor
from unistream.savepoint.query import query
from unistream.testing.mini_cluster import MiniCluster

POINT = pa.struct([("x", pa.int32()), ("label", pa.string_view())])
POINTS = pa.array([{"x": 1, "label": "one"}, None, {"x": 2, "label": "longer than twelve bytes"}], POINT)
LIST = OperatorListDescriptor("points", POINT)
UNION = OperatorListDescriptor("all", pa.int64(), ListMode.UNION)
RATES = MapStateDescriptor("rates", pa.float64(), key_type=pa.string())


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_managers=1, slots=2) as cluster:
        yield cluster


class Keeps(us.ProcessFunction):
    """Shows what its lists hold, and adds its rows to them."""

    mine = OperatorListDescriptor("mine", pa.int64())
    every = UNION

    def process_element(self, row: Any, context: Any, out: Any) -> None:
        mine, every = context.operator_state(self.mine), context.operator_state(self.every)
        out.emit({"mine": len(mine.get()), "every": sum(every.get())})


def run(cluster: MiniCluster, results: Path, savepoint: str, parallelism: int) -> list[dict[str, int]]:
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    rows = us.StaticSource(pa.table({"n": pa.array(range(parallelism), pa.int64())}))
    source = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    returns = {"mine": pa.int64(), "every": pa.int64()}
    kept = source.rebalance().process(Keeps(), returns=returns).uid("keeps")
    kept.sink_to(us.CollectSink(str(results))).uid("out")
    graph, code = env.job_graph()
    result = cluster.submit(graph, code, savepoint=savepoint).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    found: list[dict[str, int]] = read_collected(str(results)).to_pylist()
    return found


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_starts_with_lists_of_tables(cluster: MiniCluster, tmp_path: Path, parallelism: int) -> None:
    start = us.SavepointWriter()
    start.with_rows("keeps", Keeps.mine, {"value": pa.array([1, 2, 3, 4], pa.int32())})
    start.with_rows("keeps", Keeps.every, {"value": [10, 20]})
    shown = run(cluster, tmp_path / "rows", start.write(tmp_path / "start"), parallelism)
    assert sum(row["mine"] for row in shown) == 4, "dealt out"
    assert {row["every"] for row in shown} == {30}, "given to all"


WRITTEN: list[Any] = [
    pytest.param(LIST, {"value": POINTS}, "list-split", id="list"),
    pytest.param(UNION, {"value": pa.array([1, 2, 3], pa.int64())}, "list-union", id="union"),
    pytest.param(RATES, {"map_key": ["eur", "usd"], "value": [1.0, 1.1]}, "list-broadcast", id="map"),
    pytest.param("names", {"value": ["a", "b"]}, "list-split", id="a name alone"),
]


@pytest.mark.parametrize(("state", "rows", "kind"), WRITTEN)
def test_what_is_written_is_read_and_written_again(tmp_path: Path, state: Any, rows: Any, kind: str) -> None:
    name = state if isinstance(state, str) else state.name
    savepoint = us.read_savepoint(us.SavepointWriter().with_rows("op", state, rows).write(tmp_path / "first"))
    [found] = savepoint.operator("op").states
    assert (found.name, found.kind) == (name, kind)
    table = savepoint.table("op", name)
    assert table.drop_columns(["subtask"]).equals(pa.table(rows))
    changed = us.SavepointWriter.change(savepoint).with_rows("op", name, table).write(tmp_path / "second")
    again = us.read_savepoint(changed)
    assert again.operator("op").states[0].kind == kind
    assert again.table("op", name).equals(table)


def test_of_copies_one_is_taken(tmp_path: Path) -> None:
    """All subtasks have the same: what is read of them all is not written twice."""
    copies = {
        "subtask": pa.array([0, 1, 0, 1], pa.int32()),
        "map_key": ["a", "a", "b", "b"],
        "value": [1.0] * 4,
    }
    path = us.SavepointWriter().with_rows("op", RATES, copies).write(tmp_path / "sp")
    assert us.read_savepoint(path).table("op", "rates").column("map_key").to_pylist() == ["a", "b"]


def test_an_element_of_a_list_that_is_dealt_out_is_stored_alone(tmp_path: Path) -> None:
    texts = pa.array(["x" * 2_000] * 50, pa.string_view())
    path = us.SavepointWriter().with_rows("op", "texts", {"value": texts}).write(tmp_path / "sp")
    items = us.read_savepoint(path).items("op", "texts")
    assert len(items) == 50
    assert max(len(item) for _, item in items) < 4_000


def test_lists_are_tables_of_queries(tmp_path: Path) -> None:
    path = (
        us.SavepointWriter()
        .with_rows("op", RATES, {"map_key": ["eur"], "value": [1.5]})
        .write(tmp_path / "sp")
    )
    found = query(us.read_savepoint(path), "SELECT map_key, value FROM op_rates")
    assert found.to_pylist() == [{"map_key": "eur", "value": 1.5}]


def test_elements_of_several_forms_stay_bytes(tmp_path: Path) -> None:
    first = us.SavepointWriter().with_rows("op", "l", {"value": [1]}).write(tmp_path / "first")
    [(_, item)] = us.read_savepoint(first).items("op", "l")
    for number, other in enumerate([b"", b"x", item[:20], b"\xff" * 4]):
        path = us.SavepointWriter().with_list("op", "l", [item, other]).write(tmp_path / str(number))
        assert us.read_savepoint(path).table("op", "l").column("item").to_pylist() == [item, other]


def test_a_damaged_element_is_told(tmp_path: Path) -> None:
    first = us.SavepointWriter().with_rows("op", "l", {"value": [1]}).write(tmp_path / "first")
    [(_, item)] = us.read_savepoint(first).items("op", "l")
    path = us.SavepointWriter().with_list("op", "l", [item[: len(item) * 2 // 3]]).write(tmp_path / "second")
    with pytest.raises(CorruptSnapshot, match=f"{path}: list 'l' cannot be read"):
        us.read_savepoint(path).table("op", "l")


REFUSED: list[Any] = [
    pytest.param(
        lambda w: w.with_rows("op", LIST, {"value": [1]}), "'value': int64 cannot become struct", id="type"
    ),
    pytest.param(lambda w: w.with_rows("op", "l", {"v": [1]}), "there is no column 'value'", id="no value"),
    pytest.param(
        lambda w: w.with_rows("op", LIST, {"value": POINTS, "user": [1] * 3}), "'user' belongs", id="lost"
    ),
    pytest.param(
        lambda w: w.with_rows("op", RATES, {"map_key": ["a", "a"], "value": [1.0, 2.0]}),
        "map_key='a' appears more than once",
        id="a key twice",
    ),
    pytest.param(
        lambda w: w.with_rows("op", RATES, {"map_key": pa.array([None], pa.string()), "value": [1.0]}),
        "the map_key of an entry is null",
        id="null key",
    ),
    pytest.param(
        lambda w: w.with_rows("op", UNION, {"value": [1]}, mode=ListMode.SPLIT),
        "declared as union list, not as split list",
        id="another mode",
    ),
    pytest.param(
        lambda w: w.with_rows("op", us.ValueStateDescriptor("s", pa.int64()), {"value": [1]}),
        "is neither; keyed state is written by with_state",
        id="keyed",
    ),
    pytest.param(lambda w: w.with_rows("op", None, {"value": [1]}), "None is neither", id="nothing"),
    pytest.param(lambda w: w.with_list("op", "l", ["x"]), "an item is a str, not bytes", id="text"),
    pytest.param(lambda w: w.with_list("op", "l", b"xy"), "an item is a int, not bytes", id="bytes alone"),
    pytest.param(lambda w: w.with_list("op", "l", [b"x"], mode="all"), "mode is 'all'", id="no such mode"),
    pytest.param(
        lambda w: w.with_state("op", None, {"user": ["a"], "value": [1]}, keys=["user"]),
        "or by a descriptor such as ValueStateDescriptor, not by None",
        id="no state",
    ),
    pytest.param(
        lambda w: w.with_state("op", "s", {"user": ["a"], "value": [1]}, keys=["user"], kind="value"),
        "kind is 'value'; it must be one of StateKind.VALUE",
        id="a kind as text",
    ),
    pytest.param(lambda w: w.with_list(5, "l", [b"x"]), "non-empty text, not 5", id="no uid"),
]


@pytest.mark.parametrize(("write", "text"), REFUSED)
def test_what_cannot_be_is_refused(write: Callable[[us.SavepointWriter], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        write(us.SavepointWriter())


def test_a_name_stands_for_one_state(tmp_path: Path) -> None:
    writer = us.SavepointWriter().with_list("op", "s", [b"x"])
    writer.with_state("op", "s", {"user": ["a"], "value": [1]}, keys=["user"])
    with pytest.raises(ConfigError, match="'s' is written as keyed state and as a list"):
        writer.write(tmp_path / "sp")


def test_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"value": [1, 2]}), "rows.parquet")

    def write(*more: str) -> int:
        words = ["--operator", "op", "--state", "l", "--file", "rows.parquet", "--out", "made"]
        return main(["savepoint", "write", *words, *more])

    assert write("--kind", "list-union", "--keys", "value") != 0
    assert "operator state has no key; leave out --keys" in capsys.readouterr().err
    assert write() != 0
    assert "--keys: name the key columns" in capsys.readouterr().err
    assert write("--kind", "list-union") == 0
    made = us.read_savepoint("made")
    assert made.operator("op").states[0].kind == "list-union"
    assert made.table("op", "l").column("value").to_pylist() == [1, 2]
