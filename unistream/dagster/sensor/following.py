"""What a tick says of the streams that it follows, next to their commits: decided without I/O.

    the job of a stream is another one, or has ended      an observation of each of its assets, once
    an asset has a newer materialisation than its checks  each of its checks: Dagster shows no result of
                                                          a check that is older
    a check has changed                                   all of that asset
    an hour has passed                                    the same, so that a result is never an old one

Who knows the job may be away for a moment: nothing is said of its streams for `SILENT_MS`, and then that they
are not known. What was reported is remembered in the cursor of the sensor. A daemon may die after it has
stored the events and before it has stored the cursor: observations are looked for in the event log before
they are reported, and checks are reported again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from unistream.base.ids import JobId
from unistream.dagster.run.seen import NoJob, NotSeen, Seen, SeenJob, state_text
from unistream.dagster.sensor.judging import CheckVerdict
from unistream.model.job_info import JobInfo

SILENT_MS: Final = 60_000
"""How long the cluster that knows the job may be silent: two ticks, and longer than another leader takes to
come."""

REPEATED_MS: Final = 3_600_000

GONE: Final = "GONE"
"""What stands instead of a state: no job is there any more."""


class ReportedStream(msgspec.Struct, frozen=True):
    """What the events say of a stream.

    Attributes:
        job: The last one; empty: none yet.
        end: Its state, if it has ended; empty: it runs.
        silent_ms: Since when nobody knows it; None: it was seen by the last tick.
    """

    job: str = ""
    end: str = ""
    silent_ms: int | None = None


class Checked(msgspec.Struct, frozen=True):
    """The last results of the checks of an asset.

    Attributes:
        mark: The newest materialisation of the asset at that time, by its number in the event log; empty:
            there was none.
        results: Of all of them.
        at_ms: When.
    """

    mark: str = ""
    results: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class StreamChange:
    """What is to be reported of a stream. `state`: of a job, or GONE; `info`: None: nobody knows the job."""

    job: JobId
    state: str
    text: str
    info: JobInfo | None = None


def changes(
    reported: ReportedStream, seen: Seen, former: JobInfo | None, now_ms: int
) -> tuple[list[StreamChange], ReportedStream]:
    """What is to be reported, oldest first, and what is reported then.

    Args:
        reported: Before.
        seen: Of the stream, now.
        former: The job of `reported` as it is known now, if `seen` is another one; None: nobody knows it.
        now_ms: Wall clock.
    """
    if isinstance(seen, NotSeen):
        silent_ms = now_ms if reported.silent_ms is None else reported.silent_ms
        return [], msgspec.structs.replace(reported, silent_ms=silent_ms)
    if isinstance(seen, NoJob):
        if not reported.job or reported.end:
            return [], ReportedStream(reported.job, reported.end)
        text = f"job {reported.job} is not there any more: {seen.why}"
        return [StreamChange(JobId(reported.job), GONE, text)], ReportedStream(reported.job, GONE)
    info, changed = seen.info, list[StreamChange]()
    if is_followed(reported, seen):
        changed += _end_of(JobId(reported.job), former, info.job)
    now = ReportedStream(info.job, info.state if info.is_terminal else "")
    if (reported.job, reported.end) != (now.job, now.end):
        changed.append(StreamChange(info.job, info.state, state_text(info), info))
    return changed, now


def is_followed(reported: ReportedStream, seen: Seen) -> bool:
    """Another job has come, and the end of the one before it is not reported."""
    return (
        isinstance(seen, SeenJob)
        and bool(reported.job)
        and not reported.end
        and reported.job != seen.info.job
    )


def _end_of(job: JobId, former: JobInfo | None, next_job: JobId) -> list[StreamChange]:
    if former is None:
        return [
            StreamChange(
                job, GONE, f"job {job} was followed by job {next_job}; how it has ended is not known"
            )
        ]
    if not former.is_terminal:  # it writes other tables now
        return []
    return [StreamChange(job, former.state, state_text(former), former)]


def is_due(before: Checked, now: Checked, reported: ReportedStream, seen: Seen) -> bool:
    """Whether the results of the checks of an asset are reported now.

    Args:
        before: What was reported before.
        now: What would be reported.
        reported: Of its stream, as of now.
        seen: The same.
    """
    if isinstance(seen, NotSeen) and now.at_ms - (reported.silent_ms or now.at_ms) < SILENT_MS:
        return False
    if isinstance(seen, NoJob) and not (reported.job or now.mark):  # nobody has started it yet
        return False
    is_old = now.at_ms - before.at_ms >= REPEATED_MS
    return is_old or (before.mark, before.results) != (now.mark, now.results)


def results_text(verdicts: Mapping[str, CheckVerdict]) -> str:
    """How the checks have ended, for `Checked`.

    >>> lag, restarts = CheckVerdict(True, "level", {}), CheckVerdict(False, "3 restarts", {})
    >>> results_text({"lag": lag, "restarts": restarts})
    'lag=passed restarts=WARN'
    """
    return " ".join(f"{name}={one.result}" for name, one in verdicts.items())


def reported_text(rows: Mapping[str, tuple[int, int]], sentences: list[str], checks: int) -> str:
    """What a tick has reported, for people; empty: nothing.

    Args:
        rows: (rows, commits) by asset.
        sentences: About jobs.
        checks: How many results.

    >>> reported_text({"orders": (1200, 3)}, [], 2)
    'orders: 1,200 rows of 3 commits; 2 results of checks'
    """
    found = [f"{key}: {new:,} rows of {_many(commits, 'commit')}" for key, (new, commits) in rows.items()]
    found += sentences
    return "; ".join([*found, *([_many(checks, "result") + " of checks"] if checks else [])])


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
