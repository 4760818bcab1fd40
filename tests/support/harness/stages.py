"""A BATCH job run stage by stage in this thread: what an engine such as Spark does, without one."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec
from msgspec import structs

from unistream.base.config import Configuration
from unistream.base.ids import JobId, LeaderEpoch, LineageId
from unistream.base.limits import MIB
from unistream.connector.catalogue import create_discovery
from unistream.core.job import BootstrapSavepoint, job_settings
from unistream.model.bounded import BoundedJob, PlaceReport
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.model.snapshot import Manifest
from unistream.model.splits import FoundSplits
from unistream.storage.fs import FsCheckpointStorage
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
    moved, staged, _ = _run_stages(run, folder)
    for report in run.commit(staged, attempt=0, folder=folder):
        _check(report)
    return moved


def bootstrap_in_stages(
    graph: JobGraph,
    code: JobCode,
    folder: Path,
    *,
    memory_bytes: int = 64 * MIB,
    commits: bool = True,
    copies: bool = False,
) -> Manifest:
    """Runs a bootstrap stage by stage in this thread, and writes its savepoint. `commits`: what it lists is
    committed, too. `copies`: each place is run twice, and one of the two attempts wins.

    Raises:
        ConfigError: there is a savepoint already.
        SubtaskFailed: a function, a connector or an operator raised.
    """
    assert graph.bootstrap is not None, "only a bootstrap writes a savepoint"
    storage = FsCheckpointStorage(str(folder))
    directory = storage.begin_savepoint(graph.bootstrap.directory)
    graph = structs.replace(graph, bootstrap=structs.replace(graph.bootstrap, directory=directory))
    settings = job_settings(
        Configuration(graph.config),
        job=JobId("bounded"),
        lineage=LineageId("bounded"),
        epoch=LeaderEpoch(0),
        artifact="",
        checkpoint_root="",
        draw=lambda: 0.5,
        batch=True,
    )
    savepoint = BootstrapSavepoint(graph, settings)
    job = bounded_job(graph, code, memory_bytes)
    read = {vertex: savepoint.found(vertex, FoundSplits(splits=all_)) for vertex, all_ in job.splits.items()}
    run = BoundedRun(structs.replace(job, splits=read))
    _, staged, reports = _run_stages(run, folder, copies=copies)
    for report in run.store_committers(staged, attempt=0, folder=folder):
        _check(report)
        reports.append(report)
    savepoint.stored(report.snapshot for report in reports if report.snapshot is not None)
    command = savepoint.write()
    storage.write_manifest(command.directory, command.manifest)
    storage.tidy_savepoint(command.directory, command.manifest)
    for report in run.commit(staged if commits else [], attempt=0, folder=folder):
        _check(report)
    return command.manifest


def _run_stages(
    run: BoundedRun, folder: Path, *, copies: bool = False
) -> tuple[int, list[Piece], list[PlaceReport]]:
    """The number of pieces that were sent, what is to be committed, and the reports."""
    moved = 0
    pieces: dict[int, list[Piece]] = {}
    reports: list[PlaceReport] = []
    for number, stage in enumerate(run.plan.stages):
        made: dict[int, list[Piece]] = {}
        for place in range(len(stage.places)):
            if copies:
                loser = run.place(number, place, attempt=1, folder=folder)
                deque(loser.run(pieces.get(place, [])), maxlen=0)
                _check(loser.report)
            attempt = run.place(number, place, attempt=0, folder=folder)
            for to, piece in attempt.run(reversed(pieces.get(place, []))):
                sent = msgspec.msgpack.encode(piece)
                made.setdefault(to, []).append(msgspec.msgpack.decode(sent, type=Piece))
                moved += 1
            reports.append(_check(attempt.report))
        pieces = made
    assert pieces.keys() <= {STAGED}, "behind the last stage there are committers alone"
    return moved, pieces.get(STAGED, []), reports


def _check(report: PlaceReport | None) -> PlaceReport:
    assert report is not None, "the attempt has ended"
    if report.failure is not None:
        raise SubtaskFailed(report.failure)
    sent = msgspec.msgpack.encode(report)
    return msgspec.msgpack.decode(sent, type=PlaceReport)


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
