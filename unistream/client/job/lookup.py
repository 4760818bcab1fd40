"""The clusters of this machine and their jobs; a job is found by the beginning of its id, or by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from unistream.base.config import REST_PORT, Configuration
from unistream.base.errors import ClusterEnded, ConfigError, NotFound, UnistreamError, Unreachable
from unistream.base.ids import JobId, OperatorUid
from unistream.client.job.submission import NothingRuns, connect
from unistream.client.machine import home
from unistream.client.machine.background import in_background
from unistream.client.machine.home import ClusterEntry
from unistream.client.machine.leftovers import sentence_about, why_ended
from unistream.client.remote.address import MachineAddress, is_elected
from unistream.client.remote.rest_client import RestClient, RestJobClient, timeout_s
from unistream.model.job_info import TERMINAL_STATES, JobInfo, JobSummary

if TYPE_CHECKING:
    from unistream.model.checkpoint_figures import CheckpointsInfo
    from unistream.model.job_log_line import JobLogLine

ID_PREFIX_CHARS_MIN: Final = 4
CLUSTER_ID_CHARS: Final = 8
ALL_WITHIN_S: Final = 3.0  # for all clusters together: a person waits for the list
GRACE_S: Final = 0.3  # above that: a call that is late ends by its own deadline, which knows why
ENDED_ASKED_MAX: Final = 20  # of a name; each is a request of some ms
ONE_WITHIN_S: Final = 15.0  # for a cluster that is the only one, when it is busy

Writes = Callable[[str, Mapping[OperatorUid, tuple[str, ...]]], bool]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Silent:
    """A cluster without an answer that can be used; str: a sentence that names it."""

    url: str
    error: UnistreamError

    def __str__(self) -> str:
        return str(self.error)


class NotAllAnswer(NotFound):
    """No cluster that answers has the job; one that does not may have it."""


OnSilence = Callable[[Silent], None]


@dataclass(frozen=True, slots=True)
class JobInCluster:
    """A job and the cluster that knows it, which is closed by the caller; None: only the database does.
    `is_own`: it is of that one, else of another one on the same database."""

    cluster: RestClient | None
    job: JobSummary
    is_own: bool = True

    @property
    def place(self) -> str:
        """Where the job is, for a list: the address of a cluster that runs, the id of another one."""
        return self.url or self.job.cluster[:CLUSTER_ID_CHARS]

    @property
    def url(self) -> str | None:
        """The URL of the running cluster that has the job; None: none has."""
        return self.cluster.url if self.is_own and self.cluster is not None else None


@dataclass(frozen=True, slots=True)
class MetadataNote:
    """Something to be known about the metadata of a cluster."""

    url: str
    text: str


def running_clusters(config: Configuration) -> list[RestClient]:
    """The cluster that `high-availability.*` or `rest.port` names, or all that run on this machine; the
    caller closes them.

    Raises:
        Unreachable: there is none.
    """
    if is_elected(config) or config.get(REST_PORT):
        return [connect(config)]
    limit_s = timeout_s(config)
    found = [_client(entry, limit_s) for entry in home.clusters()]
    return found or [connect(config)]


def _client(entry: ClusterEntry, limit_s: float) -> RestClient:
    return RestClient(MachineAddress(entry), timeout_s=limit_s, why_ended=lambda: why_ended(entry))


def all_jobs(
    clusters: Sequence[RestClient],
    on_silence: OnSilence,
    *,
    patience_s: float = ALL_WITHIN_S,
    on_note: Callable[[MetadataNote], None] = lambda _note: None,
    is_needed: bool = True,
) -> list[JobInCluster]:
    """Jobs that these clusters list, each once; the other arguments are those of `ask_all`."""
    answers = ask_all(
        clusters,
        lambda cluster, limit_s: cluster.job_list(timeout_s=limit_s),
        on_silence,
        patience_s=patience_s,
        is_needed=is_needed,
    )
    jobs: list[JobInCluster] = []
    for cluster, listed in answers:
        for note in listed.notes:
            on_note(MetadataNote(cluster.url, note))
        jobs += [JobInCluster(cluster, job, job.cluster in ("", listed.cluster)) for job in listed.jobs]
    return each_once(jobs)


def each_once(found: Sequence[JobInCluster]) -> list[JobInCluster]:
    """The history of a job is shared: its own cluster knows it best. Newest first."""
    best: dict[JobId, JobInCluster] = {}
    for one in found:
        other = best.get(one.job.job)
        if other is None or _rank(one) > _rank(other):
            best[one.job.job] = one
    return sorted(best.values(), key=lambda one: one.job.submitted_ms, reverse=True)


def _rank(found: JobInCluster) -> tuple[bool, bool]:
    return found.job.state not in TERMINAL_STATES, found.is_own


def find_job(config: Configuration, text: str) -> RestJobClient:
    """The job whose id begins with `text` (at least 4 characters), or whose name it is.

    Jobs that run are preferred to jobs of the same name that have ended, and of these the newest is taken.

    Raises:
        NotFound: there is none; it names the clusters that do not answer, which may have it.
        ConfigError: it could be several.
        ClusterEnded: no cluster has it, and the folder of one that has ended does.
        Unreachable: no cluster runs here, or none answers.
    """
    return _found(config, text, lambda jobs: _choose(jobs, text))


class ShownJob(Protocol):
    """What can be asked of a job whether or not a cluster has it."""

    @property
    def job_id(self) -> JobId: ...

    def status(self) -> JobInfo:
        """See `JobClient.status`."""

    def checkpoints(self) -> CheckpointsInfo:
        """See `JobClient.checkpoints`."""

    def log(self, after: int = 0) -> Sequence[JobLogLine]:
        """See `JobClient.log`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def find_shown_job(config: Configuration, text: str) -> ShownJob:
    """Finds a job to be looked at only: as `find_job`, but also one that has ended and that no cluster lists,
    since none runs here or none answers; the database of this user has it."""
    try:
        return find_job(config, text)
    except ClusterEnded:
        raise  # it has not ended, and can go on
    except (NotFound, Unreachable):
        found = None if config.get(REST_PORT) or is_elected(config) else _ended(config, text)
        if found is None:
            raise
        return found


def _ended(config: Configuration, text: str) -> ShownJob | None:
    """None: the database does not know it, or cannot be read. Raises ConfigError: it could be several."""
    from unistream.client.machine import job_history

    try:
        ended = [JobInCluster(None, job, is_own=False) for job in job_history.ended_jobs(config)]
        store = job_history.history_store(config) if ended else None
    except UnistreamError:
        return None
    if store is None:
        return None
    try:
        return job_history.RecordedJobClient(store, _choose(ended, text).job.job)
    except ConfigError as error:
        store.close()
        if isinstance(error, NotFound):
            return None
        raise


def find_writer(config: Configuration, name: str, writes: Writes, what: str) -> RestJobClient:
    """The job that writes some targets, whatever its name; of those that have ended the newest.

    Args:
        config: Says which cluster to ask, or that all of this machine are.
        name: Of the job, as it is expected.
        writes: (name, URIs by uid of its sinks) -> whether a job does; where the latter are not known they
            are empty.
        what: The targets, for people.

    Raises as `find_job`.
    """
    return _found(config, name, lambda jobs: _writer(jobs, name, writes, what))


def _found(
    config: Configuration, text: str, choose: Callable[[list[JobInCluster]], JobInCluster]
) -> RestJobClient:
    try:
        clusters = running_clusters(config)
    except NothingRuns as error:
        raise _left(text) or error from None
    silent: list[Silent] = []
    cluster: RestClient | None = None
    patience_s = ONE_WITHIN_S if len(clusters) == 1 else ALL_WITHIN_S
    try:
        chosen = choose(all_jobs(clusters, silent.append, patience_s=patience_s))
        cluster = chosen.cluster
    except NotFound as error:
        left = _left(text)
        if left is not None:
            raise left from None
        if not silent:
            raise
        may = "so the job may be there" if len(silent) == 1 else "so the job may be in one of these"
        raise NotAllAnswer("; ".join(map(str, [error, *silent, may]))) from None
    finally:
        for other in clusters:
            if other is not cluster:
                other.close()
    assert cluster is not None, "a cluster has listed it"
    return RestJobClient(cluster, chosen.job.job, owns_connection=True)


def _left(text: str) -> ClusterEnded | None:
    sentence = sentence_about(text)
    return None if sentence is None else ClusterEnded(sentence)


def _writer(jobs: list[JobInCluster], name: str, writes: Writes, what: str) -> JobInCluster:
    candidates = [found for found in jobs if writes(found.job.name, found.job.writes)]
    running = [found for found in candidates if found.job.state not in TERMINAL_STATES]
    if len(running) > 1:
        ids = ", ".join(f"{found.job.job} ({found.job.name}, {found.job.state})" for found in running[:5])
        raise ConfigError(f"{len(running)} jobs write {what}: {ids}; stop all but one")
    if running:
        return running[0]
    ended = sorted(candidates, key=lambda found: -found.job.submitted_ms)
    for writer in ended[:ENDED_ASKED_MAX]:  # lists of ended jobs do not have what they wrote
        if writer.cluster is None or writer.job.writes:
            return writer
        with suppress(NotFound):  # pruned meanwhile
            if writes(writer.job.name, writer.cluster.info(writer.job.job).writes):
                return writer
    raise NotFound(f"no job {name!r} here writes {what}; 'unistream list --all' shows all jobs")


def _choose(jobs: list[JobInCluster], text: str) -> JobInCluster:
    prefix = text.lower() if len(text) >= ID_PREFIX_CHARS_MIN else None
    matches = [f for f in jobs if f.job.name == text or (prefix and f.job.job.startswith(prefix))]
    running = [f for f in matches if f.job.state not in TERMINAL_STATES]
    named = [f for f in matches if f.job.name == text]
    is_clear = len(named) in (0, len(matches)) or any(f in running for f in named)  # else a name and an id
    candidates = (running or matches) if is_clear else matches
    if not candidates:
        raise NotFound(f"there is no job {text!r} here; 'unistream list --all' shows all jobs")
    if not running and all(f.job.name == text for f in candidates):
        return max(candidates, key=lambda f: f.job.submitted_ms)
    if len(candidates) > 1:
        ids = ", ".join(f"{f.job.job} ({f.job.name}, {f.job.state})" for f in candidates[:5])
        raise ConfigError(f"{text!r} matches {len(candidates)} jobs: {ids}; give more of the id")
    return candidates[0]


def ask_all(
    clusters: Sequence[RestClient],
    ask: Callable[[RestClient, float], T],
    on_silence: OnSilence,
    *,
    patience_s: float = ALL_WITHIN_S,
    is_needed: bool = True,
) -> list[tuple[RestClient, T]]:
    """The answers of `ask_each`.

    Args:
        clusters: As there.
        ask: As there.
        on_silence: Called for each cluster without an answer, if another one has one or none is needed.
        patience_s: As there.
        is_needed: One answer at least; False: the caller knows something without any.

    Raises:
        Unreachable: no cluster answers, and one answer is needed.
    """
    answers, silent = ask_each(clusters, ask, patience_s=patience_s)
    if silent and not answers and is_needed:
        raise silent[0].error if len(silent) == 1 else Unreachable("; ".join(map(str, silent)))
    for silence in silent:
        on_silence(silence)
    return answers


def ask_each(
    clusters: Sequence[RestClient], ask: Callable[[RestClient, float], T], *, patience_s: float
) -> tuple[list[tuple[RestClient, T]], list[Silent]]:
    """Sends one request to all clusters at once; none delays the answer for longer than `patience_s`, but for
    one that elects its leader: the next one takes over within `client.timeout`.

    Args:
        clusters: Those to ask.
        ask: Sends the request to one of them, with a timeout in seconds; called on a thread of its own.
        patience_s: For all of them together.
    """
    limits = [
        cluster.timeout_s if cluster.is_elected else min(patience_s, cluster.timeout_s)
        for cluster in clusters
    ]
    calls = zip(clusters, limits, strict=True)
    pending = [in_background(partial(ask, cluster, limit_s), "ask") for cluster, limit_s in calls]
    wait(pending, timeout=max(limits, default=0.0) + GRACE_S)
    answers: list[tuple[RestClient, T]] = []
    silent: list[Silent] = []
    for cluster, answer in zip(clusters, pending, strict=True):
        try:
            answers.append((cluster, answer.result(timeout=0)))
        except TimeoutError:  # the name of its host is still being looked up
            text = f"the cluster at {cluster.url} does not answer within {max(limits):g} s"
            silent.append(Silent(cluster.url, Unreachable(text)))
        except UnistreamError as error:
            silent.append(Silent(cluster.url, error))
    return answers, silent
