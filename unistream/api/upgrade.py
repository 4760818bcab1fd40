"""The pipeline of an environment as the new version of a job that runs (`unistream.client.job.upgrade`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import structs

from unistream.api.environment import Environment
from unistream.api.frames import frame_sources, refuse_detached
from unistream.base.errors import UnistreamError
from unistream.base.ids import JobId
from unistream.client.job.submission import connect_to_submit
from unistream.client.job.upgrade import FIRST_CHECKPOINT_S, GivingUp, IncompatibleSnapshot, Upgrade
from unistream.core.restore import RestorePlan, StateOutcome
from unistream.model.chain import JobCode
from unistream.model.graph import JobType
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest, digest_of
from unistream.savepoint.plan import plan
from unistream.savepoint.reading import read_savepoint
from unistream.worker.code import pack

REFUSED: Final = StateOutcome.REFUSED
VERSION_CHARS: Final = 12
_ANY_NAME: Final = "pipeline"


def upgraded(
    environment: Environment,
    old: JobId,
    *,
    name: str,
    request_id: str,
    savepoint_dir: str | None = None,
    first_checkpoint_s: float = FIRST_CHECKPOINT_S,
    probation_s: float | None = None,
    note: Callable[[str], None] = lambda _text: None,
    giving_up: GivingUp | None = None,
    given: Mapping[str, str] | None = None,
    subject: str = "",
    goes_on: str = "",
) -> JobId:
    """Replaces job `old` of the environment's cluster by its pipeline; the new job, once it has a checkpoint,
    or the one that is there when the upgrade is given up (see `Upgrade.run`).

    Args:
        environment: The new version, with the target "remote".
        old: The job that runs.
        name: Of the new job.
        request_id: The same again goes on with an upgrade that was cut off.
        savepoint_dir: Where the savepoint of the old job goes; None: as its configuration says.
        first_checkpoint_s: How long the new version may take to its first checkpoint, besides its probation.
        probation_s: How long all its tasks run before that; None: a few seconds.
        note: Is given a sentence about each step.
        giving_up: How it ends before its end; None: it does not.
        given: Options of the command line, which the next version keeps as well.
        subject: See `Upgrade`.
        goes_on: See `Upgrade`.

    Raises:
        ConfigError: the new version cannot start from what the old one has, or reads a DataFrame; the old
            one goes on. Or the cluster is of another version.
        WentBack: the new version did not come up; the old one goes on as a new job.
        Unreachable, OutcomeUnknown: the cluster does not answer.
    """
    refuse_detached(environment.stream_graph(name))
    request, _ = _submission(environment, name)
    with connect_to_submit(environment.config) as cluster:
        return Upgrade(
            cluster=cluster,
            old=old,
            request=structs.replace(
                request,
                request_id=request_id,
                given=dict(given or {}),
                pipeline=environment.packed_pipeline(name),
            ),
            check=lambda directory: check_starts_from(environment, name, directory),
            savepoint_dir=savepoint_dir,
            first_checkpoint_s=first_checkpoint_s,
            probation_s=probation_s,
            note=note,
            giving_up=giving_up or GivingUp(),
            subject=subject,
            goes_on=goes_on,
        ).run()


def check_starts_from(environment: Environment, name: str, directory: str) -> None:
    """Raises IncompatibleSnapshot unless the environment's pipeline can start from the snapshot there;
    ConfigError, CorruptSnapshot: that cannot be read."""
    graph, code = environment.job_graph(name)
    restore = plan(read_savepoint(directory), graph, code, environment.config)
    if restore.is_refused:
        raise IncompatibleSnapshot(f"it cannot start from {directory}: {'; '.join(_reasons(restore))}")


def is_other_version(environment: Environment, name: str, running: JobInfo) -> bool:
    """Whether a job that runs can be replaced by the environment's pipeline, and that differs from what was
    submitted of it. BATCH jobs take no savepoint."""
    is_streaming = running.job_type == JobType.STREAMING.value
    return is_streaming and runs_other_code(environment, name, running) is True


def runs_other_code(environment: Environment, name: str, job: JobInfo) -> bool | None:
    """Whether the environment's pipeline differs from what was submitted of a job: in its graph, its
    configuration or its code. None: that is not known, since the job has no master now, or since the
    pipeline reads DataFrames, which are evaluated again by each program."""
    if not job.digest or frame_sources(environment.stream_graph(name)):
        return None
    request, _ = _submission(environment, name)
    return job.digest != digest_of(request)


def code_version(environment: Environment) -> str | None:
    """The version of an environment's pipeline: the beginning of a digest of its graph and code, whatever its
    configuration and its name. None: what it runs is not known, since the pipeline reads DataFrames, cannot
    be submitted now, or has functions that cannot be sent."""
    try:
        if frame_sources(environment.stream_graph(_ANY_NAME)):
            return None
        request, _ = _submission(environment, _ANY_NAME)
    except UnistreamError:
        return None
    plain = structs.replace(request, config={}, graph=structs.replace(request.graph, config={}))
    return digest_of(plain)[:VERSION_CHARS]


def _submission(environment: Environment, name: str) -> tuple[SubmitRequest, JobCode]:
    """What is submitted of the pipeline, as `Environment.execute_async` does."""
    graph, code = environment.job_graph(name)
    artifact = pack(code, with_modules=True)
    return SubmitRequest(graph=graph, artifact=artifact, config=environment.travelling()), code


def _reasons(found: RestorePlan) -> list[str]:
    """Why the new version would not start."""
    operators = [one for one in found.operators if one.is_refused]
    states = [(one.uid, state) for one in operators for state in one.states if state.outcome is REFUSED]
    states = [(uid, state) for uid, state in states if state.why]  # else for the reason of its operator
    return [
        *found.problems,
        *(f"operator {one.uid!r}: {one.why}" for one in operators if one.why),
        *(f"operator {uid!r}, state {state.state!r}: {state.why}" for uid, state in states),
    ]
