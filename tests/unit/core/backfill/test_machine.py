"""What a backfill does next, and that it is done once whenever it is killed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from msgspec import structs

from unistream.base.errors import ProtocolError
from unistream.core.backfill import (
    TRANSITIONS,
    Abandoned,
    Attempted,
    BackfillEnded,
    BackfillPhase,
    BackfillProgress,
    Command,
    Event,
    Replaced,
    Resumed,
    Staged,
    StagedFile,
    Stopped,
    TableFenced,
    Verdict,
    applied,
    begun,
    next_command,
)

FILE = StagedFile(path="part-0.parquet", size=10, rows=3)
EVENTS: list[Event] = [
    Stopped(savepoint="s"),
    TableFenced(table_id="t", version=4, rows=2, watermark_ms=99),
    Attempted(),
    Staged(files=(FILE,), rows_outside=1),
    Replaced(version=5),
    Abandoned(verdict=Verdict.REFUSED, reason="changed"),
    Resumed(job="j"),
    BackfillEnded(reason="not stopped"),
]
PAIRS = [(phase, event) for phase in BackfillPhase for event in EVENTS]


@pytest.mark.parametrize(
    ("phase", "abort", "attempted", "command"),
    [
        (BackfillPhase.STOPPING, False, False, Command.STOP_JOB),
        (BackfillPhase.STOPPING, True, False, Command.STOP_JOB),
        (BackfillPhase.STOPPED, False, False, Command.FENCE),
        (BackfillPhase.STOPPED, True, False, Command.ABANDON),
        (BackfillPhase.FENCED, False, False, Command.ATTEMPT),
        (BackfillPhase.FENCED, True, False, Command.ABANDON),
        (BackfillPhase.COMPUTING, False, True, Command.COMPUTE),
        (BackfillPhase.COMPUTING, False, False, Command.ATTEMPT),
        (BackfillPhase.COMPUTING, True, True, Command.ABANDON),
        (BackfillPhase.STAGED, False, True, Command.REPLACE),
        (BackfillPhase.STAGED, True, False, Command.CHECK),
        (BackfillPhase.REPLACED, False, False, Command.RESUME),
        (BackfillPhase.REPLACED, True, False, Command.RESUME),
        (BackfillPhase.GIVEN_UP, False, False, Command.RESUME),
        (BackfillPhase.ENDED, False, False, Command.END),
        (BackfillPhase.ENDED, True, False, Command.END),
    ],
)
def test_the_next_command(phase: BackfillPhase, abort: bool, attempted: bool, command: Command) -> None:
    assert next_command(BackfillProgress(phase=phase), abort=abort, attempted=attempted) is command


@pytest.mark.parametrize(("phase", "event"), PAIRS, ids=lambda one: getattr(one, "value", type(one).__name__))
def test_an_event_moves_the_phase_or_is_a_defect(phase: BackfillPhase, event: Event) -> None:
    after = TRANSITIONS[type(event)].get(phase)
    if after is None:
        with pytest.raises(ProtocolError, match=phase.value):
            applied(BackfillProgress(phase=phase), event)
    else:
        assert applied(BackfillProgress(phase=phase), event).phase is after


def test_the_progress_of_a_backfill_holds_what_later_steps_need() -> None:
    progress = begun(stops_job=True)
    for event in (*EVENTS[:5], Resumed(job="j")):
        progress = applied(progress, event)
    assert progress == BackfillProgress(
        phase=BackfillPhase.ENDED,
        verdict=Verdict.REPLACED,
        savepoint="s",
        watermark_ms=99,
        table_id="t",
        fence_version=4,
        rows_before=2,
        attempt=1,
        staged=(FILE,),
        rows_outside=1,
        version=5,
        resumed_job="j",
    )
    assert progress.rows_staged == 3


def test_without_a_job_nothing_is_stopped() -> None:
    assert next_command(begun(stops_job=False)) is Command.FENCE


@dataclass
class World:
    """A job, a table and folders that only forget what a process had in memory."""

    runs: bool = True
    savepoints: int = 0
    replacements: int = 0
    resumes: int = 0
    folders: set[int] = field(default_factory=set)
    changed: bool = False

    def perform(self, command: Command, progress: BackfillProgress, *, abort: bool) -> Event:
        given_up = Abandoned(verdict=Verdict.ABORTED, reason="given up")
        match command:
            case Command.STOP_JOB:
                return self._stop(abort=abort)
            case Command.COMPUTE:
                assert progress.attempt not in self.folders, "two attempts in one folder"
                self.folders.add(progress.attempt)
                return Staged(files=(FILE,), rows_outside=0)
            case Command.REPLACE:
                return self._replace()
            case Command.CHECK:
                return Replaced(version=5) if self.replacements else given_up
            case Command.RESUME:
                self.resumes += not self.runs
                self.runs = True
                return Resumed(job="j")
        fenced = TableFenced(table_id="t", version=4, rows=2, watermark_ms=99)
        return {Command.FENCE: fenced, Command.ATTEMPT: Attempted(), Command.ABANDON: given_up}[command]

    def _stop(self, *, abort: bool) -> Event:
        if abort and self.runs:
            return BackfillEnded(reason="not stopped")
        self.savepoints += self.runs
        self.runs = False
        return Stopped(savepoint="s")

    def _replace(self) -> Event:
        if self.changed and not self.replacements:
            return Abandoned(verdict=Verdict.REFUSED, reason="changed")
        self.replacements = self.replacements or 1
        return Replaced(version=5)


class Killed(Exception):
    """The process has died."""


def one_life(world: World, journal: list[BackfillProgress], *, abort: bool, deadly: int | None) -> None:
    """A process that dies at point `deadly`: before or after the record of a step."""
    points = iter(range(1_000))
    attempted = False
    while (command := next_command(journal[-1], abort=abort, attempted=attempted)) is not Command.END:
        event = world.perform(command, journal[-1], abort=abort)
        if next(points) == deadly:
            raise Killed
        journal.append(applied(journal[-1], event))
        if next(points) == deadly:
            raise Killed
        attempted = attempted or isinstance(event, Attempted)


@pytest.mark.parametrize("changed", [False, True], ids=["", "changed meanwhile"])
@pytest.mark.parametrize("abort", [False, True], ids=["goes on", "aborts"])
@pytest.mark.parametrize("first", range(12))
@pytest.mark.parametrize("second", [None, *range(12)])
def test_two_kills_anywhere_replace_at_most_once_and_the_job_runs_again(
    first: int, second: int | None, abort: bool, changed: bool
) -> None:
    world, journal = World(changed=changed), [begun(stops_job=True)]
    try:
        one_life(world, journal, abort=False, deadly=first)
        one_life(world, journal, abort=abort, deadly=second)
    except Killed:
        pass
    for _ in range(2):
        try:
            one_life(world, journal, abort=abort, deadly=second)
        except Killed:
            continue
    one_life(world, journal, abort=abort, deadly=None)
    last = journal[-1]
    assert last.phase is BackfillPhase.ENDED
    assert world.runs
    assert world.savepoints <= 1
    assert world.resumes == world.savepoints
    assert (last.verdict is Verdict.REPLACED) == bool(world.replacements)
    if not abort and not changed:
        assert world.replacements == 1


def test_an_attempt_of_a_killed_process_is_not_used_again() -> None:
    progress = structs.replace(begun(stops_job=False), phase=BackfillPhase.COMPUTING, attempt=3)
    assert next_command(progress, attempted=False) is Command.ATTEMPT
    assert applied(progress, Attempted()).attempt == 4
