"""Whether a user is told that the rows of one key may come to an upsert sink in any order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from unistream.api.stream import DataStream
from unistream.model.graph import Ship

ROWS = pa.table({"k": [1, 2], "w": [1, 1], "v": [1, 2]})
Build = Callable[[DataStream, us.SqlSink], object]


def pipeline(
    folder: Path, build: Build, parallelism: int = 2, key: tuple[str, ...] = ("k", "w")
) -> us.Environment:
    env = us.Environment({"parallelism.default": str(parallelism)}, target="local")
    times = us.WatermarkStrategy.no_watermarks()
    rows = env.from_source(us.StaticSource(ROWS), times, "rows").uid("rows")
    build(rows, us.SqlSink(f"sqlite:///{folder / 'x.db'}", "t", mode="upsert", key=("k", "w")))
    return env


def warned(env: us.Environment) -> bool:
    found = dict(env.advice(env.job_graph("job")[0]))
    return "rows_of_a_key_in_any_order" in found


@pytest.mark.parametrize(
    ("build", "parallelism", "is_warned"),
    [
        pytest.param(lambda rows, sink: rows.sink_to(sink), 2, True, id="several subtasks read"),
        pytest.param(lambda rows, sink: rows.sink_to(sink), 1, False, id="one does"),
        pytest.param(lambda rows, sink: rows.key_by("k", "w").sink_to(sink), 2, False, id="by the key"),
        pytest.param(lambda rows, sink: rows.key_by("k").sink_to(sink), 2, False, id="by a part of it"),
        pytest.param(lambda rows, sink: rows.key_by("v").sink_to(sink), 2, True, id="by something else"),
        pytest.param(
            lambda rows, sink: rows.key_by("k").sink_to(sink, on_error="skip"),
            2,
            False,
            id="row check",
        ),
        pytest.param(
            lambda rows, sink: rows.set_parallelism(1).rebalance().sink_to(sink), 2, True, id="dealt out"
        ),
        pytest.param(
            lambda rows, sink: rows.set_parallelism(1).sink_to(sink).set_parallelism(1),
            2,
            False,
            id="one",
        ),
        pytest.param(
            lambda rows, sink: rows.filter(us.col("v") > 1).sink_to(sink).set_parallelism(1),
            2,
            True,
            id="several read, one writes",
        ),
    ],
)
def test_rows_of_a_key_in_any_order(tmp_path: Path, build: Build, parallelism: int, is_warned: bool) -> None:
    assert warned(pipeline(tmp_path, build, parallelism)) is is_warned


def test_a_sink_that_appends_has_no_order(tmp_path: Path) -> None:
    env = pipeline(tmp_path, lambda rows, _: rows.sink_to(us.FileSink(str(tmp_path / "out"))))
    assert not warned(env)


def test_a_keyed_stream_ships_by_its_key(tmp_path: Path) -> None:
    env = pipeline(tmp_path, lambda rows, sink: rows.key_by("k").sink_to(sink, on_error="skip"))
    found = [(edge.ship, edge.key_columns) for edge in env.stream_graph().edges if edge.ship is not None]
    assert found[0] == (Ship.HASH, ("k",))
