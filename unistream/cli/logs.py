"""`unistream logs`: what the functions of a job have logged."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
import typer

from unistream.cli.errors import report
from unistream.cli.formats import moment
from unistream.cli.options import AsJson, Defines, Job, JobManager, configuration
from unistream.client.job.lookup import find_shown_job
from unistream.model.job_log_line import JobLogLine

POLL_S: Final = 1.0

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]


def logs(
    job: Job,
    follow: Follow = False,
    jobmanager: JobManager = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show what the functions of one job have logged, oldest first; with --json one line is one value.

    The newest thousand lines are kept; of a job that has ended those in the last 256 KiB.
    """
    seq, shown = 0, 0
    with find_shown_job(configuration(defines, jobmanager=jobmanager), job) as client:
        while True:
            has_ended = not follow or client.status().is_terminal
            lines = client.log(seq)
            _print(lines, as_json=as_json)
            shown += len(lines)
            seq = lines[-1].seq if lines else seq
            if has_ended:
                if not shown and not as_json:
                    report(
                        f"the functions of job {job!r} have logged nothing; why it failed is in 'exceptions'"
                    )
                return
            time.sleep(POLL_S)


def _print(lines: Iterable[JobLogLine], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            continue
        sys.stdout.write(logged(line) + "\n")
    sys.stdout.flush()


def logged(line: JobLogLine) -> str:
    """A line for people. A log is for other programs, too: no terminal makes it narrower."""
    lost = f"… {line.dropped:,} lines of {line.task} were dropped: it logs too much\n" if line.dropped else ""
    return f"{lost}{moment(line.at_ms)}  {line.level:<7} {line.task}  {line.logger}: {line.message}"
