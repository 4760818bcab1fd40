"""How a run comes to its job.

    the run repeats one that died in an upgrade        it goes on with the upgrade
    the run repeats another one, whose job runs        by `on_running`: it replaces that job, if the
                                                       pipeline has changed; else it attaches to it
    …, is a retry of Dagster's, and it has finished    it takes that job's result
    another job writes the same tables now             the same; or it fails, as always without a remote
                                                       cluster
    a backfill has stopped it, and has not ended       it fails
    none of these                                      a new job, from the snapshot that `resume` names

A run that attaches to a job of other code than its own says so in its log and by its tag. A submission is
named by its run, so that one whose answer was lost is found by the runs that repeat it, also when those in
between have died before they had it. The root run does not name it: *Re-execute* of a run whose job has
finished starts a new one. Jobs of clusters that live in the run's own process have ended with it, and leave
only their snapshots.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, Protocol, cast, get_args

import dagster as dg

from unistream.api.environment import Environment
from unistream.api.lineage import written_by
from unistream.api.upgrade import runs_other_code, upgraded
from unistream.backfill.journal import unfinished_into
from unistream.base.errors import ConfigError, NotFound, UnistreamError
from unistream.base.ids import JobId, job_of_request
from unistream.client.job.resume import LATEST, StillRuns
from unistream.client.job.run_links import RemoteLinks
from unistream.client.job.submission import attach, connect, connect_to_submit
from unistream.client.job.upgrade import FIRST_CHECKPOINT_S, REQUEST_ID_CHARS_MAX, GivingUp
from unistream.client.machine.home import BACKFILLS, home
from unistream.client.remote.job_client import JobClient
from unistream.client.remote.kept_jobs import KeptJobsClient
from unistream.client.remote.rest_client import RestClient
from unistream.dagster.run.watching import key_of, run_of
from unistream.model.graph import JobType
from unistream.model.job_info import JobInfo

RESUME_TAG: Final = "unistream/resume"
"""Tag of a run, instead of the resource's `resume`."""

ON_RUNNING_TAG: Final = "unistream/on_running"
"""Tag of a run, instead of the resource's `on_running`."""

JOB_TAG: Final = "unistream/job_id"

CODE_TAG: Final = "unistream/code"
"""Tag of a run whose job does not run the code of the run: "other", or "unknown"."""

REPEATED_MAX: Final = 20  # each is looked up in the cluster

BEGINNING: Final = "none"
"""`resume`: start without a snapshot."""

_RETRY_TAG: Final = "dagster/retry_number"

OnRunning = Literal["upgrade", "attach", "refuse"]


logger = logging.getLogger(__name__)


class Log(Protocol):
    """Takes what the run shows: a sentence for its log, tags."""

    def note(self, text: str, *, is_error: bool) -> None: ...

    def tag(self, tags: Mapping[str, str]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """See the module. Called on a thread of its own.

    Attributes:
        resume: "latest", "none", or the directory of a snapshot.
        on_running: If another job writes the same tables.
        savepoint_dir: For the savepoint of a job that is replaced; None: as its configuration says.
        first_checkpoint_s: How long a new version may take to its first checkpoint.
        giving_up: How an upgrade ends of a run that is terminated.
        repeated: The runs that this one repeats, as far as they are known; see `repeated_runs`.
    """

    environment: Environment
    target: str
    run: dg.DagsterRun
    step: str
    name: str
    resume: str
    log: Log
    on_running: OnRunning = "upgrade"
    savepoint_dir: str | None = None
    first_checkpoint_s: float = FIRST_CHECKPOINT_S
    giving_up: GivingUp = field(default_factory=GivingUp)
    repeated: Sequence[dg.DagsterRun] = ()

    def give_up(self) -> None:
        """The run is terminated: it does not wait for the first checkpoint of a new version any more."""
        self.giving_up.requested.set()

    def __call__(self) -> JobClient:
        """Raises as `Environment.execute_async`."""
        if self.target == "remote":
            connect_to_submit(self.environment.config).close()  # it is asked for more only if it is ours
            begun = self._begun_upgrade()
            if begun is not None:
                return self._upgraded(*begun)
            known = self._of_repeated_run()
            if known is not None:
                return self._joined(known, "which the run that this one repeats has started")
        try:
            savepoint = self._savepoint()
        except StillRuns as running:
            return self._joined_or_refused(running)
        self._check_backfill()
        if savepoint is None:
            self._check_new_lines()
        begin = f"starts from {savepoint}" if savepoint else "starts from the beginning of its sources"
        self.log.note(f"job {self.name} {begin}", is_error=False)
        self._tag_code("same")
        request = request_of(self.run.run_id, self.step) if self.target == "remote" else None
        try:
            return self.environment.execute_async(
                self.name, savepoint=savepoint, request_id=request, alone=request is not None
            )
        except ConfigError:
            try:
                self.environment.check_nobody_writes()
            except StillRuns as running:  # another run was faster
                return self._joined_or_refused(running)
            raise

    def _joined_or_refused(self, running: StillRuns) -> JobClient:
        """Raises it, if a run with these policies fails while another job writes."""
        if self.target != "remote" or self.on_running == "refuse" or self.resume != LATEST:
            raise running
        return self._joined(running.info, "which writes the same tables already")

    def _check_backfill(self) -> None:
        """A job that a backfill has stopped goes on from there, and not also from here."""
        writes = written_by(self.environment.stream_graph())
        begun = unfinished_into(home() / BACKFILLS, self.name, writes)
        if begun is not None:
            name = begun.order.job_name
            raise ConfigError(
                f"a backfill of job {name} has not ended, and the job is stopped for it: execute the "
                f"run of the backfill again, or 'unistream backfill {name}'; with --abort without a "
                "replacement"
            )

    def _savepoint(self) -> str | None:
        """Raises StillRuns, as `Environment.latest_snapshot`."""
        if self.resume == LATEST:
            return self.environment.latest_snapshot(self.name)
        self.environment.check_nobody_writes()
        return None if self.resume == BEGINNING else self.resume

    def _check_new_lines(self) -> None:
        """Checks the targets before anything is logged or started. Where the beginning was chosen, the error
        names what 'latest' would have been: the target knows the last commit alone, and a stop may have come
        after it."""
        try:
            self.environment.check_new_lines()
        except ConfigError as refused:
            found = None
            with contextlib.suppress(UnistreamError):
                found = self.environment.latest_snapshot(self.name)
            if found is None:
                raise
            raise ConfigError(f"{refused}; with resume='latest' the job goes on from {found}") from refused

    def _joined(self, found: JobInfo, why: str) -> JobClient:
        """A job that is there is attached to, or replaced if it runs other code and may be: it is stopped
        before its successor starts, so there are never two."""
        is_other = runs_other_code(self.environment, self.name, found)
        stays_because = self._stays_because(found)
        if is_other and not stays_because:
            return self._upgraded(found.job, request_of(self.run.run_id, self.step))
        self._tag_code({True: "other", False: "same", None: "unknown"}[is_other])
        differs = f"; the code of this run is another version, and does not run: {stays_because}"
        return self._attached(found.job, why, differs if is_other else "")

    def _stays_because(self, found: JobInfo) -> str:
        """Why a job is not replaced; empty: it may be."""
        if found.is_terminal:
            return "that job has finished already"
        if self.on_running != "upgrade":
            return f"on_running is {self.on_running!r}"
        if self.resume != LATEST:
            return f"resume is {self.resume!r}, and only a run that goes on from the latest replaces a job"
        if found.job_type != JobType.STREAMING.value:
            return "a BATCH job cannot be stopped with a savepoint"
        return ""

    def _begun_upgrade(self) -> tuple[JobId, str] | None:
        """The upgrade in which the run died that this one repeats: the job that was to be replaced, and the
        request id; None: there is none."""
        if self.run.parent_run_id is None:
            return None
        with connect(self.environment.config) as cluster:
            kept = KeptJobsClient(cluster)
            for run, _ in self._chain():
                request = request_of(run, self.step)
                old = kept.kept(request)
                if old is not None:
                    return old, request
        return None

    def _upgraded(self, old: JobId, request_id: str) -> JobClient:
        job = upgraded(
            self.environment,
            old,
            name=self.name,
            request_id=request_id,
            savepoint_dir=self.savepoint_dir,
            first_checkpoint_s=self.first_checkpoint_s,
            note=lambda text: self.log.note(text, is_error=False),
            giving_up=self.giving_up,
            subject=f"the pipeline of Dagster's run {self.run.run_id}",
        )
        self._tag_code("other" if job == old else "same")
        return self._attached(job, "the old version" if job == old else f"the new version of job {old}")

    def _of_repeated_run(self) -> JobInfo | None:
        """A job that runs; or that has finished, if all runs since are Dagster's own retries."""
        chain = self._chain()
        if not chain:
            return None
        submitted = [(job_of_request(request_of(run, self.step)), is_retry) for run, is_retry in chain]
        with connect(self.environment.config) as cluster:
            for job, is_retry in [submitted[0], *self._attached_to(cluster, dict(chain)), *submitted[1:]]:
                info = _info(cluster, job)
                if info is not None and (not info.is_terminal or (info.state == "FINISHED" and is_retry)):
                    return info
        return None

    def _attached_to(self, cluster: RestClient, chain: Mapping[str, bool]) -> list[tuple[JobId, bool]]:
        """The job that the last of these runs has come to, by its heartbeats (at most one).

        The tag names one too, but is copied from run to run, also by one that has died before it had a job,
        and is that of the step that was last. It counts only where the heartbeats are not known.
        """
        try:
            links = RemoteLinks(cluster, cluster.timeout_s)  # not closed: the connection is another's
            link = links.find(key_of(self.run, self.step)).link
        except UnistreamError as error:
            logger.warning("event=run_link_unknown run=%s reason=%r", self.run.run_id, str(error))
            tag = self.run.tags.get(JOB_TAG)
            info = _info(cluster, JobId(tag)) if tag else None
            return [(info.job, False)] if info is not None and info.name == self.name else []
        return [] if link is None else [(link.job, chain.get(run_of(link.watcher), False))]

    def _chain(self) -> list[tuple[str, bool]]:
        """Ids of the runs that this one repeats, nearest first, and whether all runs since are retries."""
        known = {run.run_id: run for run in self.repeated}
        run: dg.DagsterRun | None = self.run
        chain: dict[str, bool] = {}
        is_retry = True
        while run is not None and run.parent_run_id is not None and run.parent_run_id not in chain:
            is_retry = is_retry and _RETRY_TAG in run.tags
            chain[run.parent_run_id] = is_retry
            run = known.get(run.parent_run_id)
        if chain and self.run.root_run_id is not None:  # who are in between may have been deleted
            chain.setdefault(self.run.root_run_id, False)
        return list(chain.items())

    def _tag_code(self, code: str) -> None:
        """What is as it should be needs no tag, but one that was copied from another run."""
        if code != "same" or CODE_TAG in self.run.tags:
            self.log.tag({CODE_TAG: code})

    def _attached(self, job: JobId, why: str, differs: str = "") -> JobClient:
        client = attach(job, self.environment.config)
        submitted = datetime.fromtimestamp(client.status().submitted_ms / 1000, UTC)
        text = f"attached to job {job}, {why}; it runs the code that was submitted at {submitted:%F %T} UTC"
        text += differs
        self.log.note(text, is_error=False)
        return client


def _info(cluster: RestClient, job: JobId) -> JobInfo | None:
    try:
        return cluster.info(job)
    except NotFound:
        return None


def repeated_runs(run: dg.DagsterRun, find: Callable[[str], dg.DagsterRun | None]) -> list[dg.DagsterRun]:
    """The runs that a run repeats, the nearest first, up to one that was deleted. `find`: by id."""
    found: list[dg.DagsterRun] = []
    while run.parent_run_id is not None and len(found) < REPEATED_MAX:
        try:
            parent = find(run.parent_run_id)
        except Exception as error:  # Dagster's database is away for a moment
            logger.warning("event=repeated_run_unknown run=%s reason=%r", run.run_id, str(error))
            break
        if parent is None:
            break
        found.append(parent)
        run = parent
    return found


def chosen_resume(run: dg.DagsterRun, resource: str) -> str:
    """What a run starts from: its tag, or what the resource says. A run that repeats another one has a copy
    of its tags, and the snapshot that was chosen there has been started from since."""
    chosen = run.tags.get(RESUME_TAG) or resource
    is_used = run.parent_run_id is not None and bool(run.tags.get(JOB_TAG))
    return LATEST if is_used and chosen != BEGINNING else chosen


def chosen_on_running(run: dg.DagsterRun, resource: OnRunning) -> OnRunning:
    """What a run does if another job writes the same tables: its tag, or what the resource says. Raises
    ConfigError: the tag is none of them."""
    chosen = run.tags.get(ON_RUNNING_TAG) or resource
    for known in get_args(OnRunning):
        if chosen == known:
            return cast(OnRunning, known)
    raise ConfigError(f"tag {ON_RUNNING_TAG}: {chosen!r} is not one of {', '.join(get_args(OnRunning))}")


def request_of(run_id: str, step: str) -> str:
    """The request id under which a step of a run submits its job.

    >>> request_of("5f0c", "orders")
    'dagster 5f0c orders'
    """
    return f"dagster {run_id} {step}"[:REQUEST_ID_CHARS_MAX]
