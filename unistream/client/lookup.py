"""The clusters of this machine and their jobs; a job is found by the beginning of its id, or by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from unistream.base.config import REST_PORT, Configuration
from unistream.base.errors import ConfigError, NotFound, Unreachable
from unistream.client import home
from unistream.client.background import in_background
from unistream.client.rest_client import RestClient, RestJobClient
from unistream.client.submission import connect
from unistream.master.job_info import TERMINAL_STATES, JobSummary

ID_PREFIX_CHARS_MIN: Final = 4
ALL_WITHIN_S: Final = 3.0  # for all clusters together: a person waits for the list
ONE_WITHIN_S: Final = 15.0  # for the one that has the job, when it is busy

T = TypeVar("T")
OnSilence = Callable[[Unreachable], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A job and the cluster that has it; `cluster` is closed by the caller."""

    cluster: RestClient
    job: JobSummary


def running_clusters(config: Configuration) -> list[RestClient]:
    """The cluster that `rest.port` names, or all that run on this machine; the caller closes them.

    Raises:
        Unreachable: there is none.
    """
    if config.get(REST_PORT):
        return [connect(config)]
    return [RestClient(entry.url) for entry in home.clusters()] or [connect(config)]


def all_jobs(
    clusters: Sequence[RestClient], on_silence: OnSilence, *, patience_s: float = ALL_WITHIN_S
) -> list[Found]:
    """Jobs of these clusters; the arguments are those of `ask_all`."""
    answers = ask_all(
        clusters, lambda cluster: cluster.jobs(timeout_s=patience_s), on_silence, patience_s=patience_s
    )
    return [Found(cluster, job) for cluster, jobs in answers for job in jobs]


def find_job(config: Configuration, text: str) -> RestJobClient:
    """The job whose id begins with `text` (at least 4 characters), or whose name it is.

    Jobs that run are preferred to jobs of the same name that have ended.

    Raises:
        NotFound: there is none.
        ConfigError: it could be several.
        Unreachable: no cluster runs here, or the one that was named does not answer.
    """
    clusters = running_clusters(config)
    silent: list[Unreachable] = []
    try:
        found = _choose(all_jobs(clusters, silent.append, patience_s=ONE_WITHIN_S), text)
    except NotFound as error:
        raise NotFound("; ".join(map(str, [error, *silent]))) from None
    finally:
        for cluster in clusters:
            cluster.close()
    return RestJobClient(RestClient(found.cluster.url), found.job.job, owns_connection=True)


def _choose(jobs: list[Found], text: str) -> Found:
    prefix = text.lower() if len(text) >= ID_PREFIX_CHARS_MIN else None
    matches = [f for f in jobs if f.job.name == text or (prefix and f.job.job.startswith(prefix))]
    running = [f for f in matches if f.job.state not in TERMINAL_STATES]
    candidates = running or matches
    if not candidates:
        raise NotFound(f"there is no job {text!r} here; 'unistream list --all' shows all jobs")
    if len(candidates) > 1:
        ids = ", ".join(f"{f.job.job} ({f.job.name}, {f.job.state})" for f in candidates[:5])
        raise ConfigError(f"{text!r} matches {len(candidates)} jobs: {ids}; give more of the id")
    return candidates[0]


def ask_all(
    clusters: Sequence[RestClient],
    ask: Callable[[RestClient], T],
    on_silence: OnSilence,
    *,
    patience_s: float = ALL_WITHIN_S,
) -> list[tuple[RestClient, T]]:
    """Sends one request to all clusters at once, so that a silent one hardly delays the others.

    Args:
        clusters: They have `ALL_WITHIN_S` to answer.
        ask: Sends the request; called on a thread of its own for each cluster.
        on_silence: Called for each cluster that does not answer, if another one does.
        patience_s: How long to wait while no cluster has answered; at least `ALL_WITHIN_S`.

    Raises:
        Unreachable: no cluster answers.
    """
    pending = [in_background(partial(ask, cluster), "ask") for cluster in clusters]
    late = wait(pending, timeout=ALL_WITHIN_S).not_done
    if all(answer in late or answer.exception() is not None for answer in pending):
        wait(late, timeout=patience_s - ALL_WITHIN_S, return_when=FIRST_COMPLETED)
    answers: list[tuple[RestClient, T]] = []
    silent: list[Unreachable] = []
    for cluster, answer in zip(clusters, pending, strict=True):
        try:
            answers.append((cluster, answer.result(timeout=0)))
        except TimeoutError:
            text = f"the cluster at {cluster.url} does not answer within {ALL_WITHIN_S:g} s"
            silent.append(Unreachable(text))
        except Unreachable as error:
            silent.append(error)
    if silent and not answers:
        raise silent[0]
    for silence in silent:
        on_silence(silence)
    return answers
