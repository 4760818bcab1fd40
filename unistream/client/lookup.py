"""Finds a job by what a person types: the beginning of its id, or its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unistream.base.config import REST_PORT, Configuration
from unistream.base.errors import ConfigError, NotFound, Unreachable
from unistream.client import home
from unistream.client.rest_client import RestClient
from unistream.client.submission import connect
from unistream.master.job_info import TERMINAL_STATES, JobSummary

ID_PREFIX_CHARS_MIN = 4


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


def all_jobs(clusters: list[RestClient], on_silence: Callable[[Unreachable], None]) -> list[Found]:
    """Jobs of those clusters that answer; `on_silence` is told of each that does not.

    Raises:
        Unreachable: none of them does.
    """
    found: list[Found] = []
    silent: list[Unreachable] = []
    for cluster in clusters:
        try:
            found.extend(Found(cluster, job) for job in cluster.jobs())
        except Unreachable as error:
            silent.append(error)
    if silent and len(silent) == len(clusters):
        raise silent[0]
    for unheard in silent:
        on_silence(unheard)
    return found


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
        chosen = _choose(all_jobs(clusters, silent.append), text)
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
