"""`unistream upgrade`: another version of the pipeline of a running job."""

from __future__ import annotations

import uuid
from typing import Annotated, Final

import typer

from unistream.api.load import build
from unistream.base.config import Configuration
from unistream.base.errors import AlreadyEnded, ConfigError
from unistream.base.secrets import HIDDEN
from unistream.cli.errors import report
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import AsJson, Defines, Job, JobManager, Parallelism, Pipeline, configuration
from unistream.cli.output import console, print_json
from unistream.client.lookup import find_job
from unistream.master.job_info import JobInfo

FIRST_CHECKPOINT_S: Final = 300.0


def upgrade(  # noqa: PLR0917  # typer passes them by name
    job: Job,
    function: Pipeline,
    savepoint_dir: Annotated[
        str | None,
        typer.Option("--savepoint-dir", metavar="DIR", help="Where the savepoint of the job goes."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Longest wait for the first checkpoint.")
    ] = FIRST_CHECKPOINT_S,
    request_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Of an upgrade that was cut off: goes on with it.")
    ] = None,
    jobmanager: JobManager = None,
    parallelism: Parallelism = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Replace a running job by another version of its pipeline, or go back to the old one.

    Options that the job was given on the command line (-D, -p) are kept, unless they are given again.
    """
    from unistream.api.environment import Environment
    from unistream.api.upgrade import is_other_version, upgraded

    given = configuration(defines, parallelism, jobmanager=jobmanager)
    with find_job(given, job) as client:
        running = client.status()
    given = _with_kept(running, given)
    environment = Environment(given, target="remote")
    build(load_function(function), environment)
    if running.is_terminal and request_id is None:
        raise AlreadyEnded(
            f"job {running.job} has ended as {running.state}; 'unistream run -s latest' goes on where it was"
        )
    if request_id is None and not is_other_version(environment, running.name, running):
        raise ConfigError(f"job {running.job} runs this version of the pipeline already; it goes on as it is")
    name = request_id or f"upgrade {uuid.uuid4().hex}"
    report(f"if this command is cut off, '--request-id \"{name}\"' goes on with it")
    new = upgraded(
        environment,
        running.job,
        name=running.name,
        request_id=name,
        savepoint_dir=absolute(savepoint_dir),
        first_checkpoint_s=timeout,
        note=report,
        given=given.to_dict(),
    )
    if as_json:
        print_json({"job": new, "replaces": running.job})
    else:
        console().print(f"job {new} runs the new version", markup=False)


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
