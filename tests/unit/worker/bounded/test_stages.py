"""Subtasks that are run one by one, with their rows carried by hand, make the rows of the cluster."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.bounded_pipeline import check_results, pipeline, write_rows
from tests.support.harness.stages import run_in_stages
from unistream.base.ids import EdgeId
from unistream.core.graph import Relay, StagePlan
from unistream.worker.bounded.arrivals import Arrivals
from unistream.worker.bounded.pieces import Piece
from unistream.worker.bounded.subtask import SubtaskFailed


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("memory_bytes", [64 << 20, 20_000])
def test_rows(parallelism: int, memory_bytes: int, tmp_path: Path) -> None:
    write_rows(tmp_path)
    env = us.Environment({"parallelism.default": str(parallelism)})
    pipeline(env, tmp_path)
    (tmp_path / "tmp").mkdir()
    graph, code = env.job_graph("stages")
    places = [place for stage in StagePlan(graph).stages for place in stage.places]
    assert any(isinstance(place, Relay) for place in places), "an edge passes a stage by"
    assert run_in_stages(graph, code, tmp_path / "tmp", memory_bytes=memory_bytes) > 0
    check_results(tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_error_of_a_function_names_operator_and_row(tmp_path: Path) -> None:
    env = us.Environment()
    source = us.StaticSource(pa.table({"n": [1, 0]}))
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
    stream.rebalance().map(lambda row: {"n": 1 // row["n"]}, returns={"n": pa.int64()}).name(
        "inverse"
    ).print()
    with pytest.raises(SubtaskFailed, match=r"inverse.*division"):
        run_in_stages(*env.job_graph("fails"), tmp_path)


@pytest.mark.parametrize("memory_bytes", [0, 5, 1_000])
def test_pieces_are_read_in_one_order_however_they_came(memory_bytes: int, tmp_path: Path) -> None:
    pieces = [
        Piece(EdgeId(edge), producer, 0, number, f"{edge}{producer}{number}".encode())
        for edge in "ab"
        for producer in (0, 1)
        for number in (0, 1)
    ]
    with Arrivals(tmp_path, memory_bytes) as arrivals:
        for piece in (*pieces[5:], *reversed(pieces[:5])):
            arrivals.add(piece)
        assert list(arrivals.take()) == pieces
    assert list(tmp_path.iterdir()) == []
