"""Code runs only if this cluster has accepted it for this job: who can write where jobs are stored cannot put
other code there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.eventually import WAIT_S, eventually
from tests.unit.master.conftest import Cluster, graph, request
from tests.unit.master.scripted_workers import ScriptedWorkers
from unistream.base.errors import CorruptSnapshot, ProtocolError
from unistream.base.ids import JobId, LineageId
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store.job_store import JobStore, replay_name
from unistream.model import messages as msg
from unistream.model.stored_job import ArtifactName, JobPointer, StoredJob, decode_stored, encode_stored
from unistream.storage.artifacts import FsArtifactStore
from unistream.storage.cluster_secret import begin_sealing, cluster_secret

SECRET = b"s" * 32
MINE, OTHER = JobId("a" * 32), JobId("b" * 32)


class JobsOnDisk:
    """Where a cluster stores its jobs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.artifacts = FsArtifactStore(str(root / "artifacts"))

    def lead(self, secret: bytes = SECRET) -> JobStore:
        return JobStore(
            FolderHaStore(self._root / "ha", claim_folder(self._root / "ha")), self.artifacts, secret
        )


@pytest.fixture
def folder(tmp_path: Path) -> JobsOnDisk:
    return JobsOnDisk(tmp_path)


def submit(jobs: JobStore, job: JobId, code: bytes, made_of: bytes = b"") -> None:
    def named(content: bytes) -> str:
        return str(ArtifactName(hashlib.sha256(content).hexdigest(), jobs.epoch))

    stored = StoredJob(
        job=job,
        lineage=LineageId("l"),
        submitted_ms=1,
        graph=graph(),
        artifact=named(code),
        pipeline=named(made_of) if made_of else "",
    )
    jobs.add(stored, code, pipeline=made_of)


def replace_pointer(jobs: JobStore, job: JobId, **fields: str) -> None:
    """As somebody does who can write to the HA store."""
    there = jobs._ha.read(f"jobs/{job}/job")
    assert there is not None
    pointer = structs.replace(decode_stored(there.value, JobPointer, "it"), **fields)
    jobs._ha.replace(f"jobs/{job}/job", encode_stored(pointer), there.version)


def pointer_of(jobs: JobStore, job: JobId) -> JobPointer:
    pointer = jobs.pointer(job)
    assert pointer is not None
    return pointer


@pytest.mark.parametrize("field", ["stored", "artifact", "pipeline", "seal"])
def test_what_another_job_has_is_not_taken_for_ones_own(folder: JobsOnDisk, field: str) -> None:
    jobs = folder.lead()
    submit(jobs, MINE, b"mine", b"made of mine")
    submit(jobs, OTHER, b"other", b"made of other")
    replace_pointer(jobs, MINE, **{field: getattr(pointer_of(jobs, OTHER), field)})
    with pytest.raises(CorruptSnapshot, match="the seal of this cluster"):
        jobs.load(MINE)
    with pytest.raises(CorruptSnapshot, match="lacks the seal"):
        jobs.pipeline(MINE)
    assert jobs.load(OTHER).job == OTHER


def test_a_pointer_without_a_seal_or_with_that_of_another_cluster_is_refused(folder: JobsOnDisk) -> None:
    submit(folder.lead(), MINE, b"mine")
    with pytest.raises(CorruptSnapshot, match="lacks the seal"):
        folder.lead(b"t" * 32).load(MINE)
    jobs = folder.lead()
    assert jobs.load(MINE).job == MINE, "each leader of the cluster takes it"
    replace_pointer(jobs, MINE, seal="")
    with pytest.raises(CorruptSnapshot, match="lacks the seal"):
        jobs.load(MINE)


def test_what_is_kept_has_a_seal_as_well(folder: JobsOnDisk) -> None:
    jobs = folder.lead()
    submit(jobs, MINE, b"mine")
    submit(jobs, OTHER, b"other")
    kept = jobs.keep("name", MINE, 1)
    assert jobs.load_kept(kept)[1] == b"mine"
    forged = structs.replace(kept, pointer=pointer_of(jobs, OTHER))
    with pytest.raises(CorruptSnapshot, match="lacks the seal"):
        jobs.load_kept(forged)


def test_what_another_job_was_made_of_is_not_replayed(folder: JobsOnDisk) -> None:
    jobs = folder.lead()
    submit(jobs, OTHER, b"other", b"made of other")
    kept = jobs.keep("any", OTHER, 1)
    jobs._ha.create(f"kept/{replay_name(MINE)}", encode_stored(structs.replace(kept, for_replay=True)))
    assert jobs.pipeline(MINE) is None
    forged = structs.replace(kept, job=MINE, for_replay=True)
    there = jobs._ha.read(f"kept/{replay_name(MINE)}")
    assert there is not None
    jobs._ha.replace(f"kept/{replay_name(MINE)}", encode_stored(forged), there.version)
    with pytest.raises(CorruptSnapshot, match="lacks the seal"):
        jobs.pipeline(MINE)


def test_another_parallelism_keeps_the_seal(folder: JobsOnDisk) -> None:
    jobs = folder.lead()
    submit(jobs, MINE, b"mine")
    jobs.change(structs.replace(jobs.load(MINE), given={"a": "b"}))
    assert folder.lead().load(MINE).given == {"a": "b"}


def test_the_first_leader_that_seals_takes_what_it_finds_and_no_later_one_does(
    folder: JobsOnDisk, tmp_path: Path
) -> None:
    submit(folder.lead(b""), MINE, b"mine")
    folder.lead(b"").keep("name", MINE, 1)
    secret, root = cluster_secret(str(tmp_path)), str(tmp_path)
    jobs = folder.lead(secret)
    with pytest.raises(CorruptSnapshot, match="lacks the seal"):
        jobs.load(MINE)
    begin_sealing(root, jobs.seal_all)
    assert jobs.load(MINE).job == MINE
    kept = jobs.kept("name")
    assert kept is not None
    assert jobs.load_kept(kept)[1] == b"mine"
    submit(folder.lead(b""), OTHER, b"other")
    later = folder.lead(secret)
    begin_sealing(root, later.seal_all)
    with pytest.raises(CorruptSnapshot, match="lacks the seal"):
        later.load(OTHER)


# --- a whole master -------------------------------------------------------------------------------


@pytest.fixture
def cluster(make_cluster: Callable[..., Any]) -> Cluster:
    made: Cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    return made


def swap_file(cluster: Cluster, name: str) -> None:
    """As somebody does who can write where jobs are stored."""
    (cluster.root / "artifacts" / name).write_bytes(b"code of somebody else")


def test_a_standby_does_not_run_code_that_was_swapped(cluster: Cluster) -> None:
    job = cluster.dispatcher.submit(request())
    cluster.workers.await_message(msg.DeployTask)
    swap_file(cluster, cluster.dispatcher._ports.jobs.load(job).artifact)
    assert_next_leader_refuses(cluster, job, "does not match its checksum: it is not what was accepted")


def test_a_standby_does_not_run_what_a_forged_pointer_names(cluster: Cluster) -> None:
    job = cluster.dispatcher.submit(request())
    cluster.workers.await_message(msg.DeployTask)
    jobs = cluster.dispatcher._ports.jobs
    forged = structs.replace(jobs.load(job), config={"pipeline.name": "forged"})
    stored = jobs._artifacts.put(encode_stored(forged), jobs.epoch)
    replace_pointer(jobs, job, stored=stored)
    assert_next_leader_refuses(cluster, job, "lacks the seal of this cluster")


def assert_next_leader_refuses(cluster: Cluster, job: JobId, why: str) -> None:
    cluster.workers = ScriptedWorkers(ends=False)
    second = cluster.lead()
    try:
        second.recover()
        eventually(lambda: second.job(job).state == "SUSPENDED", "the job is SUSPENDED", WAIT_S)
        failure = second.job(job).failure
        assert failure is not None
        assert why in failure.message
        assert cluster.workers.messages(msg.DeployTask) == []
        second.cancel(job)
        eventually(lambda: second.job(job).state == "CANCELED", "the job is CANCELED", WAIT_S)
    finally:
        second.close()


def test_a_worker_that_asks_for_code_that_was_swapped_gets_a_sentence(cluster: Cluster) -> None:
    job = cluster.dispatcher.submit(request())
    deployed = cluster.workers.await_message(msg.DeployTask).deployment
    asked = msg.FetchArtifact(job=job, sha256=deployed.artifact)
    assert isinstance(cluster.workers.call_master(asked), msg.Artifact)
    swap_file(cluster, cluster.dispatcher._ports.jobs.load(job).artifact)
    answer = cluster.workers.call_master(asked)
    assert isinstance(answer, msg.Refused)
    assert "does not match its checksum" in answer.reason


def test_a_worker_opens_nothing_but_what_its_deployment_names() -> None:
    from unistream.worker.code import ArtifactCache

    code = ArtifactCache(lambda _asked: msg.Artifact(content=b"code of somebody else"))
    with pytest.raises(ProtocolError, match="it was not opened"):
        code.open(MINE, hashlib.sha256(b"accepted").hexdigest())
