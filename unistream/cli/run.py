"""`unistream run`: builds a pipeline and runs it, attached to this terminal or not."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from msgspec import structs

from unistream.api.load import build
from unistream.base.config import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from unistream.base.errors import AlreadyEnded, ConfigError, NotFound, Unreachable
from unistream.base.extras import require
from unistream.base.targets import Target, known_target
from unistream.cli.ending import SECOND_ENDS, SIGNALS, StopSignals
from unistream.cli.errors import INTERRUPTED, JOB_FAILED, complain, log_to_stderr, report
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import (
    AllowNonRestored,
    AsJson,
    Defines,
    JobManager,
    Parallelism,
    Pipeline,
    Verbose,
    layered_options,
)
from unistream.cli.output import ID_CHARS, console, print_json, print_result
from unistream.client.embedded.hosts import SPARK, chosen_target
from unistream.client.job.resume import LATEST

if TYPE_CHECKING:
    from unistream.api.bootstrap import BootstrapOrder
    from unistream.api.environment import Environment
    from unistream.api.frames import Frames
    from unistream.base.config import Configuration
    from unistream.client.remote.job_client import JobClient, JobResult
    from unistream.model.submission import SubmitRequest

POLL_S: Final = 0.5  # between two updates of the progress line
CANCEL_WAIT_S: Final = 20.0
WATCHED_HEARTBEAT: Final = "2 s"

StartFrom: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-s",
        "--from-savepoint",
        "--restore-from",
        metavar="DIR",
        help="Start from this savepoint or checkpoint; 'latest': from the newest one of the job that wrote "
        "last to where the sinks do.",
    ),
]
Cancels: TypeAlias = Annotated[
    bool,
    typer.Option(
        "-sae",
        "--shutdown-on-attached-exit",
        help="Ctrl-C and SIGTERM cancel the job, which else goes on in its cluster.",
    ),
]


def run(  # noqa: PLR0917  # typer passes them by name
    function: Pipeline,
    target: Annotated[
        str | None,
        typer.Option("-t", "--target", help="spark (the default if installed), local or remote."),
    ] = None,
    parallelism: Parallelism = None,
    savepoint: StartFrom = None,
    allow_non_restored: AllowNonRestored = False,
    name: Annotated[str | None, typer.Option("--name", help="Name of the job.")] = None,
    request_id: Annotated[
        str | None,
        typer.Option("--request-id", metavar="ID", help="Submissions with the same id start one job."),
    ] = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Return when the job is accepted; it keeps running.")
    ] = False,
    cancels: Cancels = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline."""
    from unistream.api.environment import Environment
    from unistream.client.job.submission import submit, to_stderr, to_stdout

    log_to_stderr(verbose)
    runs_on = checked_target(target, detached=detached, jobmanager=jobmanager)
    options = layered_options(defines, parallelism, jobmanager)
    environment = Environment(options, target=runs_on)
    build(load_function(function), environment)
    savepoint = _found(environment, name) if savepoint == LATEST else savepoint
    environment.check_new_lines(savepoint=savepoint, request_id=request_id)
    request, frames = job_request(environment, name, detached=detached)
    request = _starting_from(request, savepoint, allow_non_restored=allow_non_restored)
    request = structs.replace(request, request_id=request_id, given=options.given.to_dict())
    if detached and runs_on != "remote":
        _run_in_background(runs_on, request, environment.config, verbose=verbose, as_json=as_json)
        return
    with frames.kept():
        show = to_stderr if as_json else to_stdout
        client = submit(request, target=runs_on, config=watched(environment.config, as_json), show=show)
        frames.remove_after(client, target=runs_on, config=environment.config)
    with client:
        if detached:
            _print_accepted(client, as_json)
        else:
            owns = runs_on != "remote"
            leaves = not owns and not cancels and not frames.staged
            attach(client, as_json, owns_cluster=owns, leaves=leaves, prints=True, at=jobmanager)


def _starting_from(
    request: SubmitRequest, savepoint: str | None, *, allow_non_restored: bool
) -> SubmitRequest:
    """The same job, from a snapshot, and no other one of its line."""
    return structs.replace(
        request,
        savepoint=absolute(savepoint),
        allow_non_restored=allow_non_restored,
        alone_in_line=savepoint is not None,
    )


def watched(config: Configuration, as_json: bool) -> Configuration:
    """The configuration of a cluster for one job that a person looks at: workers report more often, so that
    its progress moves."""
    is_given = config.to_dict().keys() & {HEARTBEAT_INTERVAL.key, HEARTBEAT_TIMEOUT.key}
    if is_given or as_json or not sys.stdout.isatty():
        return config
    return config.merged({HEARTBEAT_INTERVAL.key: WATCHED_HEARTBEAT})


def _found(environment: Environment, name: str | None) -> str | None:
    found = environment.latest_snapshot(name)
    report(
        f"goes on from {found}" if found else "starts from the beginning: there is no snapshot to go on from"
    )
    return found


def job_request(
    environment: Environment, name: str | None, *, detached: bool, bootstrap: BootstrapOrder | None = None
) -> tuple[SubmitRequest, Frames]:
    """The pipeline, packed, and its DataFrames, staged; warnings say what is dangerous in it."""
    from unistream.api.frames import refuse_detached
    from unistream.model.submission import SubmitRequest
    from unistream.worker.code import pack

    if detached:
        refuse_detached(environment.stream_graph(name))
    graph, code, frames = environment.staged_job_graph(name, bootstrap)
    for _, advice in environment.advice(graph):
        report(f"warning: {advice}")
    with frames.kept():
        artifact = pack(code, with_modules=True)
        pipeline = environment.packed_pipeline(name)
    config = environment.travelling()
    return SubmitRequest(graph=graph, artifact=artifact, config=config, pipeline=pipeline), frames


def checked_target(given: str | None, *, detached: bool, jobmanager: str | None = None) -> Target:
    """Raises ConfigError: there is no such target, its libraries are not installed, or it is not the cluster
    at `jobmanager`."""
    if jobmanager is not None and given not in (None, "remote"):
        raise ConfigError(
            f"-m names a running cluster, and -t {given} starts one for this job: give one of them"
        )
    target = known_target(chosen_target(given if jobmanager is None else "remote"))
    if target == SPARK:
        require(SPARK, "the target spark")
    if detached and target != "remote":
        require("server", "run --detached")
    return target


def _run_in_background(
    target: str, request: SubmitRequest, config: Configuration, *, verbose: bool, as_json: bool
) -> None:
    """`config`: of its cluster."""
    from unistream.cli.application import Application, ApplicationRefused
    from unistream.cli.detached import start

    application = Application(target=target, config=config.to_dict(), request=request, verbose=verbose)
    started = start(application)
    if isinstance(started, ApplicationRefused):
        complain(started.message)
        raise typer.Exit(started.code)
    if as_json:
        print_json(started)
        return
    out = console()
    out.print(f"job {started.job} was accepted; it runs in process {started.pid} on {started.url}")
    out.print(f"log: {started.log}", markup=False)


def _print_accepted(client: JobClient, as_json: bool) -> None:
    if as_json:
        print_json({"job": client.job_id, "url": client.rest_url})
    else:
        console().print(f"job {client.job_id} was accepted")


def attach(
    client: JobClient,
    as_json: bool,
    *,
    owns_cluster: bool,
    prints: bool,
    leaves: bool = False,
    at: str | None = None,
) -> JobResult:
    """Waits for the end; the exit code says how the job ended. With `owns_cluster` Ctrl-C and SIGTERM end the
    cluster, which suspends the job, and a second signal ends it at once; without it they cancel the job, or,
    with `leaves`, this command alone. `prints`: the result, which is returned if the job has succeeded.
    `at`: where the user has said that its cluster is."""
    if not as_json:
        _print_accepted(client, as_json=False)
    shows = sys.stdout.isatty() and not as_json
    if owns_cluster:
        result = _wait_as_owner(client, shows=shows)
    else:
        result = _wait_as_guest(client, shows=shows, leaves=leaves)
    if prints and as_json:
        print_json(result)
    elif prints:
        print_result(result)
    if not result.is_success:
        for line in why_failed(result, at, for_people=not as_json):
            report(line)
        raise typer.Exit(JOB_FAILED)
    return result


def why_failed(result: JobResult, at: str | None = None, *, for_people: bool = True) -> Iterator[str]:
    """What the user's code raised, what the job says of it, and the command that shows more."""
    failure = result.failure
    if for_people and failure is not None and failure.user_traceback:
        yield failure.user_traceback.rstrip()
    why = "" if failure is None else f": {failure.message}"
    yield f"error: job {result.name!r} ended as {result.state}{why}"
    if for_people and failure is not None:
        where = "" if at is None else f" -m {at}"
        yield f"more: unistream exceptions {result.job[:ID_CHARS]}{where}"


def _wait_as_owner(client: JobClient, *, shows: bool) -> JobResult:
    from unistream.client.embedded.embedded_job import EmbeddedJobClient

    noticed = _Noticed(_ended)
    with StopSignals(noticed.notice) as ending:
        try:
            return _wait(client, noticed, shows=shows)
        except _Ended as ended:
            complain(f"{ended}; suspending job {client.job_id}; {SECOND_ENDS}")
            if isinstance(client, EmbeddedJobClient):
                ending.abandon = client.abandon
            client.close()  # here, where a second signal is handled
            raise typer.Exit(ending.exit_code or INTERRUPTED) from None


def _wait_as_guest(client: JobClient, *, shows: bool, leaves: bool) -> JobResult:
    noticed = _Noticed(lambda _number: KeyboardInterrupt())
    before = {
        number: signal.signal(number, lambda found, _frame: noticed.notice(found))
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # as a shell starts its jobs in the background
    }
    try:
        return _wait(client, noticed, shows=shows)
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, before.get(signal.SIGINT, signal.SIG_IGN))  # a second one ends the wait
        if leaves:
            job = client.job_id
            complain(
                f"interrupted; job {job} goes on in its cluster: 'unistream stop {job[:8]}' ends it with a "
                f"savepoint, 'unistream cancel {job[:8]}' without"
            )
        else:
            _cancel(client)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(client: JobClient, noticed: _Noticed, *, shows: bool) -> JobResult:
    """Waits for the end; meanwhile reports each failure that the job survives; `shows`: also its progress.

    Raises:
        Unreachable: its cluster does not answer any more.
        OutcomeUnknown: its cluster was started again and does not know it.
    """
    from unistream.cli.progress import ProgressLine, Restarts

    restarts = Restarts()
    with ProgressLine(client.status()) if shows else nullcontext() as progress:
        result: JobResult | None = None
        while result is None:
            noticed.check()
            with suppress(TimeoutError):
                result = client.wait(POLL_S)
            try:
                info = client.status()
            except (NotFound, Unreachable):  # `wait` knows how long this may last
                continue
            if progress is not None:
                progress.update(info)
            for line in restarts.new_lines(info):
                report(line)
    return result


def _cancel(client: JobClient) -> None:
    complain(f"interrupted; cancelling job {client.job_id}; a second Ctrl-C does not wait for its end")
    try:
        client.cancel()
        client.wait(CANCEL_WAIT_S)
    except AlreadyEnded:
        return
    except (TimeoutError, Unreachable) as error:
        complain(f"job {client.job_id} may still run: {error}")


class _Noticed:
    """A signal, which is raised in what the main thread does. Python ignores an exception in some places,
    such as a weak reference's callback while a module is imported; so who waits checks, too.

    Args:
        error: Makes the exception, from the number of the signal.
    """

    def __init__(self, error: Callable[[int], BaseException]) -> None:
        self._error = error
        self._number = 0

    def notice(self, number: int) -> None:
        self._number = number
        self.check()

    def check(self) -> None:
        """Raises the exception if there was a signal."""
        if self._number:
            raise self._error(self._number)


class _Ended(BaseException):
    """A signal was received."""


def _ended(number: int) -> _Ended:
    return _Ended("interrupted" if number == signal.SIGINT else "terminated")
