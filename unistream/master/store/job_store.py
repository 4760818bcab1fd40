"""The jobs of a cluster as its next leader finds them: `port.ha` for what decides, artifacts for the rest.

    submit    code, then the stored job, then its pointer: only then the job exists
    end       its result; then what it has left is removed; then everything below its pointer, and its code
              if no other job needs that; then the result says so

Orders and names are those of docs/decision/high-availability.md. Thread-safe. Every method that writes
raises Fenced, Unreachable or OutcomeUnknown as the HA store does; those that read raise Unreachable, and
CorruptSnapshot for what cannot be read, which is never skipped.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, CorruptSnapshot, NotFound, Transient, UnistreamError
from unistream.base.ids import CheckpointId, ClusterId, JobId, LeaderEpoch, job_of_request
from unistream.core.access import code_seal
from unistream.core.contract import RestorePoint
from unistream.model.graph import JobType
from unistream.model.job_status import JobStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import (
    NOTHING_USED,
    ArtifactName,
    AttemptCounter,
    CheckpointCounter,
    CheckpointPointer,
    ClusterIdentity,
    CommittingPointer,
    JobPointer,
    KeptJob,
    Sealed,
    StoredJob,
    StoredRequest,
    StoredResult,
    decode_stored,
    encode_stored,
)
from unistream.port.ha import HaStore
from unistream.port.storage import ArtifactStore

NAME_CHARS: Final = 100  # of a job, in a message
RESULTS_KEPT_MAX: Final = 1_000  # a request that is repeated after so many jobs starts a new one
JOBS: Final = "jobs"
RESULTS: Final = "results"
KEPT: Final = "kept"
KEPT_MAX: Final = 20  # of each kind: an upgrade that was given up leaves one
IDENTITY: Final = "identity"

T = TypeVar("T", bound=msgspec.Struct)

logger = logging.getLogger(__name__)


def restart_name(job: JobId) -> str:
    """The name under which the web UI, and the cluster itself, keep what somebody may want to start again."""
    return place_of(f"restart {job}")


def replay_name(job: JobId) -> str:
    """The name under which the cluster itself keeps what an ended job was made of."""
    return place_of(f"replay {job}")


def place_of(name: str) -> str:
    """A name of a client's in the HA store, which takes few characters."""
    return str(job_of_request(name))


class JobStore:
    """See the module.

    Args:
        ha: Of this leader.
        artifacts: Of the cluster.
        secret: Of the cluster: seals the pointers to what is accepted, and nothing is read without that.
            b"": there is none, for who runs no job.
    """

    def __init__(self, ha: HaStore, artifacts: ArtifactStore, secret: bytes = b"") -> None:
        self._ha = ha
        self._artifacts = artifacts
        self._secret = secret
        self._lock = threading.Lock()  # code is stored before the pointer that needs it, and removed without
        self._unswept = False
        self._kept: dict[str, KeptJob] | None = (
            None  # None: to be read; only the leader changes what is there
        )

    @property
    def is_unswept(self) -> bool:
        """Something that no job needs could not be removed: `sweep` tries it again."""
        return self._unswept

    @property
    def epoch(self) -> LeaderEpoch:
        """The epoch in which this leader leads."""
        return self._ha.epoch

    def cluster(self, new_id: Callable[[], str]) -> ClusterId:
        """The id that all leaders on this store share; the first one makes it."""
        known = self._read(IDENTITY, ClusterIdentity)
        if known is None:
            known = ClusterIdentity(cluster=ClusterId(new_id()))
            self._ha.create(IDENTITY, encode_stored(known))
        return known.cluster

    # --- jobs -------------------------------------------------------------------------------------

    def add(
        self, job: StoredJob, artifact: bytes, restore: RestorePoint | None = None, pipeline: bytes = b""
    ) -> None:
        """Makes a new job durable, with the snapshot that it claims. `job.artifact` is the name of `artifact`
        by this leader, and `job.pipeline` that of `pipeline`. Raises Fenced: another one has its id;
        ConfigError: it is too large."""
        with self._lock:
            self.snapshots(job.job).starts_with(restore)
            self._put_artifact(artifact)
            crash_point("job.code_stored")
            try:
                if job.pipeline:
                    self._put_artifact(pipeline)
                pointer = self._pointer(job)
            except UnistreamError:  # a full disk took the code, but not the job: no pointer names it
                self._remove_unneeded((job.artifact, *((job.pipeline,) if job.pipeline else ())))
                raise
            crash_point("job.stored")
            self._ha.create(_name(job.job, "job"), encode_stored(pointer))
            crash_point("job.pointed")

    def change(self, job: StoredJob) -> None:
        """The job has another description; its former one is removed."""
        with self._lock:
            there = self._ha.read(_name(job.job, "job"))
            if there is None:
                return  # it has ended meanwhile
            former = decode_stored(there.value, JobPointer, _name(job.job, "job"))
            pointer = self._pointer(job)
            if pointer != former:
                self._ha.replace(_name(job.job, "job"), encode_stored(pointer), there.version)
                self._remove_unneeded((former.stored,))

    def _pointer(self, job: StoredJob) -> JobPointer:
        stored = self._put_artifact(encode_stored(job))
        pointer = JobPointer(
            stored=stored,
            artifact=job.artifact,
            name=job.graph.name,
            submitted_ms=job.submitted_ms,
            pipeline=job.pipeline,
        )
        return self._sealed(job.job, pointer)

    # --- seals ------------------------------------------------------------------------------------

    def seal_all(self) -> None:
        """Takes for accepted what earlier versions have stored, which seal nothing."""
        with self._lock:
            for job in map(JobId, self._ha.children(JOBS)):
                with suppress(CorruptSnapshot):  # who needs it says so
                    pointer = self.pointer(job)
                    if pointer is not None and not pointer.seal:
                        self._put(_name(job, "job"), self._sealed(job, pointer))
            for name, kept in self._all_kept().items():
                if not kept.pointer.seal:
                    sealed = self._sealed(kept.job, kept.pointer)
                    self._put(f"{KEPT}/{name}", msgspec.structs.replace(kept, pointer=sealed))
            self._kept = None

    def _sealed(self, job: JobId, pointer: JobPointer) -> JobPointer:
        if not self._secret:
            return pointer
        return msgspec.structs.replace(pointer, seal=code_seal(self._secret, job, pointer.artifacts))

    def _check_seal(self, job: JobId, pointer: JobPointer) -> None:
        """Raises CorruptSnapshot: this cluster has not accepted what the pointer names for this job."""
        if self._secret and not hmac.compare_digest(pointer.seal, self._sealed(job, pointer).seal):
            raise CorruptSnapshot(
                f"what is stored as job {job} ({pointer.name[:NAME_CHARS]!r}) lacks the seal of this "
                "cluster: somebody else has written or changed it, or the cluster's secret (security/secret) "
                "was replaced. Nothing of it is opened or run; cancel the job, or put the secret back"
            )

    def _put_artifact(self, content: bytes) -> str:
        try:
            return self._artifacts.put(content, self.epoch)
        except Transient:
            self._ha.check()  # a newer leader sweeps away what this one is writing
            raise

    def unfinished(self) -> Sequence[JobId]:
        """Jobs without a result."""
        ended = set(self._ha.children(RESULTS))
        return [JobId(name) for name in self._ha.children(JOBS) if name not in ended]

    def pointer(self, job: JobId) -> JobPointer | None:
        """None: there is no such job, or it has ended."""
        return self._read(_name(job, "job"), JobPointer)

    def load(self, job: JobId) -> StoredJob:
        """An unfinished job. Raises CorruptSnapshot: it is missing or altered, or was not accepted here."""
        pointer = self.pointer(job)
        if pointer is None:
            raise CorruptSnapshot(f"job {job} has no pointer to what was submitted")
        self._check_seal(job, pointer)
        return decode_stored(self._artifacts.get(pointer.stored), StoredJob, f"job {job}")

    def request(self, job: JobId) -> StoredRequest:
        """What was accepted for it, and is to be done."""
        return self._read(_name(job, "request"), StoredRequest) or StoredRequest()

    def set_request(self, job: JobId, wanted: StoredRequest) -> None:
        """Replaces what is to be done, unless that is a cancellation, which is final; operations stay if none
        are given. No effect on a job that has ended."""
        name = _name(job, "request")
        with self._lock:
            before = self.request(job)
            after = StoredRequest(cancel=True) if before.cancel else wanted
            after = msgspec.structs.replace(after, operations=wanted.operations or before.operations)
            if after != before and self._ha.read(_name(job, "job")) is not None:
                self._put(name, after)

    def attempts(self, job: JobId) -> AttemptCounter:
        """What an unfinished job has used by now."""
        return self._read(_name(job, "attempts"), AttemptCounter) or NOTHING_USED

    def set_attempts(self, job: JobId, used: AttemptCounter) -> None:
        """No leader uses these numbers again."""
        self._put(_name(job, "attempts"), used)
        crash_point("attempts.stored")

    def set_committing(self, job: JobId, sealed: Sealed) -> None:
        """A BATCH job is about to make this visible: it never starts from its beginning again."""
        with self._lock:
            stored = self._put_artifact(encode_stored(sealed))
            crash_point("committables.stored")
            former = self.committing(job)
            self._put(_name(job, "committing"), CommittingPointer(sealed=stored))
            crash_point("committables.pointed")
            if former is not None and former.sealed not in ("", stored):
                self._remove_unneeded((former.sealed,))

    def committing(self, job: JobId) -> CommittingPointer | None:
        """The pointer to what an unfinished BATCH job commits; None: it has not begun to commit."""
        return self._read(_name(job, "committing"), CommittingPointer)

    def load_sealed(self, pointer: CommittingPointer) -> Sealed:
        """What is committed. Raises CorruptSnapshot: it is missing or altered."""
        return decode_stored(self._artifacts.get(pointer.sealed), Sealed, "what the job commits")

    # --- results ----------------------------------------------------------------------------------

    def result(self, job: JobId) -> StoredResult | None:
        """None: the job has not ended, or nothing is known of it."""
        return self._read(f"{RESULTS}/{job}", StoredResult)

    def results(self) -> Sequence[StoredResult]:
        """The results of all jobs that are known to have ended."""
        found = (self.result(JobId(name)) for name in self._ha.children(RESULTS))
        return [result for result in found if result is not None]

    def ended(self, result: StoredResult) -> None:
        """Makes a result durable. Raises Fenced: also if the job has another one already, which counts."""
        self._ha.create(f"{RESULTS}/{result.job}", encode_stored(result))

    def cleaned(self, result: StoredResult) -> None:
        """What the job has left is removed: removes the rest, but for the result. What was submitted of a
        stream that has failed stays as `keep` keeps it: somebody may want to start it again. So does what any
        job was made of that has dead letters: somebody may want to replay them."""
        job = result.job
        with self._lock:
            pointer = self.pointer(job)
            if pointer is not None and pointer.pipeline:
                self._keep(replay_name(job), job, result.ended_ms, for_replay=True)
            if result.state == JobStatus.FAILED.value and self._is_stream(job):
                self._keep(restart_name(job), job, result.ended_ms, for_restart=True)
            needed = self._needed_by(job)
            self._ha.remove(f"{JOBS}/{job}")
            crash_point("job.unpointed")
            self._remove_unneeded(needed)
            self._put(f"{RESULTS}/{job}", msgspec.structs.replace(result, leftovers=(), cleaned=True))

    # --- kept beyond their end --------------------------------------------------------------------

    def keep(self, name: str, job: JobId, at_ms: int, *, for_restart: bool = False) -> KeptJob:
        """What was submitted of an unfinished job stays until `release`; of too many of its kind the oldest
        goes.

        Raises:
            NotFound: there is no such job, or it has ended.
            ConfigError: another job is kept under the name.
        """
        with self._lock:
            return self._keep(name, job, at_ms, for_restart=for_restart)

    def _keep(
        self, name: str, job: JobId, at_ms: int, *, for_restart: bool = False, for_replay: bool = False
    ) -> KeptJob:
        known = self.kept(name)
        if known is not None and known.job != job:
            raise ConfigError(f"job {known.job} is kept under this name already, not {job}")
        pointer = self.pointer(job)
        if known is not None:
            return known if pointer is None else self._kept_as(name, known, pointer)
        if pointer is None:
            raise NotFound(f"there is no job {job} in this cluster, or it has ended")
        kept = KeptJob(
            job=job, pointer=pointer, kept_ms=at_ms, for_restart=for_restart, for_replay=for_replay
        )
        self._kept = None
        self._ha.create(f"{KEPT}/{name}", encode_stored(kept))
        crash_point("job.kept")
        kind = (for_restart, for_replay)
        alike = [
            (old, one) for old, one in self._all_kept().items() if (one.for_restart, one.for_replay) == kind
        ]
        oldest = sorted(alike, key=lambda item: item[1].kept_ms)
        for old, _ in oldest[: max(0, len(oldest) - KEPT_MAX)]:
            self._release(old)
        return kept

    def _kept_as(self, name: str, known: KeptJob, pointer: JobPointer) -> KeptJob:
        """Keeps the job as it is now: its parallelism may have been changed since it was kept."""
        kept = msgspec.structs.replace(known, pointer=pointer)
        if kept != known:
            self._kept = None
            self._put(f"{KEPT}/{name}", kept)
            self._remove_unneeded((known.pointer.stored,))
        return kept

    def _is_stream(self, job: JobId) -> bool:
        """False also of a job that cannot be read any more, or is cleaned already."""
        try:
            return self.pointer(job) is not None and self.load(job).graph.job_type is JobType.STREAMING
        except CorruptSnapshot as error:
            logger.warning("event=failed_job_not_kept job=%s reason=%r", job, str(error))
            return False

    def kept(self, name: str) -> KeptJob | None:
        """None: none is kept under this name."""
        return self._read(f"{KEPT}/{name}", KeptJob)

    def kept_of(self, job: JobId) -> list[KeptJob]:
        """All that is kept of a job to be started again, the oldest first."""
        with self._lock:
            found = [kept for kept in self._all_kept().values() if kept.job == job and not kept.for_replay]
        return sorted(found, key=lambda kept: kept.kept_ms)

    def load_kept(self, kept: KeptJob) -> tuple[StoredJob, bytes, bytes]:
        """What was submitted, the code, and what it was made of, if that was sent. Raises CorruptSnapshot:
        they are missing or altered."""
        self._check_seal(kept.job, kept.pointer)
        stored = decode_stored(self._artifacts.get(kept.pointer.stored), StoredJob, f"job {kept.job}")
        pipeline = self._artifacts.get(kept.pointer.pipeline) if kept.pointer.pipeline else b""
        return stored, self._artifacts.get(kept.pointer.artifact), pipeline

    def has_pipeline(self, job: JobId) -> bool:
        """What a job was made of is stored."""
        pointer = self._pipeline_pointer(job)
        return pointer is not None and bool(pointer.pipeline)

    def pipeline(self, job: JobId) -> bytes | None:
        """What a job was made of, also one that has ended; None: it was not sent, or is kept no longer.
        Raises CorruptSnapshot: it is missing or altered."""
        pointer = self._pipeline_pointer(job)
        if pointer is None or not pointer.pipeline:
            return None
        self._check_seal(job, pointer)
        return self._artifacts.get(pointer.pipeline)

    def _pipeline_pointer(self, job: JobId) -> JobPointer | None:
        pointer = self.pointer(job)
        if pointer is not None:
            return pointer
        kept = self.kept(replay_name(job))
        return None if kept is None or kept.job != job else kept.pointer

    def release(self, name: str) -> None:
        """It goes, and what no other job needs of it."""
        with self._lock:
            self._release(name)

    def _release(self, name: str) -> None:
        kept = self.kept(name)
        self._kept = None
        self._ha.remove(f"{KEPT}/{name}")
        if kept is not None:
            self._remove_unneeded(kept.artifacts)

    def _all_kept(self) -> dict[str, KeptJob]:
        """All kept jobs by name; read once, since each end of a job needs them."""
        if self._kept is None:
            found = {name: self.kept(name) for name in self._ha.children(KEPT)}
            self._kept = {name: kept for name, kept in found.items() if kept is not None}
        return self._kept

    # --- a new leader -----------------------------------------------------------------------------

    def sweep(self) -> None:
        """Removes what no job needs: what a submission that was cut off has left, and the oldest results."""
        with self._lock:
            self._unswept = True  # until all of it is done
            for name in self._ha.children(JOBS):
                if self.pointer(JobId(name)) is None:
                    self._ha.remove(f"{JOBS}/{name}")
            self._artifacts.remove_unfinished(self.epoch)
            self._unswept = not self._remove_unneeded(self._artifacts.names())
            cleaned = sorted((r for r in self.results() if r.cleaned), key=lambda result: result.ended_ms)
            for result in cleaned[: max(0, len(cleaned) - RESULTS_KEPT_MAX)]:
                self._ha.remove(f"{RESULTS}/{result.job}")

    def _remove_unneeded(self, artifacts: Sequence[str]) -> bool:
        """Removes those of the artifacts that no pointer names. What cannot be removed costs space, not
        correctness; False: there is some.

        Also a leader that was deposed long ago may get here: the first pointer to an artifact is written by
        the leader of its epoch, under this lock, so one that is not newer than this leader and that no
        pointer names now is named by none later.
        """
        try:
            needed = {
                artifact for name in self._ha.children(JOBS) for artifact in self._needed_by(JobId(name))
            }
            for kept in self._all_kept().values():
                needed |= set(kept.artifacts)
            self._ha.check()  # a next leader of an earlier version reuses names
            for name in artifacts:
                if name not in needed and ArtifactName.parse(name).epoch <= self.epoch:
                    self._artifacts.remove(name)
        except UnistreamError as error:
            self._unswept = True
            logger.warning("event=artifacts_not_removed reason=%r", str(error))
            return False
        return True

    def _needed_by(self, job: JobId) -> tuple[str, ...]:
        """The names of the artifacts that a job needs: those of its pointer, and what it is committing."""
        pointer, committing = self.pointer(job), self.committing(job)
        found = () if pointer is None else pointer.artifacts
        return found if committing is None or not committing.sealed else (*found, committing.sealed)

    # --- values -----------------------------------------------------------------------------------

    def snapshots(self, job: JobId) -> SnapshotPointers:
        """The pointers to the snapshots of an unfinished job."""
        return SnapshotPointers(self._ha, job)

    def _read(self, name: str, kind: type[T]) -> T | None:
        return _read(self._ha, name, kind)

    def _put(self, name: str, value: msgspec.Struct) -> None:
        _put(self._ha, name, value)


class SnapshotPointers:
    """The snapshots of one job that its next leader may restart from. Thread-safe."""

    def __init__(self, ha: HaStore, job: JobId) -> None:
        self._ha = ha
        self._job = job
        self._lock = threading.Lock()
        self._highest: CheckpointId | None = None
        self._ids: dict[str, CheckpointId] | None = None  # by directory

    def highest(self) -> CheckpointId:
        """The highest id that was begun, by any leader; 0: none was."""
        with self._lock:
            return self._known_highest()

    def all(self) -> Sequence[CheckpointPointer]:
        """Completed ones, oldest first."""
        folder = _name(self._job, "checkpoints")
        found = (_read(self._ha, f"{folder}/{name}", CheckpointPointer) for name in self._ha.children(folder))
        return sorted((one for one in found if one is not None), key=lambda pointer: pointer.checkpoint_id)

    def begun(self, checkpoint_id: CheckpointId) -> None:
        """No leader uses this id again. Raises Fenced: another one may have, since this is no leader."""
        with self._lock:
            if checkpoint_id > self._known_highest():
                _put(self._ha, _name(self._job, "counter"), CheckpointCounter(highest=checkpoint_id))
                self._highest = checkpoint_id
            else:  # by this leader, before; or by another one, and this is none any more
                self._ha.check()

    def check(self) -> None:
        """Raises Fenced if this is not the leader; Unreachable if nobody can say."""
        self._ha.check()

    def starts_with(self, restore: RestorePoint | None) -> None:
        """A new job begins; a snapshot that it has claimed is one of its own."""
        if restore is not None and restore.owned:
            checkpoint_id = restore.manifest.restores_as
            self.completed(
                CheckpointPointer(
                    checkpoint_id=checkpoint_id, kind=SnapshotKind.CHECKPOINT, directory=restore.directory
                )
            )

    def completed(self, pointer: CheckpointPointer) -> None:
        """The snapshot counts from now on."""
        crash_point("pointer.before_swap")
        self._ha.create(self._name_of(pointer.checkpoint_id), encode_stored(pointer))
        with self._lock:
            self._known_ids()[pointer.directory] = pointer.checkpoint_id
        crash_point("pointer.swapped")

    def removed(self, directory: str) -> None:
        """The snapshot there does not count any more, if it ever did: its files may go. Raises Fenced if
        that is not for this leader to say."""
        with self._lock:
            checkpoint_id = self._known_ids().get(directory)
            if checkpoint_id is None:
                self._ha.check()
                return
            self._ha.remove(self._name_of(checkpoint_id))
            del self._known_ids()[directory]
        crash_point("pointer.removed")

    def _known_highest(self) -> CheckpointId:
        if self._highest is None:
            counter = _read(self._ha, _name(self._job, "counter"), CheckpointCounter)
            self._highest = CheckpointId(0) if counter is None else counter.highest
        return self._highest

    def _known_ids(self) -> dict[str, CheckpointId]:
        if self._ids is None:
            self._ids = {pointer.directory: pointer.checkpoint_id for pointer in self.all()}
        return self._ids

    def _name_of(self, checkpoint_id: CheckpointId) -> str:
        return _name(self._job, f"checkpoints/{checkpoint_id}")


def _name(job: JobId, what: str) -> str:
    return f"{JOBS}/{job}/{what}"


def _read(ha: HaStore, name: str, kind: type[T]) -> T | None:
    there = ha.read(name)
    return None if there is None else decode_stored(there.value, kind, name)


def _put(ha: HaStore, name: str, value: msgspec.Struct) -> None:
    """Creates or replaces it."""
    there = ha.read(name)
    if there is None:
        ha.create(name, encode_stored(value))
    else:
        ha.replace(name, encode_stored(value), there.version)
