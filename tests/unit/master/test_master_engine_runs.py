"""The files of a bounded part: each run has a folder, and what no stream reads is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.unit.master.conftest import Cluster
from tests.unit.master.test_master_engine import graph, prepared, with_part
from tests.unit.master.test_master_journal import NOBODY, shown
from unistream.base.ids import EdgeId, JobId, VertexId
from unistream.core import contract
from unistream.master.job.engine_runs import EngineRuns
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import JobJournal
from unistream.master.loop.ordered import Pool
from unistream.model.bounded import RunFailed
from unistream.model.stored_rows import StoredRows
from unistream.port.engine import EngineRun
from unistream.storage.state_files import FsStateWriter
from unistream.testing.harness.operators import ManualClock


@dataclass
class Engine:
    """Runs nothing, and lets the test write what a run would."""

    started: list[EngineRun] = field(default_factory=list)
    cancelled: list[JobId] = field(default_factory=list)

    def run_stages(self, run: EngineRun) -> None:
        self.started.append(run)

    def cancel(self, job: JobId) -> None:
        self.cancelled.append(job)

    def store_committers(self, run: EngineRun, staged: Sequence[bytes]) -> None:
        raise AssertionError("a stream has no bootstrap")

    def commit(self, run: EngineRun, staged: Sequence[bytes]) -> None:
        raise AssertionError("a bounded part commits nothing")

    def close(self) -> None:
        """Nothing runs."""


class Master:
    """One that leads the job, as far as the engine is concerned."""

    def __init__(self, setup: JobSetup) -> None:
        self.setup = setup
        self.engine = Engine()
        self.events: list[contract.Event] = []
        self._pool = Pool("engine-runs", 1)
        self.journal = JobJournal(setup.job, setup.graph, NOBODY, ManualClock())
        self._runs = EngineRuns(
            setup,
            lambda: self.engine,
            lambda _sha256: b"code",
            pool=self._pool,
            journal=self.journal,
            post=self.events.append,
        )

    def perform(self, command: contract.RunStages | contract.CancelRun | contract.KeepStored) -> None:
        self._runs.perform(command)
        self._pool.wait([self._pool.submit(lambda: None)], WAIT_S)

    def run(self, number: int) -> Path:
        """Starts it; the folder that its tasks write to."""
        self.perform(
            contract.RunStages(run=number, first_attempt=number - 1, splits={}, graph=self.setup.graph)
        )
        return Path(self.engine.started[-1].job.stored_folder.removeprefix("file://"))

    def close(self) -> None:
        assert self._pool.close(WAIT_S)


def stored(folder: Path, content: bytes = b"rows") -> StoredRows:
    with FsStateWriter(f"file://{folder}").open("edge-0") as file:
        file.write(content)
    return StoredRows(
        edge=EdgeId("edge"),
        vertex=VertexId("v"),
        producer=0,
        folder=f"file://{folder}",
        file=file.ref,
        index_bytes=1,
        index_crc=1,
    )


@pytest.fixture
def lead(make_cluster: Callable[[], Cluster]) -> Iterator[Callable[[], Master]]:
    setup = prepared(make_cluster(), with_part(graph()), "", on_spark=True)
    masters: list[Master] = []

    def lead() -> Master:
        masters.append(Master(setup))
        return masters[-1]

    yield lead
    for master in masters:
        master.close()


def test_only_what_the_last_run_has_stored_is_kept(lead: Callable[[], Master]) -> None:
    master = lead()
    first = master.run(1)
    stored(first)
    master.perform(contract.KeepStored(()))
    assert not first.exists(), "the run has failed"
    second = master.run(2)
    assert second != first
    lost, won = stored(second), stored(second)
    master.perform(contract.KeepStored((won,)))
    assert [path.name for path in second.iterdir()] == [won.file.path]
    assert lost.file.path != won.file.path
    master.perform(contract.KeepStored(()))
    assert not second.exists()


@pytest.mark.parametrize("runs", [True, False], ids=["before a checkpoint", "after it"])
def test_what_an_earlier_leader_has_left_does_not_stay_until_the_job_ends(
    lead: Callable[[], Master], runs: bool
) -> None:
    left = lead().run(1)
    stored(left)
    master = lead()
    rows = (stored(master.run(1)),) if runs else ()
    master.perform(contract.KeepStored(rows))
    assert not left.exists()
    assert all(Path(row.folder.removeprefix("file://"), row.file.path).exists() for row in rows)


def test_a_storage_that_cannot_be_written_to_is_a_matter_of_the_restart_strategy(
    lead: Callable[[], Master], tmp_path: Path
) -> None:
    master = lead()
    folder = master.run(1).parent
    master.perform(contract.KeepStored(()))
    folder.rmdir()
    folder.write_bytes(b"a file")
    master.perform(contract.RunStages(run=2, first_attempt=1, splits={}, graph=master.setup.graph))
    assert len(master.engine.started) == 1
    (report,) = master.events
    assert isinstance(report, RunFailed)
    assert (report.run, report.failure.kind, report.failure.recoverable) == (2, "Transient", True)


def test_a_run_of_the_part_alone(lead: Callable[[], Master]) -> None:
    master = lead()
    master.run(1)
    (run,) = master.engine.started
    assert run.job.part == (master.setup.graph.vertices[0].id,)
    assert (run.run, run.first_attempt) == (1, 0)
    assert run.job.memory_bytes > 0
    for page in "http://driver:4040", None:  # another Spark may have no UI
        run.listener.page(page)
        assert shown(master.journal).engine_page == page
    master.perform(contract.CancelRun())
    assert master.engine.cancelled == [master.setup.job]
