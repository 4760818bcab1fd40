"""A BATCH job run stage by stage in this thread: what an engine such as Spark does, without one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from unistream.base.ids import JobId, LineageId
from unistream.base.limits import MIB
from unistream.connector.registry import create_discovery
from unistream.model.bounded import BoundedJob, PlaceReport
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.worker.bounded import STAGED, BoundedRun, Piece, SubtaskFailed
from unistream.worker.code import pack, sha256


def run_in_stages(graph: JobGraph, code: JobCode, folder: Path, *, memory_bytes: int = 64 * MIB) -> int:
    """Runs the job once. `folder`: for what operators spill.

    Returns:
        The number of pieces that went from one stage to the next.

    Raises:
        SubtaskFailed: a function, a connector or an operator raised.
    """
    run = BoundedRun(bounded_job(graph, code, memory_bytes))
    moved = 0
    pieces: dict[int, list[Piece]] = {}
    for number, stage in enumerate(run.plan.stages):
        made: dict[int, list[Piece]] = {}
        for place in range(len(stage.places)):
            attempt = run.place(number, place, attempt=0, folder=folder)
            for to, piece in attempt.run(reversed(pieces.get(place, []))):
                sent = msgspec.msgpack.encode(piece)
                made.setdefault(to, []).append(msgspec.msgpack.decode(sent, type=Piece))
                moved += 1
            _check(attempt.report)
        pieces = made
    assert pieces.keys() <= {STAGED}, "behind the last stage there are committers alone"
    for report in run.commit(pieces.get(STAGED, []), attempt=0, folder=folder):
        _check(report)
    return moved


def _check(report: PlaceReport | None) -> None:
    assert report is not None, "the attempt has ended"
    if report.failure is not None:
        raise SubtaskFailed(report.failure)


def bounded_job(graph: JobGraph, code: JobCode, memory_bytes: int) -> BoundedJob:
    """The job as it is given to an engine."""
    artifact = pack(code)
    sources = {vertex.id: vertex.source for vertex in graph.vertices if vertex.source is not None}
    return BoundedJob(
        job=JobId("bounded"),
        lineage=LineageId("bounded"),
        graph=graph,
        artifact=artifact,
        sha256=sha256(artifact),
        splits={vertex: tuple(create_discovery(info).discover()) for vertex, info in sources.items()},
        memory_bytes=memory_bytes,
    )
