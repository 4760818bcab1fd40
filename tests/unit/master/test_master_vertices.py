"""GET /unistream/jobs/{id}/vertices: the graph as people read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.unit.master.served_cluster import Api
from unistream.model.graph import JobGraph
from unistream.model.submission import SubmitRequest
from unistream.rest.vertices import VertexLine, lines_of

ROWS = pa.table({"k": [1, 2], "v": [1.0, 2.0]})
NO_TIME = us.WatermarkStrategy.no_watermarks()
HERE = Path(__file__)


class Doubled(us.KeyedProcessFunction):
    def process_element(self, row: Any, context: us.KeyedProcessContext, out: us.Collector) -> None:
        out.emit(row)


def pipeline(out: str, **config: str) -> JobGraph:
    env = us.Environment({"parallelism.default": "2", **config})
    rows = env.from_source(us.StaticSource(ROWS), NO_TIME, "rows").uid("rows")
    doubled = rows.key_by("k").process(Doubled(), returns={"k": pa.int64(), "v": pa.float64()})
    doubled.sink_to(us.FileSink(out)).uid("files")
    return env.job_graph("shown")[0]


def declared(line: VertexLine, operator: int = 0) -> str:
    """The text of the line that has added the operator."""
    file, _, number = (line.operators[operator].declared_at or "").rpartition(":")
    assert file == str(HERE)
    return HERE.read_text().splitlines()[int(number) - 1]


def test_each_operator_has_the_line_that_has_added_it(tmp_path: Path) -> None:
    rows, doubled, committer = lines_of(pipeline(str(tmp_path))).vertices
    assert "env.from_source(" in declared(rows)
    assert "rows.key_by(" in declared(doubled)
    assert "doubled.sink_to(" in declared(doubled, 1)
    assert "doubled.sink_to(" in declared(committer)


def test_operators_have_their_uids_and_exchanges_what_they_are(tmp_path: Path) -> None:
    graph = pipeline(str(tmp_path), **{"execution.runtime-mode": "STREAMING"})
    rows, doubled, committer = lines_of(graph).vertices
    assert [(one.uid, one.has_own_uid, one.stateful) for one in rows.operators] == [("rows", True, True)]
    assert [one.has_own_uid for one in doubled.operators] == [False, True]
    assert [(one.source, one.ship, one.key_columns) for one in doubled.inputs] == [(rows.id, "hash", ("k",))]
    assert [(one.source, one.ship) for one in committer.inputs] == [(doubled.id, "global")]
    assert (rows.parallelism, committer.parallelism, rows.slot_sharing_group) == (2, 1, "default")


def test_sources_and_sinks_say_where(tmp_path: Path) -> None:
    env = us.Environment()
    rows = env.from_source(us.FileSource(str(tmp_path / "in"), schema=ROWS.schema), NO_TIME, "rows")
    rows.sink_to(us.FileSink(str(tmp_path / "out"))).uid("files")
    found = [operator for vertex in lines_of(env.job_graph()[0]).vertices for operator in vertex.operators]
    assert [one.reads for one in found] == [(f"file://{tmp_path}/in",), (), ()]
    assert {uri for one in found for uri in one.writes} == {f"file://{tmp_path}/out"}


@pytest.mark.parametrize(("mode", "regions"), [("STREAMING", {0}), ("BATCH", {0, 1})])
def test_what_restarts_together_has_one_number(mode: str, regions: set[int], tmp_path: Path) -> None:
    graph = pipeline(str(tmp_path), **{"execution.runtime-mode": mode})
    found = lines_of(graph).vertices
    assert {one.region for one in found[:2]} == regions
    wanted = "BLOCKING" if mode == "BATCH" else "PIPELINED_BOUNDED"
    assert {one.partition for one in found[1].inputs} == {wanted}


def test_over_http(api: Api, submission: Callable[..., SubmitRequest]) -> None:
    job = api.cluster.dispatcher.submit(submission())
    vertices = api.get(f"/unistream/jobs/{job}/vertices")["vertices"]
    assert [one["name"] for one in vertices] == [
        vertex.name for vertex in api.cluster.dispatcher.graph(job).vertices
    ]
    assert {operator["declared_at"] for one in vertices for operator in one["operators"]} == {None}
    assert api.http.get(f"/unistream/jobs/{'f' * 32}/vertices").status_code == 404
