"""`unistream upgrade`: another version of the pipeline of a running job."""

from __future__ import annotations

import shlex
import uuid
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from unistream.api.load import build
from unistream.base.config import Configuration, parse_duration_ms
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import AlreadyEnded, ConfigError
from unistream.base.ids import JobId
from unistream.base.secrets import HIDDEN
from unistream.cli.errors import report
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import AsJson, Defines, Job, JobManager, Parallelism, layered_options
from unistream.cli.output import console, print_json
from unistream.client.job.lookup import find_job
from unistream.client.job.submission import check_goes_on
from unistream.model.job_info import JobInfo

FIRST_CHECKPOINT_S: Final = 300.0

NewVersion = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:FUNCTION", help="The new version: a function that takes an Environment."),
]


def upgrade(  # noqa: PLR0917  # typer passes them by name
    job: Job,
    function: NewVersion = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Go back to the version that this job has replaced.")
    ] = False,
    savepoint_dir: Annotated[
        str | None,
        typer.Option("--savepoint-dir", metavar="DIR", help="Where the savepoint of the job goes."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Longest wait for the first checkpoint.")
    ] = FIRST_CHECKPOINT_S,
    probation: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long all tasks of the new version run before its first checkpoint, with which it "
            "stays; if it fails before, the old one goes on. Default: 5 s.",
        ),
    ] = None,
    request_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Of an upgrade that was cut off: goes on with it.")
    ] = None,
    jobmanager: JobManager = None,
    parallelism: Parallelism = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Replace a running job by another version of its pipeline, or go back to the old one.

    Options that the job was given on the command line (-D, -p) are kept, unless they are given again. With
    --undo the version before goes on, as it was submitted, from where the job is now.
    """
    _check_given(function, undo, probation)
    options = layered_options(defines, parallelism, jobmanager=jobmanager)
    running = _running(options.as_client(), job, may_have_ended=request_id is not None)
    name = request_id or f"upgrade {uuid.uuid4().hex}"
    how = _How(
        name=name,
        begins=request_id is None,
        savepoint_dir=absolute(savepoint_dir),
        first_checkpoint_s=timeout,
        probation_s=None if probation is None else parse_duration_ms(probation) / 1_000,
    )
    if function is None:
        new = _undone(running, options.as_client(), how)
    else:
        new = _upgraded(running, function, options, how)
    if as_json:
        print_json({"job": new, "replaces": running.job})
    else:
        console().print(f"job {new} runs the {'earlier' if undo else 'new'} version", markup=False)


def _running(config: Configuration, job: str, *, may_have_ended: bool) -> JobInfo:
    with find_job(config, job) as client:
        running = client.status()
        check_goes_on(client.rest_url)
    if running.is_terminal and not may_have_ended:
        raise AlreadyEnded(
            f"job {running.job} has ended as {running.state}; 'unistream run -s latest' goes on where it was"
        )
    return running


def _check_given(function: object, undo: bool, probation: str | None) -> None:
    if undo == (function is not None):
        raise ConfigError("give MODULE:FUNCTION, the new version, or --undo for the one before")
    if undo and probation is not None:
        raise ConfigError("--probation is for a new version: the one before has run already")


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """See the options. `name`: the request id; `begins`: no upgrade of that name was cut off."""

    name: str
    begins: bool
    savepoint_dir: str | None
    first_checkpoint_s: float
    probation_s: float | None


def _upgraded(running: JobInfo, function: str, options: LayeredConfig, how: _How) -> JobId:
    from unistream.api.environment import Environment
    from unistream.api.upgrade import is_other_version, upgraded

    given = _with_kept(running, options.given)
    environment = Environment(LayeredConfig(given, options.around), target="remote")
    build(load_function(function), environment)
    if how.begins and not is_other_version(environment, running.name, running):
        raise ConfigError(f"job {running.job} runs this version of the pipeline already; it goes on as it is")
    _say_name(how)
    return upgraded(
        environment,
        running.job,
        name=running.name,
        request_id=how.name,
        savepoint_dir=how.savepoint_dir,
        first_checkpoint_s=how.first_checkpoint_s,
        probation_s=how.probation_s,
        note=report,
        given=given.to_dict(),
        subject=function,
        goes_on=_command(running, function, how),
    )


def _undone(running: JobInfo, config: Configuration, how: _How) -> JobId:
    """Whether the earlier version can start from the state of this one shows when it does; if it cannot, this
    one goes on."""
    from unistream.client.job.submission import connect_to_submit
    from unistream.client.job.upgrade import KeptVersion, Upgrade, replaced_by

    with connect_to_submit(config) as cluster:
        before = replaced_by(cluster, running)
        report(f"job {running.job} is replaced by the version before it, which job {before.job} has run")
        _say_name(how)
        return Upgrade(
            cluster=cluster,
            old=running.job,
            request=KeptVersion(job=before.job, request_id=how.name),
            check=lambda _directory: None,
            savepoint_dir=how.savepoint_dir,
            first_checkpoint_s=how.first_checkpoint_s,
            probation_s=how.probation_s,
            note=report,
            subject=f"back to the version of job {before.job}",
            goes_on=_command(running, "--undo", how),
        ).run()


def _command(running: JobInfo, version: str, how: _How) -> str:
    """Goes on with an upgrade that was cut off. Options (-D) may hold secrets, and are left out."""
    return shlex.join(["unistream", "upgrade", running.job, version, "--request-id", how.name])


def _say_name(how: _How) -> None:
    report(f"if this command is cut off, '--request-id \"{how.name}\"' goes on with it")


def _with_kept(running: JobInfo, given: Configuration) -> Configuration:
    """Says which options are kept. Raises as `kept_options`."""
    kept = kept_options(running, given)
    if kept:
        report(f"options of the job are kept: {', '.join(f'{key}={value}' for key, value in kept.items())}")
    return Configuration(kept).merged(given.to_dict())


def kept_options(running: JobInfo, given: Configuration) -> dict[str, str]:
    """Options of the command line of a job that its new version is not given.

    Raises:
        ConfigError: one of them is a secret, which no cluster shows.
    """
    kept = {key: value for key, value in running.given.items() if key not in given.to_dict()}
    hidden = [key for key, value in kept.items() if HIDDEN in value]
    if hidden:
        raise ConfigError(
            f"job {running.job} was submitted with {', '.join(f'-D {key}=…' for key in hidden)}, which its "
            "cluster does not show: give it again, for the new version to have it, too"
        )
    return kept
