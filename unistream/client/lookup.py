"""Finds a job by what a person types: the beginning of its id, or its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from unistream.base.config import REST_PORT, Configuration
from unistream.base.errors import ConfigError, NotFound, Unreachable
from unistream.client import home
from unistream.client.asking import ask_all
from unistream.client.rest_client import RestClient
from unistream.client.submission import connect
from unistream.master.job_info import TERMINAL_STATES, JobSummary

ID_PREFIX_CHARS_MIN = 4
ALL_WITHIN_S: Final = 3.0  # for all clusters together: a person waits for the list
ONE_WITHIN_S: Final = 15.0  # for the one that has the job, when it is busy


@dataclass(frozen=True, slots=True)
class Found:
    """A job and the cluster that has it; whoever asked closes `cluster`."""

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
    clusters: list[RestClient],
    on_silence: Callable[[Unreachable], None],
    *,
    patience_s: float = ALL_WITHIN_S,
) -> list[Found]:
    """Jobs of those clusters that answer within `ALL_WITHIN_S`; `on_silence` is called for each other.

    `patience_s`: how long they are waited for while none has answered.

    Raises:
        Unreachable: none of them does.
    """
    answers, silent = ask_all(
        clusters,
        lambda cluster: cluster.jobs(timeout_s=patience_s),
        all_within_s=ALL_WITHIN_S,
        one_within_s=patience_s,
    )
    if silent and not answers:
        raise silent[0]
    for error in silent:
        on_silence(error)
    return [Found(cluster, job) for cluster, jobs in answers for job in jobs]


def find_job(config: Configuration, text: str) -> Found:
    """The job whose id begins with `text` (at least 4 characters), or whose name it is.

    Jobs that run are preferred to jobs of the same name that have ended.

    Raises:
        NotFound: there is none.
        ConfigError: it could be several.
        Unreachable: no cluster runs here, or the one that was named does not answer.
    """
    clusters = running_clusters(config)
    chosen: Found | None = None
    silent: list[Unreachable] = []
    try:
        chosen = _choose(all_jobs(clusters, silent.append, patience_s=ONE_WITHIN_S), text)
    except NotFound as error:
        raise NotFound("; ".join([str(error), *(str(unheard) for unheard in silent)])) from None
    finally:
        for cluster in clusters:
            if chosen is None or cluster is not chosen.cluster:
                cluster.close()
    return chosen


def _choose(jobs: list[Found], text: str) -> Found:
    prefix = text.lower() if len(text) >= ID_PREFIX_CHARS_MIN else None
    matches = [f for f in jobs if f.job.name == text or (prefix and f.job.job.startswith(prefix))]
    running = [f for f in matches if f.job.state not in TERMINAL_STATES]
    candidates = running or matches
    if not candidates:
        raise NotFound(f"there is no job {text!r} here; 'unistream list --all' shows what there is")
    if len(candidates) > 1:
        ids = ", ".join(f"{f.job.job} ({f.job.name}, {f.job.state})" for f in candidates[:5])
        raise ConfigError(f"{text!r} could be one of {len(candidates)} jobs: {ids}; give more of the id")
    return candidates[0]
