"""What a command of a user does to a job in several steps, as it has reported it to the cluster.

    unistream backfill, unistream upgrade ──reports──► cluster ──► who looks at its pages

The truth is elsewhere: a backfill's in its journal, an upgrade's in what is kept of its jobs. A report is for
people alone, and nothing is decided by it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.base.ids import JobId

ID_CHARS_MAX: Final = 255
TEXT_CHARS_MAX: Final = 4_000
STEPS_MAX: Final = 20
UNREADABLE_SHOWN: Final = 3  # ids in a note


class ProcedureKind(Enum):
    """Which command it is."""

    BACKFILL = "backfill"
    UPGRADE = "upgrade"


class ProcedureState(Enum):
    """Where a procedure is. Of one that RUNS and has not reported for long, the process may have died."""

    RUNS = "RUNS"
    INTERRUPTED = "INTERRUPTED"  # it can go on
    DONE = "DONE"
    GIVEN_UP = "GIVEN_UP"  # the job goes on as it was

    @property
    def is_end(self) -> bool:
        return self in (ProcedureState.DONE, ProcedureState.GIVEN_UP)


class ProcedureReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a procedure is.

    Attributes:
        id: Of the backfill, or the request id of the upgrade.
        job_name: Name of the job, and of the one that replaces it.
        job: Its id at the begin; None: it did not run.
        subject: What is changed, for people: a range of a table, or a version.
        steps: All of them, for people, in their order.
        done: How many of them are done.
        text: What happened last, or why it was interrupted or given up.
        goes_on: The command that goes on with it, or gives it up; "": there is none.
    """

    id: str
    kind: ProcedureKind
    job_name: str
    steps: tuple[str, ...]
    done: int
    state: ProcedureState
    job: JobId | None = None
    subject: str = ""
    text: str = ""
    goes_on: str = ""


class Procedure(msgspec.Struct, frozen=True, kw_only=True):
    """The newest report of a procedure. Times are of the cluster's clock, when the first and the last report
    came, in ms since 1970."""

    report: ProcedureReport
    begun_ms: int
    reported_ms: int


class ListedProcedures(NamedTuple):
    """What is stored. `unreadable`: ids of those that another version of unistream has reported, in a way
    that this one does not know; they stay as they are."""

    procedures: tuple[Procedure, ...]
    unreadable: tuple[str, ...] = ()

    def notes(self, version: str) -> list[str]:
        """Sentences for people about what is not listed; none if all are.

        >>> ListedProcedures((), ("b-7",)).notes("1.2.0")[0][:51]
        "1 backfill or upgrade is not listed: 'b-7' was repo"
        """
        if not self.unreadable:
            return []
        number, shown = len(self.unreadable), ", ".join(map(repr, self.unreadable[:UNREADABLE_SHOWN]))
        more = ", …" if number > UNREADABLE_SHOWN else ""
        is_one = number == 1
        return [
            f"{number} {'backfill or upgrade is' if is_one else 'backfills or upgrades are'} not listed: "
            f"{shown}{more} {'was' if is_one else 'were'} reported by another version of unistream, "
            f"probably a later one, and this one ({version}) cannot read it. Nothing is lost: "
            "a cluster of that version lists it, and the command that has begun it goes on with it."
        ]


def merged(stored: ProcedureReport, reported: ProcedureReport) -> ProcedureReport:
    """What holds after another report of the same procedure, which may be late, or of a process that has been
    replaced: an end stays, and what is done is done.

    >>> half = ProcedureReport(id="b", kind=ProcedureKind.BACKFILL, job_name="j", steps=("stop", "replace"),
    ...                        done=1, state=ProcedureState.RUNS)
    >>> merged(half, structs.replace(half, done=0)).done
    1
    """
    if stored.state.is_end and not reported.state.is_end:
        return stored
    return structs.replace(reported, done=max(stored.done, reported.done))


def check_report(report: ProcedureReport) -> None:
    """Raises ConfigError: a text is too long, or has a NUL, or a step is done that there is not."""
    texts = [report.job_name, report.subject, report.text, report.goes_on, *report.steps]
    if not 0 < len(report.id) <= ID_CHARS_MAX:
        raise ConfigError(
            f"the id of a procedure has 1 to {ID_CHARS_MAX} characters, this one {len(report.id)}"
        )
    if any("\0" in text for text in (report.id, *texts)):
        raise ConfigError(f"procedure {report.id!r}: a text has a NUL character")
    if any(len(text) > TEXT_CHARS_MAX for text in texts):
        raise ConfigError(f"procedure {report.id!r}: a text has more than {TEXT_CHARS_MAX:,} characters")
    if not 1 <= len(report.steps) <= STEPS_MAX or not 0 <= report.done <= len(report.steps):
        raise ConfigError(
            f"procedure {report.id!r} has {len(report.steps)} steps, of which {report.done} are done: it has "
            f"1 to {STEPS_MAX}, and no more are done than there are"
        )
