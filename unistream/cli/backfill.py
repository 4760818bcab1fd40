"""`unistream backfill`: results of a range of time, computed again and replaced in one transaction."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unistream.api.load import build
from unistream.base.config import parse_duration_ms
from unistream.base.errors import ConfigError, NotFound, UnistreamError, Unreachable
from unistream.cli.backfill_output import (
    BackfillOutput,
    go_on_command,
    how_it_stands,
    how_to_go_on,
    print_plan,
    step_line,
)
from unistream.cli.errors import (
    INTERRUPTED,
    JOB_FAILED,
    complain,
    exit_code,
    log_to_stderr,
    sentence,
)
from unistream.cli.jobs import absolute
from unistream.cli.load import load_function
from unistream.cli.options import AsJson, Defines, Job, JobManager, Parallelism, Verbose, layered_options
from unistream.cli.output import console, print_json

if TYPE_CHECKING:
    from unistream.api.environment import Environment
    from unistream.backfill.journal import BackfillJournal
    from unistream.backfill.pipeline import Recomputation
    from unistream.backfill.prepare import Wanted
    from unistream.base.config import Configuration
    from unistream.base.config_file import LayeredConfig
    from unistream.core.backfill import BackfillProgress
    from unistream.model.submission import SubmitRequest


PipelineOf = Annotated[
    str | None, typer.Option("--pipeline", metavar="MODULE:FUNCTION", help="The pipeline of the job.")
]
Begin = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="First time of the range, such as 2026-01-01.")
]
End = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="End of the range, which is not in it.")
]
SinkUid = Annotated[
    str | None, typer.Option("--sink", metavar="UID", help="Which table, if the pipeline has several.")
]
Column = Annotated[
    str | None,
    typer.Option("--column", metavar="NAME", help="The column with the time of a result (window_start)."),
]
Lookback = Annotated[
    str | None,
    typer.Option(
        "--lookback", metavar="DURATION", help="How far from a result its events can be; else by windows."
    ),
]
Complete = Annotated[
    bool, typer.Option("--history-complete", help="Do not compare the history with the range.")
]
Offline = Annotated[
    bool, typer.Option("--offline", help="The job does not run: nothing is stopped or resumed.")
]
Target = Annotated[
    str | None, typer.Option("-t", "--target", help="Where the range is computed: spark, local or remote.")
]
State = Annotated[
    str | None, typer.Option("--state", metavar="DIR", help="Folder for the journal of the backfill.")
]
SavepointPath = Annotated[
    str | None, typer.Option("--savepoint-path", metavar="DIR", help="Where the job's savepoint is made.")
]
Abort = Annotated[
    bool, typer.Option("--abort", help="Give an unfinished backfill up: resume the job, replace nothing.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be replaced.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BackfillArguments:
    """What the command line says of the backfill."""

    job: str
    pipeline: str | None
    begin: str | None
    end: str | None
    sink: str | None
    column: str | None
    lookback: str | None
    complete: bool
    offline: bool
    target: str | None
    savepoint_path: str | None
    options: LayeredConfig


def backfill(  # noqa: PLR0917  # typer passes them by name
    job: Job,
    pipeline: PipelineOf = None,
    begin: Begin = None,
    end: End = None,
    sink: SinkUid = None,
    column: Column = None,
    lookback: Lookback = None,
    complete: Complete = False,
    offline: Offline = False,
    target: Target = None,
    parallelism: Parallelism = None,
    jobmanager: JobManager = None,
    defines: Defines = None,
    state: State = None,
    savepoint_path: SavepointPath = None,
    abort: Abort = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compute results of a range of time again from the history, and replace them in the table.

    The job is stopped with a savepoint, the range is replaced in one transaction, and the job resumes from
    the savepoint. After a kill, the same command goes on where it stopped.
    """
    log_to_stderr(verbose)
    asked = _BackfillArguments(
        job=job,
        pipeline=pipeline,
        begin=begin,
        end=end,
        sink=sink,
        column=column,
        lookback=lookback,
        complete=complete,
        offline=offline,
        target=target,
        savepoint_path=absolute(savepoint_path),
        options=layered_options(defines, parallelism, jobmanager),
    )
    _go_on_or_begin(asked, state, abort=abort, dry_run=dry_run, as_json=as_json)


def _go_on_or_begin(
    asked: _BackfillArguments, state: str | None, *, abort: bool, dry_run: bool, as_json: bool
) -> None:
    from unistream.backfill.journal import JobLock, options_of, unfinished
    from unistream.client.machine import home

    root = Path(state).absolute() if state is not None else home.home() / home.BACKFILLS
    begun = unfinished(root, asked.job)
    name = begun.order.job_name if begun is not None else _name(asked)
    with JobLock(root, name):
        begun = unfinished(root, name)
        if begun is not None:
            _check_same(begun, asked)
            if dry_run:
                raise ConfigError(how_it_stands(begun))
            environment = _environment(begun.order.pipeline, options_of(begun.order))
            _work(begun, environment, _found(begun, environment), abort=abort, as_json=as_json)
        elif abort:
            raise NotFound(f"there is no unfinished backfill of job {asked.job!r} in {root}")
        else:
            _begin(root, asked, name, dry_run=dry_run, as_json=as_json)


def _begin(root: Path, asked: _BackfillArguments, name: str, *, dry_run: bool, as_json: bool) -> None:
    from unistream.backfill.jobs import running_job
    from unistream.backfill.prepare import prepare

    wanted = _wanted(asked)
    environment = _environment(wanted.pipeline, asked.options)
    running = None if asked.offline else running_job(asked.options.as_client(), asked.job)
    prepared = prepare(environment, wanted, name, running)
    if not as_json:
        print_plan(prepared.plan)
    if not dry_run:
        _work(prepared.begin(root), environment, prepared.found, abort=False, as_json=as_json)
    elif as_json:
        print_json(prepared.plan)
    else:
        console().print("nothing was changed (--dry-run)")


def _work(
    journal: BackfillJournal, environment: Environment, found: Recomputation, *, abort: bool, as_json: bool
) -> None:
    """Runs the backfill to its end, or says how to go on."""
    from unistream.backfill.reports import report, reporter_of
    from unistream.backfill.run import BackfillRun

    show = BackfillOutput(quiet=as_json)
    reporter = reporter_of(journal, go_on_command(journal))

    def on_step(progress: BackfillProgress) -> None:
        show.step(progress)
        report(reporter, progress, step_line(progress))

    run = BackfillRun(
        journal=journal,
        environment=environment,
        found=found,
        target=journal.order.target,
        start_in_background=_start_in_background,
        on_step=on_step,
        on_job=show.job,
    )
    try:
        with _interruptible(), show, reporter:
            progress = run.to_end(abort=abort)
    except KeyboardInterrupt:
        complain(f"interrupted; {how_it_stands(journal)}")
        raise typer.Exit(INTERRUPTED) from None
    except UnistreamError as error:
        complain(f"{sentence(error)}; {how_it_stands(journal)}")
        raise typer.Exit(exit_code(error)) from None
    except OSError as error:  # of a disk or a store, in the middle of a file
        complain(f"{type(error).__name__}: {error}; {how_it_stands(journal)}")
        raise typer.Exit(JOB_FAILED) from None
    _finish(journal, progress, as_json=as_json)


def _finish(journal: BackfillJournal, progress: BackfillProgress, *, as_json: bool) -> None:
    from unistream.core.backfill import Verdict

    replaced = progress.verdict is Verdict.REPLACED
    if as_json:
        print_json(_result(journal, progress))
    elif replaced:
        version = "" if progress.version is None else f" (version {progress.version})"
        console().print(
            f"replaced {progress.rows_before:,} rows by {progress.rows_staged:,} in {journal.order.table}"
            f"{version}",
            markup=False,
        )
    if not as_json and progress.resumed_job is not None:
        console().print(f"job {progress.resumed_job} resumed from {progress.savepoint}", markup=False)
    if progress.verdict is Verdict.REFUSED:
        complain(f"nothing was replaced: {progress.reason}")
        raise typer.Exit(JOB_FAILED)
    if not replaced and not as_json:
        console().print(f"nothing was replaced: {progress.reason}", markup=False)


def _result(journal: BackfillJournal, progress: BackfillProgress) -> dict[str, Any]:
    from unistream.core.backfill import Verdict

    order = journal.order
    replaced = progress.verdict is Verdict.REPLACED
    return {
        "backfill": order.id,
        "verdict": None if progress.verdict is None else progress.verdict.value,
        "reason": progress.reason,
        "table": order.table,
        "from_ms": order.range.begin_ms,
        "to_ms": order.range.end_ms,
        "fence_version": progress.fence_version,
        "version": progress.version,
        "rows_removed": progress.rows_before if replaced else 0,
        "rows_added": progress.rows_staged if replaced else 0,
        "rows_outside": progress.rows_outside,
        "savepoint": progress.savepoint,
        "job": progress.resumed_job,
    }


# --- arguments ------------------------------------------------------------------------------------


def _name(asked: _BackfillArguments) -> str:
    from unistream.backfill.jobs import running_job

    if asked.offline:
        return asked.job
    try:
        return running_job(asked.options.as_client(), asked.job).info.name
    except (NotFound, Unreachable) as error:
        text = f"{error}; if the job does not run and its table is quiet, give --offline"
        raise type(error)(text) from None


def _wanted(asked: _BackfillArguments) -> Wanted:
    from unistream.backfill.prepare import Wanted
    from unistream.client.embedded.hosts import chosen_target
    from unistream.model.time_range import TimeRange

    if asked.pipeline is None or asked.begin is None or asked.end is None:
        given = (("--pipeline", asked.pipeline), ("--from", asked.begin), ("--to", asked.end))
        missing = [option for option, value in given if value is None]
        raise ConfigError(f"a new backfill needs {', '.join(missing)}")
    return Wanted(
        range=TimeRange.parse(asked.begin, asked.end),
        pipeline=asked.pipeline,
        target=chosen_target(asked.target),
        sink=asked.sink,
        column=asked.column,
        lookback_ms=None if asked.lookback is None else parse_duration_ms(asked.lookback),
        savepoint_root=asked.savepoint_path,
        complete=asked.complete,
    )


def _check_same(begun: BackfillJournal, asked: _BackfillArguments) -> None:
    """Raises ConfigError if the command asks for something else than the unfinished backfill."""
    from unistream.model.time_range import TimeRange

    order = begun.order
    other = asked.pipeline not in (None, order.pipeline)
    if asked.begin is not None and asked.end is not None:
        other = other or TimeRange.parse(asked.begin, asked.end) != order.range
    if other:
        raise ConfigError(
            f"job {order.job_name!r} has an unfinished backfill of another range or pipeline "
            f"({order.range.text}, {order.pipeline}): {how_to_go_on(begun)}"
        )


def _environment(pipeline: str, options: LayeredConfig) -> Environment:
    from unistream.api.environment import Environment

    environment = Environment(options, target="remote")  # that of the job
    build(load_function(pipeline), environment)
    return environment


def _found(begun: BackfillJournal, environment: Environment) -> Recomputation:
    from unistream.backfill.pipeline import recomputation

    order = begun.order
    return recomputation(
        environment, sink=order.sink or None, column=order.column, lookback_ms=order.lookback_ms
    )


def _start_in_background(request: SubmitRequest, target: str, config: Configuration) -> str:
    from unistream.cli.application import Application, ApplicationRefused
    from unistream.cli.detached import start

    started = start(Application(target=target, config=config.to_dict(), request=request))
    if isinstance(started, ApplicationRefused):
        raise ConfigError(started.message)
    return started.job


# --- signals ---------------------------------------------------------------------------------------


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM is handled as Ctrl-C."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
