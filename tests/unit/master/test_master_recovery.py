"""A new leader goes on with the jobs of an earlier one, which may still be alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.eventually import WAIT_S, eventually
from tests.unit.master.conftest import Cluster, graph, request
from tests.unit.master.scripted_workers import ScriptedWorkers
from unistream.base.crash_points import passing
from unistream.base.errors import AlreadyEnded, Fenced, NotFound, OutcomeUnknown, Unreachable
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.master.cluster.recovery import remove_unpointed
from unistream.master.store.job_store import JobStore
from unistream.metadata.schema import ensure
from unistream.model import messages as msg
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.graph import JobType
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import Leftover, Sealed, StoredRequest, StoredResult
from unistream.storage.fs import FsCheckpointStorage

Make = Callable[..., Any]


class Succession:
    """A cluster whose masters follow each other; earlier ones are not closed, and do not know."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._leaders: list[Dispatcher] = []

    def lead(self, **more: bool) -> Dispatcher:
        """The next leader, with workers of its own."""
        self.cluster.workers = ScriptedWorkers(**more)
        leader = self.cluster.lead()
        self._leaders.append(leader)
        leader.recover()
        return leader

    def jobs(self) -> JobStore:
        """Writes as the newest leader, and fences all before."""
        folder = self.cluster.root / "ha"
        return JobStore(FolderHaStore(folder, claim_folder(folder)), self.cluster.artifacts)

    def close(self) -> None:
        for leader in self._leaders:
            leader.close()


@pytest.fixture
def succession(make_cluster: Make) -> Iterator[Succession]:
    made = Succession(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


def is_in(leader: Dispatcher, job: JobId, state: str) -> Callable[[], bool]:
    return lambda: leader.job(job).state == state


def is_cleaned(leader: Dispatcher, job: JobId) -> Callable[[], bool]:
    def look() -> bool:
        found = leader._ports.jobs.result(job)
        return found is not None and found.cleaned

    return look


def are_stored(cluster: Cluster, count: int) -> Callable[[], bool]:
    return lambda: len(cluster.artifacts.names()) == count


def test_a_job_goes_on_from_its_newest_checkpoint_under_its_id(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    first, old = succession.cluster.dispatcher, succession.cluster.workers
    job = first.submit(request(config=checkpointed))
    old.await_message(msg.CheckpointCompleted, 4)
    second = succession.lead(ends=False)
    eventually(is_in(second, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    new = succession.cluster.workers
    restored = {
        d.deployment.restore.checkpoint_id for d in new.messages(msg.DeployTask) if d.deployment.restore
    }
    assert len(restored) == 1
    begun = max(message.checkpoint_id for message in old.messages(msg.TriggerCheckpoint))
    completed = max(message.checkpoint_id for message in old.messages(msg.CheckpointCompleted))
    assert restored.pop() >= completed
    assert new.await_message(msg.TriggerCheckpoint).checkpoint_id > begun, "ids of leaders are never the same"
    assert second.job(job).lineage == first.job(job).lineage
    assert second.job(job).submitted_ms == first.job(job).submitted_ms


def test_an_old_leader_that_does_not_know_changes_nothing(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    first, old = succession.cluster.dispatcher, succession.cluster.workers
    job = first.submit(request(config=checkpointed))
    old.await_message(msg.CheckpointCompleted, 2)
    second = succession.lead(ends=False)

    def has_noticed() -> bool:  # before, a checkpoint may fail, whose files the new one removes
        failure = first.job(job).failure
        return failure is not None and "epoch 2 leads" in failure.message

    eventually(has_noticed, "the old one has noticed", WAIT_S)
    with pytest.raises(Fenced):
        first.submit(request(graph("another")))
    eventually(is_in(second, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    assert second.job(job).state == "RUNNING"


def test_without_a_checkpoint_it_starts_from_its_savepoint(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    first = succession.cluster.dispatcher
    stopped = first.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    directory = first.snapshot(stopped, _stop()).result(WAIT_S)
    job = first.submit(request(savepoint=directory))
    eventually(is_in(first, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    second = succession.lead(ends=False)
    eventually(is_in(second, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    deployments = [one.deployment for one in succession.cluster.workers.messages(msg.DeployTask)]
    assert all(one.restore is not None for one in deployments if one.attempt.job == job)
    assert {one.attempt.job for one in deployments} == {job}, "a job that was stopped does not start again"


def test_without_either_it_starts_from_its_beginning(succession: Succession) -> None:
    job = succession.cluster.dispatcher.submit(request())
    second = succession.lead()
    assert second.wait(job, WAIT_S)
    assert second.job(job).state == "FINISHED"


@pytest.mark.parametrize(
    ("wanted", "state"),
    [
        pytest.param(StoredRequest(cancel=True), "CANCELED", id="cancel"),
        pytest.param(StoredRequest(stop=SnapshotKind.SUSPEND), "FINISHED", id="stop"),
        pytest.param(StoredRequest(stop=SnapshotKind.TERMINATE), "FINISHED", id="drain"),
    ],
)
def test_what_was_accepted_is_done_by_the_next_leader(
    succession: Succession, checkpointed: dict[str, str], wanted: StoredRequest, state: str
) -> None:
    job = succession.cluster.dispatcher.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    succession.jobs().set_request(job, wanted)
    second = succession.lead(ends=False)
    eventually(lambda: second.job(job).is_terminal, "the job has ended", WAIT_S)
    assert second.job(job).state == state
    assert (second.job(job).savepoint is not None) == (wanted.stop is not None)


def test_a_stop_that_failed_is_not_repeated(succession: Succession, checkpointed: dict[str, str]) -> None:
    first, workers = succession.cluster.dispatcher, succession.cluster.workers
    job = first.submit(request(config={**checkpointed, "execution.checkpointing.interval": "1 h"}))
    eventually(is_in(first, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    workers.decline_checkpoints("no")
    assert first.snapshot(job, _stop()).exception(WAIT_S) is not None
    eventually(lambda: first._ports.jobs.request(job) == StoredRequest(), "the stop is withdrawn", WAIT_S)
    assert succession.jobs().request(job) == StoredRequest()


def test_a_changed_parallelism_outlives_the_master(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    first = succession.cluster.dispatcher
    job = first.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    assert first.rescale(job, {"sink": 1}).result(WAIT_S) == ""
    assert list(first._ports.jobs.load(job).parallelism.values()) == [2, 1], "stored before it is answered"
    second = succession.lead(ends=False)
    eventually(is_in(second, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    deployed = [
        message.deployment.vertex.name for message in succession.cluster.workers.messages(msg.DeployTask)
    ]
    assert sorted(deployed) == ["sink", "source", "source"]


def test_the_second_of_two_changes_keeps_the_first_however_busy_the_job_is(
    succession: Succession, checkpointed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures of a busy job are older: what the next leader starts with is not made of one."""
    monkeypatch.setattr("unistream.master.job.pictures.TIMEOUT_S", 0.0)
    first = succession.cluster.dispatcher
    job = first.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    assert first.rescale(job, {"sink": 1}).result(WAIT_S) == ""
    assert first.rescale(job, {"source": 1}).result(WAIT_S) == ""
    assert list(first._ports.jobs.load(job).parallelism.values()) == [1, 1]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("no answer"), id="nothing was stored"),
        pytest.param(OutcomeUnknown("no answer"), id="whether it was stored is unknown"),
    ],
)
def test_a_change_of_parallelism_is_answered_when_it_is_stored(
    succession: Succession,
    checkpointed: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    first = succession.cluster.dispatcher
    job = first.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    replace, refused = FolderHaStore.replace, threading.Event()

    def no_answer(store: FolderHaStore, name: str, value: bytes, version: int) -> int:
        if name.endswith("/job"):
            refused.set()
            raise error
        return replace(store, name, value, version)

    with monkeypatch.context() as patched:
        patched.setattr(FolderHaStore, "replace", no_answer)
        answer = first.rescale(job, {"sink": 1})
        assert refused.wait(WAIT_S)
        assert not answer.done()
        assert first._ports.jobs.load(job).parallelism == {}
    assert answer.result(WAIT_S) == ""
    assert list(first._ports.jobs.load(job).parallelism.values()) == [2, 1]


def test_a_change_of_parallelism_of_a_master_that_leads_no_more_is_left_to_the_next_one(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    first = succession.cluster.dispatcher
    job = first.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)

    def another_leads(name: str) -> None:
        if name == "rescale.stored":
            succession.jobs()

    with passing(another_leads):
        answer = first.rescale(job, {"sink": 1})
    with pytest.raises(Unreachable, match="the next one goes on with it"):
        answer.result(WAIT_S)


# --- what cannot start ----------------------------------------------------------------------------


def test_a_missing_snapshot_suspends_its_job_until_it_is_there_again(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    job = succession.cluster.dispatcher.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    newest = Path(succession.jobs().snapshots(job).all()[-1].directory.removeprefix("file://"))
    aside = newest.rename(newest.with_name("aside"))
    second = succession.lead(ends=False)
    eventually(is_in(second, job, "SUSPENDED"), "the job is SUSPENDED", WAIT_S)
    failure = second.job(job).failure
    assert failure is not None
    assert newest.name in failure.message
    assert [(one.job, one.state) for one in second.jobs()] == [(job, "SUSPENDED")]
    with pytest.raises(AlreadyEnded, match="SUSPENDED"):
        second.snapshot(job, _stop())
    aside.rename(newest)
    third = succession.lead(ends=False)
    eventually(is_in(third, job, "RUNNING"), "the job is RUNNING", WAIT_S)


def test_a_job_that_cannot_start_can_be_given_up(succession: Succession) -> None:
    job = succession.cluster.dispatcher.submit(request())
    jobs = succession.jobs()
    pointer = jobs.pointer(job)
    assert pointer is not None
    succession.cluster.artifacts.remove(pointer.artifact)
    second = succession.lead()
    eventually(is_in(second, job, "SUSPENDED"), "the job is SUSPENDED", WAIT_S)
    failure = second.job(job).failure
    assert failure is not None
    assert "is missing" in failure.message
    second.cancel(job)
    assert second.job(job).state == "CANCELED"
    third = succession.lead()
    assert third.masters() == {}
    assert third.job(job).state == "CANCELED"
    eventually(lambda: [j.state for j in third.jobs()] == ["CANCELED"], "the list has it", WAIT_S)


def test_a_storage_that_does_not_answer_is_asked_again(
    succession: Succession, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = succession.cluster.dispatcher.submit(request())
    create, answers = succession.cluster.create_storage, iter([False])

    def storage(root: str) -> object:
        if not next(answers, True):
            raise Unreachable("the storage does not answer")
        return create(root)

    monkeypatch.setattr("unistream.master.cluster.recovery.RETRY_MS", 500)
    monkeypatch.setattr(succession.cluster, "create_storage", storage)
    second = succession.lead()
    eventually(lambda: second.job(job).failure is not None, "it could not start", WAIT_S)
    assert second.job(job).state == "RECONCILING"
    assert second.wait_for(job, lambda info: info.state == "FINISHED", WAIT_S) is not None


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        pytest.param("info", lambda leader, job: leader.job(job).state, id="the job"),
        pytest.param("infos", lambda leader, _job: leader.jobs()[0].state, id="the list"),
        pytest.param("refuse", lambda leader, job: leader._master(job).live.state, id="a request"),
    ],
)
def test_a_job_that_gets_its_master_at_this_moment_is_not_taken_for_lost(
    succession: Succession,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    state: Callable[[Dispatcher, JobId], str],
) -> None:
    job = succession.cluster.dispatcher.submit(request())
    create, held = succession.cluster.create_storage, threading.Event()

    def storage(root: str) -> object:
        assert held.wait(WAIT_S)
        return create(root)

    monkeypatch.setattr(succession.cluster, "create_storage", storage)
    second = succession.lead(ends=False)
    waits, ask = second._recovery.info, getattr(second._recovery, asked)

    def meanwhile(*arguments: object) -> object:
        held.set()
        eventually(lambda: waits(job) is None, "it has got its master", WAIT_S)
        return ask(*arguments)

    monkeypatch.setattr(second._recovery, asked, meanwhile)
    assert state(second, job) not in {"SUSPENDED", "RECONCILING"}


# --- the end --------------------------------------------------------------------------------------


def test_a_job_that_ended_does_not_start_and_what_it_left_is_removed(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    first = succession.cluster.dispatcher
    job = first.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    jobs = succession.jobs()
    newest = jobs.snapshots(job).all()[-1].directory
    jobs.ended(
        StoredResult(
            job=job,
            name="numbers",
            lineage=LineageId("l"),
            state="FINISHED",
            submitted_ms=1,
            ended_ms=2,
            checkpoint_root=str(succession.cluster.root / "checkpoints"),
            leftovers=(Leftover(directory=newest),),
        )
    )
    second = succession.lead()
    eventually(is_cleaned(second, job), "it is cleaned", WAIT_S)
    assert not Path(newest.removeprefix("file://")).exists()
    assert second.masters() == {}
    assert second.job(job).state == "FINISHED"
    eventually(lambda: [j.state for j in second.jobs()] == ["FINISHED"], "the list has it", WAIT_S)
    assert succession.cluster.artifacts.names() == []
    assert second.submit(request(request_id="r")) != job


def test_what_a_leader_could_not_sweep_goes_while_it_leads(
    succession: Succession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was away when it took over."""
    first = succession.lead()
    epoch = LeaderEpoch(first._ports.jobs.epoch + 1)  # else the first one may sweep, too
    succession.cluster.artifacts.put(b"code of a submission that was cut off", epoch)
    monkeypatch.setattr("unistream.master.cluster.recovery.RETRY_MS", 50)
    real, failures = type(succession.cluster.artifacts).names, iter([Unreachable("away")])

    def names(store: object) -> Sequence[str]:
        looks = threading.current_thread() is threading.main_thread()  # this test does
        failure = None if looks else next(failures, None)
        if failure is not None:
            raise failure
        return real(store)  # type: ignore[arg-type]

    monkeypatch.setattr(type(succession.cluster.artifacts), "names", names)
    succession.lead()
    eventually(are_stored(succession.cluster, 0), "it is swept", WAIT_S)
    assert list(failures) == []


def test_all_of_a_job_goes_with_its_end_but_the_result(succession: Succession) -> None:
    leader = succession.lead()
    job = leader.submit(request(request_id="once"))
    assert leader.wait(job, WAIT_S)
    eventually(is_cleaned(leader, job), "it is cleaned", WAIT_S)
    jobs = succession.jobs()
    assert jobs.unfinished() == []
    assert jobs.pointer(job) is None
    assert succession.cluster.artifacts.names() == []
    assert succession.lead().submit(request(request_id="once")) == job, "also when the metadata are lost"


def test_a_checkpoint_that_was_starting_leaves_no_folder(
    succession: Succession, checkpointed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is made when the job has ended."""
    leader, real = succession.cluster.dispatcher, FsCheckpointStorage.directory
    begun, ended, made = threading.Event(), threading.Event(), threading.Event()

    def directory(*given: Any) -> str:
        if given[2] < 3:
            return real(*given)
        begun.set()
        assert ended.wait(WAIT_S)
        time.sleep(0.2)  # the clean-up has begun
        found = real(*given)
        made.set()
        return found

    monkeypatch.setattr(FsCheckpointStorage, "directory", directory)
    job = leader.submit(request(config=checkpointed))
    assert begun.wait(WAIT_S)
    leader.cancel(job)
    assert leader.wait(job, WAIT_S)
    ended.set()
    eventually(is_cleaned(leader, job), "it is cleaned", WAIT_S)
    assert made.wait(WAIT_S)
    assert not (succession.cluster.root / "checkpoints" / job).exists()


def test_a_job_that_ended_under_an_earlier_leader_is_known_without_its_history(
    succession: Succession,
) -> None:
    leader = succession.lead()
    job = leader.submit(request(request_id="once"))
    assert leader.wait(job, WAIT_S)
    succession.cluster.url = f"sqlite:///{succession.cluster.root / 'of-another-master.db'}"
    ensure(succession.cluster.url)
    second = succession.lead()
    assert second.job(job).state == "FINISHED"
    assert second.checkpoints(job) == CheckpointsInfo()
    with pytest.raises(AlreadyEnded, match="it was last seen FINISHED"):
        second.cancel(job)
    assert second.graph(job).vertices == ()
    with pytest.raises(NotFound, match="there is no job"):
        second.checkpoints(JobId("f" * 32))


def test_two_jobs_share_their_code_until_both_have_ended(succession: Succession) -> None:
    leader = succession.lead(ends=False)
    jobs = [leader.submit(request(graph(name))) for name in ("one", "two")]
    for number, job in enumerate(jobs):
        leader.cancel(job)
        assert leader.wait(job, WAIT_S)
        left = 2 * (1 - number)  # the code, and the description of the other one
        eventually(are_stored(succession.cluster, left), f"{left} are left", WAIT_S)
        assert leader._ports.jobs.pointer(job) is None


# --- bounded jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("committing", "state"),
    [
        pytest.param(None, "FINISHED", id="before"),
        pytest.param(b"{}", "FAILED", id="then, and what it commits was not stored"),
    ],
)
def test_a_bounded_job_runs_again_unless_it_has_begun_to_commit(
    succession: Succession, committing: bytes | None, state: str
) -> None:
    bounded = structs.replace(graph(), job_type=JobType.BATCH)
    job = succession.cluster.dispatcher.submit(request(bounded))
    if committing is not None:
        succession.jobs()._ha.create(f"jobs/{job}/committing", committing)
    second = succession.lead()
    eventually(lambda: second.job(job).is_terminal, "the job has ended", WAIT_S)
    found = second.job(job)
    assert found.state == state
    half = found.failure is not None and "may be visible" in found.failure.message
    assert half == (committing is not None)


def test_what_a_bounded_job_commits_is_kept_until_it_has_ended(succession: Succession) -> None:
    bounded = structs.replace(graph(), job_type=JobType.BATCH)
    leader = succession.lead(ends=False)
    job = leader.submit(request(bounded))
    jobs = succession.jobs()
    assert jobs.committing(job) is None
    for level in (1, 2, 2):
        sealed = Sealed(lineage=LineageId("l"), levels=level, staged=(b"s" * level,))
        jobs.set_committing(job, sealed)
        jobs.sweep()
        pointer = jobs.committing(job)
        assert pointer is not None
        assert jobs.load_sealed(pointer) == sealed
        assert len(succession.cluster.artifacts.names()) == 3, "the code, the job, and one of these"
    result = StoredResult(
        job=job, name="n", lineage=LineageId("l"), state="FINISHED", submitted_ms=1, ended_ms=2
    )
    jobs.ended(result)
    jobs.cleaned(result)
    assert succession.cluster.artifacts.names() == []


# --- pointers -------------------------------------------------------------------------------------


def test_ids_of_checkpoints_and_directories(succession: Succession) -> None:
    snapshots = succession.jobs().snapshots(JobId("j"))
    for checkpoint_id in (3, 2, 5):
        snapshots.begun(CheckpointId(checkpoint_id))
    assert snapshots.highest() == 5
    later = succession.jobs().snapshots(JobId("j"))
    assert later.highest() == 5
    with pytest.raises(Fenced):
        snapshots.begun(CheckpointId(6))
    for begun in (1, 5):  # perhaps by the later leader
        with pytest.raises(Fenced):
            snapshots.begun(CheckpointId(begun))
    with pytest.raises(Fenced):
        snapshots.removed("anything")
    later.removed("anything")


def test_an_old_leader_removes_nothing_that_the_next_one_has_begun(
    succession: Succession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for what never counted, and the next leader begins a checkpoint meanwhile."""
    job, storage = JobId("j"), FsCheckpointStorage(str(succession.cluster.root / "files"))
    old = succession.jobs().snapshots(job)
    leftover = storage.directory(job, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    new = succession.jobs().snapshots(job)
    begun = storage.directory(job, CheckpointId(2), SnapshotKind.CHECKPOINT, None)
    with pytest.raises(Fenced):
        remove_unpointed(storage, job, old)
    assert set(storage.directories(job)) == {leftover, begun}
    remove_unpointed(storage, job, new)
    assert not storage.directories(job)


def test_a_cancellation_that_was_accepted_is_not_replaced_by_a_stop(succession: Succession) -> None:
    """The stop is refused and withdrawn, and the next leader still has to cancel the job."""
    job = succession.cluster.dispatcher.submit(request())
    jobs = succession.jobs()
    stop, cancel = StoredRequest(stop=SnapshotKind.TERMINATE), StoredRequest(cancel=True)
    for wanted, then in ((stop, stop), (StoredRequest(), StoredRequest()), (stop, stop), (cancel, cancel)):
        jobs.set_request(job, wanted)
        assert jobs.request(job) == then
    for wanted in (stop, StoredRequest()):
        jobs.set_request(job, wanted)
        assert jobs.request(job) == cancel


def _stop() -> Any:
    from unistream.core.contract import SnapshotRequest

    return SnapshotRequest(kind=SnapshotKind.SUSPEND)


# --- races ----------------------------------------------------------------------------------------


def test_a_submission_whose_outcome_was_unknown_is_started_when_it_is_sent_again(
    succession: Succession, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = succession.lead()
    create = FolderHaStore.create

    def answer_lost(store: FolderHaStore, name: str, value: bytes) -> Any:
        create(store, name, value)
        raise OutcomeUnknown("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(FolderHaStore, "create", answer_lost)
        with pytest.raises(OutcomeUnknown):
            leader.submit(request(request_id="once"))
    assert leader.jobs() == []
    job = leader.submit(request(request_id="once"))
    assert leader.wait(job, WAIT_S)
    assert [one.state for one in leader.jobs()] == ["FINISHED"], "one job, started once"


def test_a_cancellation_that_comes_while_a_job_is_prepared_reaches_it(
    succession: Succession, checkpointed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = succession.cluster.dispatcher.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    create, preparing, cancelled = succession.cluster.create_storage, threading.Event(), threading.Event()

    def storage(root: str) -> object:
        preparing.set()
        assert cancelled.wait(WAIT_S)
        return create(root)

    monkeypatch.setattr(succession.cluster, "create_storage", storage)
    second = succession.lead(ends=False)
    assert preparing.wait(WAIT_S), "what was accepted before is read by now"
    second.cancel(job)
    cancelled.set()
    eventually(lambda: second.job(job).is_terminal, "the job has ended", WAIT_S)
    assert second.job(job).state == "CANCELED"


def test_what_a_cut_off_submission_has_left_is_swept(succession: Succession) -> None:
    jobs = succession.jobs()
    jobs.snapshots(JobId("half")).begun(CheckpointId(1))
    assert jobs.unfinished() == ["half"]
    jobs.sweep()
    assert jobs.unfinished() == []


# --- totals ---------------------------------------------------------------------------------------


def commits(workers: ScriptedWorkers, checkpoint_id: CheckpointId, rows: int) -> None:
    """The sink reports a commit, as its tasks do before they acknowledge a later snapshot."""
    sink = next(one for one in workers.messages(msg.DeployTask) if one.deployment.vertex.name == "sink")
    workers.call_master(
        msg.CommitReported(
            attempt=sink.deployment.attempt,
            sink_uid="sink",
            checkpoint_id=checkpoint_id,
            rows=rows,
            already=True,
        )
    )


def test_totals_go_on_through_three_masters(succession: Succession, checkpointed: dict[str, str]) -> None:
    """With a database that has nothing of it: what is shown does not begin again."""
    leader, workers = succession.cluster.dispatcher, succession.cluster.workers
    job = leader.submit(request(config=checkpointed))
    expected, completed, newest = 0, 0, CheckpointId(0)
    for life in range(3):
        if life:
            succession.cluster.url = f"sqlite:///{succession.cluster.root / f'{life}.db'}"
            ensure(succession.cluster.url)
            leader = succession.lead(ends=False)
            workers = succession.cluster.workers
            eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
            info = leader.job(job)
            assert info.sinks["sink"].rows == expected
            assert info.sinks["sink"].commits == life
            assert info.metrics["rows_committed"] == expected
            assert info.checkpoints_completed >= completed
            assert leader.checkpoints(job).completed >= completed
            assert leader.checkpoints(job).restored == life
            commits(workers, newest, rows=10)  # its snapshot lists it, so it is reported again
            assert leader.job(job).sinks["sink"].rows == expected
        newest = workers.await_message(msg.CheckpointCompleted).checkpoint_id
        commits(workers, newest, rows=10)
        expected += 10
        seen = len(workers.messages(msg.CheckpointCompleted))
        workers.await_message(msg.CheckpointCompleted, seen + 8)
        completed = leader.job(job).checkpoints_completed - 1  # one may be counted, and not point there yet
        assert completed > 2 * life


def test_what_was_stored_without_totals_begins_at_zero(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    job = succession.cluster.dispatcher.submit(request(config=checkpointed))
    succession.cluster.workers.await_message(msg.CheckpointCompleted, 2)
    jobs = succession.jobs()
    pointer = jobs.snapshots(job).all()[-1]
    assert pointer.totals.completed >= 1
    name = f"jobs/{job}/checkpoints/{pointer.checkpoint_id}"
    stored = structs.asdict(pointer)
    del stored["totals"]
    there = jobs._ha.read(name)
    assert there is not None
    jobs._ha.replace(name, msgspec.json.encode(stored), there.version)
    second = succession.lead(ends=False)
    eventually(is_in(second, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    assert second.checkpoints(job).restored == 1
