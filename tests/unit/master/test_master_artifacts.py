"""Code and descriptions of jobs are removed when no job needs them, by whichever leader and however late."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from tests.fault_fs import Fault, FaultFileSystem, FaultKind, PausedBeforeNaming
from tests.unit.master.conftest import graph
from unistream.base.durable_files import temporary_of
from unistream.base.errors import Fenced, Transient
from unistream.base.ids import JobId, LeaderEpoch, LineageId, VertexId
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store.job_store import JobStore
from unistream.model.stored_job import (
    ArtifactName,
    CommittingPointer,
    JobPointer,
    Sealed,
    StoredJob,
    StoredResult,
    encode_stored,
)
from unistream.storage.artifacts import FsArtifactStore
from unistream.storage.durable_local import DurableLocalFileSystem, NotWritten

CODE = b"code"
SHA256 = hashlib.sha256(CODE).hexdigest()
FIRST, SECOND = (Sealed(lineage=LineageId("l"), levels=level) for level in (1, 2))


class Cluster:
    """Leaders of one cluster, each of which fences the one before; that one goes on, and does not know."""

    def __init__(self, root: Path) -> None:
        self.artifacts = root / "artifacts"
        self._ha = root / "ha"
        self._fs = FaultFileSystem(DurableLocalFileSystem(), on_slow=lambda _: self._meanwhile())
        self._meanwhile: Callable[[], object] = lambda: None

    def lead(self) -> JobStore:
        """The next leader."""
        store = FolderHaStore(self._ha, claim_folder(self._ha))
        return JobStore(store, FsArtifactStore(str(self.artifacts), fs=self._fs))

    def lead_and_pause(self, meanwhile: Callable[[], object]) -> JobStore:
        """The next leader; it happens after this has written each file, before that has its name."""
        store = FolderHaStore(self._ha, claim_folder(self._ha))
        return JobStore(store, FsArtifactStore(str(self.artifacts), fs=PausedBeforeNaming(meanwhile)))

    def pause(self, meanwhile: Callable[[], object]) -> None:
        """It happens after a leader has decided which file it removes first, and before it does."""
        self._meanwhile = meanwhile
        self._fs.inject(Fault(kind=FaultKind.SLOW, operation="rm_file"))

    def fail_removal(self) -> None:
        """The next file cannot be removed."""
        self._fs.inject(Fault(kind=FaultKind.RAISE_BEFORE, operation="rm_file"))

    def refuse_second_file(self) -> None:
        """As a disk does that is full by then."""
        error = NotWritten("No space left on device")
        self._fs.inject(Fault(kind=FaultKind.RAISE_BEFORE, operation="pipe_file", skip=1, error=error))

    def stored(self) -> set[str]:
        """Names of all artifacts."""
        return {path.name for path in self.artifacts.iterdir()}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def job(name: str, epoch: LeaderEpoch, **parallelism: int) -> StoredJob:
    return StoredJob(
        job=JobId(name),
        lineage=LineageId("l"),
        submitted_ms=1,
        graph=graph(),
        artifact=str(ArtifactName(SHA256, epoch)),
        parallelism={VertexId(vertex): wide for vertex, wide in parallelism.items()},
    )


def submit(jobs: JobStore, name: str) -> None:
    jobs.add(job(name, jobs.epoch), CODE)


def end(jobs: JobStore, name: str) -> None:
    result = StoredResult(
        job=JobId(name), name=name, lineage=LineageId("l"), state="FINISHED", submitted_ms=1, ended_ms=2
    )
    jobs.ended(result)
    jobs.cleaned(result)


def rescale(jobs: JobStore, wide: int) -> None:
    """The job that is recovered."""
    there = jobs.load(JobId("a"))
    jobs.change(structs.replace(there, parallelism={VertexId("v"): wide}))


def assert_all_is_there(jobs: JobStore) -> None:
    """What the pointers of unfinished jobs name."""
    for name in jobs.unfinished():
        pointer, committing = jobs.pointer(name), jobs.committing(name)
        assert pointer is not None
        assert jobs.load(name).artifact == pointer.artifact
        assert jobs._artifacts.get(pointer.artifact) == CODE
        if committing is not None:
            assert jobs.load_sealed(committing) == FIRST


@pytest.mark.parametrize("others", [(), ("a",)], ids=["alone", "next to a job with the same code"])
def test_a_job_that_cannot_be_stored_leaves_nothing(cluster: Cluster, others: tuple[str, ...]) -> None:
    jobs = cluster.lead()
    for other in others:
        submit(jobs, other)
    before = cluster.stored() if others else set()
    cluster.refuse_second_file()
    with pytest.raises(Transient, match="No space left"):
        submit(jobs, "b")
    assert cluster.stored() == before
    assert jobs.unfinished() == list(others)
    submit(jobs, "b")
    assert_all_is_there(jobs)


@pytest.mark.parametrize(
    ("before", "removes", "meanwhile", "left"),
    [
        pytest.param(
            lambda old: submit(old, "a"),
            lambda old: end(old, "a"),
            lambda new: submit(new, "b"),
            {"b"},
            id="a job ended; another one is submitted with the same code",
        ),
        pytest.param(
            lambda old: (submit(old, "a"), submit(old, "b")),
            lambda old: end(old, "a"),
            lambda new: (end(new, "b"), submit(new, "c")),
            {"c"},
            id="a job ended; the last one with its code ends too, and another one is submitted with it",
        ),
        pytest.param(
            lambda old: (submit(old, "a"), rescale(old, 2)),
            lambda old: rescale(old, 3),
            lambda new: rescale(new, 2),
            {"a"},
            id="a job was rescaled; it is rescaled back",
        ),
        pytest.param(
            lambda old: (submit(old, "a"), old.set_committing(JobId("a"), FIRST)),
            lambda old: old.set_committing(JobId("a"), SECOND),
            lambda new: new.set_committing(JobId("a"), FIRST),
            {"a"},
            id="a job has sealed more; the next leader seals what was sealed first",
        ),
        pytest.param(
            lambda old: old._artifacts.put(CODE, old.epoch),
            lambda old: old.sweep(),
            lambda new: submit(new, "b"),
            {"b"},
            id="a submission was cut off; the job is submitted again",
        ),
    ],
)
def test_a_leader_that_wakes_up_deposed_removes_nothing_of_the_next_one(
    cluster: Cluster,
    before: Callable[[JobStore], object],
    removes: Callable[[JobStore], object],
    meanwhile: Callable[[JobStore], object],
    left: set[str],
) -> None:
    deposed = cluster.lead()
    before(deposed)
    cluster.pause(lambda: meanwhile(cluster.lead()))
    with suppress(Fenced):  # of what it writes behind the removal
        removes(deposed)
    next_one = cluster.lead()
    assert set(next_one.unfinished()) == left
    assert_all_is_there(next_one)
    next_one.sweep()
    assert_all_is_there(next_one)


def test_a_leader_leaves_alone_what_a_later_one_stores_before_it_points_to_it(cluster: Cluster) -> None:
    leader = cluster.lead()
    name = leader._artifacts.put(CODE, LeaderEpoch(leader.epoch + 1))
    leader.sweep()
    assert cluster.stored() == {name}


def test_a_recovered_job_keeps_the_code_that_an_earlier_leader_has_stored(cluster: Cluster) -> None:
    submit(cluster.lead(), "a")
    second = cluster.lead()
    second.sweep()
    rescale(second, 2)
    submit(second, "b")
    assert_all_is_there(second)
    end(second, "b")
    assert_all_is_there(second)
    end(second, "a")
    assert cluster.stored() == set()


def test_what_an_earlier_version_has_stored_is_read_and_removed_at_the_end(cluster: Cluster) -> None:
    """Its names have no epoch."""
    leader, name = cluster.lead(), JobId("a")
    old = structs.replace(job("a", LeaderEpoch(0)), artifact=SHA256)
    cluster.artifacts.mkdir()

    def store(content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        (cluster.artifacts / sha256).write_bytes(content)
        return sha256

    assert store(CODE) == SHA256
    pointer = JobPointer(stored=store(encode_stored(old)), artifact=SHA256, name="a", submitted_ms=1)
    leader._ha.create("jobs/a/job", encode_stored(pointer))
    leader._ha.create(
        "jobs/a/committing", encode_stored(CommittingPointer(sealed=store(encode_stored(FIRST))))
    )
    unneeded = store(b"of a job that has ended")
    leader.sweep()
    assert unneeded not in cluster.stored()
    assert leader.load(name) == old
    assert_all_is_there(leader)
    submit(leader, "b")
    end(leader, "a")
    assert_all_is_there(leader)
    end(leader, "b")
    assert cluster.stored() == set()


def test_what_a_leader_wrote_when_it_was_killed_is_removed_by_the_next(cluster: Cluster) -> None:
    first = cluster.lead()
    submit(first, "a")
    stored = cluster.stored()
    temporary_of(cluster.artifacts / str(ArtifactName(SHA256, first.epoch))).write_bytes(CODE[:2])
    assert cluster.stored() > stored
    cluster.lead().sweep()
    assert cluster.stored() == stored


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param(lambda old: submit(old, "b"), id="submit"),
        pytest.param(lambda old: rescale(old, 2), id="rescale"),
        pytest.param(lambda old: old.set_committing(JobId("a"), FIRST), id="seal"),
    ],
)
def test_a_deposed_leader_whose_file_is_swept_away_while_it_writes_it_is_fenced(
    cluster: Cluster, writes: Callable[[JobStore], object]
) -> None:
    submit(cluster.lead(), "a")
    deposed = cluster.lead_and_pause(lambda: cluster.lead().sweep())
    with pytest.raises(Fenced):
        writes(deposed)
    assert_all_is_there(cluster.lead())


def test_a_leader_that_cannot_write_and_is_not_deposed_says_that_it_can_be_tried_again(
    cluster: Cluster,
) -> None:
    leader = cluster.lead_and_pause(lambda: [path.unlink() for path in cluster.artifacts.iterdir()])
    with pytest.raises(Transient, match="cannot store the job's code"):
        submit(leader, "a")


def test_what_could_not_be_removed_is_removed_later(cluster: Cluster) -> None:
    jobs = cluster.lead()
    submit(jobs, "a")
    cluster.fail_removal()
    end(jobs, "a")
    assert jobs.is_unswept
    assert cluster.stored() != set()
    jobs.sweep()
    assert not jobs.is_unswept
    assert cluster.stored() == set()
