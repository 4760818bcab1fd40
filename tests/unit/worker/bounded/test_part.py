"""The bounded part of a stream, run stage by stage: what leaves it is in files, and a piece says where."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec import structs

import unistream as us
from tests.bounded_pipeline import TIMES, rows, write_rows
from tests.support.harness.stages import bounded_job
from unistream.base.ids import AttemptId, SubtaskId, TaskManagerId
from unistream.core.graph import ExecutionPlan, Relay, offloaded_vertices
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Batch
from unistream.storage.state_files import FsStateReader
from unistream.worker.bounded import STAGED, BoundedRun, Piece, stored_rows
from unistream.worker.exchange import StoredFile

OFFLOAD = {"execution.batch.offload-bounded-regions": "true", "parallelism.default": "3"}


def test_rows_of_two_stages_are_stored_for_the_consumers_of_the_stream(tmp_path: Path) -> None:
    """The first stage has an edge to the stream, too, which passes the second by."""
    write_rows(tmp_path)
    (tmp_path / "stored").mkdir()
    env = us.Environment(OFFLOAD)
    source = us.FileSource(str(tmp_path / "in"))
    files = env.from_source(source, TIMES, "files").map_batches(lambda batch: batch, returns=source.schema)
    windows = files.key_by("key").window(us.TumblingEventTimeWindows.of("1 h")).aggregate(rows=us.count())
    facts = us.DatagenSource({"key": us.datagen.RandomInt(0, 9)}, rows=None, bounded=False)
    stream = env.from_source(facts, us.WatermarkStrategy.no_watermarks(), "facts")
    joined = stream.join(windows, on="key")
    joined.sink_to(us.BlackholeSink())
    returns = pa.schema([("key", pa.int64())])
    keys = files.map_batches(lambda batch: batch.select(["key"]), returns=returns)
    stream.union(keys.rebalance()).sink_to(us.BlackholeSink())
    graph, code = env.job_graph("part")
    part = offloaded_vertices(graph)
    job = structs.replace(
        bounded_job(graph, code, 64 << 20), part=part, stored_folder=str(tmp_path / "stored")
    )
    run = BoundedRun(job)
    assert any(isinstance(place, Relay) for place in run.plan.stages[-1].places)
    pieces: dict[int, list[Piece]] = {}
    for number, stage in enumerate(run.plan.stages):
        made: dict[int, list[Piece]] = {}
        for place in range(len(stage.places)):
            attempt = run.place(number, place, attempt=0, folder=tmp_path)
            for to, piece in attempt.run(pieces.get(place, [])):
                made.setdefault(to, []).append(
                    msgspec.msgpack.decode(msgspec.msgpack.encode(piece), type=Piece)
                )
            assert attempt.report is not None
            assert attempt.report.failure is None
        pieces = made
    assert list(pieces) == [STAGED]
    stored = [stored_rows(piece) for piece in pieces[STAGED]]
    assert len(stored) == len({one.partition for one in stored}) == 6, "three producers on two edges"
    assert len(list((tmp_path / "stored").iterdir())) == 6
    plan = ExecutionPlan(graph)
    counted: Counter[int] = Counter()
    per_key: list[dict[int, int]] = []
    for index in range(3):
        found: dict[int, int] = {}
        for one in stored:
            edge = next(edge for edge in graph.edges if edge.id == one.edge)
            channel = ChannelDescriptor(
                producer=AttemptId(job.job, one.vertex, one.producer, 0),
                edge=one.edge,
                subpartition=plan.consumers(edge, one.producer).index(index),
                task_manager=TaskManagerId(""),
                address="",
            )
            assert channel.producer.subtask == SubtaskId(one.vertex, one.producer)
            view = StoredFile(one, FsStateReader).open_subpartition(channel, lambda: None)
            for element in iter(view.poll, None):
                if not isinstance(element, Batch):
                    continue
                if "rows" in element.records.schema.names:
                    found |= {row["key"]: row["rows"] for row in element.records.to_pylist()}
                else:
                    counted.update(element.records.column("key").to_pylist())
        per_key.append(found)
    truth = Counter(rows().column("key").to_pylist())
    assert counted == truth, "each row once, among the consumers"
    assert per_key == 3 * [dict(truth)], "the dimension of a join goes to all of them"
