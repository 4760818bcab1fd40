"""`unistream bootstrap`: runs the history of a pipeline as a BATCH job that writes a savepoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from unistream.api.load import build
from unistream.cli.errors import complain, log_to_stderr, report
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import AsJson, Defines, Parallelism, Pipeline, Verbose, layered_options
from unistream.cli.output import console, print_json
from unistream.cli.run import attach, checked_target, job_request

if TYPE_CHECKING:
    from unistream.api.bootstrap import BootstrapOrder
    from unistream.api.environment import Environment
    from unistream.core.graph import BootstrapPlan


def bootstrap(  # noqa: PLR0917  # typer passes them by name
    function: Pipeline,
    savepoint: Annotated[
        str,
        typer.Option("--savepoint", metavar="DIR", help="The directory of the savepoint, which it makes."),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Check that this is the fence of all hybrid sources: ISO 8601, or ms since 1970.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("-t", "--target", help="spark (the default if installed), local or remote."),
    ] = None,
    parallelism: Parallelism = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the job.")] = None,
    defines: Defines = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the pipeline, say what would be done, and start nothing.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Read the history of a pipeline as a BATCH job, and write a savepoint to go on from."""
    from unistream.api.bootstrap import BootstrapOrder, parse_until
    from unistream.api.environment import Environment

    log_to_stderr(verbose)
    runs_on = checked_target(target, detached=False)
    order = BootstrapOrder.of(absolute(savepoint) or "", None if until is None else parse_until(until))
    environment = Environment(layered_options(defines, parallelism), target=runs_on)
    build(load_function(function), environment)
    if dry_run:
        _show(order.for_graph(environment.stream_graph(name)), as_json=as_json)
        return
    _run(environment, order, runs_on, name, as_json=as_json)


def _run(
    environment: Environment, order: BootstrapOrder, target: str, name: str | None, *, as_json: bool
) -> None:
    from unistream.client.job.submission import submit, to_stderr, to_stdout

    request, frames = job_request(environment, name, detached=False, bootstrap=order)
    with frames.kept():
        show = to_stderr if as_json else to_stdout
        client = submit(request, target=target, config=environment.config, show=show)
        frames.remove_after(client, target=target, config=environment.config)
    with client:
        try:
            result = attach(client, as_json, owns_cluster=target != "remote", prints=not as_json)
        except typer.Exit:
            _say_if_written(order.savepoint)
            raise
    if as_json:
        print_json(structs.replace(result, savepoint=order.savepoint, resumable_savepoint=order.savepoint))
    else:
        console().print(f"savepoint: {order.savepoint}", markup=False, soft_wrap=True)


def _show(planned: BootstrapPlan, *, as_json: bool) -> None:
    from unistream.base.limits import MIN_WATERMARK

    least = min(planned.watermarks.values())
    watermark = None if least == MIN_WATERMARK else least
    if as_json:
        print_json({"savepoint": planned.directory, "watermark": watermark})
        return
    what = "there are no watermarks, so no window fires"
    if watermark is not None:
        what = f"windows and timers until {watermark} ms fire"
    console().print(f"would write {planned.directory}; {what}", markup=False, soft_wrap=True)


def _say_if_written(directory: str) -> None:
    """A job that failed at the commit has a savepoint."""
    from unistream.base.errors import UnistreamError
    from unistream.storage.fs import FsCheckpointStorage

    try:
        FsCheckpointStorage(directory).read_manifest(directory)
    except UnistreamError as error:
        report(f"no savepoint was written: {error}")
        return
    complain(
        f"the savepoint {directory} is complete; unistream run -s {directory} goes on from it, and commits "
        "what is not visible yet"
    )
