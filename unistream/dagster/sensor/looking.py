"""Looks for the job of a stream, and for what Dagster's event log says of it."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import dagster as dg

# Not public. Without it Dagster compares times, which SQLite keeps in whole seconds: a result that comes
# right after a materialisation would count as an older one.
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as Target,
)
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    INPUT_DATA_VERSION_TAG_PREFIX,
    INPUT_EVENT_POINTER_TAG_PREFIX,
)

from unistream.base.config import Configuration
from unistream.base.errors import ClusterEnded, NotFound, UnistreamError
from unistream.client.job.lookup import NotAllAnswer
from unistream.client.job.submission import NothingRuns
from unistream.client.machine.job_history import listed_jobs, recorded_job
from unistream.dagster.run.metadata import STATE
from unistream.dagster.run.report import page_of
from unistream.dagster.run.seen import NoJob, NotSeen, Seen, SeenJob, newest_in, newest_of
from unistream.dagster.run.stream import AssetStream
from unistream.model.job_info import JobInfo

LOOK_BACK: Final = 100
PROVENANCE: Final = (CODE_VERSION_TAG, INPUT_DATA_VERSION_TAG_PREFIX, INPUT_EVENT_POINTER_TAG_PREFIX)
"""Beginnings of the tags by which Dagster knows whether an asset is behind its code or what is upstream."""


def look(stream: AssetStream, config: Configuration, target: str) -> Seen:
    """The job of a stream as its cluster knows it; where none is, as the history of this machine does. Never
    raises an error of ours.

    Args:
        stream: Whose job it is.
        config: Which cluster, or which history.
        target: "remote": of a cluster; else the cluster ends with its run, and the history goes on.
    """
    try:
        with closing(stream.find(config)) as client:
            info, figures = client.status(), client.checkpoints()
            newest = newest_of((figures.latest_completed, figures.latest_savepoint))
            return SeenJob(info, newest, page_of(client))
    except NotAllAnswer as error:
        return NotSeen(str(error))
    except (NotFound, NothingRuns, ClusterEnded) as error:
        is_lost = not isinstance(error, NotFound)
        return _recorded(stream, config, error, has_history=is_lost or target != "remote")
    except UnistreamError as error:
        return NotSeen(str(error))


def _recorded(
    stream: AssetStream, config: Configuration, error: UnistreamError, *, has_history: bool
) -> Seen:
    try:
        info = _newest_recorded(stream, config) if has_history else None
    except UnistreamError as unknown:
        return NotSeen(str(unknown))
    if info is None:
        return NoJob(str(error), is_lost=not isinstance(error, NotFound))
    return SeenJob(info, newest_in(info.checkpoints))


def _newest_recorded(stream: AssetStream, config: Configuration) -> JobInfo | None:
    for job in listed_jobs(config, stream.name):
        if stream.is_written_by(job.name, job.writes):
            return recorded_job(config, job.job)
    return None


def newest_materialisation(instance: dg.DagsterInstance, key: dg.AssetKey) -> Target | None:
    """The newest one of an asset, as the results of checks name it; None: there is none."""
    for record in instance.fetch_materializations(key, limit=1).records:
        return Target(storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp)
    return None


def provenance(instance: dg.DagsterInstance, spec: dg.AssetSpec) -> dict[str, str]:
    """Tags of the next materialisation of a stream's asset: the code that the last run has come with, and
    what is upstream as it is now, since a stream reads that all the time. Empty: no run has come with any."""
    before = _newest_tags(instance, spec.key)
    tags = {key: value for key, value in before.items() if key.startswith(PROVENANCE)}
    if CODE_VERSION_TAG not in tags:
        return {}
    for dep in spec.deps:
        name = dep.asset_key.to_user_string()
        newest = newest_materialisation(instance, dep.asset_key)
        if newest is not None:
            version = _newest_tags(instance, dep.asset_key).get("dagster/data_version")
            if version is not None:
                tags[f"{INPUT_DATA_VERSION_TAG_PREFIX}/{name}"] = version
            tags[f"{INPUT_EVENT_POINTER_TAG_PREFIX}/{name}"] = str(newest.storage_id)
    return tags


def _newest_tags(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, str]:
    for record in instance.fetch_materializations(key, limit=1).records:
        event = record.asset_materialization
        return dict(event.tags or {}) if event is not None else {}
    return {}


def is_reported(instance: dg.DagsterInstance, key: dg.AssetKey, job: str, state: str) -> bool:
    """Whether the last observation of an asset that says what its job is at says this. A run that lasts
    reports observations of its own, some hundreds a day."""
    for record in instance.fetch_observations(key, limit=LOOK_BACK).records:
        event = record.asset_observation
        known = None if event is None else event.metadata.get(STATE)
        if event is not None and known is not None:
            named = event.metadata.get("unistream/job_id")
            return known.value == state and named is not None and named.value == job
    return False
