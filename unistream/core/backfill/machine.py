"""What a backfill does next. Events in, progress out; the progress is what the journal stores.

    STOPPING ─► STOPPED ─► FENCED ─► COMPUTING ─► STAGED ─► REPLACED ─► ENDED
       │           │          │          │          │                     ▲
       │           └──────────┴──────────┴──────────┴───► GIVEN_UP ───────┘
       └──────────────────────────────────────────────────────────────────┘ the job was never stopped

Each command may be repeated: the progress is stored after it is done, so a process that was killed repeats
the last one, or finds it done.

    StopJob      the job runs: stop it with a savepoint; it has ended: that savepoint
    Fence        commit what the savepoint lists as pending; then the version of the table is the fence
    Attempt      number the computation, so that two never write to one folder
    Compute      the results of the range, into that folder
    Replace      one transaction with the id of the backfill; found in the table: it is done
    Check        only the second half of that, when the backfill is to be given up
    Resume       the job from the savepoint, by a request id: it runs already, or is started
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

import msgspec
from msgspec import structs

from unistream.base.errors import ProtocolError


class BackfillPhase(Enum):
    """What is certainly done."""

    STOPPING = "stopping"  # nothing; the job may have been asked to stop
    STOPPED = "stopped"  # the job has ended with a savepoint, or there was none to stop
    FENCED = "fenced"  # its output is in the table, whose version is known
    COMPUTING = "computing"  # an attempt has a number
    STAGED = "staged"  # the new rows are in files; they may be in the table
    REPLACED = "replaced"  # they are
    GIVEN_UP = "given up"  # they are not, and never will be
    ENDED = "ended"


class Verdict(Enum):
    """How a backfill ends."""

    REPLACED = "replaced"
    ABORTED = "aborted"
    REFUSED = "refused"


class Command(Enum):
    """See the module."""

    STOP_JOB = "stop the job"
    FENCE = "fence the table"
    ATTEMPT = "number the attempt"
    COMPUTE = "compute the range"
    REPLACE = "replace the range"
    CHECK = "look for the replacement"
    RESUME = "resume the job"
    ABANDON = "give up"
    END = "end"


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """`path`: relative to the folder of the attempt. `size`: bytes."""

    path: str
    size: int
    rows: int


class BackfillProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill so far. What is None is not known yet, or never will be.

    Attributes:
        savepoint: From which the job resumes.
        watermark_ms: Of the job at the fence.
        table_id, fence_version: The table at the fence.
        attempt: Number of the computation; its folder is named after it.
        rows_outside: Results that were computed and are not in the range.
        rows_removed, version: Of the replacement.
        reason: Why it was given up.
        resumed_job: Id of the job that goes on.
    """

    phase: BackfillPhase
    verdict: Verdict | None = None
    savepoint: str | None = None
    watermark_ms: int | None = None
    table_id: str | None = None
    fence_version: int | None = None
    rows_before: int | None = None
    attempt: int = 0
    staged: tuple[StagedFile, ...] = ()
    rows_outside: int = 0
    version: int | None = None
    reason: str = ""
    resumed_job: str | None = None

    @property
    def rows_staged(self) -> int:
        return sum(file.rows for file in self.staged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The job has ended with `savepoint`; None: there was no job to stop."""

    savepoint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFenced:
    """All output of the job is in the table; `rows`: those of the range in it now."""

    table_id: str
    version: int
    rows: int
    watermark_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """A new folder belongs to this attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """All new rows are in durable files."""

    files: tuple[StagedFile, ...]
    rows_outside: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The table has the new rows; `version`: since when, if that is known."""

    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The table certainly does not have the new rows."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The job runs again as `job`; None: there was none to resume."""

    job: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillEnded:
    """The job was never stopped, and nothing was done."""

    reason: str


Event = Stopped | TableFenced | Attempted | Staged | Replaced | Abandoned | Resumed | BackfillEnded

_GIVE_UP: Final = frozenset(
    {BackfillPhase.STOPPED, BackfillPhase.FENCED, BackfillPhase.COMPUTING, BackfillPhase.STAGED}
)
TRANSITIONS: Final[Mapping[type[Event], Mapping[BackfillPhase, BackfillPhase]]] = {
    Stopped: {BackfillPhase.STOPPING: BackfillPhase.STOPPED},
    TableFenced: {BackfillPhase.STOPPED: BackfillPhase.FENCED},
    Attempted: {
        BackfillPhase.FENCED: BackfillPhase.COMPUTING,
        BackfillPhase.COMPUTING: BackfillPhase.COMPUTING,
    },
    Staged: {BackfillPhase.COMPUTING: BackfillPhase.STAGED},
    Replaced: {BackfillPhase.STAGED: BackfillPhase.REPLACED},
    Abandoned: dict.fromkeys(_GIVE_UP, BackfillPhase.GIVEN_UP),
    Resumed: {BackfillPhase.REPLACED: BackfillPhase.ENDED, BackfillPhase.GIVEN_UP: BackfillPhase.ENDED},
    BackfillEnded: {BackfillPhase.STOPPING: BackfillPhase.ENDED},
}
"""Event -> phase before -> phase after; what is missing is a defect."""


def begun(*, stops_job: bool) -> BackfillProgress:
    """The first progress."""
    return BackfillProgress(phase=BackfillPhase.STOPPING if stops_job else BackfillPhase.STOPPED)


def next_command(progress: BackfillProgress, *, abort: bool = False, attempted: bool = False) -> Command:
    """What to do now.

    Args:
        progress: As the journal has it.
        abort: The user gives it up.
        attempted: The number of the attempt was given by this process. One of a killed process may still be
            written to, so it is not used again.
    """
    match progress.phase:
        case BackfillPhase.STOPPING:
            return Command.STOP_JOB
        case BackfillPhase.STOPPED | BackfillPhase.FENCED | BackfillPhase.COMPUTING if abort:
            return Command.ABANDON
        case BackfillPhase.STOPPED:
            return Command.FENCE
        case BackfillPhase.FENCED:
            return Command.ATTEMPT
        case BackfillPhase.COMPUTING:
            return Command.COMPUTE if attempted else Command.ATTEMPT
        case BackfillPhase.STAGED:
            return Command.CHECK if abort else Command.REPLACE
        case BackfillPhase.REPLACED | BackfillPhase.GIVEN_UP:
            return Command.RESUME
        case BackfillPhase.ENDED:
            return Command.END
    assert_never(progress.phase)


def applied(progress: BackfillProgress, event: Event) -> BackfillProgress:
    """The progress after an event. Raises ProtocolError if the event cannot come now."""
    phase = TRANSITIONS[type(event)].get(progress.phase)
    if phase is None:
        raise ProtocolError(f"a backfill that is {progress.phase.value} cannot take {event!r}")
    after = structs.replace(progress, phase=phase)
    match event:
        case Stopped(savepoint=savepoint):
            return structs.replace(after, savepoint=savepoint)
        case TableFenced():
            return structs.replace(
                after,
                table_id=event.table_id,
                fence_version=event.version,
                rows_before=event.rows,
                watermark_ms=event.watermark_ms,
            )
        case Attempted():
            return structs.replace(after, attempt=progress.attempt + 1)
        case Staged(files=files, rows_outside=rows_outside):
            return structs.replace(after, staged=files, rows_outside=rows_outside)
        case Replaced(version=version):
            return structs.replace(after, version=version, verdict=Verdict.REPLACED)
        case Abandoned(verdict=verdict, reason=reason):
            return structs.replace(after, verdict=verdict, reason=reason)
        case Resumed(job=job):
            return structs.replace(after, resumed_job=job)
        case BackfillEnded(reason=reason):
            return structs.replace(after, verdict=Verdict.ABORTED, reason=reason)
    assert_never(event)
